/* Word wrap for a stream. */
#include "wrap.h"

#include <string.h>
#include <wchar.h>

#include "base/utf8.h"

enum { TAB = 8, MIN_WIDTH = 20 };

void wrap_init(struct wrap *w)
{
    memset(w, 0, sizeof *w);
}

void wrap_width(struct wrap *w, int columns)
{
    /* The last column stays free: a cursor that waits behind it cannot be moved back in the same way everywhere. */
    w->width = columns > MIN_WIDTH ? columns - 1 : 0;
}

static void end_word(struct wrap *w)
{
    buf_clear(&w->word);
    w->word_cells = 0;
}

static void end_line(struct wrap *w)
{
    if (strncmp(w->mark, "```", 3) == 0) w->code = !w->code;
    memset(w->mark, 0, sizeof w->mark);
    w->column = 0;
    end_word(w);
}

static void note_mark(struct wrap *w, char c)
{
    size_t n = strlen(w->mark);
    if (n < sizeof w->mark - 1) w->mark[n] = c;
}

/* A character of a word. */
static void add_character(struct wrap *w, const char *s, size_t n, int cells, struct buf *out)
{
    bool full = w->width && !w->code && w->column + cells > w->width;
    if (full && w->word_cells < w->column) {
        if (w->word_cells) buf_printf(out, "\033[%dD\033[K", w->word_cells);
        buf_addc(out, '\n');
        buf_add(out, buf_str(&w->word), w->word.len);
        w->column = w->word_cells;
    } else if (full) {
        buf_addc(out, '\n'); /* a word as long as the line is broken where it is */
        w->column = 0;
        end_word(w);
    }
    buf_add(out, s, n);
    buf_add(&w->word, s, n);
    w->column += cells;
    w->word_cells += cells;
}

static void add_space(struct wrap *w, char c, struct buf *out)
{
    int cells = c == '\t' ? TAB - w->column % TAB : 1;
    end_word(w);
    if (w->width && !w->code && w->column + cells > w->width) {
        buf_addc(out, '\n');
        w->column = 0;
        return;
    }
    buf_addc(out, c);
    w->column += cells;
}

void wrap_text(struct wrap *w, const char *text, size_t n, struct buf *out)
{
    for (size_t used; n > 0; text += used, n -= used) {
        uint32_t c = utf8_decode(text, n, &used);
        if (c == '\n') {
            buf_addc(out, '\n');
            end_line(w);
        } else if (c == ' ' || c == '\t') {
            add_space(w, *text, out);
        } else {
            int cells = c < UTF8_PARTIAL ? wcwidth((wchar_t)c) : 1;
            note_mark(w, *text);
            add_character(w, text, used, cells < 0 ? 1 : cells, out);
        }
    }
}

void wrap_free(struct wrap *w)
{
    buf_free(&w->word);
}
