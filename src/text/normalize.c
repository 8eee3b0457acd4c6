/* NFC through utf8proc's tables, with a quick check in front and linear-time reordering behind. */
#include "text/normalize.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { TABLE_END = 0x30000, SECOND_OF_PAIR = 0x8000, MAX_DECOMPOSED = 8, SHORT_RUN = 24 };

/*
 * A character is inert when NFC keeps it and never joins it to what is before it, so that text may be cut in front of it.
 * No character from TABLE_END on is anything else.
 */
struct nfc {
    uint64_t active[TABLE_END / 64]; /* one bit per character: not inert */
};

/*
 * The reference normalizes by Unicode 9: characters that came later stay as they are and where they are. Those of them
 * that utf8proc would move or join, up to Unicode 16, some with their whole new block.
 */
static const struct {
    uint32_t first, last;
} NEWER[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},
    {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x105C0, 0x105F3}, {0x10D24, 0x10D27}, {0x10D40, 0x10D8F},
    {0x10EAB, 0x10EAC}, {0x10EC2, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x1133B, 0x1133B}, {0x11380, 0x113E2}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11900, 0x11959},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F00, 0x11F5A}, {0x16100, 0x16139}, {0x16D40, 0x16D79}, {0x16FF0, 0x16FF1},
    {0x1E030, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4D0, 0x1E4F9},
    {0x1E5D0, 0x1E5FA},
};

static bool is_newer(uint32_t c)
{
    for (size_t i = 0; i < sizeof NEWER / sizeof *NEWER; i++)
        if (c >= NEWER[i].first && c <= NEWER[i].last) return true;
    return false;
}

static bool is_inert(const struct nfc *nfc, uint32_t c)
{
    return c >= TABLE_END || !(nfc->active[c / 64] >> (c % 64) & 1);
}

struct chars {
    int32_t *data; /* owned */
    size_t n, cap;
};

static bool decompose(struct chars *out, int32_t c)
{
    if (out->cap - out->n < MAX_DECOMPOSED) {
        size_t cap = out->cap * 2 + 64;
        int32_t *data = mem_try_resize(out->data, cap, sizeof *data);
        if (!data) return false;
        out->data = data;
        out->cap = cap;
    }
    int last_boundclass = 0;
    utf8proc_ssize_t k = utf8proc_decompose_char(c, out->data + out->n, MAX_DECOMPOSED,
                                                 UTF8PROC_STABLE | UTF8PROC_COMPOSE, &last_boundclass);
    /* No canonical decomposition is longer than four; anything else would be a broken library: keep the character. */
    if (k < 1 || k > MAX_DECOMPOSED) {
        out->data[out->n] = c;
        k = 1;
    }
    out->n += (size_t)k;
    return true;
}

static uint8_t class_of(int32_t c)
{
    uint8_t cls = (uint8_t)utf8proc_get_property(c)->combining_class;
    return cls && is_newer((uint32_t)c) ? 0 : cls;
}

/* Stable sort of one run of combining characters by class; false when there is no memory. */
static bool sort_run(int32_t *c, size_t n)
{
    if (n <= SHORT_RUN) {
        for (size_t i = 1; i < n; i++) {
            int32_t x = c[i];
            uint8_t cls = class_of(x);
            size_t j = i;
            for (; j > 0 && class_of(c[j - 1]) > cls; j--) c[j] = c[j - 1];
            c[j] = x;
        }
        return true;
    }
    size_t at[257] = {0};
    int32_t *copy = mem_try(n, sizeof *copy);
    if (!copy) return false;
    for (size_t i = 0; i < n; i++) at[class_of(copy[i] = c[i]) + 1]++;
    for (int k = 1; k < 257; k++) at[k] += at[k - 1];
    for (size_t i = 0; i < n; i++) c[at[class_of(copy[i])]++] = copy[i];
    free(copy);
    return true;
}

static bool reorder(struct chars *chars)
{
    size_t i = 0;
    while (i < chars->n) {
        size_t end = i;
        while (end < chars->n && class_of(chars->data[end])) end++;
        if (end - i > 1 && !sort_run(chars->data + i, end - i)) return false;
        i = end + 1;
    }
    return true;
}

