/*
 * lily: a language model of the Qwen3.6-35B-A3B family inside your program.
 *
 *     lily_model *model;  lily_prompt *prompt;  lily_session *session;
 *     struct lily_request request;
 *     struct lily_err err;
 *     if (lily_open("models/demo", NULL, &model, &err) ||
 *         lily_prompt_ask(model, NULL, "Who are you?", 0, &prompt, &err) ||
 *         lily_session_new(model, &session, &err)) give_up(err.msg);
 *     lily_request_init(&request, model, prompt);
 *     request.on_text = print_it;
 *     lily_generate(session, &request, NULL, &err);
 *
 * Nouns: a model is a loaded checkpoint; a prompt is a rendered text with its token ids; a session is one live state of a
 * model, which remembers what it has read, so that a prompt that goes on from an earlier one costs only what is new.
 *
 * Threads: every function may be called from any thread. lily_generate, lily_session_new and lily_session_free of one model
 * wait for each other; a session is used by one thread at a time, but for lily_cancel. Callbacks run on the caller's thread;
 * they may call everything but lily_generate (LILY_ERR_USAGE) and lily_close; a session that they free ends its answer first.
 * Lifetime: a model outlives its sessions; prompts are independent after they are made. What a function hands out is
 * owned by the caller and freed by the function named beside it. Text is UTF-8 with its length in bytes. Sizes are bytes,
 * times milliseconds. Link with -llily and its libraries: pkg-config --libs lily.
 */
#ifndef LILY_LILY_H
#define LILY_LILY_H

#include <stddef.h>
#include <stdint.h>

#include "lily/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lily_model lily_model;
typedef struct lily_session lily_session;
typedef struct lily_prompt lily_prompt;

const char *lily_version(void); /* "0.1.0"; never freed */

/* ---- models ---- */

struct lily_options {
    int ctx;               /* tokens of context per session; 0: min(the model's, 32768, what fits) */
    int sessions;          /* that live at once; at least 1 */
    int borders;           /* earlier states that each session may keep, to go back to; at least 0 */
    int threads;           /* compute threads; 0: every processor */
    const char *cpu_tier;  /* highest instruction set: "scalar", "avx2", "avx512", "amx", "neon"; NULL: the best here */
    int kv_f32;            /* attention cache in fp32 instead of bf16 */
    uint64_t memory_limit; /* refuse to use more; 0: what the system has available */
    int fast;              /* prompts faster and less exact on CPUs: experts read 8-bit activations; SPEED.md says what it costs */
};
void lily_options_init(struct lily_options *o); /* one session, four borders, the rest 0 */

/* What a model keeps in memory. */
struct lily_plan {
    uint64_t weights, kv, borders, scratch, total, limit;
    int ctx; /* as chosen */
};
/* From the folder's configuration alone. LILY_ERR_MEMORY when it does not fit; *out is filled then, too. options may be NULL. */
lily_status lily_plan_memory(const char *dir, const struct lily_options *options, struct lily_plan *out,
                             struct lily_err *err);

/* Loads a checkpoint folder. options may be NULL. Freed with lily_close, after its sessions. */
lily_status lily_open(const char *dir, const struct lily_options *options, lily_model **out, struct lily_err *err);
void lily_close(lily_model *m); /* NULL is fine */

void lily_model_plan(const lily_model *m, struct lily_plan *out);
int lily_model_tokens(const lily_model *m); /* token ids are 0 … this - 1 */

/* ---- text and tokens ---- */

/*
 * The token ids of n bytes of text. special: the spelling of a special token ("<|im_end|>") is the token; otherwise it is
 * only text. Invalid UTF-8 is read as U+FFFD. *ids is freed with lily_free.
 */
lily_status lily_tokenize(const lily_model *m, const char *text, size_t n, int special, int32_t **ids, size_t *n_ids,
                          struct lily_err *err);
/* The text of ids, with a NUL behind it; *text is freed with lily_free. special: write special tokens, too. */
lily_status lily_detokenize(const lily_model *m, const int32_t *ids, size_t n_ids, int special, char **text, size_t *n,
                            struct lily_err *err);
