/*
 * The CUDA backend inside: the object behind struct backend, matrices, sequences, the workspace, and what its files share.
 *
 * Everything runs on one stream. A pass is built of kernels launched by the steps; a decode pass of a kind that was seen
 * before is one graph, and its steps launch nothing. Engine thread only.
 */
#ifndef LILY_BACKEND_CUDA_DEVICE_CUH
#define LILY_BACKEND_CUDA_DEVICE_CUH

#include <cuda_runtime.h>

extern "C" {
#include "backend/cuda/cuda.h"
#include "base/err.h"
}
#include "backend/cuda/common.cuh"

enum {
    DECODE_ROWS = 8,     /* rows of one decode pass through the weights */
    MAX_DECODE = 64,     /* rows of one decode batch */
    MAX_SEQS = 256,      /* sequences of one batch */
    MOE_BLOCK = 16,      /* fewest tokens of an expert that go through the weights together, in prefill */
    MAX_SPLITS = 66,     /* parts of the keys in decode attention: of two key-value heads, one for each multiprocessor of an H200 */
};

/* Checks a CUDA call in a function that returns lily_status and has err. */
#define CUDA_TRY(call, what)                                                                                           \
    do {                                                                                                               \
        cudaError_t e_ = (call);                                                                                       \
        if (e_ != cudaSuccess) return cuda_failed(e_, what, err);                                                      \
    } while (0)

lily_status cuda_failed(cudaError_t e, const char *what, struct lily_err *err);

/* A packed module. */
struct matrix {
    int planes;                  /* 1: 4 bits, 2: 8 bits */
    int n_experts, rows, cols;   /* logical */
    int tiles, units;            /* per expert: tiles of 16 rows; per tile: places of 128 columns */
    size_t tile_bytes, expert_bytes, bytes;
    uint8_t *data;               /* owned, device */
};

struct vector {
    float *data; /* owned, device */
    size_t n;
};

/* What a pass chose for a sequence, in host memory; the serial comes last. */
struct pick_result {
    int32_t id, bad_id;
    float bad;
    int32_t stopped;
    uint32_t serial;
};

enum { PICK_RING = 4 };
#define PICK_SEEN 0x80000000u /* in pick_state.seen: in prompt or output; the rest counts the output */

/* How a sequence's tokens are chosen, and the last one; in device memory (pick.cu). */
struct pick_state {
    double temperature, top_p, min_p, repetition, presence, frequency;
    u64 seed, step;
    int top_k, n_tokens, n_bias, n_stop, counting;
    int32_t stop[PICK_STOPS];
    const struct logit_bias *bias; /* rising ids */
    u32 *seen;                     /* (n_tokens) when counting */
    pick_result *results;          /* host; (PICK_RING) */
    u32 serial, picks;             /* results are numbered serial + 1, … */
    int32_t next, halted;          /* halted: the last was a stop, and nothing follows it by itself */
};

struct state_pool {
    const struct model_shape *shape; /* borrowed */
    bool kv_bf16;
    size_t head_bytes, page_bytes, budget, used;
    uint8_t *region;   /* owned, device */
    int max_pages;
    int *refs, *free_list; /* owned */
    int n_free;
};

struct seq {
    struct state_pool *pool; /* borrowed */
    int32_t *pages;          /* owned; (n_pages) numbers of pages */
    int32_t *device_pages;   /* owned, device; (cap_pages), the first n_pages valid after seq_reserve */
    int n_pages, cap_pages;
    int length;
    float *recurrent;        /* owned, device; (n_linear, n_gdn_v_heads, v 128, k 128), then the convolution (n_linear, 3, conv_dim) */
    float *conv;
    float *kept;             /* owned, device; like recurrent, at kept_at tokens: of the pass that went over them. NULL: none */
    int kept_at;
    pick_state *pick;        /* owned, device; NULL until pick_rules */
    u32 *seen;               /* owned, device */
    struct logit_bias *bias; /* owned, device */
    pick_result *results;    /* owned, host, pinned */
    u32 serial, launched, taken; /* passes that choose, picks that were taken since pick_rules */
};

