/*
 * The values of synthetic checkpoints: what stands at word i of a tensor, as a pure function of (seed, tensor name, i).
 *
 * One header for C and CUDA C, integers only, so that `lily synth`, a CPU that packs without a file and a GPU that fills
 * its own memory make the same bytes. The host makes one rule per tensor (synth_rule_of: the name decides the kind and the
 * size of its values), and anybody makes words from it, in any order and in parallel:
 *
 *     struct synth_rule r = synth_rule_of(seed, "language_model.lm_head.scales", 2048, 4);
 *     for (uint32_t i = 0; i < bytes / 4; i++) words[i] = synth_word(&r, i);     // little-endian, as in a file
 *
 * Kinds. Of a quantized module NAME: NAME.weight (U32, codes: all bits even), NAME.scales (BF16: either sign, mantissa
 * even in [1, 2), the exponent from the fan-in and the module's place), NAME.biases (BF16, exactly -8 or -128 times the
 * scale at the same index, so that the middle code is zero). Other tensors are BF16: norms in [0.75, 1.25), convolution taps
 * of either sign in [0.25, 0.5), A_log in [-2, 2), dt_bias in (-6, -1]. With these the residual stream grows from 1 to
 * about 4 over 40 layers, logits have a spread of 2 to 3, and tokens spread over the experts.
 *
 * Names are those of the published files, "language_model." included; a tensor has less than 2^32 elements and an even
 * number of BF16 ones. Plain values; any thread. Changing any result changes every synthetic model: tests/unit/spec holds
 * words and hashes against it.
 */
#ifndef LILY_SPEC_SYNTH_H
#define LILY_SPEC_SYNTH_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SYNTH_FN static __host__ __device__ inline
#else
#define SYNTH_FN static inline
#endif

enum synth_kind { SYNTH_CODES, SYNTH_SCALES, SYNTH_BIASES, SYNTH_NORM, SYNTH_CONV, SYNTH_A_LOG, SYNTH_DT_BIAS };

struct synth_rule {
    uint32_t k0, k1;  /* of seed and name; biases have those of the scales */
    int32_t kind;     /* enum synth_kind */
    int32_t exponent; /* scales: of the power of two; biases: the same plus bits - 1 */
};

/* 32 even bits for element i: two rounds of multiply and shift, a key before each. */
SYNTH_FN uint32_t synth_hash(const struct synth_rule *r, uint32_t i)
{
    uint32_t x = i + r->k0;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = ((x ^ x >> 15) + r->k1) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* The BF16 bits of n/16, |n| < 256: exact. */
SYNTH_FN uint32_t synth_sixteenths(int32_t n)
{
    union {
        float f;
        uint32_t u;
    } v;
    v.f = (float)n * 0.0625f;
    return v.u >> 16;
}

/* Element i of a BF16 tensor. */
SYNTH_FN uint32_t synth_bf16(const struct synth_rule *r, uint32_t i)
{
    uint32_t h = synth_hash(r, i), exponent = (uint32_t)(127 + r->exponent) << 7;
    switch (r->kind) {
    case SYNTH_BIASES: return (~h >> 16 & 0x8000u) | exponent | (h & 0x7fu);
    case SYNTH_NORM: return 0x3f40u + (h >> 8) % 96u;
    case SYNTH_A_LOG: return synth_sixteenths((int32_t)(h >> 8 & 63u) - 32);
    case SYNTH_DT_BIAS: return synth_sixteenths(-16 - (int32_t)((h >> 8) % 80u));
    default: return (h >> 16 & 0x8000u) | exponent | (h & 0x7fu); /* scales, convolution */
    }
}

/* Bytes 4i … 4i+3 of the tensor, the lowest first: eight or four codes, or the BF16 elements 2i and 2i+1. */
SYNTH_FN uint32_t synth_word(const struct synth_rule *r, uint32_t i)
{
    if (r->kind == SYNTH_CODES) return synth_hash(r, i);
    return synth_bf16(r, 2 * i) | synth_bf16(r, 2 * i + 1) << 16;
}

/* ---- rules, made on the host ---- */

static inline int synth_ends(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* What a module's outputs should be, as a power of two, for inputs of size 1. */
static inline int synth_gain(const char *name)
{
    if (strstr(name, "lm_head.")) return 2;
    return strstr(name, ".out_proj.") || strstr(name, ".o_proj.") || strstr(name, ".down_proj.") ? 0 : 1;
}

/* A weight is (code - middle) * scale: 2^3 (4 bits) or 2^7 (8 bits) in size at scale exponent 0, and fan_in of them add up. */
static inline int synth_exponent(const char *name, int fan_in, int bits)
{
    int half = 0;
    while (fan_in >> 2 * half) half++;
    if (strstr(name, "embed_tokens.")) return 1 - bits;
    return synth_gain(name) + 1 - bits - half;
}

static inline enum synth_kind synth_kind_of(const char *name, int quantized)
{
    if (quantized) return synth_ends(name, ".scales") ? SYNTH_SCALES : synth_ends(name, ".biases") ? SYNTH_BIASES : SYNTH_CODES;
    if (synth_ends(name, ".A_log")) return SYNTH_A_LOG;
    if (synth_ends(name, ".dt_bias")) return SYNTH_DT_BIAS;
    return synth_ends(name, ".conv1d.weight") ? SYNTH_CONV : SYNTH_NORM;
}

/*
 * The rule of one tensor. fan_in and bits (4 or 8) are those of the quantized module that the tensor belongs to; bits 0: a
 * tensor that is not quantized, fan_in is ignored.
 */
static inline struct synth_rule synth_rule_of(uint64_t seed, const char *name, int fan_in, int bits)
{
    struct synth_rule r = {0, 0, synth_kind_of(name, bits != 0), -2};
    size_t n = strlen(name), stem = r.kind == SYNTH_BIASES ? n - 6 : n; /* ".biases" counts as ".scales" */
    uint64_t h = 0xcbf29ce484222325u ^ seed * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)(i < stem ? name[i] : "scales"[i - stem])) * 0x100000001b3u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    h ^= h >> 31;
    r.k0 = (uint32_t)h;
    r.k1 = (uint32_t)(h >> 32);
    if (bits) r.exponent = synth_exponent(name, fan_in, bits) + (r.kind == SYNTH_BIASES ? bits - 1 : 0);
    return r;
}

#endif
