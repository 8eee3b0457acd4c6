/*
 * The tokenizer files of a checkpoint as text, read into a vocabulary. What the files ask for beyond the family (another
 * model, normalizer, pattern, …) is LILY_ERR_UNSUPPORTED, what is malformed LILY_ERR_FORMAT; the message names the key, what
 * was found and what is expected; the caller puts the file's name in front. Threads: one at a time.
 */
#ifndef LILY_TEXT_SOURCE_H
#define LILY_TEXT_SOURCE_H

#include "text/vocabulary.h"

/* tokenizer.json in two steps, since added tokens of both files come before the vocabulary. Views into the text. */
struct tokenizer_json {
    struct text_view added, vocab, merges; /* texts of the values */
    bool nfc;
};
/* Checks everything but the tokens. */
lily_status tokenizer_json_read(struct text_view text, struct tokenizer_json *out, struct lily_err *err);
lily_status tokenizer_json_added(const struct tokenizer_json *json, struct vocabulary *v, struct lily_err *err);
lily_status tokenizer_json_tokens(const struct tokenizer_json *json, struct vocabulary *v, struct lily_err *err);

/* added_tokens_decoder of tokenizer_config.json; the file may have none. */
lily_status tokenizer_config_added(struct text_view text, struct vocabulary *v, struct lily_err *err);

/* vocab.json: an object from spelling to id. */
lily_status vocab_json_tokens(struct text_view text, struct vocabulary *v, struct lily_err *err);
/* merges.txt: a line "left right" each; a first line "#version…" is passed over. */
lily_status merges_txt_merges(struct text_view text, struct vocabulary *v, struct lily_err *err);

#endif