struct border {
    struct state_pool *pool;
    int32_t *pages; /* owned; a reference to each */
    int n_pages, length;
    float *recurrent; /* owned, device; with the convolution behind */
};

/* What a pass is about, in device memory: rows, and the sequences they belong to. */
struct seq_view {
    float *recurrent, *conv;
    const int32_t *pages;
    pick_state *pick; /* NULL: the pass does not choose */
    int first, n;     /* rows of the batch */
    float *keep, *keep_conv; /* where the states after keep_rows of them go, too; NULL: nowhere */
    int keep_rows;
};
struct pass {
    int n_rows, n_seqs;
    struct seq_view seq[MAX_SEQS];
};

/* A decode pass that is a graph, as the host asks for it: in host memory, in a ring, since passes may wait in the stream. */
struct pass_request {
    int n_rows, n_seqs;
    int32_t id[DECODE_ROWS]; /* or ID_CHOSEN */
    int32_t pos[DECODE_ROWS], seq_of[DECODE_ROWS];
    struct seq_view seq[DECODE_ROWS];
};
enum { REQUESTS = 8 };
struct pass_requests {
    struct pass_request ring[REQUESTS];
    u32 done; /* passes whose request was read */
};

/* Intermediates. Decode rows are kept apart from prefill rows: other formats. */
struct workspace {
    int32_t *id, *pos, *seq_of; /* (max_rows) */
    struct pass *pass;
    float *rotary;        /* (max_rows, 64) cosines, sines */
    float *x;             /* (max_rows, hidden) residual stream */
    /* decode */
    float *normed;        /* (MAX_DECODE, pad(hidden)) x times the next norm's weight */
    float *ss;            /* (MAX_DECODE, hidden / 16) sums of squares of x */
    float *u;             /* (MAX_DECODE, ld_u) projections after their nonlinearity */
    float *gates;         /* (MAX_DECODE, 2 * n_gdn_v_heads) beta, then decay */
    float *mix;           /* (MAX_DECODE, pad(mix dim)) input of the output projection */
    float *o_ss;          /* (MAX_DECODE, n_gdn_v_heads, 4) sums of squares of o */
    float *part, *part_ms; /* (MAX_DECODE, n_q_heads, MAX_SPLITS, 256) and (…, 2): attention by parts */
    float *router;        /* (MAX_DECODE, ld_experts) */
    float *shared_gate;   /* (MAX_DECODE) */
    float *inner_shared;  /* (MAX_DECODE, pad(shared_dim)) */
    float *inner_experts; /* (MAX_DECODE, 8, pad(expert_dim)) */
    float *logits;        /* (max_logits, ld_logits) */
    float *normed_head;   /* (DECODE_ROWS, pad(hidden)), for the head after prefill */
    float *ss_head;       /* (DECODE_ROWS, hidden / 16) */
    /* prefill */
    u16 *norm;            /* (max_rows, pad(hidden)) fp16, permuted */
    u16 *norm_rest;       /* the same: what fp16 leaves of the numbers */
    float *norm_sum;      /* (max_rows, hidden / 64) sums of the normed numbers by group */
    float *qkv;           /* (max_rows, ld_qkv): before the convolution; or q, k, v */
    float *z;             /* (max_rows, value_dim) */
    float *gdn_o;         /* (max_rows, value_dim): before the gated norm */
    uint8_t *chunks;      /* (max_rows / 64, …) what the delta rule keeps of 64 rows of a sequence (prefill_gdn.cu) */
    float *ba;            /* (max_rows, 2, 16 * tiles of heads) */
    u16 *mixed;           /* (max_rows, pad(mix dim)) fp16, permuted */
    u16 *mixed_rest;      /* the same: what fp16 leaves */
    float *router_p;      /* (max_rows, ld_experts) */
    float *shared_gate_p; /* (max_rows) */
    int32_t *top;         /* (max_rows, 8) */
    float *top_weight;    /* (max_rows, 8) */
    int32_t *slot_row;    /* (max_rows * 8) sorted by expert */
    int32_t *slot_of;     /* (max_rows, 8) */
    int32_t *expert_count, *expert_cursor; /* (n_experts); counts are zero between layers */
    int32_t *n_blocks;
    struct token_block *blocks; /* (max_blocks) */
    u16 *inner;           /* (max_rows * 8, pad(expert_dim)) fp16, permuted */
    u16 *shared;          /* (max_rows, pad(shared_dim)) fp16, permuted */
    u16 *expert_out;      /* (max_rows * 8, hidden) fp16 */
    u16 *shared_out;      /* (max_rows, hidden) fp16 */
    int ld_u, ld_qkv, ld_heads, ld_experts, ld_logits, pad_hidden, pad_mix, pad_expert, pad_shared, max_blocks;
    size_t rows_bytes;    /* from id to the end of pass */
    uint8_t *keys;        /* owned: keys and values of a sequence and layer in the form of prefill attention; grows */
    size_t keys_bytes;
    uint8_t *block;       /* owned: everything above */
    size_t bytes;
};

