/* The workspace: one block of device memory carved into the intermediates of a batch. */
#include <cstring>

#include "backend/cuda/gemm.cuh"

struct carver {
    uint8_t *base; /* NULL: only counts */
    size_t used;
};

template <typename T> static void carve(struct carver *c, T **out, size_t n)
{
    *out = c->base ? (T *)(c->base + c->used) : NULL;
    c->used += (n * sizeof(T) + 255) / 256 * 256;
}

static void carve_decode(struct workspace *ws, const struct model_shape *s, struct carver *c)
{
    size_t n = MAX_DECODE, heads = (size_t)s->n_gdn_v_heads;
    carve(c, &ws->normed, n * (size_t)ws->pad_hidden);
    carve(c, &ws->ss, n * (size_t)s->hidden / 16);
    carve(c, &ws->u, n * (size_t)ws->ld_u);
    carve(c, &ws->gates, n * 2 * heads);
    carve(c, &ws->mix, n * (size_t)ws->pad_mix);
    carve(c, &ws->o_ss, n * heads * 4);
    carve(c, &ws->part, n * (size_t)s->n_q_heads * MAX_SPLITS * HEAD_DIM);
    carve(c, &ws->part_ms, n * (size_t)s->n_q_heads * MAX_SPLITS * 2);
    carve(c, &ws->router, n * (size_t)ws->ld_experts);
    carve(c, &ws->shared_gate, n);
    carve(c, &ws->inner_shared, n * (size_t)ws->pad_shared);
    carve(c, &ws->inner_experts, n * TOP * (size_t)ws->pad_expert);
    carve(c, &ws->logits, (size_t)DECODE_ROWS * (size_t)ws->ld_logits);
    carve(c, &ws->normed_head, (size_t)DECODE_ROWS * (size_t)ws->pad_hidden);
    carve(c, &ws->ss_head, (size_t)DECODE_ROWS * (size_t)s->hidden / 16);
}

static void carve_prefill(struct workspace *ws, const struct model_shape *s, size_t n, struct carver *c)
{
    size_t slots = n * TOP;
    carve(c, &ws->norm, n * (size_t)ws->pad_hidden);
    carve(c, &ws->norm_rest, n * (size_t)ws->pad_hidden);
    carve(c, &ws->norm_sum, n * (size_t)ws->pad_hidden / 64);
    carve(c, &ws->qkv, n * (size_t)ws->ld_qkv);
    carve(c, &ws->z, n * (size_t)shape_gdn_value_dim(s));
    carve(c, &ws->gdn_o, n * (size_t)shape_gdn_value_dim(s));
    carve(c, &ws->chunks, (n + GRID - 1) / GRID * prefill_gdn_chunk_bytes(s));
    carve(c, &ws->ba, n * 2 * (size_t)ws->ld_heads);
    carve(c, &ws->mixed, n * (size_t)ws->pad_mix);
    carve(c, &ws->mixed_rest, n * (size_t)ws->pad_mix);
    carve(c, &ws->router_p, n * (size_t)ws->ld_experts);
    carve(c, &ws->shared_gate_p, n * 16);
    carve(c, &ws->top, slots);
    carve(c, &ws->top_weight, slots);
    carve(c, &ws->slot_row, slots);
    carve(c, &ws->slot_of, slots);
    carve(c, &ws->expert_count, (size_t)s->n_experts);
    carve(c, &ws->expert_cursor, (size_t)s->n_experts);
    carve(c, &ws->n_blocks, 1);
    carve(c, &ws->blocks, (size_t)ws->max_blocks);
    carve(c, &ws->inner, slots * (size_t)ws->pad_expert);
    carve(c, &ws->shared, n * (size_t)ws->pad_shared);
    carve(c, &ws->expert_out, slots * (size_t)s->hidden);
    carve(c, &ws->shared_out, n * (size_t)s->hidden);
}

static void carve_all(struct workspace *ws, const struct model_shape *s, int max_rows, struct carver *c)
{
    size_t n = (size_t)(max_rows > MAX_DECODE ? max_rows : MAX_DECODE);
    int q = s->n_q_heads * HEAD_DIM, value = shape_gdn_value_dim(s), conv = shape_conv_dim(s), attn = 2 * q + 2 * s->n_kv_heads * HEAD_DIM;
    ws->ld_u = conv + value > attn ? conv + value : attn;
    ws->ld_qkv = conv > attn ? conv : attn;
    ws->ld_heads = round_up(s->n_gdn_v_heads, 16);
    ws->ld_experts = round_up(s->n_experts, 16);
    ws->ld_logits = shape_logits_ld(s);
    ws->pad_hidden = round_up(s->hidden, UNIT_COLS);
    ws->pad_mix = round_up(value > q ? value : q, UNIT_COLS);
    ws->pad_expert = round_up(s->expert_dim, UNIT_COLS);
    ws->pad_shared = round_up(s->shared_dim, UNIT_COLS);
    ws->max_blocks = (int)(n * TOP / MOE_BLOCK) + s->n_experts + 1;
    /* One copy fills these (pass.cu). */
    carve(c, &ws->id, n);
    carve(c, &ws->pos, n);
    carve(c, &ws->seq_of, n);
    carve(c, &ws->pass, 1);
    ws->rows_bytes = c->used;
    carve(c, &ws->rotary, n * ROTARY_DIM);
    carve(c, &ws->x, n * (size_t)s->hidden);
    carve_decode(ws, s, c);
    carve_prefill(ws, s, n, c);
}

lily_status workspace_new(struct workspace *ws, const struct model_shape *s, int max_rows, struct lily_err *err)
{
    struct carver c = {};
    memset(ws, 0, sizeof *ws);
    carve_all(ws, s, max_rows, &c);
    ws->bytes = c.used;
    CUDA_TRY(cudaMalloc((void **)&ws->block, ws->bytes), "the workspace");
    /* Padded columns are never written, and must count as zero. */
    CUDA_TRY(cudaMemset(ws->block, 0, ws->bytes), "the workspace");
    c.base = ws->block;
    c.used = 0;
    carve_all(ws, s, max_rows, &c);
    return LILY_OK;
}

void workspace_free(struct workspace *ws)
{
    cudaFree(ws->block);
    cudaFree(ws->keys);
    memset(ws, 0, sizeof *ws);
}
