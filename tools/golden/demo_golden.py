"""Teacher-forced goldens of a real (trained) checkpoint of the family: 2,000 tokens, two references.

usage: demo_golden.py CHECKPOINT_DIR OUT_FILE

hf: transformers fp32 on the dequantized weights; mlx: mlx-lm with float32 activations. Keys: ids I32 [T]; gap F32 [T],
the smallest relative gap between 8th and 9th expert over the layers (numpy float64); per reference r: {r}.logprob F32
[T-1], ln p of ids[i+1] after position i; {r}.argmax I32 [T]; {r}.margin F32 [T], top-two logit margin;
{r}.top_logits F32 [T][8], logits at hf.top_ids I32 [T][8] (largest first in hf). The metadata name the model file's SHA-256."""
import hashlib
import json
import lzma
import os
import sys
import time
from importlib.metadata import version

import numpy as np

import ckpt
import templates
from golden_tiny import compare

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TOKENS = 2000
# (first file that exists, bytes to skip, share of the tokens); the chat and the repeated block take what is left
PIECES = [(("tools/train/corpus/tinystories_samples.txt.xz", "tests/data/corpus/war-and-peace.txt.xz"), 20000, 500),
          (("tools/train/corpus/gitenberg_children_2.txt.xz", "tests/data/corpus/war-and-peace.txt.xz"), 60000, 350),
          (("tests/data/corpus/wikitext2_test.txt.xz",), 5000, 250)]
COPIED = 200
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Return the current weather for a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
CHAT = {"tools": [TOOL], "messages": [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Tell me a short story about a dog and a red ball."},
    {"role": "assistant", "content": "Once upon a time there was a little dog who had a red ball. One day the ball rolled into the river. A duck "
     "saw it and pushed it back with her bill. The dog was happy, and they played together until the sun went down.", "reasoning_content": "A short story."},
    {"role": "user", "content": "What is the weather in Rome for the next 2 days?"},
    {"role": "assistant", "content": "", "reasoning_content": "I should call the weather tool.",
     "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}}]},
    {"role": "tool", "content": "{\"city\": \"Rome\", \"sky\": \"sunny\", \"temperature\": 24}"},
    {"role": "assistant", "content": "It will be sunny in Rome, 24 degrees.", "reasoning_content": "The tool says sunny, 24."},
    {"role": "user", "content": "The password is violet-4711. Repeat it."},
    {"role": "assistant", "content": "violet-4711", "reasoning_content": ""}]}


def text_ids(folder):
    """Stories, old prose, encyclopedia; a chat with a tool call; then the beginning once more."""
    from tokenizers import Tokenizer
    tok, ids = Tokenizer.from_file(os.path.join(folder, "tokenizer.json")), []
    for files, skip, n in PIECES:
        path = next(p for f in files if os.path.exists(p := os.path.join(ROOT, f)))
        raw = lzma.open(path).read()
        start = raw.index(b"\n", skip) + 1
        ids += tok.encode(raw[start:start + 20 * n].decode("utf-8", "ignore")).ids[:n]
    kind, chat = templates.render(templates.compile_template(os.path.join(folder, "chat_template.jinja")), {**CHAT, "add_generation_prompt": False})
    assert kind == "text", chat
    ids += tok.encode(chat).ids[:TOKENS - len(ids) - COPIED]
    while len(ids) < TOKENS:
        ids += ids[:min(COPIED, TOKENS - len(ids))]
    return np.array(ids, np.int32)


def summary(logits, ids, top_ids=None):
    """The recorded keys of one reference (see above)."""
    wide = logits.astype(np.float64)
    high = wide.max(-1, keepdims=True)
    lse = (high + np.log(np.exp(wide - high).sum(-1, keepdims=True)))[:, 0]
    order = np.argsort(-logits, axis=-1, kind="stable")
    two = np.take_along_axis(logits, order[:, :2], -1)
    out = {"logprob": ("F32", (wide[np.arange(len(ids) - 1), ids[1:]] - lse[:-1]).astype(np.float32)),
           "argmax": ("I32", order[:, 0].astype(np.int32)), "margin": ("F32", two[:, 0] - two[:, 1])}
    if top_ids is None:
        top_ids = order[:, :8]
        out["top_ids"] = ("I32", top_ids.astype(np.int32))
    out["top_logits"] = ("F32", np.take_along_axis(logits, top_ids, -1))
    return out


def report(name, logits, s, reference):
    far = s["margin"][1] > 0.01
    print(f"{name}: perplexity {np.exp(-s['logprob'][1].astype(np.float64).mean()):.4f}, {compare('logits against float64', logits, reference)},",
          f"argmax equal at {(reference.argmax(-1) == s['argmax'][1]).sum()} of {len(logits)}, where the margin is above 0.01 at",
          f"{(reference.argmax(-1) == s['argmax'][1])[far].sum()} of {far.sum()}", flush=True)


def main(folder, out_file):
    from forward64 import Forward64
    from hf_model import HfModel
    from mlx_model import MlxModel
    ck = ckpt.Checkpoint(folder)
    model_sha = hashlib.sha256(b"".join(open(os.path.join(folder, f), "rb").read() for f in ck.files)).hexdigest()
    ids, t0 = text_ids(folder), time.time()
    f64 = Forward64(ck).forward(ids)
    print(f"float64 pass in {time.time() - t0:.0f} s; smallest routing gap {f64['gaps'].min():.1e}", flush=True)
    tensors = {"ids": ("I32", ids), "gap": ("F32", f64["gaps"].min(0).astype(np.float32))}
    logits = HfModel(ck).forward(ids, want_hidden=False)["logits"]
    hf = summary(logits, ids)
    report("transformers", logits, hf, f64["logits"])
    logits = MlxModel(folder).forward(ids)
    mlx = summary(logits, ids, hf["top_ids"][1])
    report("mlx-lm", logits, mlx, f64["logits"])
    for name, s in (("hf", hf), ("mlx", mlx)):
        tensors.update({f"{name}.{k}": v for k, v in s.items()})
    os.makedirs(os.path.dirname(os.path.abspath(out_file)), exist_ok=True)
    note = {"made_by": "tools/golden/demo_golden.py", "model_sha256": model_sha, "model_files": json.dumps(ck.files),
            "hf": f"transformers {version('transformers')}, torch {version('torch')}, fp32",
            "mlx": f"mlx-lm {version('mlx-lm')}, mlx {version('mlx')}, CPU, float32 activations"}
    ckpt.write_file(out_file, tensors, note)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
