/* Questions about single tokens. */
#include "text/impl.h"

int tokenizer_size(const struct tokenizer *t)
{
    return (int)t->image.head->n_ids;
}

static uint8_t flags_of(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->image.head->n_ids ? t->image.flags[id] : 0;
}

bool tokenizer_is_added(const struct tokenizer *t, int32_t id)
{
    return flags_of(t, id) & TOKEN_ADDED;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return flags_of(t, id) & TOKEN_SPECIAL;
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *n)
{
    *n = 0;
    return flags_of(t, id) ? (const char *)image_token(&t->image, (uint32_t)id, n) : NULL;
}

int32_t tokenizer_added(const struct tokenizer *t, const char *text)
{
    size_t wanted = strlen(text), lo = 0, hi = t->image.head->n_added;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2, n;
        const uint8_t *p = image_token(&t->image, (uint32_t)t->image.added[mid], &n);
        int c = memcmp(p, text, n < wanted ? n : wanted);
        if (!c) c = (n > wanted) - (n < wanted);
        if (!c) return t->image.added[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}
