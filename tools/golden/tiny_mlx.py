"""Collects the goldens of the checkpoint that mlx-lm wrote (tests/data/tiny-mlx) into one safetensors file.

usage: tiny_mlx.py SOURCE_DIR OUT_DIR      from the recorded .npy files and golden.json
       tiny_mlx.py --check CHECKPOINT_DIR  runs mlx-lm and the float64 pass again and compares

Keys: seq{0,1}.ids I32 [40]; .logits F32 [40][V]; .hidden F32 [L+1][40][H]; .greedy I32 [16]; .greedy_logits F32 [16][V],
the logits after each greedy token is fed; .margins F32 [16], the top-two margin at each greedy choice."""
import json
import os
import shutil
import sys

import numpy as np

import ckpt

COPIED = ("model.safetensors", "model.safetensors.index.json", "config.json", "generation_config.json", "tokenizer.json",
          "tokenizer_config.json")


def collect(src, out):
    os.makedirs(out, exist_ok=True)
    for f in COPIED:
        shutil.copyfile(os.path.join(src, f), os.path.join(out, f))
    g, t = json.load(open(os.path.join(src, "golden.json"))), {}
    for i, ids in enumerate(g["sequences"]):
        rec = g[f"float32.seq{i}"]
        npy = lambda what: ("F32", np.load(os.path.join(src, what)))
        t[f"seq{i}.ids"], t[f"seq{i}.greedy"] = ("I32", np.array(ids)), ("I32", np.array(rec["greedy"]))
        t[f"seq{i}.margins"] = ("F32", np.array(rec["greedy_margins"]))
        t[f"seq{i}.logits"], t[f"seq{i}.hidden"] = npy(f"logits.float32.seq{i}.npy"), npy(f"hidden.float32.seq{i}.npy")
        t[f"seq{i}.greedy_logits"] = npy(f"logits.float32.seq{i}.continuation.npy")
    ckpt.write_file(os.path.join(out, "golden.safetensors"), t,
                    {"made_by": "tools/golden/tiny_mlx.py", "reference": "mlx-lm 0.32.2, mlx 0.32.4, CPU, float32 activations"})


def check(folder):
    from forward64 import Forward64
    from golden_tiny import compare
    from mlx_model import MlxModel
    g = {k: a for k, (_, a) in ckpt.read_file(os.path.join(folder, "golden.safetensors")).items()}
    f, m = Forward64(ckpt.Checkpoint(folder)), MlxModel(folder)
    for s in ("seq0", "seq1"):
        ids = np.concatenate([g[s + ".ids"], g[s + ".greedy"]])
        r, now = f.forward(ids), m.forward(ids)
        want = np.concatenate([g[s + ".logits"], g[s + ".greedy_logits"]])
        print(s, compare("float64 against the file: logits", r["logits"], want),
              compare("hidden", r["hidden"][:, :40], g[s + ".hidden"]), "|", compare("mlx-lm now:", now, want),
              "| smallest routing gap", f"{r['gaps'].min():.1e}")
        assert (want[39:55].argmax(-1) == g[s + ".greedy"]).all()
        assert np.abs(r["logits"] - want).max() < 1e-3


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(sys.argv[2])
    else:
        collect(sys.argv[1], sys.argv[2])