struct captured {
    cudaGraphExec_t exec; /* NULL: not captured yet */
};

enum pass_mode { PASS_EAGER, PASS_CAPTURE, PASS_REPLAY };
enum pending_step { PENDING_NONE, PENDING_EMBED, PENDING_GDN_OUT, PENDING_ATTN_OUT, PENDING_EXPERTS };

struct cuda_backend {
    struct backend base;
    int device, n_sms;
    int max_shared;              /* bytes of shared memory that a block may have */
    bool wgmma;                  /* the code that runs was compiled for Hopper's warpgroup products */
    bool overlap;                /* … for launches that overlap */
    cudaStream_t stream;
    cudaError_t error;           /* the first of the present pass */
    struct state_pool states;
    struct workspace ws;
    const struct batch *batch;   /* borrowed between begin and end */
    enum pass_mode mode;
    bool first_launch;           /* the next kernel is the first of the pass: it overlaps with nothing */
    int gdn_seen;                /* gated-delta layers of the pass so far */
    double *frequency;           /* device; (32) radians per position */
    uint8_t *host_rows;          /* pinned; rows and sequences as they lie in the workspace: id, pos, seq_of, pass */
    cudaEvent_t rows_read;       /* the card has what host_rows held */
    float *host_logits;          /* pinned; (DECODE_ROWS, ld_logits) */
    uint8_t *staging[2];         /* pinned */
    uint8_t *device_staging[2];
    cudaEvent_t staged[2];
    struct captured graphs[2][DECODE_ROWS + 1][DECODE_ROWS + 1]; /* by whether it chooses, rows and sequences; every row with logits */
    struct pass_requests *requests; /* pinned */
    u32 n_requests;
    u32 *requests_read;          /* device; how many were */
    float *nowhere;              /* device; takes the state of passes behind a stop; NULL until one can be */
    /* A decode step whose epilogue needs the weight of the next norm waits here until the next step names it. */
    enum pending_step pending;
    const void *pending_weights; /* borrowed */
    const struct attn_weights *attn; /* borrowed; of the attention layer that is under way */
    bool normed_stale;           /* x was written without its product with a norm's weight */
};

static inline struct cuda_backend *cuda_of(struct backend *be)
{
    return (struct cuda_backend *)be;
}

static inline int round_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

/*
 * How much shared memory a decode kernel asks for, in bytes beside what it needs. Two blocks of one kernel on one multiprocessor leave
 * no room for the next kernel's, which then begins late; so where every block can have a multiprocessor of its own, kernels take turns
 * to be LARGE (two do not fit) and MIDDLE (one fits beside a large one).
 */
