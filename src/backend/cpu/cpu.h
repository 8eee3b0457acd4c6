/*
 * The CPU backend: the object behind struct backend, its workspace, and what its step files share.
 *
 * A step runs as a few fork-join calls on the pool; inside one, work is cut into fixed parts by rows, row blocks or heads,
 * which threads take as they get free.
 * Engine thread only.
 */
#ifndef LILY_BACKEND_CPU_CPU_H
#define LILY_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/matrix.h"
#include "backend/cpu/packed.h"
#include "backend/cpu/state.h"
#include "base/pool.h"

struct cpu_options {
    struct model_shape shape;
    int threads;
    enum cpu_tier tier;
    int max_rows, max_logits;
    bool kv_f32;
    bool fast; /* prefill: fewer digits (backend.c) */
    size_t state_bytes; /* memory for the states of all sequences and borders */
    struct pool *pool;  /* moved, also on failure; NULL: made here, of `threads` */
    const struct packed *packed; /* borrowed until destroy: matrices that it has are not packed again; NULL: none */
};

/* Owned by the caller: backend->ops->destroy. */
lily_status cpu_backend_new(const struct cpu_options *o, struct backend **out, struct lily_err *err);

/*
 * Rows of a prefill piece. Each of the many experts gets few of them, so in short pieces reading and unpacking weights takes most
 * of the time. A short one is the most that is read while another pass is set aside.
 */
enum { CPU_SHORT_ROWS = 512, CPU_MAX_ROWS = 4096 };

/*
 * Rows of a mixer, which gains nothing from more: its many intermediates then stay in a cache, and take little memory. Also the
 * most rows of a batch in decode.
 */
enum { CPU_MIXER_ROWS = 512 };

/* Memory of the workspaces for these options, for the plan. */
size_t cpu_workspace_bytes(const struct model_shape *shape, int max_rows);

/* ---- inside the backend ---- */

struct vector {
    float *data; /* the arena's, 64-byte aligned */
    size_t n;
};

/* One row of a batch. */
struct row_place {
    struct seq *seq; /* borrowed */
    int pos;         /* absolute position of the token */
};

/* Tokens of a batch that chose one expert. */
struct expert_group {
    int expert;
    int first, n; /* range of slots, and of rows in workspace.inner and expert_out */
};

/*
 * Rows of heads of 128 channels. Decode has them side by side, rows ld apart; in prefill the rows of a head lie behind each other,
 * so that whoever works on a head reads one stream.
 */
struct head_rows {
    float *x;
    long ld, step; /* from row to row, from head to head */
};
enum { HEAD_BLOCKS = GDN_DIM / BLOCK_ROWS }; /* row blocks of a head */

static inline float *head_row(const struct head_rows *h, int head, long row)
{
    return h->x + head * h->step + row * h->ld;
}

/* All intermediates of one batch; n is max_rows, m that or CPU_MIXER_ROWS, if it is less. Sizes in floats unless said. */
struct workspace {
    float *x;            /* (n, hidden) residual stream */
    struct act norm;     /* (n, hidden) normed input of a mixer or of the experts */
    struct act routed;   /* (n, hidden) norm as prefill of the routed experts reads it, each row a run of its own, where that is not as norm is; x and sums NULL */
    float *rotary;       /* (n, 64): cos of 32 frequencies, then sin */
    struct head_rows qkv; /* m pre-convolution rows of conv_dim */
    float *conv;         /* (m, ld_conv) of decode */
    struct head_rows z;  /* m rows of value_dim */
    float *b, *a;        /* (m, ld_heads) in: projections; out: beta and decay */
    struct act mixed;    /* (m, value_dim or n_q_heads*256) input of the output projection */
    float *q;            /* (m, n_q_heads*512) queries and gates */
    float *k, *v;        /* (m, n_kv_heads*256) */
    struct digits router_digits; /* (n, hidden) rows of norm as three digits: the router's input */
    struct digits value_digits;  /* in the same place: (n, hidden) rows of norm with more digits than norm has, for values of delta rule layers */
    float *router;       /* (n, ld_experts) logits */
    float *shared_gate;  /* (n, 16) first column used: the product, then its sigmoid, the shared expert's weight */
    int32_t *top;        /* (n, 8) experts, best first */
    float *top_weight;   /* (n, 8) */
    struct expert_group *groups; /* (n_experts) */
    int n_groups;
    int32_t *slot_token; /* (n*8) slots sorted by expert: the batch row of each */
    float *slot_weight;  /* (n*8) the weight of a slot's expert in its row */
    int32_t *slot_of;    /* (n, 8) the slot of a row's choices, best first */
    struct act inner;    /* (n*8, expert_dim) silu(gate)*up of each slot; prefill makes only the form that is read */
    struct act shared;   /* (n, shared_dim) the same */
    float *expert_out;   /* (m*8, ld_hidden) of decode */
    float *shared_out;   /* (m, ld_hidden) of a mixer, and of the shared expert in decode */
    struct act head;     /* (max_logits, hidden) */
    int ld_conv, ld_z, ld_heads, ld_q, ld_kv, ld_experts, ld_hidden;
};

