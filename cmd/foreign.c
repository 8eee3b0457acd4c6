/* Options, commands and slash commands of other programs, and what they are called here. */
#include "foreign.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const char no_need[] = "leave it out: lily does that by itself";
static const char a_card[] = "leave it out: a card that is there is taken by itself, and runs the whole model";
static const char mapped[] = "leave it out: only a packed file is mapped (lily pack)";
static const char one_device[] = "leave it out: lily runs on one device";
static const char of_checkpoint[] = "leave it out: the checkpoint says it";
static const char no_form[] = "answers cannot be held to a form yet: ask for it in the prompt";
static const char a_word[] = "the prompt is a word of its own: lily run \"PROMPT\"";
static const char from_stdin[] = "a text comes on stdin: lily run \"PROMPT\" <FILE";
static const char talk[] = "lily chat is a conversation";
static const char no_daemon[] = "lily has no background service: Ctrl-C, or kill, ends a lily serve";
static const char a_switch[] = "lily --version shows it";
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
    {"gpu-layers", NULL, a_card},
    {"gpus", "device", NULL},
    {"n-gpu-layers", NULL, a_card},
    {"ngl", NULL, a_card},
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
    {"no-mmap", NULL, mapped},
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

static const struct foreign command_names[] = {
    {"ask", "run", NULL},
    {"bench-serve", "loadtest", NULL},
    {"complete", "run", NULL},
    {"convert", "quantize", NULL},
    {"delete", "remove", NULL},
    {"download", "pull", NULL},
    {"generate", "run", NULL},
    {"launch", "serve", NULL},
    {"ls", "list", NULL},
    {"models", "list", NULL},
    {"perplexity", "eval", NULL},
    {"ps", NULL, no_daemon},
    {"rm", "remove", NULL},
    {"server", "serve", NULL},
    {"show", "info", NULL},
    {"stop", NULL, no_daemon},
    {"ui", "serve", NULL},
    {"version", NULL, a_switch},
    {"web", "serve", NULL},
};

static const struct foreign slashes[] = {
    {"?", "help", NULL},
    {"bye", "quit", NULL},
    {"clear", "new", NULL},
    {"exit", "quit", NULL},
    {"regen", "retry", NULL},
    {"regenerate", "retry", NULL},
    {"reset", "new", NULL},
};

/* Whether they are the same, "_" taken for "-". */
static bool same(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '_' && *b == '-')) return false;
    return *a == *b;
}

static const struct foreign *find(const struct foreign *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (same(name, list[i].name)) return &list[i];
    return NULL;
}

const struct foreign *foreign_option(const char *name)
{
    return find(options, sizeof options / sizeof options[0], name);
}

const struct foreign *foreign_command(const char *name)
{
    return find(command_names, sizeof command_names / sizeof command_names[0], name);
}

const char *foreign_slash(const char *name)
{
    const struct foreign *found = find(slashes, sizeof slashes / sizeof slashes[0], name);
    return found ? found->own : NULL;
}
