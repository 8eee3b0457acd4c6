/*
 * The memory plan: what a run of a model will keep resident, computed from config.json alone before anything is loaded.
 *
 * Plain values, bytes; any thread.
 */
#ifndef LILY_MODEL_PLAN_H
#define LILY_MODEL_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "load/config.h"

struct plan_want {
    int ctx;             /* tokens of context per sequence; 0: min(model, 32768, what fits) */
    int n_seqs;          /* live sequences; at least 1 */
    int max_rows;        /* rows of a prefill piece; 0: as many as help, where they fit: CPU_SHORT_ROWS to CPU_MAX_ROWS (backend/cpu/cpu.h) */
    bool kv_f32;
    size_t border_bytes; /* budget for saved borders (their recurrent copies and the pages only they hold) */
    size_t limit;        /* 0: what the system has available */
};

struct memory_plan {
    size_t weights;
    size_t kv;      /* all pages of n_seqs sequences of ctx tokens, and their fixed state */
    size_t borders;
    size_t scratch; /* workspace, logits, tokenizer, buffers, and the next */
    size_t behind;  /* a copy of a sequence's fixed state, from before a long piece */
    size_t total;
    size_t limit;
    int ctx, rows; /* as chosen; rows of a prefill piece */
};

/* LILY_ERR_MEMORY with all the numbers when the total passes the limit. out is filled in either case. */
lily_status plan_make(const struct model_config *config, const struct plan_want *want, struct memory_plan *out,
                      struct lily_err *err);

/* Memory that the system can give now (MemAvailable, and the cgroup's limit where that is lower). */
size_t plan_available_memory(void);

#endif
