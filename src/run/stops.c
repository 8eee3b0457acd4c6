/* Stop strings, matched byte by byte with failure links. */
#include "run/stops.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

struct matcher {
    char *text; /* owned */
    int *fail;  /* owned; fail[i]: length of the longest proper prefix of text that ends text[0 … i] */
    int len;
    int state;  /* bytes of text that the input ends with */
};

struct stops {
    struct matcher m[MAX_STOP_STRINGS];
    int n;
    int matched;     /* the string that ended the text, or -1 */
    struct buf held; /* owned; text not shown yet: at most the longest match under way */
};

static void matcher_init(struct matcher *m, const char *text, size_t n)
{
    m->text = mem_dup(text, n);
    m->len = (int)n;
    m->state = 0;
    m->fail = mem_new(n * sizeof *m->fail);
    for (int i = 1, k = 0; i < m->len; i++) {
        while (k > 0 && text[i] != text[k]) k = m->fail[k - 1];
        if (text[i] == text[k]) k++;
        m->fail[i] = k;
    }
}

/* Takes one byte; true when the string is complete. */
static bool matcher_step(struct matcher *m, char c)
{
    while (m->state > 0 && (m->state == m->len || m->text[m->state] != c)) m->state = m->fail[m->state - 1];
    if (m->text[m->state] == c) m->state++;
    return m->state == m->len;
}

static bool valid_utf8(const char *s, size_t n)
{
    for (size_t used; n > 0; s += used, n -= used)
        if (utf8_decode(s, n, &used) >= UTF8_PARTIAL) return false;
    return true;
}

lily_status stops_new(const char *const *strings, int n, struct stops **out, struct lily_err *err)
{
    *out = NULL;
    if (n > MAX_STOP_STRINGS) LILY_FAIL(err, LILY_ERR_USAGE, "%d stop strings, at most %d are possible", n, MAX_STOP_STRINGS);
    for (int i = 0; i < n; i++) {
        size_t len = strlen(strings[i]);
        if (len == 0) LILY_FAIL(err, LILY_ERR_USAGE, "stop string %d is empty", i + 1);
        if (len > MAX_STOP_BYTES)
            LILY_FAIL(err, LILY_ERR_USAGE, "stop string %d has %zu bytes, at most %d are possible", i + 1, len, MAX_STOP_BYTES);
        if (!valid_utf8(strings[i], len)) LILY_FAIL(err, LILY_ERR_USAGE, "stop string %d is no valid UTF-8", i + 1);
    }
    struct stops *s = mem_new(sizeof *s);
    s->matched = -1;
    for (int i = 0; i < n; i++) matcher_init(&s->m[s->n++], strings[i], strlen(strings[i]));
    *out = s;
    return LILY_OK;
}

void stops_free(struct stops *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        free(s->m[i].text);
        free(s->m[i].fail);
    }
    buf_free(&s->held);
    free(s);
}

/* Moves the first n held bytes to out. */
static void release(struct stops *s, size_t n, struct buf *out)
{
    if (n == 0) return;
    buf_add(out, s->held.data, n);
    memmove(s->held.data, s->held.data + n, s->held.len - n + 1);
    s->held.len -= n;
}

bool stops_push(struct stops *s, const char *text, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        int match = 0;
        buf_addc(&s->held, text[i]);
        for (int j = 0; j < s->n; j++)
            if (matcher_step(&s->m[j], text[i]) && s->m[j].len > match) match = s->m[s->matched = j].len;
        if (match == 0) continue;
        release(s, s->held.len - (size_t)match, out);
        buf_clear(&s->held);
        return true;
    }
    int under_way = 0;
    for (int j = 0; j < s->n; j++)
        if (s->m[j].state > under_way) under_way = s->m[j].state;
    release(s, s->held.len - (size_t)under_way, out);
    return false;
}

void stops_flush(struct stops *s, struct buf *out)
{
    release(s, s->held.len, out);
}

int stops_matched(const struct stops *s)
{
    return s->matched;
}
