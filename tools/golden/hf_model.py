"""The checkpoint in transformers, fp32: dequantized weights under the Hugging Face names (model.md 2.6 backwards)."""
import numpy as np
import torch
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight", "q_norm.weight", "k_norm.weight", "model.norm.weight")


def hf_state(ck):
    """name -> float32 tensor of Qwen3_5MoeForCausalLM."""
    out, fused = {}, {}
    prefix = "language_model."
    for name in ck.t:
        if not name.startswith(prefix) or name.endswith((".scales", ".biases")):
            continue
        module = name[:-len(".weight")] if name.endswith(".weight") else None
        w = ck.weight(module, np.float32) if module else ck.tensor(name, np.float32)
        hf = name[len(prefix):]
        if hf.endswith(NORMS):
            w = w - np.float32(1)  # Hugging Face norms multiply by 1 + w; exact for these values
        elif hf.endswith("conv1d.weight"):
            w = w.transpose(0, 2, 1)
        if ".switch_mlp." in hf:
            fused[hf] = w
        else:
            out[hf] = torch.from_numpy(np.ascontiguousarray(w))
    for l in range(ck.text["num_hidden_layers"]):
        m, e = f"model.layers.{l}.mlp.switch_mlp.", f"model.layers.{l}.mlp.experts."
        both = np.concatenate([fused[m + "gate_proj.weight"], fused[m + "up_proj.weight"]], axis=1)
        out[e + "gate_up_proj"] = torch.from_numpy(both)
        out[e + "down_proj"] = torch.from_numpy(fused[m + "down_proj.weight"])
    return out


class HfModel:
    """forward(ids) -> dict(logits, hidden, experts) in float32, whole sequence in one call, no cache."""

    def __init__(self, ck):
        torch.set_num_threads(2)
        text = {k: v for k, v in ck.text.items() if k not in ("dtype", "model_type")}
        rope = dict(text["rope_parameters"])
        rope["rope_type"] = rope.pop("type", rope.get("rope_type", "default"))  # mlx-lm writes "type"
        text["rope_parameters"] = rope
        cfg = Qwen3_5MoeTextConfig(**text)
        cfg._attn_implementation = "eager"
        cfg._experts_implementation = "eager"
        self.model = Qwen3_5MoeForCausalLM(cfg).to(torch.float32)
        missing, unexpected = self.model.load_state_dict(hf_state(ck), strict=False)
        assert not missing and not unexpected, (missing, unexpected)
        self.model.eval()
        self.seen = {}
        self.model.model.embed_tokens.register_forward_hook(lambda m, i, o: self.seen.update(e=o))
        for l, layer in enumerate(self.model.model.layers):
            layer.register_forward_hook(lambda m, i, o, l=l: self.seen.update({l: o[0] if isinstance(o, tuple) else o}))
            layer.mlp.gate.register_forward_hook(lambda m, i, o, l=l: self.seen.update({("r", l): o[2]}))

    @torch.no_grad()
    def forward(self, ids, want_hidden=True):
        lg = self.model(torch.tensor([list(map(int, ids))]), use_cache=False).logits[0].numpy()
        out = {"logits": lg}
        if want_hidden:
            n = len(self.model.model.layers)
            out["hidden"] = np.stack([self.seen[k][0].numpy() for k in ["e", *range(n)]])
            out["experts"] = np.stack([np.sort(self.seen[("r", l)].numpy(), -1) for l in range(n)])
        return out
