/* Options and commands of other programs, and what they are called here. */
#include "foreign.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const char no_need[] = "leave it out: lily does that by itself";
static const char one_device[] = "leave it out: lily runs on one device";
static const char of_checkpoint[] = "leave it out: the checkpoint says it";
static const char no_form[] = "answers cannot be held to a form yet: ask for it in the prompt";
static const char a_word[] = "the prompt is a word of its own: lily run \"PROMPT\"";
static const char from_stdin[] = "a text comes on stdin: lily run \"PROMPT\" <FILE";
static const char talk[] = "lily chat is a conversation";
static const char with_model[] = "it goes with the model's name: OWNER/NAME@REVISION";

static const struct foreign options[] = {
    {"c", "ctx", NULL},
    {"context", "ctx", NULL},
    {"context-length", "ctx", NULL},
    {"context-size", "ctx", NULL},
    {"context-window", "ctx", NULL},
    {"ctx-size", "ctx", NULL},
    {"max-context", "ctx", NULL},
    {"max-kv-size", "ctx", NULL},
    {"max-model-len", "ctx", NULL},
    {"max-seq-len", "ctx", NULL},
    {"n-ctx", "ctx", NULL},
    {"num-ctx", "ctx", NULL},
    {"max-completion-tokens", "max-tokens", NULL},
    {"max-length", "max-tokens", NULL},
    {"max-new-tokens", "max-tokens", NULL},
    {"max-output-tokens", "max-tokens", NULL},
    {"n-predict", "max-tokens", NULL},
    {"num-predict", "max-tokens", NULL},
    {"predict", "max-tokens", NULL},
    {"temperature", "temp", NULL},
    {"topk", "top-k", NULL},
    {"topp", "top-p", NULL},
    {"minp", "min-p", NULL},
    {"repeat-penalty", "repetition-penalty", NULL},
    {"r", "stop", NULL},
    {"reverse-prompt", "stop", NULL},
    {"stop-sequence", "stop", NULL},
    {"stop-sequences", "stop", NULL},
    {"instructions", "system", NULL},
    {"sys", "system", NULL},
    {"system-message", "system", NULL},
    {"system-prompt", "system", NULL},
    {"enable-thinking", "think", NULL},
    {"reasoning", "think", NULL},
    {"thinking", "think", NULL},
    {"disable-thinking", "no-think", NULL},
    {"no-reasoning", "no-think", NULL},
    {"no-thinking", "no-think", NULL},
    {"nothink", "no-think", NULL},
    {"ignore-chat-template", "raw", NULL},
    {"no-chat-template", "raw", NULL},
    {"prompt-cache-file", "prompt-cache", NULL},
    {"jobs", "threads", NULL},
    {"n-threads", "threads", NULL},
    {"num-thread", "threads", NULL},
    {"num-threads", "threads", NULL},
    {"threads-batch", "threads", NULL},
    {"cuda", "device", NULL},
    {"gpu", "device", NULL},
    {"gpu-layers", "device", NULL},
    {"gpus", "device", NULL},
    {"n-gpu-layers", "device", NULL},
    {"ngl", "device", NULL},
    {"cache-type-k", "kv", NULL},
    {"cache-type-v", "kv", NULL},
    {"ctk", "kv", NULL},
    {"ctv", "kv", NULL},
    {"kv-cache-dtype", "kv", NULL},
    {"gpu-memory-utilization", "memory-limit", NULL},
    {"max-memory", "memory-limit", NULL},
    {"max-ram", "memory-limit", NULL},
    {"memory", "memory-limit", NULL},
    {"checkpoint", "model", NULL},
    {"hf", "model", NULL},
    {"hf-repo", "model", NULL},
    {"model-path", "model", NULL},
    {"address", "host", NULL},
    {"bind", "host", NULL},
    {"hostname", "host", NULL},
    {"ip", "host", NULL},
    {"listen", "host", NULL},
    {"max-concurrent-requests", "parallel", NULL},
    {"max-num-seqs", "parallel", NULL},
    {"np", "parallel", NULL},
    {"num-parallel", "parallel", NULL},
    {"slots", "parallel", NULL},
    {"allowed-origins", "cors", NULL},
    {"origins", "cors", NULL},
    {"slot-save-path", "cache-dir", NULL},
    {"max-workers", "connections", no_need},
    {"workers", "connections", no_need},
    {"contexts", "lengths", NULL},
    {"n-prompt", "lengths", NULL},
    {"n-gen", "steps", NULL},
    {"repetitions", "rounds", NULL},
    {"output", "out", NULL},
    {"output-dir", "out", NULL},
    {"qps", "rate", NULL},
    {"request-rate", "rate", NULL},
    {"p", NULL, a_word},
    {"prompt", NULL, a_word},
    {"f", NULL, from_stdin},
    {"file", NULL, from_stdin},
    {"prompt-file", NULL, from_stdin},
    {"cnv", NULL, talk},
    {"conversation", NULL, talk},
    {"i", NULL, talk},
    {"interactive", NULL, talk},
    {"revision", NULL, with_model},
    {"fa", NULL, no_need},
    {"flash-attn", NULL, no_need},
    {"enable-prefix-caching", NULL, no_need},
    {"jinja", NULL, no_need},
    {"stream", NULL, no_need},
    {"b", NULL, no_need},
    {"batch-size", NULL, no_need},
    {"ub", NULL, no_need},
    {"ubatch-size", NULL, no_need},
    {"tensor-parallel-size", NULL, one_device},
    {"tensor-split", NULL, one_device},
    {"dtype", NULL, of_checkpoint},
    {"quantization", NULL, of_checkpoint},
    {"tokenizer", NULL, of_checkpoint},
    {"chat-template", NULL, of_checkpoint},
    {"trust-remote-code", NULL, of_checkpoint},
    {"format", "json", no_form},
    {"grammar", NULL, no_form},
    {"json-schema", NULL, no_form},
};

static const char *const command_names[][2] = {
    {"ask", "run"},        {"bench-serve", "loadtest"}, {"complete", "run"},   {"convert", "quantize"}, {"delete", "remove"},
    {"download", "pull"},  {"generate", "run"},         {"launch", "serve"},   {"ls", "list"},          {"models", "list"},
    {"perplexity", "eval"}, {"rm", "remove"},           {"server", "serve"},   {"show", "info"},
};

/* Whether they are the same, "_" taken for "-". */
static bool same(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '_' && *b == '-')) return false;
    return *a == *b;
}

const struct foreign *foreign_option(const char *name)
{
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (same(name, options[i].name)) return &options[i];
    return NULL;
}

const char *foreign_command(const char *name)
{
    for (size_t i = 0; i < sizeof command_names / sizeof command_names[0]; i++)
        if (strcmp(name, command_names[i][0]) == 0) return command_names[i][1];
    return NULL;
}