void lily_free(void *p); /* NULL is fine */

/* ---- prompts ---- */

/*
 * Renders a chat-completions body, JSON of n bytes: messages, tools, chat_template_kwargs (enable_thinking,
 * preserve_thinking); other fields are ignored. Errors name the field. Freed with lily_prompt_free.
 */
lily_status lily_prompt_chat(const lily_model *m, const char *body, size_t n, lily_prompt **out, struct lily_err *err);
/* One question with an optional system prompt (NULL). think: 0 lets the model answer at once. */
lily_status lily_prompt_ask(const lily_model *m, const char *system, const char *question, int think, lily_prompt **out,
                            struct lily_err *err);
/* A text as it is, without a template; special tokens may be spelled. */
lily_status lily_prompt_raw(const lily_model *m, const char *text, size_t n, lily_prompt **out, struct lily_err *err);
void lily_prompt_free(lily_prompt *p); /* NULL is fine */

const char *lily_prompt_text(const lily_prompt *p, size_t *n);   /* view; n may be NULL */
const int32_t *lily_prompt_ids(const lily_prompt *p, size_t *n); /* view */

/* ---- answers ---- */

struct lily_logit_bias {
    int32_t id;
    float value; /* added to the logit, -100 … 100 */
};

/* In the order of their use. */
struct lily_sampling {
    double repetition_penalty; /* over prompt and answer; 1: off */
    double presence_penalty, frequency_penalty; /* over the answer; 0: off */
    const struct lily_logit_bias *bias; /* borrowed during lily_generate */
    int n_bias;
    double temperature; /* 0: always the most likely token */
    int top_k;          /* 0: off */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off */
    uint64_t seed;      /* the same seed, prompt and parameters give the same answer */
};

enum lily_part { LILY_THINKING, LILY_TEXT };

struct lily_request {
    const lily_prompt *prompt; /* borrowed during lily_generate, as all below */
    struct lily_sampling sampling;
    int max_tokens;            /* thinking included; 0: what the model's folder recommends (max_new_tokens), else what the context holds */
    const char *const *stop;   /* up to 16 strings that end the answer, outside thinking, and are not part of it */
    int n_stop;
    /* Callbacks; each may be NULL. n bytes of whole characters; a value other than 0 ends the answer. */
    int (*on_text)(void *ctx, enum lily_part part, const char *text, size_t n);
    /* A tool call is complete: its name, and the arguments as a JSON object. */
    void (*on_call)(void *ctx, const char *name, const char *arguments);
    void (*on_progress)(void *ctx, int done, int total); /* prompt tokens read, of those that must be */
    void *ctx;
};
/* The model's own sampling defaults, a seed of 0, no limits. */
void lily_request_init(struct lily_request *r, const lily_model *m, const lily_prompt *prompt);

enum lily_finish { LILY_FINISH_STOP, LILY_FINISH_LENGTH, LILY_FINISH_CALLS, LILY_FINISH_CANCELLED };

struct lily_result {
    enum lily_finish finish;
    int prompt_tokens, cached_tokens;       /* cached: not read again */
    int completion_tokens, thinking_tokens; /* completion includes thinking */
    double prefill_ms, decode_ms;
};

/* A session with room for the plan's ctx. LILY_ERR_LIMIT when the model has as many as it was opened for. */
lily_status lily_session_new(lily_model *m, lily_session **out, struct lily_err *err);
void lily_session_free(lily_session *s); /* NULL is fine */
/* Reads the prompt and writes an answer; returns when it ends. result may be NULL. A cancelled answer is LILY_OK. */
lily_status lily_generate(lily_session *s, const struct lily_request *r, struct lily_result *result,
                          struct lily_err *err);
/*
 * Ends the lily_generate that runs on the session (or, if none does, the next one) at the next token or piece of the prompt.
 * Any thread; safe in a signal handler.
 */
void lily_cancel(lily_session *s);

#ifdef __cplusplus
}
#endif
#endif