/* Digits of activations for 4-bit matrices. */
struct digit_choice {
    bool bf16;  /* bf16 on tiles in place of digits; the counts are then 0 */
    int count;  /* 0: fp32 */
    int routed; /* of the normed rows for the chosen experts' gate and up; 0: those of the other matrices, not laid together */
    int delta;  /* of the normed rows for queries, keys and z of delta rule layers; values and gates have `count` */
    bool router; /* the router's normed rows have three of their own */
};

/* The first layer and the head; all between. What the first layer gets wrong goes through all others. */
enum digit_place { AT_ENDS, BETWEEN, DIGIT_PLACES };

/* What a pass has between two steps. */
struct pass_memory {
    struct workspace ws;
    struct row_place *place;   /* owned; (max_rows) */
    const struct batch *batch; /* borrowed between begin and end */
    struct digit_choice now;   /* of the batch, here */
    enum digit_place at;       /* those of `now` */
};

/*
 * Rows of a batch that a mixer takes. batch, place, ws.x and ws.rotary are then those of these rows; here are the batch's own. The
 * other intermediates of a mixer begin with these rows.
 */
struct cpu_window {
    const struct batch *all; /* NULL: no window is open */
    struct row_place *place;
    float *x, *rotary;
    struct batch part;
    struct batch_seq seqs[CPU_MIXER_ROWS]; /* of part */
};

struct cpu_backend {
    struct backend base;
    struct pool *pool; /* owned */
    const struct packed *packed; /* borrowed; NULL: matrices are packed in memory */
    struct cpu_kernels kernels;
    struct state_pool states;
    struct arena weights; /* and the workspace: all that every token reads */
    struct workspace ws;
    bool attn_fast; /* prefill attends with attention_fast */
    const struct batch *batch;  /* borrowed between begin and end */
    struct row_place *place;    /* owned; (max_rows) */
    double frequency[ROTARY_DIM / 2]; /* radians per position */
    struct digit_choice digits[2][DIGIT_PLACES]; /* of each phase */
    struct digit_choice now;                     /* of the batch, here */
    enum digit_place at;                         /* those of `now` */
    struct cpu_window window;
    struct pass_memory other; /* of short passes, or of the pass that is set aside for one */
};

static inline struct cpu_backend *cpu_of(struct backend *be)
{
    return (struct cpu_backend *)be;
}

static inline int round_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

/* The memory is the arena's. */
lily_status workspace_new(struct workspace *ws, struct arena *arena, const struct model_shape *s, int max_rows, int max_logits,
                          struct lily_err *err);

/* n rows of `a` from `row` on, in every form that is made of them; as bf16 they are a run of their own. */
struct act act_run(const struct act *a, long row, int n);
/* Completes n groups of 64 of one row, from `group` on: their sums, and their digits where this phase multiplies with them. */
void act_groups(const struct cpu_backend *c, const struct act *a, long row, int group, int n);
/* The same of values that lie elsewhere. */
void act_groups_of(const struct cpu_backend *c, const struct act *a, long row, int group, int n, const float *x);

