/* From messages to a prompt. */
#include "run/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

lily_status prompt_render(const struct bundle *b, const struct json *messages, const struct json *tools,
                          struct template_options *opt, struct prompt *out, struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    opt->version = b->version;
    LILY_TRY(template_render(messages, tools, opt, &out->rendering, err));
    int n = out->rendering.n_marks;
    out->marks = mem_try((size_t)n + 1, sizeof *out->marks);
    out->positions = mem_try((size_t)n + 1, sizeof *out->positions);
    lily_status st = out->marks && out->positions ? rendering_encode(&out->rendering, b->tokenizer, &out->ids, out->marks, err)
                                                  : err_set(err, LILY_ERR_MEMORY, "not enough memory for the marks of %d messages", n);
    if (st != LILY_OK) prompt_free(out);
    LILY_TRY(st);
    for (int i = 0; i < n; i++) out->positions[i] = (int)out->marks[i].at;
    out->thinking_open = !opt->no_generation_prompt && !opt->no_thinking;
    return LILY_OK;
}

lily_status prompt_raw(const struct bundle *b, const char *text, size_t n, struct prompt *out, struct lily_err *err)
{
    memset(out, 0, sizeof *out);
    lily_status st = tokenizer_encode_special(b->tokenizer, text, n, &out->ids, err);
    if (st != LILY_OK) prompt_free(out);
    return st;
}

void prompt_free(struct prompt *p)
{
    rendering_free(&p->rendering);
    ids_free(&p->ids);
    free(p->marks);
    free(p->positions);
    memset(p, 0, sizeof *p);
}
