/*
 * `lily serve`: the HTTP server around an engine.
 *
 * Threads: L (the caller of server_run) has all sockets and writes every reply; P reads requests, renders and tokenizes them;
 * E is the engine's (run/engine.h). A request crosses L → P → E → L once.
 */
#ifndef LILY_SERVE_SERVER_H
#define LILY_SERVE_SERVER_H

#include "run/bundle.h"
#include "run/runner.h"

struct server_options {
    const char *host;
    int port;             /* 0: any free one */
    const char *const *keys; /* borrowed; (n_keys) */
    int n_keys;
    const char *const *cors; /* borrowed; (n_cors) origins whose pages may call, besides the server's own */
    int n_cors;
    size_t max_body;
    int queue;
    const char *calls_file; /* where tool calls are kept over a restart; NULL: nowhere */
    double drain_s;       /* how long open replies may go on after SIGTERM */
    int loop_guard;       /* 0: none */
    bool strict_model, plain, reasoning_alias;
    bool log_json, log_text;
    char model_id[128];   /* what replies call the model */
    void (*leave)(void);  /* ends the process at once; called by a second signal */
};

/*
 * Serves until a signal ends it: SIGTERM and SIGINT drain, a second one calls leave. One that comes while the threads end has
 * the effect it had before. A broken engine is LILY_ERR_DEVICE. runner is moved, also on failure; texts is borrowed.
 */
lily_status server_run(const struct server_options *o, const struct bundle *texts, struct runner *runner, struct lily_err *err);

#endif
