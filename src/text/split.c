/* The split pattern through PCRE2 with its just-in-time compiler. */
#include "text/split.h"

#include <stdbool.h>
#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/mem.h"

const char SPLIT_PATTERN[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}"
                             "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/*
 * The same language for PCRE2, with its classes pinned to Unicode 16, which the reference has: letters and marks, and
 * numbers, that came after Unicode 14 (PCRE2 10.42) are listed, so that a newer library cuts the same pieces. White space
 * is spelled out because PCRE2's \s takes U+180E, too. Runs that nothing after them could shorten are possessive, so that a
 * match of megabytes keeps no way back.
 */
#define NEW_LETTERS \
    "\\x{897}\\x{cf3}\\x{ece}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}" \
    "\\x{10d4a}-\\x{10d65}\\x{10d69}-\\x{10d6d}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}" \
    "\\x{10efc}-\\x{10eff}\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}" \
    "\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d3}\\x{113e1}-\\x{113e2}" \
    "\\x{11bc0}-\\x{11be0}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{1342f}" \
    "\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1612f}\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}" \
    "\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4ef}\\x{1e5d0}-\\x{1e5f0}" \
    "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NEW_NUMBERS \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}" \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}" \
    "\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"
#define SPACES "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define LETTERS "\\p{L}\\p{M}" NEW_LETTERS
#define NUMBERS "\\p{N}" NEW_NUMBERS
static const char PCRE2_PATTERN[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
                                    "|[^\\r\\n" LETTERS NUMBERS "]?[" LETTERS "]++"
                                    "|[" NUMBERS "]"
                                    "| ?[^" SPACES LETTERS NUMBERS "]++[\\r\\n]*+"
                                    "|[" SPACES "]*[\\r\\n]++"
                                    "|[" SPACES "]+(?![^" SPACES "])"
                                    "|[" SPACES "]++";

struct splitter {
    pcre2_code *code; /* owned; immutable once compiled */
    bool jit;
};

struct split_run {
    const struct splitter *splitter; /* borrowed */
    pcre2_match_data *match;         /* owned */
    pcre2_match_context *context;    /* owned */
};

lily_status split_new(struct splitter **out, struct lily_err *err)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    *out = NULL;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)PCRE2_PATTERN, sizeof PCRE2_PATTERN - 1,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, &code, &at, NULL);
    if (!re) {
        PCRE2_UCHAR text[128] = "";
        pcre2_get_error_message(code, text, sizeof text);
        LILY_FAIL(err, LILY_ERR_INTERNAL, "the PCRE2 library refuses the split pattern at offset %zu: %s", (size_t)at,
                  (char *)text);
    }
    struct splitter *s = mem_new(sizeof *s);
    s->code = re;
    s->jit = pcre2_jit_compile(re, PCRE2_JIT_COMPLETE) == 0;
    *out = s;
    return LILY_OK;
}

void split_free(struct splitter *s)
{
    if (!s) return;
    pcre2_code_free(s->code);
    free(s);
}

struct split_run *split_begin(const struct splitter *s)
{
    struct split_run *r = mem_new(sizeof *r);
    r->splitter = s;
    r->match = pcre2_match_data_create(1, NULL);
    r->context = pcre2_match_context_create(NULL);
    /* The limits count backtracking, which this pattern does at most once per character of a piece. */
    if (r->context) {
        pcre2_set_match_limit(r->context, UINT32_MAX);
        pcre2_set_heap_limit(r->context, UINT32_MAX);
    }
    return r;
}

void split_end(struct split_run *r)
{
    if (!r) return;
    pcre2_match_data_free(r->match);
    pcre2_match_context_free(r->context);
    free(r);
}

size_t split_next(struct split_run *r, const char *text, size_t n, size_t pos)
{
    int rc = PCRE2_ERROR_NOMEMORY;
    if (r->match) {
        const pcre2_code *code = r->splitter->code;
        if (r->splitter->jit) rc = pcre2_jit_match(code, (PCRE2_SPTR)text, n, pos, 0, r->match, r->context);
        if (rc < 0) rc = pcre2_match(code, (PCRE2_SPTR)text, n, pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->match, r->context);
    }
    /* Some alternative takes every character, so nothing else can fail. */
    return rc > 0 ? pcre2_get_ovector_pointer(r->match)[1] : 0;
}
