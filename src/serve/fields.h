/*
 * Request fields that several endpoints share, read into struct ask, and the last steps of preparing a call that generates.
 * On P. Every failure names the field; unknown fields are ignored.
 */
#ifndef LILY_SERVE_FIELDS_H
#define LILY_SERVE_FIELDS_H

#include "serve/call.h"

/* What holds for fields of sampling that a request leaves out. */
void fields_sampling_defaults(const struct model_config *config, struct sampler_params *out);
/* temperature, top_p, top_k, min_p, penalties, logit_bias, seed, n, stream, the lily object. */
lily_status fields_sampling(struct call *c, const struct json *body, struct lily_err *err);
/* A string or an array of strings under `key`; none may be empty. */
lily_status fields_stop(struct call *c, const struct json *body, const char *key, struct lily_err *err);
/* Effort words, budgets, and whether the thinking is off: enable_thinking, thinking_budget, reasoning_effort, reasoning_format. */
lily_status fields_thinking(struct call *c, const struct json *body, struct lily_err *err);
/* tools and tool_choice in the form of chat completions: what cannot be obeyed yet is refused. */
lily_status fields_tools(struct call *c, const struct json *body, struct lily_err *err);
/* Of a call that is rendered: a last message of the assistant is refused, since it would count as a turn that is over. */
lily_status fields_last_message(const struct call *c, struct lily_err *err);
/* text is fine; json_object and json_schema are refused as not supported yet. what: the field's name. */
lily_status fields_format(const struct json *format, const char *what, struct lily_err *err);
/* An effort word to a budget; LILY_ERR_FORMAT names `what`. */
lily_status fields_effort(struct call *c, const struct json *v, const char *what, struct lily_err *err);
/* An integer member or the default. */
lily_status fields_max_tokens(struct call *c, const struct json *body, const char *key, struct lily_err *err);
/* The model's name against --strict-model. Fills c->error (404) itself. */
bool fields_model(struct call *c, const struct json *body);

/* Parses c->body into c->json; fills c->error. */
bool call_parse(struct call *c);
/* Renders a chat body (borrowed until the call is freed) into c->prompt. */
lily_status call_render(struct call *c, const struct json *chat_body, struct lily_err *err);
/* With c->prompt or spec.ids in place: checks the context, makes the jobs and hands them to the engine. Fills c->error. */
void call_submit(struct call *c);
/* Fills c->error from a failure. */
void call_fail(struct call *c, const struct lily_err *err);

#endif