/* Appends the NFC of the stretch text[0 … n); false when there is no memory. */
static bool normalize_stretch(const char *text, size_t n, struct chars *chars, struct buf *out)
{
    size_t used;
    chars->n = 0;
    for (size_t i = 0; i < n; i += used)
        if (!decompose(chars, (int32_t)utf8_decode(text + i, n - i, &used))) return false;
    if (!reorder(chars)) return false;
    utf8proc_ssize_t k =
        utf8proc_normalize_utf32(chars->data, (utf8proc_ssize_t)chars->n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (k > 0 && !buf_try_reserve(out, (size_t)k * UTF8_MAX)) return false;
    for (utf8proc_ssize_t i = 0; i < k; i++) utf8_add(out, (uint32_t)chars->data[i]);
    return true;
}

/* Class 0, its own NFC, not the second of a composing pair (utf8proc marks those in comb_index, but for Hangul's). */
static bool compute_inert(int32_t c, struct chars *chars, struct buf out[2])
{
    const utf8proc_property_t *p = utf8proc_get_property(c);
    if (is_newer((uint32_t)c)) return true;
    if (p->combining_class || (p->comb_index != UINT16_MAX && p->comb_index >= SECOND_OF_PAIR)) return false;
    if ((c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2)) return false;
    if (p->decomp_seqindex == UINT16_MAX || p->decomp_type) return true;
    buf_clear(&out[0]);
    buf_clear(&out[1]);
    utf8_add(&out[0], (uint32_t)c);
    return normalize_stretch(out[0].data, out[0].len, chars, &out[1]) && strcmp(out[0].data, out[1].data) == 0;
}

struct nfc *nfc_new(void)
{
    struct nfc *nfc = mem_new(sizeof *nfc);
    struct chars chars = {0};
    struct buf bufs[2] = {{0}, {0}};
    for (int32_t c = 0x80; c < TABLE_END; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        if (!compute_inert(c, &chars, bufs)) nfc->active[c / 64] |= UINT64_C(1) << (c % 64);
    }
    free(chars.data);
    buf_free(&bufs[0]);
    buf_free(&bufs[1]);
    return nfc;
}

void nfc_free(struct nfc *nfc)
{
    free(nfc);
}

/* From `at` on: the next character that is not inert; *before gets the start of the inert one in front of it. */
static size_t find_stretch(const struct nfc *nfc, const char *text, size_t n, size_t at, size_t *before)
{
    size_t used;
    *before = at;
    while (at < n) {
        size_t run = utf8_ascii_run(text + at, n - at);
        if (run) *before = at + run - 1;
        at += run;
        while (at < n && (text[at] & 0x80)) {
            if (!is_inert(nfc, utf8_decode(text + at, n - at, &used))) return at;
            *before = at;
            at += used;
        }
    }
    return n;
}

static size_t end_of_stretch(const struct nfc *nfc, const char *text, size_t n, size_t at)
{
    size_t used;
    while (at < n && (text[at] & 0x80) && !is_inert(nfc, utf8_decode(text + at, n - at, &used))) at += used;
    return at;
}

static bool add_text(struct buf *out, const char *text, size_t n)
{
    if (!buf_try_reserve(out, n)) return false;
    buf_add(out, text, n);
    return true;
}

const char *nfc_text(const struct nfc *nfc, const char *text, size_t *n, struct buf *scratch)
{
    size_t before, at = find_stretch(nfc, text, *n, 0, &before);
    if (at == *n) return text;
    struct chars chars = {0};
    size_t done = 0;
    buf_clear(scratch);
    bool fits = buf_try_reserve(scratch, *n + *n / 8);
    while (fits && at < *n) {
        size_t end = end_of_stretch(nfc, text, *n, at);
        fits = add_text(scratch, text + done, before - done) && normalize_stretch(text + before, end - before, &chars, scratch);
        done = end;
        at = find_stretch(nfc, text, *n, end, &before);
    }
    fits = fits && add_text(scratch, text + done, *n - done);
    free(chars.data);
    if (!fits) return NULL;
    *n = scratch->len;
    return scratch->data;
}
