/*
 * The benchmark's measurements: prefill and decode speed of a loaded model at a list of context lengths, on any backend.
 *
 * Method: one sequence, greedy; prompt token i is (i * 2654435761 mod 2^32) mod vocabulary. Each length is warmed up at its
 * exact shape, then measured in rounds, every second round in reverse order. Prefill is timed until the first token is out,
 * decode over `steps` further tokens. The result is the median of the rounds. A number is final when there are at least two
 * rounds, they differ by at most 3%, others used at most 5% of the processors, and the device is not slow by its own rule.
 * The device's limits are measured before the first round and after each; the highest count.
 *
 * Threads: the engine thread. Lifetime: plain values; the model is borrowed during the call.
 */
#ifndef LILY_RUN_BENCH_H
#define LILY_RUN_BENCH_H

#include <stdatomic.h>

#include "model/model.h"
#include "run/step_clock.h"

enum { BENCH_MAX_LENGTHS = 32, BENCH_MAX_ROUNDS = 15, BENCH_NOTE = 96 };

struct bench_options {
    int lengths[BENCH_MAX_LENGTHS]; /* tokens of context, each >= 1; together with steps within the model's plan */
    int n_lengths;
    bool prefill, decode; /* phases to measure */
    int rounds;           /* 1 … BENCH_MAX_ROUNDS */
    int steps;            /* decode steps of a measurement, >= 1 */
    int fill_from;        /* contexts of at least this many tokens: decode only, over a cache filled from seed; 0: never */
    bool warm_up;
    uint64_t seed;
    const atomic_bool *cancel; /* polled between layers of a prompt, and between decode passes; may be NULL */
    /* Called before each measurement with its number, 0 … total; may be NULL. */
    void (*progress)(void *ctx, int done, int total);
    void *progress_ctx;
};

struct bench_row {
    enum phase phase;
    int context;     /* prefill: tokens of the prompt; decode: tokens in the cache at the first step */
    int tokens;      /* timed in one round */
    bool filled;     /* the cache was filled from the seed */
    int n_rounds;
    double tok_s;    /* median */
    double spread;   /* (fastest - slowest) / median */
    double others;   /* largest share of the processors that others used during a round */
    double gb_s;     /* least bytes of the pass, per second (model/cost.h) */
    double gop_s;    /* operations of the pass, per second */
    double floor_tok_s; /* what the measured limits allow; 0: not known */
    double share;    /* tok_s / floor_tok_s; 0: not known */
    double joules;   /* per token; negative: no counter */
    bool final;
    char note[BENCH_NOTE]; /* why it is not final, or how it was measured; may be empty */
    double samples[BENCH_MAX_ROUNDS]; /* tokens per second of each round */
    double step_ms[STEP_KINDS];       /* where the time of the last round went, for a token; 0: not known */
};

struct bench_result {
    struct device_limits limits; /* all 0 where the backend cannot measure */
    struct bench_row rows[2 * BENCH_MAX_LENGTHS];
    int n_rows;
};

/* LILY_ERR_CANCELLED when stopped: *out then has the rows that were measured at least once, and their notes say so. */
lily_status bench_run(struct model *m, const struct bench_options *o, struct bench_result *out, struct lily_err *err);

/* Context that the model's plan must allow for these options. */
int bench_context(const struct bench_options *o);

/* Median and spread of n samples (sorted in place), and the verdict with its reason; for tests. */
void bench_judge(struct bench_row *row, const struct device_limits *limits);

#endif
