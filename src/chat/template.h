/*
 * The chat template of the family in C: messages to the text that the model was trained on (MODEL.md, Chat template), with
 * the marks at which state may be saved (ARCHITECTURE.md, State).
 *
 * The rendering is a list of segments: template text, in which special tokens are tokens, and user text, in which they are
 * only text. Joined, the segments equal Jinja2's output byte for byte.
 *
 * Threads: any. Lifetime: a struct rendering owns its text; released with rendering_free.
 */
#ifndef LILY_CHAT_TEMPLATE_H
#define LILY_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "chat/calls.h"
#include "json/json.h"
#include "text/tokenizer.h"

enum template_version { TEMPLATE_QWEN36, TEMPLATE_QWEN35 };

/*
 * Chooses the version by the SHA-256 of DIR/chat_template.jinja (or of tokenizer_config.json's "chat_template" string).
 * *known is false when the hash is none of ours: the 3.6 form is then used, and callers warn.
 */
lily_status template_detect(const char *model_dir, enum template_version *version, bool *known, struct lily_err *err);

struct template_options {
    enum template_version version;
    bool no_generation_prompt;
    bool no_thinking;       /* enable_thinking is false */
    bool preserve_thinking; /* keep the thinking of every earlier turn (3.6 only) */
    bool add_vision_id;
    /*
     * A system message that is not the first is no error but a user turn wrapped in <system-reminder> (a blank one is
     * nothing). It never counts as the last query, so it leaves the rendering of what stands before it as it was.
     */
    bool system_reminders;
    struct call_memory *calls; /* borrowed; the texts that the model wrote are taken from there; NULL: none */
};

/*
 * Where in the text something ends; offsets are bytes, and become token positions in rendering_encode. The system block
 * (system text and tools) has MARK_SYSTEM_END, every other message MARK_MESSAGE_END, the last user turn (the template's last
 * query) MARK_LAST_USER_END as well, at the same place. A mark lies behind the message's "<|im_end|>\n", or behind
 * "</tool_response>" when the next message is a tool message, too; so it is always next to an added token.
 */
enum mark_kind { MARK_SYSTEM_END, MARK_MESSAGE_END, MARK_LAST_USER_END };
struct mark {
    enum mark_kind kind;
    size_t at; /* byte offset in rendering.text, or token position after rendering_encode */
};

struct segment_span {
    size_t end;    /* byte offset in rendering.text where this segment ends */
    bool is_user;  /* text from outside: special tokens are spelled out as text */
};

struct rendering {
    struct buf text;            /* owned */
    struct segment_span *spans; /* owned; in order, the last ends at text.len */
    int n_spans;
    struct mark *marks; /* owned; offsets never fall */
    int n_marks;
};

/*
 * Renders a chat-completions body's parts. messages: JSON array; tools: JSON array or NULL (anything that is no array counts
 * as none, as in the template). Fails as the template does: LILY_ERR_FORMAT with its message ("No user query found in
 * messages.", …), and the place in the hint. Beyond the template, the arguments of a tool call may be a JSON string of an
 * object; one that is not is an error that names the message and the call. On failure *out is empty.
 */
lily_status template_render(const struct json *messages, const struct json *tools, const struct template_options *opt,
                            struct rendering *out, struct lily_err *err);
/* One user message, with an optional system message (NULL or ""): what `lily run PROMPT` needs, without JSON. */
lily_status template_render_simple(const char *system, const char *user, const struct template_options *opt,
                                   struct rendering *out, struct lily_err *err);
void rendering_free(struct rendering *r);

/*
 * Appends the ids of a rendering. The rule: an added token is recognised only where all of its spelling, from '<' to the
 * next '>', is template text; what lies between two such tokens is one text, across the borders of template and user
 * segments, encoded without added tokens. So user text never becomes an added token, and whenever it spells none the ids
 * equal tokenizer_encode_special of the joined text.
 *
 * marks (array of r->n_marks, or NULL) gets r->marks with token positions, counted from the first id of this rendering.
 * Fails for lack of memory alone; then out may hold the beginning.
 */
lily_status rendering_encode(const struct rendering *r, const struct tokenizer *t, struct ids *out, struct mark *marks, struct lily_err *err);

#endif
