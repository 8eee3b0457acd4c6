/*
 * The tokenizer of a checkpoint: text to token ids and back (MODEL.md, Tokenizer).
 *
 * Byte-level BPE: split on added tokens, NFC, the family's split pattern, merges by rank. Two ways to encode: user text,
 * in which the spelling of a special token is only text; and template text, in which it is the token.
 *
 * Threads: a struct tokenizer is immutable after load and may be used by any number of threads; a struct detokenizer
 * belongs to one. Lifetime: the tokenizer outlives every detokenizer made from it. Ids are int32_t.
 */
#ifndef LILY_TEXT_TOKENIZER_H
#define LILY_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct tokenizer;

/* A growable array of token ids. Zero-initialised is empty; owned by its holder, released with ids_free. */
struct ids {
    int32_t *data;
    size_t n, cap;
};
void ids_add(struct ids *ids, int32_t id);
void ids_append(struct ids *ids, const int32_t *data, size_t n);
bool ids_try_append(struct ids *ids, const int32_t *data, size_t n); /* the same, but false when there is no memory */
void ids_clear(struct ids *ids); /* keeps the memory */
void ids_free(struct ids *ids);

struct tokenizer_options {
    const char *cache_dir; /* borrowed; folder of compiled forms, NULL or "" for none (base/env.h: kind "tokenizer") */
};

/*
 * Loads the tokenizer of a checkpoint folder: tokenizer.json (both forms of merges), or vocab.json + merges.txt, and the
 * added tokens of tokenizer_config.json. Uses and refreshes the compiled form in the cache folder (keyed by the hash of
 * the source files; a damaged or foreign file there is ignored and written anew). Owned by the caller.
 */
lily_status tokenizer_load(const char *model_dir, const struct tokenizer_options *opt, struct tokenizer **out,
                           struct lily_err *err);
void tokenizer_free(struct tokenizer *t);

int tokenizer_size(const struct tokenizer *t); /* ids are 0 … size-1 (holes have no text) */
/* The id of an added token by its exact text ("<|im_end|>"), or -1. */
int32_t tokenizer_added(const struct tokenizer *t, const char *text);
/* The bytes of one token (view, not NUL-terminated; may be part of a UTF-8 character). NULL for ids without a token. */
const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *n);
bool tokenizer_is_added(const struct tokenizer *t, int32_t id);   /* one of the added tokens */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id); /* an added token with special: true */

/*
 * Appends the ids of n bytes of text. Invalid UTF-8 is never an error: each maximal invalid sequence is encoded as U+FFFD.
 * Memory is O(n), time O(n log n) at worst. Fails for lack of memory alone; then out is as it was.
 */
lily_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, struct ids *out, struct lily_err *err);
/* The same, but the spelling of an added token is that token. */
lily_status tokenizer_encode_special(const struct tokenizer *t, const char *text, size_t n, struct ids *out, struct lily_err *err);

/* Appends the text of ids: valid UTF-8 (what is not becomes U+FFFD). special: also write tokens with special: true. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, struct buf *out);

/*
 * Streaming: push one id at a time; out gets only whole characters, the rest is held back until it completes or turns out
 * invalid. The pieces joined (with the final flush) equal tokenizer_decode of all ids.
 */
struct detokenizer {
    const struct tokenizer *tokenizer; /* borrowed */
    bool special;                      /* also write tokens with special: true */
    char held[4];
    int n_held;
};
void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool special);
void detokenizer_push(struct detokenizer *d, int32_t id, struct buf *out);
void detokenizer_bytes(struct detokenizer *d, const char *bytes, size_t n, struct buf *out); /* the same for a token's bytes */
void detokenizer_flush(struct detokenizer *d, struct buf *out); /* at the end: an incomplete tail becomes U+FFFD */

#endif