enum { LARGE = 115 * 1024, MIDDLE = 96 * 1024 };

template <typename... P> static size_t alone(const struct cuda_backend *c, void (*kernel)(P...), dim3 grid, size_t shared, size_t wanted)
{
    cudaFuncAttributes a;
    if (grid.x * grid.y * grid.z > (unsigned)c->n_sms || wanted > (size_t)c->max_shared) return shared;
    if (cudaFuncGetAttributes(&a, (const void *)kernel) != cudaSuccess || a.sharedSizeBytes + shared >= wanted) return shared;
    return wanted - a.sharedSizeBytes;
}

/* Launches on the backend's stream; kernels after the first of a pass may start before their predecessor has ended. */
template <typename... P, typename... A>
static void launch(struct cuda_backend *c, void (*kernel)(P...), dim3 grid, int threads, size_t shared, A... args)
{
    cudaLaunchConfig_t cfg = {};
    cudaLaunchAttribute attr[1];
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    cfg.gridDim = grid;
    cfg.blockDim = dim3((unsigned)threads);
    cfg.dynamicSmemBytes = shared;
    cfg.stream = c->stream;
    attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[0].val.programmaticStreamSerializationAllowed = 1;
    cfg.attrs = attr;
    cfg.numAttrs = c->overlap && !c->first_launch ? 1 : 0;
    c->first_launch = false;
    if (shared > 16 * 1024) cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    /* All alike: a multiprocessor that must change how it divides its memory runs empty first. */
    if (c->batch->phase == PHASE_DECODE) cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    cudaError_t e = cudaLaunchKernelEx(&cfg, kernel, static_cast<P>(args)...);
    if (e != cudaSuccess && c->error == cudaSuccess) c->error = e;
}

/* pack.cu */
lily_status cuda_load_matrix(struct backend *be, const struct module_view *m, struct matrix **out, struct lily_err *err);
void cuda_free_matrix(struct backend *be, struct matrix *m);
enum { STAGING = 16 << 20 };
lily_status cuda_need_staging(struct cuda_backend *c, struct lily_err *err); /* two pinned buffers of that size, for uploads */

/* state.cu */
lily_status state_pool_init(struct state_pool *p, const struct model_shape *shape, bool kv_bf16, size_t budget, struct lily_err *err);
void state_pool_free(struct state_pool *p);
lily_status cuda_seq_new(struct backend *be, struct seq **out, struct lily_err *err);
void cuda_seq_free(struct backend *be, struct seq *s);
void cuda_seq_reset(struct backend *be, struct seq *s);
int cuda_seq_length(const struct seq *s);
lily_status cuda_seq_reserve(struct backend *be, struct seq *s, int n, struct lily_err *err);
lily_status cuda_border_save(struct backend *be, const struct seq *s, struct border **out, struct lily_err *err);
lily_status cuda_seq_keep(struct backend *be, struct seq *s, int length, struct lily_err *err);
lily_status cuda_border_kept(struct backend *be, struct seq *s, int length, struct border **out, struct lily_err *err);
void cuda_border_restore(struct backend *be, struct seq *s, const struct border *b);
void cuda_border_free(struct backend *be, struct border *b);
size_t cuda_border_bytes(const struct backend *be);
lily_status cuda_seq_fill(struct backend *be, struct seq *s, int n, uint64_t seed, struct lily_err *err);
size_t cuda_page_bytes(const struct backend *be);
void cuda_seq_share(struct backend *be, struct seq *s, const struct border *b, int n);
lily_status cuda_border_export(struct backend *be, const struct border *b, int part, size_t at, size_t n, void *out, struct lily_err *err);
lily_status cuda_border_import(struct backend *be, int length, const struct border *base, int n_shared, const struct border_source *src,
                               struct border **out, struct lily_err *err);

/* measure.cu */
lily_status cuda_measure(struct backend *be, struct device_limits *out, struct lily_err *err);

