/* config.json and, behind a zero byte, generation_config.json from any bytes; what is accepted is inside its ranges. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "load/config.h"
#include "load/inventory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(int holds)
{
    if (!holds) abort();
}

static void check(const struct model_config *c)
{
    const struct model_shape *s = &c->shape;
    must(s->hidden > 0 && s->hidden % 64 == 0 && s->n_layers > 0 && s->n_layers <= MAX_LAYERS);
    must(s->n_full + s->n_linear == s->n_layers && s->n_full > 0 && s->n_linear > 0);
    must(s->n_q_heads % s->n_kv_heads == 0 && s->n_gdn_v_heads % s->n_gdn_k_heads == 0);
    must(s->n_experts >= EXPERTS_PER_TOKEN && s->n_experts <= MAX_EXPERTS);
    must(s->rms_eps > 0 && s->rope_theta >= 1 && s->vocab > 0 && s->max_positions > 0);
    must(c->n_eos >= 0 && c->n_eos <= MAX_EOS && c->top_k >= 0 && c->max_new_tokens >= 0);
    must(c->temperature >= 0 && c->top_p >= 0 && c->top_p <= 1);
    for (int i = 0; i < c->n_eos; i++) must(c->eos[i] >= 0 && c->eos[i] < s->vocab);
    for (int i = 0; i < c->n_overrides; i++)
        must(config_quant_rule(c, c->overrides[i].path).bits == c->overrides[i].rule.bits ||
             strncmp(c->overrides[i].path, "language_model.", 15) == 0 ||
             strncmp(c->overrides[i].path, "model.language_model.", 21) == 0);
    struct inventory_sum sum = inventory_sum(c);
    must(sum.n_tensors > 0 && sum.bytes > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct lily_err err;
    struct model_config c;
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    size_t first = zero ? (size_t)(zero - data) : n;
    if (config_parse((const char *)data, first, "fuzz", &c, &err) != LILY_OK) {
        must(err.msg[0] && !c.overrides);
        return 0;
    }
    if (zero && config_parse_generation((const char *)zero + 1, n - first - 1, "fuzz", &c, &err) != LILY_OK) {
        must(err.msg[0]);
        config_free(&c);
        return 0;
    }
    check(&c);
    config_free(&c);
    return 0;
}
