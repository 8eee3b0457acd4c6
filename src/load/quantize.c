/*
 * The quantizer. The loops over a group are written in lanes so that a compiler makes vectors of them: additions, divisions
 * and comparisons only, so every instruction set gives the same bits.
 */
#include "load/quantize.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "spec/family.h"

enum { LANES = 8 };

/* Widens a group; false when it holds what is no finite number. */
static bool widen_group(enum dtype dtype, const uint8_t *data, float w[QUANT_GROUP])
{
    if (dtype == DTYPE_BF16) {
        uint16_t raw[QUANT_GROUP];
        memcpy(raw, data, sizeof raw); /* little-endian, as every machine that lily runs on */
        for (int i = 0; i < QUANT_GROUP; i++) w[i] = f32_from_bits((uint32_t)raw[i] << 16);
    } else if (dtype == DTYPE_F16) {
        for (int i = 0; i < QUANT_GROUP; i++) w[i] = f16_to_f32(load_u16(data + 2 * i));
    } else {
        memcpy(w, data, QUANT_GROUP * sizeof *w);
    }
    uint32_t bad = 0;
    for (int i = 0; i < QUANT_GROUP; i++) bad |= (f32_bits(w[i]) & 0x7f800000u) == 0x7f800000u;
    return !bad;
}

struct range {
    float min, max;
};

static struct range range_of(const float w[QUANT_GROUP])
{
    float lo[LANES], hi[LANES];
    memcpy(lo, w, sizeof lo);
    memcpy(hi, w, sizeof hi);
    for (int i = LANES; i < QUANT_GROUP; i += LANES)
        for (int j = 0; j < LANES; j++) {
            lo[j] = w[i + j] < lo[j] ? w[i + j] : lo[j];
            hi[j] = w[i + j] > hi[j] ? w[i + j] : hi[j];
        }
    struct range r = {lo[0], hi[0]};
    for (int j = 1; j < LANES; j++) {
        r.min = lo[j] < r.min ? lo[j] : r.min;
        r.max = hi[j] > r.max ? hi[j] : r.max;
    }
    return r;
}

/* Codes of one group, one per byte. Clamping first does no harm: the limits are whole numbers. */
static void codes_away(const float w[QUANT_GROUP], float scale, float bias, float top, uint8_t codes[QUANT_GROUP])
{
    for (int i = 0; i < QUANT_GROUP; i++) {
        float v = (w[i] - bias) / scale;
        v = v > 0.0f ? v : 0.0f;
        v = v < top ? v : top;
        int32_t whole = (int32_t)v;
        codes[i] = (uint8_t)(whole + (v - (float)whole >= 0.5f)); /* exact: v - whole is representable */
    }
}

static void codes_even(const float w[QUANT_GROUP], float scale, float bias, float top, uint8_t codes[QUANT_GROUP])
{
    const float magic = 0x1.8p23f; /* adding it rounds to a whole number, halves to even */
    for (int i = 0; i < QUANT_GROUP; i++) {
        float v = (w[i] - bias) / scale;
        v = v > 0.0f ? v : 0.0f;
        v = v < top ? v : top;
        codes[i] = (uint8_t)f32_bits(v + magic);
    }
}

static void store(enum dtype dtype, uint8_t *out, size_t i, float v)
{
    if (dtype == DTYPE_F32) {
        memcpy(out + 4 * i, &v, sizeof v);
        return;
    }
    uint16_t half = dtype == DTYPE_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
    memcpy(out + 2 * i, &half, sizeof half);
}

struct step {
    float scale, bias;
};

/* The end of the range that is farther from zero becomes exact; codes are made with these unrounded values. */
static struct step step_of(struct range r, float top, enum quant_rounding rounding)
{
    bool gpu = rounding == ROUNDING_GPU;
    if (gpu && r.max < 0.0f) r.max = 0.0f;
    float scale = (r.max - r.min) / top, edge = r.max;
    if (!(scale > 1e-7f)) scale = 1e-7f;
    if (fabsf(r.min) > fabsf(r.max)) edge = r.min;
    else scale = -scale;
    float zero = gpu ? roundf(edge / scale) : rintf(edge / scale);
    if (zero == 0.0f) return (struct step){scale, 0.0f};
    return (struct step){edge / zero, edge};
}

bool quantize_groups(const struct quant_form *form, const struct quant_groups *g)
{
    const size_t elem = form->dtype == DTYPE_F32 ? 4 : 2;
    const float top = form->bits == 4 ? 15.0f : 255.0f;
    for (size_t n = 0; n < g->n; n++) {
        float w[QUANT_GROUP];
        uint8_t codes[QUANT_GROUP];
        if (!widen_group(form->dtype, g->weights + n * QUANT_GROUP * elem, w)) return false;
        struct step s = step_of(range_of(w), top, form->rounding);
        if (form->rounding == ROUNDING_GPU) codes_away(w, s.scale, s.bias, top, codes);
        else codes_even(w, s.scale, s.bias, top, codes);
        store(form->dtype, g->scales, n, s.scale);
        store(form->dtype, g->biases, n, s.bias);
        if (form->bits == 8) {
            memcpy(g->codes + n * QUANT_GROUP, codes, QUANT_GROUP);
            continue;
        }
        uint8_t *out = g->codes + n * QUANT_GROUP / 2;
        for (int i = 0; i < QUANT_GROUP / 2; i++) out[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
    }
    return true;
}
