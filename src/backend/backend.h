/*
 * What a compute device offers: memory for weights and state, and the table of fused steps of which one forward pass is
 * made. model/forward.c calls the steps in order; how a step is done is the backend's own affair.
 *
 * Nouns: matrix (a packed linear module), vector (a small fp32 parameter), seq (the live state of one sequence: KV pages,
 * recurrent and convolution state), border (an immutable copy of a prefill state on the grid of 64), batch (rows of one
 * phase that go through the model together).
 *
 * Bits (ARCHITECTURE.md, State): in PHASE_PREFILL a row's result depends only on the tokens before it in its sequence; it
 * depends neither on neighbours in the batch, nor on how the prompt was cut into pieces that begin on the grid, nor on the
 * number of threads. In PHASE_DECODE the same holds for the slot and the neighbours.
 *
 * Threads: one thread drives a backend (the engine thread); borders may be freed only by it, too.
 * Lifetime: the backend outlives everything made from it.
 */
#ifndef LILY_BACKEND_BACKEND_H
#define LILY_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "spec/shape.h"
#include "spec/tensor.h"

struct backend;
struct matrix;
struct vector;
struct seq;
struct border;

enum phase { PHASE_PREFILL, PHASE_DECODE };

/* A run of consecutive tokens of one sequence inside a batch. */
struct batch_seq {
    struct seq *seq; /* borrowed; its length grows by n when the pass ends */
    int n;           /* rows, >= 1 */
};

struct batch {
    enum phase phase;
    int n_seqs;
    const struct batch_seq *seqs; /* (n_seqs); each seq appears once */
    int n_rows;                   /* sum of seqs[].n, at most backend_limits.max_rows */
    const int32_t *ids;           /* (n_rows) token ids, checked to be < vocab by the caller */
    int n_logits;                 /* rows whose logits are wanted, at most max_logits */
    const int32_t *logit_rows;    /* (n_logits) rising row numbers */
    float *logits;                /* (n_logits, shape_logits_ld) fp32, host memory, written by the head step */
    bool choose;                  /* decode, one row a sequence: no logits go out, the device chooses the next tokens (pick_rules) */
};

/* In batch.ids of a batch that chooses: the token that was chosen after the sequence's last pass. */
enum { ID_CHOSEN = -1 };

/*
 * How a device chooses a sequence's tokens from logits. The numbers mean what sample/sampler.h says, and the token is the one
 * that a sampler of the host in the same state would pick.
 */
struct logit_bias {
    int32_t id;
    float value; /* added to the logit; -100…100 */
};
struct pick_rules {
    double temperature, top_p, min_p, repetition, presence, frequency;
    int top_k;
    uint64_t seed, step;   /* step: of the next pick */
    int n_tokens;          /* ids from here on are never chosen */
    const uint32_t *count; /* (n_tokens) occurrences in the output; NULL: nothing is counted */
    const uint8_t *known;  /* (n_tokens) 1: in prompt or output */
    const struct logit_bias *bias; /* rising ids */
    int n_bias;
    const int32_t *stop;   /* behind one of these the sequence takes no token that the device chose */
    int n_stop;            /* at most PICK_STOPS */
};
enum { PICK_STOPS = 8 };

/* A token that was chosen; or, where the model's output is no number, bad_id >= 0 and that logit. */
struct pick {
    int32_t id, bad_id;
    float bad;
    bool stopped; /* the id is one of rules.stop */
};

/* Weights of the layers; all borrowed by the steps. Shapes are rows x cols of the matrix. */
struct gdn_weights {
    struct vector *norm;    /* (hidden) input layer norm */
    struct matrix *in_qkv;  /* conv_dim x hidden */
    struct matrix *in_z;    /* value_dim x hidden */
    struct matrix *in_b;    /* n_gdn_v_heads x hidden */
    struct matrix *in_a;    /* n_gdn_v_heads x hidden */
    struct vector *conv;    /* (conv_dim, 4), weight 3 on the current token */
    struct vector *a_log;   /* (n_gdn_v_heads) */
    struct vector *dt_bias; /* (n_gdn_v_heads) */
    struct vector *out_norm; /* (128) */
    struct matrix *out;     /* hidden x value_dim */
};

struct attn_weights {
    struct vector *norm;   /* (hidden) */
    struct matrix *q;      /* n_q_heads*512 x hidden; per head 256 query rows, then 256 gate rows */
    struct matrix *k, *v;  /* n_kv_heads*256 x hidden */
    struct vector *q_norm; /* (256) */
    struct vector *k_norm; /* (256) */
    struct matrix *o;      /* hidden x n_q_heads*256 */
};

