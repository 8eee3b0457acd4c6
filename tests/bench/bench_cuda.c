/*
 * Raw speed of the CUDA backend on synthetic weights of the published shape: prefill of some lengths, decode behind them, and
 * decode of several sequences, without sampling. `lily bench` measures what a user sees; this one the passes alone.
 * usage: bench_cuda PRESET REPEATS LENGTH...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/clock.h"
#include "load/synth.h"
#include "model/weights.h"

enum { STEPS = 48, PIECE = 4096, MAX_SEQS = 8 };

static struct lily_err err;
static struct backend *be;
static struct model_weights weights;

static void need(lily_status st)
{
    if (st == LILY_OK) return;
    fprintf(stderr, "bench_cuda: %s\n", err.msg);
    exit(1);
}

static void forward(const struct batch *b)
{
    const struct step_table *step = &be->ops->step;
    int n_full = 0, n_linear = 0;
    step->begin(be, b);
    step->embed(be, weights.embed);
    for (int i = 0; i < be->shape.n_layers; i++) {
        const struct layer_weights *l = &weights.layers[i];
        if (be->shape.is_full[i]) {
            step->attn_in(be, &l->attn, n_full);
            step->attn_mix(be, n_full++);
            step->attn_out(be, &l->attn);
        } else {
            step->gdn_in(be, &l->gdn);
            step->gdn_mix(be, &l->gdn, n_linear++);
            step->gdn_out(be, &l->gdn);
        }
        step->moe_route(be, &l->moe);
        step->moe_experts(be, &l->moe);
    }
    step->head(be, weights.norm, weights.head);
    need(step->end(be, &err));
}

static int32_t id_of(uint32_t i)
{
    return (int32_t)(i * 2654435761u % (uint32_t)be->shape.vocab);
}

/* Milliseconds to read n tokens into an empty sequence. */
static double prefill(struct seq *s, int n, float *logits)
{
    static int32_t ids[PIECE];
    be->ops->seq_reset(be, s);
    need(be->ops->seq_reserve(be, s, n, &err));
    double start = clock_ms();
    for (int at = 0; at < n; at += PIECE) {
        int k = n - at < PIECE ? n - at : PIECE;
        int32_t last = k - 1;
        for (int i = 0; i < k; i++) ids[i] = id_of((uint32_t)(at + i));
        struct batch_seq one = {s, k};
        struct batch b = {.phase = PHASE_PREFILL, .n_seqs = 1, .seqs = &one, .n_rows = k, .ids = ids, .n_logits = at + k == n, .logit_rows = &last, .logits = logits};
        forward(&b);
    }
    return clock_ms() - start;
}

/* Milliseconds of one decode step of n sequences, rows tokens each, the mean over STEPS. */
static double decode(struct seq **s, int n, int rows)
{
    int32_t ids[MAX_SEQS], at[MAX_SEQS];
    struct batch_seq bs[MAX_SEQS];
    double start = 0;
    for (int step = -4; step < STEPS; step++) {
        for (int i = 0; i < n; i++) {
            need(be->ops->seq_reserve(be, s[i], rows, &err));
            bs[i] = (struct batch_seq){s[i], rows};
        }
        for (int i = 0; i < n * rows; i++) ids[i] = id_of((uint32_t)(step * 97 + i * 31 + 1000)), at[i] = i;
        if (step == 0) start = clock_ms();
        struct batch b = {.phase = PHASE_DECODE, .n_seqs = n, .seqs = bs, .n_rows = n * rows, .ids = ids, .n_logits = n * rows, .logit_rows = at, .logits = NULL};
        forward(&b);
    }
    return (clock_ms() - start) / STEPS;
}

static void length(struct seq **s, int n, int repeats, float *logits)
{
    double best = 1e30;
    for (int i = 0; i <= repeats; i++) {
        double ms = prefill(s[0], n, logits);
        if (i && ms < best) best = ms; /* the first one warms up */
    }
    double one = decode(s, 1, 1);
    printf("%7d tokens: prefill %9.2f ms %9.0f tok/s   decode %7.3f ms %7.1f tok/s   logits[0..2] %.4f %.4f %.4f\n", n, best, n / best * 1e3, one, 1e3 / one,
           (double)logits[0], (double)logits[1], (double)logits[2]);
    fflush(stdout);
}

static void batches(struct seq **s, float *logits)
{
    for (int i = 0; i < MAX_SEQS; i++) prefill(s[i], 512 + 64 * i, logits);
    for (int n = 2; n <= MAX_SEQS; n *= 2) {
        double ms = decode(s, n, 1), same = decode(s, 1, n);
        printf("%d sequences: %7.3f ms a step %7.1f tok/s   %d tokens of one: %7.3f ms\n", n, ms, n * 1e3 / ms, n, same);
    }
}

int main(int argc, char **argv)
{
    struct synth_plan plan;
    struct checkpoint *ck;
    struct seq *s[MAX_SEQS];
    enum synth_preset preset;
    int most = 4096;
    if (argc < 4 || !synth_preset_parse(argv[1], &preset)) {
        fprintf(stderr, "usage: bench_cuda PRESET REPEATS LENGTH...\n");
        return 2;
    }
    for (int i = 3; i < argc; i++)
        if (atoi(argv[i]) > most) most = atoi(argv[i]);
    need(synth_plan_make(preset, 1, &plan, &err));
    struct cuda_options o = {.shape = plan.config.shape, .device = CUDA_ANY, .max_rows = PIECE, .max_logits = PIECE};
    o.state_bytes = (size_t)12e9;
    double start = clock_ms();
    need(cuda_backend_new(&o, &be, &err));
    checkpoint_of_synth(&plan, &ck);
    need(weights_load(be, ck, NULL, NULL, &weights, &err));
    printf("loaded in %.1f s\n", (clock_ms() - start) / 1e3);
    float *logits = calloc((size_t)shape_logits_ld(&be->shape), sizeof *logits);
    for (int i = 0; i < MAX_SEQS; i++) need(be->ops->seq_new(be, &s[i], &err));
    for (int i = 3; i < argc; i++) length(s, atoi(argv[i]), atoi(argv[2]), logits);
    batches(s, logits);
    for (int i = 0; i < MAX_SEQS; i++) be->ops->seq_free(be, s[i]);
    free(logits);
    weights_free(be, &weights);
    checkpoint_close(ck);
    be->ops->destroy(be);
    synth_plan_free(&plan);
    return 0;
}
