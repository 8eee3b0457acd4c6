"""Makes the checkpoint of tests/data/tiny-mlx: noise in Hugging Face form, converted by mlx-lm's own `convert`.

usage: make_tiny_mlx.py TEMPLATES_DIR WORK_DIR OUT_DIR    (WORK_DIR and OUT_DIR must not exist)
       make_tiny_mlx.py --compare DIR_A DIR_B             same tensors, bit for bit? (the order in the file is not fixed)"""
import json
import os
import sys

import numpy as np

import ckpt

SEED = 769
H, L, V, E, I = 128, 4, 512, 16, 128
HQ, HKV, DH, HK, HV, D = 4, 2, 256, 2, 4, 128


def config(templates):
    c = json.load(open(os.path.join(templates, "Qwen3.6-35B-A3B.config.json")))
    t = c["text_config"]
    t.update(hidden_size=H, num_hidden_layers=L, layer_types=t["layer_types"][:L], linear_num_key_heads=HK, linear_num_value_heads=HV,
             num_attention_heads=HQ, num_key_value_heads=HKV, num_experts=E, moe_intermediate_size=I,
             shared_expert_intermediate_size=I, vocab_size=V, eos_token_id=V - 1, bos_token_id=V - 1)
    c.update(image_token_id=V - 8, video_token_id=V - 7, vision_start_token_id=V - 6, vision_end_token_id=V - 5)
    return c


def tensors(rng, bf):
    """name -> bfloat16 array, Hugging Face names, in the order in which they are drawn."""
    w = {}

    def lin(name, *s, gain=1.0):
        w[name] = bf(rng.standard_normal(s) * gain / np.sqrt(s[-1]))

    def norm(name, n, spread, mean=0.0):
        w[name + ".weight"] = bf(rng.standard_normal(n) * spread + mean)

    def linear_layer(a):
        kd, vd = HK * D, HV * D
        lin(a + "in_proj_qkv.weight", 2 * kd + vd, H)
        lin(a + "in_proj_z.weight", vd, H)
        lin(a + "in_proj_b.weight", HV, H, gain=1.5)
        lin(a + "in_proj_a.weight", HV, H)
        lin(a + "out_proj.weight", H, vd)
        w[a + "conv1d.weight"] = bf(rng.standard_normal((2 * kd + vd, 1, 4)) * 0.5)
        w[a + "A_log"] = bf(np.log(rng.uniform(0.05, 16, HV)))
        w[a + "dt_bias"] = bf(rng.uniform(-4, 1, HV))
        w[a + "norm.weight"] = bf(1 + rng.standard_normal(D) * 0.1)

    def full_layer(a):
        lin(a + "q_proj.weight", HQ * DH * 2, H)
        lin(a + "k_proj.weight", HKV * DH, H)
        lin(a + "v_proj.weight", HKV * DH, H)
        lin(a + "o_proj.weight", H, HQ * DH)
        norm(a + "q_norm", DH, 0.3, 0.3)
        norm(a + "k_norm", DH, 0.3, 0.3)

    p = "model.language_model."
    w[p + "embed_tokens.weight"] = bf(rng.standard_normal((V, H)))
    lin("lm_head.weight", V, H, gain=4.0)
    norm(p + "norm", H, 0.1)
    for l in range(L):
        q = f"{p}layers.{l}."
        norm(q + "input_layernorm", H, 0.2)
        norm(q + "post_attention_layernorm", H, 0.2)
        linear_layer(q + "linear_attn.") if (l + 1) % 4 else full_layer(q + "self_attn.")
        lin(q + "mlp.gate.weight", E, H, gain=2.0)
        lin(q + "mlp.experts.gate_up_proj", E, 2 * I, H)
        lin(q + "mlp.experts.down_proj", E, H, I)
        for n, s in (("gate_proj", (I, H)), ("up_proj", (I, H)), ("down_proj", (H, I))):
            lin(q + f"mlp.shared_expert.{n}.weight", *s)
        lin(q + "mlp.shared_expert_gate.weight", 1, H)
    w["mtp.fc.weight"] = bf(rng.standard_normal((H, 2 * H)))  # these three the converter must drop
    norm("mtp.norm", H, 0.1)
    w["model.visual.pos_embed.weight"] = bf(rng.standard_normal((8, 8)))
    return w


def make(templates, work, out):
    import mlx.core as mx
    from mlx_lm.convert import convert
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    mx.set_default_device(mx.cpu)
    os.makedirs(work)
    with open(os.path.join(work, "config.json"), "w") as f:
        json.dump(config(templates), f, indent=4)
    g = json.load(open(os.path.join(templates, "Qwen3.6-35B-A3B.generation_config.json")))
    g.update(eos_token_id=[V - 2, V - 1], bos_token_id=V - 1, pad_token_id=V - 1)
    with open(os.path.join(work, "generation_config.json"), "w") as f:
        json.dump(g, f, indent=4)
    bf = lambda x: mx.array(np.asarray(x, np.float32)).astype(mx.bfloat16)
    mx.save_safetensors(os.path.join(work, "model.safetensors"), tensors(np.random.default_rng(SEED), bf), metadata={"format": "pt"})
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab.update({f"x{i}": i for i in range(len(vocab), V - 2)})
    vocab.update({"<|im_end|>": V - 2, "<|endoftext|>": V - 1})
    tk = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tk.pre_tokenizer, tk.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tk.save(os.path.join(work, "tokenizer.json"))
    with open(os.path.join(work, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
                   "model_max_length": 262144}, f, indent=1)
    convert(work, out, quantize=True, q_group_size=64, q_bits=4)


def compare(a, b):
    x, y = (ckpt.read_file(os.path.join(d, "model.safetensors")) for d in (a, b))
    assert x.keys() == y.keys()
    bad = [k for k in x if x[k][0] != y[k][0] or x[k][1].tobytes() != y[k][1].tobytes()]
    assert not bad, bad
    print(len(x), "tensors equal")


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        compare(sys.argv[2], sys.argv[3])
    else:
        make(*sys.argv[1:4])