struct moe_weights {
    struct vector *norm;        /* (hidden) post attention layer norm */
    struct matrix *router;      /* n_experts x hidden */
    struct matrix *gate, *up;   /* n_experts stacks of expert_dim x hidden */
    struct matrix *down;        /* n_experts stacks of hidden x expert_dim */
    struct matrix *shared_gate_proj, *shared_up; /* shared_dim x hidden */
    struct matrix *shared_down; /* hidden x shared_dim */
    struct matrix *shared_gate; /* 1 x hidden */
};

/*
 * The fused steps. Each works on the rows of the batch given to begin; the residual stream x (n_rows, hidden) and all
 * intermediates live in the backend's workspace. `index` counts layers of that kind from 0 and selects state.
 */
struct step_table {
    void (*begin)(struct backend *be, const struct batch *batch); /* positions, rotary angles */
    void (*embed)(struct backend *be, const struct matrix *table); /* x = table[ids] */
    void (*gdn_in)(struct backend *be, const struct gdn_weights *w); /* norm, qkv z b a */
    void (*gdn_mix)(struct backend *be, const struct gdn_weights *w, int index); /* conv, gates, delta rule, gated norm */
    void (*gdn_out)(struct backend *be, const struct gdn_weights *w); /* x += out * y */
    void (*attn_in)(struct backend *be, const struct attn_weights *w, int index); /* norm, q k v, norms, rope, append */
    void (*attn_mix)(struct backend *be, int index); /* softmax attention, output gate */
    void (*attn_out)(struct backend *be, const struct attn_weights *w); /* x += o * y */
    void (*moe_route)(struct backend *be, const struct moe_weights *w); /* norm, router, top 8, shared gate */
    void (*moe_experts)(struct backend *be, const struct moe_weights *w); /* x += experts + shared expert */
    void (*head)(struct backend *be, const struct vector *norm, const struct matrix *head); /* logits of batch.logit_rows */
    /* Ends the pass: sequences have grown. Returns the device's error, if any, of the whole pass. */
    lily_status (*end)(struct backend *be, struct lily_err *err);
    /* Copies x (n_rows, hidden) out, between steps; for golden tests. */
    void (*read_hidden)(struct backend *be, float *out);
};

struct backend_limits {
    int max_rows;   /* rows of one batch */
    int max_logits; /* logit rows of one batch */
    int max_chosen; /* rows of one batch that chooses */
    int short_rows; /* rows of one batch while a pass is set aside; 0: no pass can be */
    bool pairs_alike; /* gate and up have the same bits, and so have the router and the gate of the shared expert: they are multiplied together */
};

/*
 * Where the bytes of a border come from when it is made again. A part is a KV page of 64 tokens (0, 1, … by position), or
 * BORDER_FIXED, the recurrent and convolution state. The bytes are the backend's own form; only backends with the same
 * shape and `code` read them.
 */
enum { BORDER_FIXED = -1, BORDER_SLICE = 4 << 20 };
struct border_source {
    /*
     * Bytes [at, at + n) of a part: `at` is a multiple of BORDER_SLICE, n is that or what is left of the part. Each slice is read once,
     * in any order, perhaps by several threads at once. Reading all of a part that is damaged fails.
     */
    lily_status (*read)(void *ctx, int part, size_t at, size_t n, void *out, struct lily_err *err);
    void *ctx;
};

/* What a device reached in a short measurement: the yardstick of its speed. */
struct device_limits {
    double read_gb_s;      /* reading memory, 1e9 bytes a second; 0: not known */
    double matmul_gop_s;   /* the products that prefill is made of, 1e9 operations a second (a multiply-add is two); 0: not known */
    const char *matmul_what; /* static text: "int8, AVX2" */
    double slow_below_gb_s;  /* a device of this kind that reads less is slowed down by something else; 0: no such rule */
};

struct backend_ops {
    struct step_table step;
    void (*destroy)(struct backend *be);

    /*
     * Packs a module into device memory; where its tensors carry rules (spec/synth.h) the bytes are made on the device. Owned
     * by the caller; freed with free_matrix.
     */
    lily_status (*load_matrix)(struct backend *be, const struct module_view *m, struct matrix **out,
                               struct lily_err *err);
    void (*free_matrix)(struct backend *be, struct matrix *m);
    lily_status (*load_vector)(struct backend *be, const float *data, size_t n, struct vector **out,
                               struct lily_err *err);
    void (*free_vector)(struct backend *be, struct vector *v);

    /* An empty sequence. Owned by the caller. */
    lily_status (*seq_new)(struct backend *be, struct seq **out, struct lily_err *err);
    void (*seq_free)(struct backend *be, struct seq *s);
    void (*seq_reset)(struct backend *be, struct seq *s); /* back to no tokens */
    int (*seq_length)(const struct seq *s);               /* tokens in the state */
    /* Makes room for n more tokens: LILY_ERR_MEMORY when the pages are used up. Call before a batch. */
    lily_status (*seq_reserve)(struct backend *be, struct seq *s, int n, struct lily_err *err);

