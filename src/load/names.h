/*
 * Tensor and module names: from the forms found in files to the one that lily uses, and which of them belong to the text
 * model. Any thread.
 *
 * In files                          here
 *   language_model.model.norm.weight  model.norm.weight       (MLX conversion of the published model)
 *   model.norm.weight                 model.norm.weight       (text-only export)
 *   model.language_model.norm.weight  model.norm.weight       (Hugging Face form)
 *   language_model.lm_head.weight     lm_head.weight
 */
#ifndef LILY_LOAD_NAMES_H
#define LILY_LOAD_NAMES_H

#include <stdbool.h>

#include "base/buf.h"

/* The name without its wrapper into out (cleared first); false when it is a vision or MTP tensor, which lily skips. */
bool name_of_text_model(const char *name, struct buf *out);
/* The same for the tensors of multi-token prediction: "mtp.norm.weight", without a wrapper in front. */
bool name_of_mtp(const char *name, struct buf *out);
/* True for a name that only the Hugging Face form has: unsplit, unconverted tensors. */
bool name_is_hf_form(const char *name);

#endif
