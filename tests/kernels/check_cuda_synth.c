/*
 * Synthetic weights of the full size, made in a card's memory by rule, against the words that `lily synth` writes (load/synth.h):
 * rows of modules of every kind, read back as if they were an embedding.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "check_cuda.h"
#include "load/synth.h"

enum { ROWS = 64 };

/* Element i of a BF16 tensor, and the code at a place, from words as a file would have them. */
static float element(const struct synth_rule *r, size_t i)
{
    uint32_t word;
    synth_fill(r, (uint32_t)(i / 2), &word, 1);
    return bf16_to_f32((uint16_t)(i % 2 ? word >> 16 : word));
}

static float weight_at(const struct module_view *v, size_t row, int k)
{
    size_t at = row * (size_t)v->cols + (size_t)k, per_word = 32 / (size_t)v->bits;
    uint32_t word;
    synth_fill(v->weight.synth, (uint32_t)(at / per_word), &word, 1);
    float q = (float)(word >> (at % per_word * (size_t)v->bits) & ((1u << v->bits) - 1));
    return fmaf(q, element(v->scales.synth, at / QUANT_GROUP), element(v->biases.synth, at / QUANT_GROUP));
}

/* Embeds ROWS ids, rows of the module. */
static bool read_rows(struct backend *be, const struct matrix *m, const int32_t *ids, float *out, struct lily_err *err)
{
    struct batch_seq one = {NULL, ROWS};
    if (be->ops->seq_new(be, &one.seq, err) != LILY_OK || be->ops->seq_reserve(be, one.seq, ROWS, err) != LILY_OK) return false;
    struct batch b = {.phase = PHASE_PREFILL, .n_seqs = 1, .seqs = &one, .n_rows = ROWS, .ids = ids};
    be->watched = true;
    be->ops->step.begin(be, &b);
    be->ops->step.embed(be, m);
    be->ops->step.read_hidden(be, out);
    bool ok = be->ops->step.end(be, err) == LILY_OK;
    be->ops->seq_free(be, one.seq);
    return ok;
}

static void check_rows(const struct module_view *v, const struct model_shape *shape, struct random *r)
{
    struct lily_err err = {0};
    struct cuda_options o = {.shape = *shape, .device = CUDA_ANY, .max_rows = ROWS, .max_logits = 1, .state_bytes = 256 << 20};
    struct backend *be = NULL;
    struct matrix *m = NULL;
    int32_t ids[ROWS];
    int64_t last = (int64_t)v->n_experts * v->rows - 1;
    float *out = calloc((size_t)ROWS * (size_t)v->cols, sizeof *out);
    o.shape.hidden = v->cols;
    for (int i = 0; i < ROWS; i++) ids[i] = i == 0 ? 0 : i == 1 ? (int32_t)last : random_int(r, 0, (int)last);
    bool ok = cuda_backend_new(&o, &be, &err) == LILY_OK && be->ops->load_matrix(be, v, &m, &err) == LILY_OK;
    ok = ok && read_rows(be, m, ids, out, &err);
    if (!ok) case_fail("%s", err.msg);
    for (int i = 0; ok && i < ROWS && !case_failed(); i++) {
        const float *row = out + (size_t)i * (size_t)v->cols;
        for (int k = 0; k < v->cols; k++) expect_close("weight", k, row[k], (double)weight_at(v, (size_t)ids[i], k), 0);
    }
    if (be) {
        be->ops->free_matrix(be, m);
        be->ops->destroy(be);
    }
    free(out);
}

void check_cuda_synth(struct random *r)
{
    struct synth_plan plan;
    struct checkpoint *ck;
    struct lily_err err = {0};
    case_begin("synth", "the plan");
    if (synth_plan_make(SYNTH_35B, 1, &plan, &err) != LILY_OK) case_fail("%s", err.msg);
    if (!case_failed()) {
        const struct model_shape *s = &plan.config.shape;
        const struct module_want wants[] = {
            {"model.embed_tokens", 0, s->vocab, s->hidden},
            {"lm_head", 0, s->vocab, s->hidden},
            {"model.layers.0.linear_attn.in_proj_qkv", 0, shape_conv_dim(s), s->hidden},
            {"model.layers.0.linear_attn.out_proj", 0, s->hidden, shape_gdn_value_dim(s)},
            {"model.layers.39.self_attn.q_proj", 0, 2 * s->n_q_heads * HEAD_DIM, s->hidden},
            {"model.layers.7.mlp.gate", 0, s->n_experts, s->hidden},
            {"model.layers.20.mlp.switch_mlp.up_proj", s->n_experts, s->expert_dim, s->hidden},
            {"model.layers.39.mlp.switch_mlp.down_proj", s->n_experts, s->hidden, s->expert_dim},
            {"model.layers.39.mlp.shared_expert_gate", 0, 1, s->hidden},
        };
        checkpoint_of_synth(&plan, &ck);
        for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
            struct module_view v;
            case_end();
            case_begin("synth", "%s", wants[i].path);
            if (checkpoint_module(ck, &wants[i], &v, &err) != LILY_OK) case_fail("%s", err.msg);
            else check_rows(&v, s, r);
        }
        checkpoint_close(ck);
    }
    case_end();
    synth_plan_free(&plan);
}