/* One matrix times n rows of act; `rows` lists them, NULL: 0 … n-1. */
struct product {
    const struct matrix *matrix;
    int expert;
    const struct act *act;
    const int32_t *rows;
    int n;
    float *y; /* (n, ldy) */
    int ldy;
    long step; /* from a head's outputs to those of the next, as in head_rows; 0: all of a row lie side by side */
    struct block_run next; /* as in digit_job */
    struct later_sums sums; /* as in bf16_job, but of row block 0 */
};
/* Row blocks first … last-1 with a few rows at a time, so that these stay in the second-level cache. */
void product_blocks(const struct cpu_backend *c, const struct product *p, long first, long last);
/* The end of the rows that belong together in one call of a matrix kernel, of those of a product from `from` on. */
int product_piece(const struct product *p, int from);
/* The rows from … to-1, a piece, times n_blocks row blocks from `block` on; y is the place of the first of them. */
void product_run(const struct cpu_backend *c, const struct product *p, int from, int to, int block, int n_blocks, float *y);

/* Parts for so many units of work: in prefill more than threads, for whoever is free; at least one a thread. */
int run_parts(const struct cpu_backend *c, int units);
/*
 * Runs fn over parts of the batch's rows: a single row has one part, for which nobody is woken; of many rows a part has at least
 * these.
 */
enum { ROWS_AT_ONCE = 64 };
void run_rows(struct cpu_backend *c, pool_fn fn, void *arg);
/* Runs fn over parts of row blocks of so many bytes. */
void run_blocks(struct cpu_backend *c, size_t bytes, pool_fn fn, void *arg);

/* y[i] = matrix * act row i for the batch's rows, on all threads; y has leading dimension ldy. */
struct linear {
    const struct matrix *matrix;
    float *y;
    int ldy;
    long step; /* as in struct product */
};
/* Several products of the same rows in one fork-join call. */
void cpu_linear(struct cpu_backend *c, const struct linear *l, int n_linear, const struct act *act, int n_rows);
/* Whether a product of m with rows of a, in the forms that a has, reads them as fp32 (and their sums). */
bool reads_fp32(const struct act *a, const struct matrix *m);

/* How rows are normed. */
struct norm {
    const struct vector *weight;
    bool fp32;                 /* somebody reads them so */
    const struct digits *more; /* a second number of digits; NULL: none */
};
/* out = rms(x) * weight for every row, in the forms that out has. */
void cpu_norm_rows(struct cpu_backend *c, const float *x, const struct norm *norm, const struct act *out);
/*
 * The same of row t alone, which is returned as fp32: it lies in row `place` of out. That is another than t where nobody reads it
 * later, so that one row's memory stays in a cache; then there are no sums either.
 */
const float *cpu_norm_row(const struct cpu_backend *c, const float *x, const struct vector *w, const struct act *out, long t, long place);
/* x += y, rows of leading dimension ldy. */
void cpu_add_rows(struct cpu_backend *c, const float *y, int ldy);

/* backend_ops.take_rows (window.c). */
int cpu_take_rows(struct backend *be, int from);

/* Sets the digits that activations get from now on. */
void cpu_set_digits(struct cpu_backend *c, enum digit_place place);

/* The steps, one file each. */
void cpu_step_begin(struct backend *be, const struct batch *batch);
void cpu_step_embed(struct backend *be, const struct matrix *table);
void cpu_step_head(struct backend *be, const struct vector *norm, const struct matrix *head);
lily_status cpu_step_end(struct backend *be, struct lily_err *err);
void cpu_step_gdn_in(struct backend *be, const struct gdn_weights *w);
void cpu_step_gdn_mix(struct backend *be, const struct gdn_weights *w, int index);
void cpu_step_gdn_out(struct backend *be, const struct gdn_weights *w);
void cpu_step_attn_in(struct backend *be, const struct attn_weights *w, int index);
void cpu_step_attn_mix(struct backend *be, int index);
void cpu_step_attn_out(struct backend *be, const struct attn_weights *w);
void cpu_step_moe_route(struct backend *be, const struct moe_weights *w);
void cpu_step_moe_experts(struct backend *be, const struct moe_weights *w);

#endif
