/* A rendering to token ids: added tokens only where the template wrote them. */
#include <string.h>

#include "chat/template.h"

enum { MAX_TOKEN_TEXT = 64 }; /* the longest spelling of an added token that is looked for */

struct encoder {
    const struct rendering *r;
    const struct tokenizer *t;
    struct ids *out;
    size_t first;      /* ids that stood in out before */
    struct mark *marks; /* may be NULL */
    int n_placed;
    size_t done; /* bytes whose ids are in out */
};

/* The added token whose spelling begins at text and ends within n bytes, or -1. */
static int32_t token_at(const struct tokenizer *t, const char *text, size_t n, size_t *len)
{
    char spelling[MAX_TOKEN_TEXT + 1];
    const char *close = memchr(text, '>', n < MAX_TOKEN_TEXT ? n : MAX_TOKEN_TEXT);
    if (!close) return -1;
    *len = (size_t)(close - text) + 1;
    memcpy(spelling, text, *len);
    spelling[*len] = 0;
    return tokenizer_added(t, spelling);
}

/* A mark inside a run of text gets the position where the run begins: a place where the ids can be cut. */
static void place_marks(struct encoder *e, size_t before)
{
    for (; e->n_placed < e->r->n_marks && e->r->marks[e->n_placed].at < before; e->n_placed++) {
        if (e->marks) e->marks[e->n_placed] = (struct mark){e->r->marks[e->n_placed].kind, e->out->n - e->first};
    }
}

/* Encodes the run of text from done to end. */
static lily_status flush(struct encoder *e, size_t end, struct lily_err *err)
{
    if (end == e->done) return LILY_OK;
    place_marks(e, end);
    LILY_TRY(tokenizer_encode(e->t, e->r->text.data + e->done, end - e->done, e->out, err));
    e->done = end;
    return LILY_OK;
}

lily_status rendering_encode(const struct rendering *r, const struct tokenizer *t, struct ids *out, struct mark *marks, struct lily_err *err)
{
    struct encoder e = {.r = r, .t = t, .out = out, .first = out->n, .marks = marks};
    size_t at = 0, len;
    for (int i = 0; i < r->n_spans; i++) {
        size_t end = r->spans[i].end;
        while (at < end && !r->spans[i].is_user) {
            const char *open = memchr(r->text.data + at, '<', end - at);
            if (!open) break;
            at = (size_t)(open - r->text.data);
            int32_t id = token_at(t, open, end - at, &len);
            if (id < 0) {
                at++;
                continue;
            }
            LILY_TRY(flush(&e, at, err));
            place_marks(&e, at + 1);
            if (!ids_try_append(out, &id, 1)) LILY_FAIL(err, LILY_ERR_MEMORY, "not enough memory for %zu tokens", out->n + 1);
            at = e.done = at + len;
        }
        at = end;
    }
    LILY_TRY(flush(&e, r->text.len, err));
    place_marks(&e, SIZE_MAX);
    return LILY_OK;
}
