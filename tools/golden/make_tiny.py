"""Writes the tiny checkpoint: seeded noise of the Qwen3.6-MoE family in the MLX 4-bit layout (model.md 2, 3).

usage: make_tiny.py TEMPLATES_DIR OUT_DIR [SEED]

It differs from the other small checkpoint (tiny-mlx) wherever a loader or a kernel could lean on a number: hidden 64 (one
quantization group per row), 8 query heads on 1 KV head, shared expert wider than the experts, two shard files with the
parts of one module in both, headers that are not padded (data at odd offsets), data order unlike name order, A_log in
BF16 and F32, vision tensors to be skipped, padding rows at the end of the vocabulary."""
import json
import math
import os
import shutil
import sys

import numpy as np

import ckpt
import tiny_tokenizer as tok

SEED = 73  # pick_seed.py: smallest routing gap 2.6e-4, smallest greedy margin 0.25 among seeds 0..149
H, L, V = 64, 4, 320
HQ, HKV, DH, HK, HV, D = 8, 1, 256, 2, 4, 128
E, I, SHARED = 16, 64, 128
ROOT = "language_model.model."


def config(templates):
    c = json.load(open(os.path.join(templates, "Qwen3.6-35B-A3B.config.json")))
    t, end = c["text_config"], tok.added_id("<|endoftext|>")
    t.update(hidden_size=H, num_hidden_layers=L, layer_types=t["layer_types"][:L], linear_num_key_heads=HK,
             linear_num_value_heads=HV, num_attention_heads=HQ, num_key_value_heads=HKV, num_experts=E,
             moe_intermediate_size=I, shared_expert_intermediate_size=SHARED, vocab_size=V, max_position_embeddings=32768,
             bos_token_id=end, eos_token_id=end)
    for key, name in (("image_token_id", "<|image_pad|>"), ("video_token_id", "<|video_pad|>"),
                      ("vision_start_token_id", "<|vision_start|>"), ("vision_end_token_id", "<|vision_end|>")):
        c[key] = tok.added_id(name)
    c.pop("vision_config")
    q = {"group_size": 64, "bits": 4, "mode": "affine"}
    for l in range(L):
        for n in ("gate", "shared_expert_gate"):
            q[f"{ROOT}layers.{l}.mlp.{n}"] = {"group_size": 64, "bits": 8}
    c["quantization"] = c["quantization_config"] = q
    return c


