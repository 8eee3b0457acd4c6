/*
 * A prompt as the model reads it: the rendered text, its token ids, and the marks before which state is worth saving.
 * Owned: prompt_free, but for one that could not be made. Any thread.
 */
#ifndef LILY_RUN_PROMPT_H
#define LILY_RUN_PROMPT_H

#include "chat/template.h"
#include "run/bundle.h"

struct prompt {
    struct rendering rendering; /* owned */
    struct ids ids;             /* owned */
    struct mark *marks;         /* owned; (rendering.n_marks) token positions */
    int *positions;             /* owned; (rendering.n_marks) the same, for session_sync */
    bool thinking_open;         /* it ends inside <think> */
};

/* Messages through the template of the bundle's model; opt->version is set here. */
lily_status prompt_render(const struct bundle *b, const struct json *messages, const struct json *tools,
                          struct template_options *opt, struct prompt *out, struct lily_err *err);
/* A text as it is, in which special tokens are tokens. */
lily_status prompt_raw(const struct bundle *b, const char *text, size_t n, struct prompt *out, struct lily_err *err);
void prompt_free(struct prompt *p);

#endif
