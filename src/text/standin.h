/*
 * A tokenizer for models that have none of their own (synthetic checkpoints): the family's pipeline over single bytes, no
 * merges, and as many further tokens as the model has rows, so that every id has a text. Any thread.
 */
#ifndef LILY_TEXT_STANDIN_H
#define LILY_TEXT_STANDIN_H

#include "base/buf.h"

/*
 * tokenizer.json for ids 0 … rows-1, appended: the 256 bytes, then " w300" and the like; the family's 33 added tokens at
 * first_added, 256 <= first_added <= rows - 33.
 */
void standin_tokenizer(int rows, int first_added, struct buf *out);

#endif
