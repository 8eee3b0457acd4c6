"""Writes a checkpoint folder in the MLX 4-bit layout from trained parameters.

Use: export.py TRAINDIR OUTDIR   (OUTDIR already holds tokenizer.json and chat_template.jinja)
"""
import json
import struct
import sys
import numpy as np
import torch
import model as M
import quant as Q

PRE = "language_model."


def u16(t):
    return t.contiguous().view(torch.int16).cpu().numpy().view("<u2")


def tensors(c, params):
    """(main, mtp): name -> (dtype, shape, bytes), names as in the files."""
    main, side = {}, {}
    for n, (_, kind) in M.shapes(c).items():
        p = params[n].float().cpu()
        out, name = (side, n) if n.startswith("mtp.") else (main, PRE + n)
        if kind == "mat":
            bits = Q.bits_of(n)
            codes, s, b = Q.affine(p.bfloat16().float(), bits)
            base = name[:-len(".weight")]
            w = Q.pack(codes, bits).numpy().astype("<u4")
            out[base + ".weight"] = ("U32", w.shape, w.tobytes())
            out[base + ".scales"] = ("BF16", tuple(s.shape), u16(s).tobytes())
            out[base + ".biases"] = ("BF16", tuple(b.shape), u16(b).tobytes())
            continue
        t = (1.0 + p if kind == "norm" else p).bfloat16()
        if n.endswith("conv1d.weight"):
            t = t[:, :, None]
        out[name] = ("BF16", tuple(t.shape), u16(t).tobytes())
    return main, side


def write_safetensors(path, ts):
    head, at = {"__metadata__": {"format": "mlx"}}, 0
    for n, (dt, sh, raw) in ts.items():
        head[n] = {"dtype": dt, "shape": list(sh), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    h = json.dumps(head, separators=(",", ":")).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(raw for _, _, raw in ts.values()))
    return at


def quant_block(c):
    q = {"group_size": 64, "bits": 4, "mode": "affine"}
    for l in range(c.layers):
        for m in ("gate", "shared_expert_gate"):
            q[f"{PRE}model.layers.{l}.mlp.{m}"] = {"group_size": 64, "bits": 8}
    return q


def config(c, ids):
    end, stop = ids["<|endoftext|>"], ids["<|im_end|>"]
    text = {
        "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "bos_token_id": end,
        "dtype": "bfloat16", "eos_token_id": end, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu",
        "hidden_size": c.hidden, "initializer_range": 0.02,
        "layer_types": ["full_attention" if c.full(l) else "linear_attention" for l in range(c.layers)],
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": c.k_heads,
        "linear_num_value_heads": c.v_heads, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 65536, "model_type": "qwen3_5_moe_text", "moe_intermediate_size": c.inter,
        "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False, "num_attention_heads": c.q_heads,
        "num_experts": c.experts, "num_experts_per_tok": c.top_k, "num_hidden_layers": c.layers,
        "num_key_value_heads": c.kv_heads, "output_router_logits": False, "pad_token_id": None,
        "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06,
        "rope_parameters": {"mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
                            "rope_theta": 10000000, "rope_type": "default"},
        "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": c.shared, "tie_word_embeddings": False,
        "use_cache": True, "vocab_size": c.vocab}
    q = quant_block(c)
    return {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "eos_token_id": [stop, end],
            "image_token_id": ids["<|image_pad|>"], "model_type": "qwen3_5_moe", "quantization": q,
            "quantization_config": q, "text_config": text, "tie_word_embeddings": False,
            "transformers_version": "4.57.1", "video_token_id": ids["<|video_pad|>"],
            "vision_end_token_id": ids["<|vision_end|>"], "vision_start_token_id": ids["<|vision_start|>"]}


def write(c, params, out):
    tok = json.load(open(f"{out}/tokenizer.json", encoding="utf-8"))
    ids = {a["content"]: a["id"] for a in tok["added_tokens"]}
    main, side = tensors(c, params)
    total = write_safetensors(f"{out}/model.safetensors", main)
    write_safetensors(f"{out}/mtp.safetensors", side)
    index = {"metadata": {"total_size": total}, "weight_map": {n: "model.safetensors" for n in sorted(main)}}
    end, stop = ids["<|endoftext|>"], ids["<|im_end|>"]
    gen = {"bos_token_id": end, "do_sample": True, "eos_token_id": [stop, end], "max_new_tokens": 1024,
           "pad_token_id": end, "temperature": 1.0, "top_k": 20, "top_p": 0.95}
    for name, v in (("model.safetensors.index.json", index), ("config.json", config(c, ids)),
                    ("generation_config.json", gen)):
        with open(f"{out}/{name}", "w") as f:
            f.write(json.dumps(v, indent=4))
    return total


def load(path):
    """Dequantized float32 parameters of an exported folder, in the form model.py wants (norms as w - 1)."""
    params = {}
    for file, pre in (("model", PRE), ("mtp", "")):
        raw = open(f"{path}/{file}.safetensors", "rb").read()
        n = struct.unpack("<Q", raw[:8])[0]
        head = json.loads(raw[8:8 + n])
        head.pop("__metadata__")

        def get(k):
            a, e = head[k]["data_offsets"]
            d = np.frombuffer(raw[8 + n + a:8 + n + e], {"BF16": "<u2", "U32": "<u4"}[head[k]["dtype"]])
            d = d.reshape(head[k]["shape"])
            return torch.from_numpy((d.astype(np.uint32) << 16).view(np.float32)) if head[k]["dtype"] == "BF16" else \
                torch.from_numpy(d.astype(np.int64))
        for k in head:
            if not k.endswith((".scales", ".biases")):
                name = k[len(pre):]
                t = get(k)
                if head[k]["dtype"] == "U32":
                    bits = Q.bits_of(name)
                    sh = torch.arange(32 // bits) * bits
                    codes = ((t[..., None] >> sh) & (2 ** bits - 1)).reshape(*t.shape[:-1], -1).float()
                    base = k[:-len(".weight")]
                    t = Q.dequant(codes, get(base + ".scales"), get(base + ".biases"))
                elif name.endswith("conv1d.weight"):
                    t = t[:, :, 0]
                elif name.endswith("norm.weight") or "norm" in name.split(".")[-2]:
                    t = t - 1.0
                params[name] = t
    return params


if __name__ == "__main__":
    import train
    conf, trained, _ = train.load(sys.argv[1])
    print(write(conf, trained, sys.argv[2]), "bytes of tensors")