class Maker:
    """Draws tensors in the checkpoint's walk order (model.md 3.4) into self.t."""

    def __init__(self, seed):
        self.rng, self.t = np.random.default_rng(seed), {}

    def q(self, name, *shape, gain=1.0, bits=4):
        w = self.rng.standard_normal(shape).astype(np.float32) * np.float32(gain / math.sqrt(shape[-1]))
        words, s, b = ckpt.quantize(w, bits)
        wide, exact = (ckpt.dequantize(words, s, b, bits, d) for d in (np.float32, np.float64))
        assert (wide == exact).all(), name + ": float32 does not hold every weight exactly"
        self.t[name + ".weight"], self.t[name + ".scales"], self.t[name + ".biases"] = ("U32", words), ("BF16", s), ("BF16", b)

    def bf(self, name, x):
        self.t[name] = ("BF16", ckpt.to_bf16(x))

    def norm(self, name, n, spread=0.2, mean=1.0):
        self.bf(name + ".weight", mean + spread * self.rng.standard_normal(n))

    def linear(self, a, l):
        kd, vd = HK * D, HV * D
        self.bf(a + "conv1d.weight", 0.5 * self.rng.standard_normal((2 * kd + vd, 4, 1)))
        self.q(a + "in_proj_qkv", 2 * kd + vd, H)
        self.q(a + "in_proj_z", vd, H)
        self.q(a + "in_proj_b", HV, H, gain=1.5)
        self.q(a + "in_proj_a", HV, H)
        self.bf(a + "dt_bias", self.rng.permutation([-6.0, -3.0, -1.0, 1.0]))
        rate = self.rng.permutation(np.exp(np.linspace(math.log(0.01 * (1 + l)), math.log(16), HV)))
        if l == 2:
            self.t[a + "A_log"] = ("F32", np.log(rate).astype(np.float32))
        else:
            self.bf(a + "A_log", np.log(rate))
        self.norm(a + "norm", D)
        self.q(a + "out_proj", H, vd)

    def full(self, a):
        self.q(a + "q_proj", HQ * DH * 2, H)
        self.q(a + "k_proj", HKV * DH, H)
        self.q(a + "v_proj", HKV * DH, H)
        self.q(a + "o_proj", H, HQ * DH, gain=2.0)
        self.norm(a + "q_norm", DH, 0.3, 1.3)
        self.norm(a + "k_norm", DH, 0.3, 1.3)

    def moe(self, m):
        self.q(m + "gate", E, H, gain=2.0, bits=8)
        self.q(m + "switch_mlp.gate_proj", E, I, H, gain=1.5)
        self.q(m + "switch_mlp.up_proj", E, I, H, gain=1.5)
        self.q(m + "switch_mlp.down_proj", E, H, I, gain=1.5)
        self.q(m + "shared_expert.gate_proj", SHARED, H)
        self.q(m + "shared_expert.down_proj", H, SHARED)
        self.q(m + "shared_expert.up_proj", SHARED, H)
        self.q(m + "shared_expert_gate", 1, H, bits=8)

    def all(self):
        self.bf("vision_tower.patch_embed.proj.bias", self.rng.standard_normal(8))
        self.bf("vision_tower.pos_embed.weight", self.rng.standard_normal((4, 8)))
        self.q(ROOT + "embed_tokens", V, H, gain=math.sqrt(H))
        for l in range(L):
            p = f"{ROOT}layers.{l}."
            if (l + 1) % 4:
                self.linear(p + "linear_attn.", l)
            else:
                self.full(p + "self_attn.")
            self.norm(p + "input_layernorm", H)
            self.norm(p + "post_attention_layernorm", H)
            self.moe(p + "mlp.")
        self.norm(ROOT + "norm", H)
        self.q("language_model.lm_head", V, H, gain=4.0)
        return self.t


def size(t, name):
    return t[name][1].size * np.dtype(ckpt.DTYPES[t[name][0]]).itemsize


def save(out, tensors, seed):
    """Two shards, cut inside a module; data in a shuffled order; headers left at odd lengths."""
    names = list(tensors)
    cut = names.index(f"{ROOT}layers.2.mlp.switch_mlp.up_proj.scales")
    rng = np.random.default_rng(seed + 1)
    weight_map, total = {}, 0
    for i, part in enumerate((names[:cut], names[cut:])):
        f = f"model-{i + 1:05d}-of-00002.safetensors"
        order = [part[k] for k in rng.permutation(len(part))]
        path = os.path.join(out, f)
        for note in ({"format": "mlx"}, {"format": "mlx", "odd": ""}, {"format": "mlx", "odd": "."}):
            ckpt.write_file(path, {n: tensors[n] for n in part}, note, order, pad=False)
            if ckpt.read_header(path)[2] % 2:
                break
        weight_map.update((n, f) for n in part)
        total += sum(size(tensors, n) for n in part)
    with open(os.path.join(out, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, f, indent=4)


def make(templates, out, seed=SEED):
    os.makedirs(out, exist_ok=True)
    save(out, Maker(seed).all(), seed)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config(templates), f, indent=4)
    g = json.load(open(os.path.join(templates, "Qwen3.6-35B-A3B.generation_config.json")))
    end, stop = tok.added_id("<|endoftext|>"), tok.added_id("<|im_end|>")
    g.update(bos_token_id=end, pad_token_id=end, eos_token_id=[stop, end])
    with open(os.path.join(out, "generation_config.json"), "w") as f:
        json.dump(g, f, indent=4)
    tok.dump(tok.tokenizer_json(), os.path.join(out, "tokenizer.json"))
    tok.dump(tok.tokenizer_config(), os.path.join(out, "tokenizer_config.json"))
    shutil.copyfile(os.path.join(templates, "Qwen3.6-35B-A3B.chat_template.jinja"), os.path.join(out, "chat_template.jinja"))


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else SEED)