    /* Copies the state at the present length, which must lie on the grid; KV pages are shared, not copied. Owned. */
    lily_status (*border_save)(struct backend *be, const struct seq *s, struct border **out, struct lily_err *err);
    /*
     * Both NULL where a state can be saved between passes only. seq_keep: the sequence's next prefill pass, which must reach beyond
     * `length`, a multiple of 64 behind the present one, also keeps the state there, until it is reset or restored; LILY_ERR_MEMORY
     * when there is no room. border_kept makes a border of it; *out is NULL when no pass has kept that length. Owned.
     */
    lily_status (*seq_keep)(struct backend *be, struct seq *s, int length, struct lily_err *err);
    lily_status (*border_kept)(struct backend *be, struct seq *s, int length, struct border **out, struct lily_err *err);
    void (*border_restore)(struct backend *be, struct seq *s, const struct border *b);
    void (*border_free)(struct backend *be, struct border *b);
    size_t (*border_bytes)(const struct backend *be); /* memory of a border beside its shared pages */
    size_t (*page_bytes)(const struct backend *be);   /* memory of a KV page: 64 tokens of all full-attention layers */

    /*
     * Lets the sequence use the border's first n pages instead of its own, so that nothing is held twice. The caller knows
     * that both stand for the same tokens; they are equal bit for bit then, since both come from prefill. n*64 <= both lengths.
     */
    void (*seq_share)(struct backend *be, struct seq *s, const struct border *b, int n);
    /* Copies n bytes of a part, which has border_bytes or page_bytes, from `at` on to host memory. Changes nothing. */
    lily_status (*border_export)(struct backend *be, const struct border *b, int part, size_t at, size_t n, void *out, struct lily_err *err);
    /*
     * Makes a border of `length` tokens (a multiple of 64) from bytes: its first n_shared pages are those of `base` (borrowed;
     * NULL when 0), the others and the fixed state are read from src, part by part. LILY_ERR_MEMORY when there is no room; an
     * error of src comes through. Owned.
     */
    lily_status (*border_import)(struct backend *be, int length, const struct border *base, int n_shared,
                                 const struct border_source *src, struct border **out, struct lily_err *err);

    /* ---- tokens chosen on the device; both NULL where the host chooses ---- */

    /* From the sequence's next pass on. Everything is borrowed during the call. */
    lily_status (*pick_rules)(struct backend *be, struct seq *s, const struct pick_rules *r, struct lily_err *err);
    /*
     * The tokens that passes chose for this sequence, one a call, oldest first; waits for it. A pass that chooses returns from its
     * end at once, so that the next one, fed with ID_CHOSEN, is under way before its token is known. Behind a stop such a pass
     * changes nothing: what it fed is taken back from the sequence's length here. At most two passes may be ahead of the picks.
     */
    lily_status (*pick_take)(struct backend *be, struct seq *s, struct pick *out, struct lily_err *err);

    /* ---- for measurements (run/bench.h); each may be NULL ---- */

    /*
     * Makes the sequence one of n tokens (a multiple of 64) without computing them: keys, values and recurrent state are
     * filled with plausible numbers from seed. LILY_ERR_MEMORY when there are not enough pages.
     */
    lily_status (*seq_fill)(struct backend *be, struct seq *s, int n, uint64_t seed, struct lily_err *err);
    /* Measures what the device can do; some seconds, and up to 256 MB of memory, 1 GB on a card. */
    lily_status (*measure)(struct backend *be, struct device_limits *out, struct lily_err *err);
    /* Energy that the device has used since a fixed moment, in joules; negative: no counter can be read. */
    double (*joules)(struct backend *be);

    /*
     * Between steps: sets the pass that is under way aside, so that another one of at most limits.short_rows rows can be made, and,
     * the next time, takes it up again. NULL where limits.short_rows is 0.
     */
    void (*set_aside)(struct backend *be);
    /*
     * Before a layer's mixer: its steps take the batch's rows from `from` on, as many as this returns, so that what lies between
     * them is small; the mixer is then made again with the rows behind. 0 where `from` is the end: steps take all rows again. NULL:
     * every step takes all rows.
     */
    int (*take_rows)(struct backend *be, int from);
};

/* Every backend's first member. */
struct backend {
    const struct backend_ops *ops;
    struct model_shape shape;
    struct backend_limits limits;
    /* Names the code and the types whose bits the states are ("cpu avx2 bf16"); a plug-in adds a hash of its build. */
    char code[96];
    bool watched; /* read_hidden may be called during the next pass; set before its begin */
};

#endif
