/* lily template: a conversation as the model reads it. */
#include <stdio.h>

#include "body.h"
#include "commands.h"
#include "model_args.h"
#include "run/prompt.h"

struct template_args {
    struct common_args common;
    struct model_args model;
    bool no_thinking;
};

static void init(void *args)
{
    struct template_args *a = args;
    model_args_init(&a->model);
}

static const char *mark_name(enum mark_kind kind)
{
    static const char *const names[] = {"system_end", "message_end", "last_user_end"};
    return names[kind];
}

static void print_as_json(const struct prompt *p)
{
    struct json *top = json_new_object(), *ids = json_new_array(), *marks = json_new_array();
    for (size_t i = 0; i < p->ids.n; i++) json_add(ids, json_new_int(p->ids.data[i]));
    for (int i = 0; i < p->rendering.n_marks; i++) {
        struct json *m = json_new_object();
        json_put(m, "kind", json_new_string(mark_name(p->marks[i].kind)));
        json_put(m, "at", json_new_int((int64_t)p->marks[i].at));
        json_add(marks, m);
    }
    json_put(top, "text", json_new_text(buf_str(&p->rendering.text), p->rendering.text.len));
    json_put(top, "ids", ids);
    json_put(top, "marks", marks);
    print_json(top);
}

static lily_status run_template(void *args, int n, char **words, struct lily_err *err)
{
    const struct template_args *a = args;
    struct bundle b;
    struct body body;
    struct prompt prompt;
    LILY_TRY(body_read(n ? words[0] : "-", &body, err));
    lily_status st = model_texts(&a->model, &b, err);
    if (st != LILY_OK) {
        body_free(&body);
        return st;
    }
    struct template_options opt = body.request.options;
    if (a->no_thinking) opt.no_thinking = true;
    st = prompt_render(&b, body.request.messages, body.request.tools, &opt, &prompt, err);
    if (st == LILY_OK) {
        if (a->common.json) print_as_json(&prompt);
        else print_text(buf_str(&prompt.rendering.text), prompt.rendering.text.len);
        prompt_free(&prompt);
    }
    bundle_close(&b);
    body_free(&body);
    return st;
}

static const struct opt options[] = {
    {"no-think", 0, NULL, "as if chat_template_kwargs had enable_thinking: false", OPT_ON, offsetof(struct template_args, no_thinking), 0,
     0, NULL},
};
static const struct opt_group group = {"Rendering", options, 1};

const struct command cmd_template = {
    .name = "template",
    .usage = "[FILE]",
    .summary = "show a conversation as the model reads it",
    .about = "Renders FILE, or stdin: a chat-completions body (messages, tools,\n"
             "chat_template_kwargs; other fields are ignored) or an array of messages.\n"
             "With --json: {text, ids, marks: [{kind, at}]}; a mark is a token position at\n"
             "which state is worth saving.",
    .uses = {{&opts_dir, offsetof(struct template_args, model)}, {&group, 0}, {&opts_json, offsetof(struct template_args, common)}},
    .max_args = 1,
    .args_size = sizeof(struct template_args),
    .init = init,
    .run = run_template,
};