/* pick.cu: tokens chosen on the card */
lily_status picks_init(struct cuda_backend *c, struct lily_err *err);
lily_status cuda_pick_rules(struct backend *be, struct seq *s, const struct pick_rules *r, struct lily_err *err);
lily_status cuda_pick_take(struct backend *be, struct seq *s, struct pick *out, struct lily_err *err);
void decode_pick(struct cuda_backend *c); /* for every row of the pass, from its logits */
void picks_forget(struct seq *s);

/* workspace.cu */
lily_status workspace_new(struct workspace *ws, const struct model_shape *s, int max_rows, struct lily_err *err);
void workspace_free(struct workspace *ws);

/* pass.cu: begin, end, logits */
void pass_begin(struct backend *be, const struct batch *batch);
lily_status pass_end(struct backend *be, struct lily_err *err);
void pass_head(struct cuda_backend *c, const struct vector *norm, const struct matrix *head);
void pass_read_hidden(struct backend *be, float *out);
void pass_graphs_free(struct cuda_backend *c);

/* steps.cu: the table */
extern const struct step_table cuda_steps;
/* Decode: launches what waits, now that the next norm is known (NULL: it is not). */
void decode_flush(struct cuda_backend *c, const struct vector *next_norm);

/* Decode steps take rows [row0, row0 + n) of at most DECODE_ROWS; see decode_groups. */
struct row_group {
    int row0, n, seq0, n_seqs;
};
int decode_groups(const struct batch *b, struct row_group *out); /* at most MAX_DECODE groups; -1: a sequence has too many rows */
void decode_embed(struct cuda_backend *c, const struct matrix *table, const struct vector *norm);
void decode_gdn_in(struct cuda_backend *c, const struct gdn_weights *w);
void decode_gdn_mix(struct cuda_backend *c, const struct gdn_weights *w, int index);
void decode_gdn_out(struct cuda_backend *c, const struct gdn_weights *w, const struct vector *next);
void decode_attn_in(struct cuda_backend *c, const struct attn_weights *w, int index);
void decode_attn_append(struct cuda_backend *c, int index);
void decode_attn_mix(struct cuda_backend *c, int index);
void decode_attn_out(struct cuda_backend *c, const struct attn_weights *w, const struct vector *next);
void decode_moe_route(struct cuda_backend *c, const struct moe_weights *w);
void decode_moe_experts(struct cuda_backend *c, const struct moe_weights *w, const struct vector *next);
/* logits[i] of rows that lie at x, times the norm's weight; n <= DECODE_ROWS. */
void decode_head(struct cuda_backend *c, const struct matrix *head, const float *x, const float *ss, int n, float *logits);
/* n rows of x times a norm's weight, and their sums of squares; rows (at most DECODE_ROWS numbers) picks them, NULL: the first n. */
void decode_weigh(struct cuda_backend *c, const int32_t *rows, const struct vector *norm, int n, float *normed, float *ss);

/* Bytes of ws.chunks for 64 rows. */
size_t prefill_gdn_chunk_bytes(const struct model_shape *s);
void prefill_embed(struct cuda_backend *c, const struct matrix *table);
void prefill_gdn_in(struct cuda_backend *c, const struct gdn_weights *w);
void prefill_gdn_mix(struct cuda_backend *c, const struct gdn_weights *w, int index);
void prefill_gdn_out(struct cuda_backend *c, const struct gdn_weights *w);
void prefill_attn_in(struct cuda_backend *c, const struct attn_weights *w, int index);
void prefill_append(struct cuda_backend *c, const struct attn_weights *w, int index); /* keys and values into their pages */
void prefill_attn_mix(struct cuda_backend *c, int index);
void prefill_attn_out(struct cuda_backend *c, const struct attn_weights *w);
void prefill_moe_route(struct cuda_backend *c, const struct moe_weights *w);
void prefill_moe_experts(struct cuda_backend *c, const struct moe_weights *w);

#endif
