/* Markdown's code fences, followed character by character: text inside is an example, not a call. */
#include "chat/output_impl.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The line so far would close the open fence. */
static bool closes(const struct fence *f)
{
    return f->open_run && f->phase != LINE_START && f->ch == f->open_ch && f->run >= f->open_run && f->rest_blank;
}

static void end_line(struct fence *f)
{
    if (closes(f)) {
        f->open_run = 0;
    } else if (!f->open_run && f->run >= 3 && !(f->ch == '`' && f->rest_tick)) {
        f->open_run = f->run;
        f->open_ch = f->ch;
    }
    f->phase = LINE_START;
    f->run = 0;
}

void fence_feed(struct fence *f, char c)
{
    if (c == '\n') {
        end_line(f);
        return;
    }
    switch (f->phase) {
    case LINE_START:
        if (is_blank(c)) return;
        f->rest_blank = true;
        f->rest_tick = false;
        if (c == '`' || c == '~') {
            f->phase = LINE_RUN;
            f->ch = c;
            f->run = 1;
            return;
        }
        f->phase = LINE_REST;
        f->rest_blank = false;
        return;
    case LINE_RUN:
        if (c == f->ch) {
            f->run++;
            return;
        }
        f->phase = LINE_REST;
        break;
    case LINE_REST:
        break;
    }
    if (!is_blank(c)) f->rest_blank = false;
    if (c == '`') f->rest_tick = true;
}

bool fence_is_open(const struct fence *f)
{
    return f->open_run && !closes(f);
}
