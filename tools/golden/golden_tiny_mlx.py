"""Goldens of the checkpoint that mlx-lm wrote (tests/data/tiny-mlx), from mlx-lm with float32 activations.

usage: golden_tiny_mlx.py CHECKPOINT_DIR   (writes golden.safetensors into it; checks it against numpy float64)

Keys: seq{0,1}.ids I32 [40]; .logits F32 [40][V]; .hidden F32 [L+1][40][H]; .greedy I32 [16]; .greedy_logits F32 [16][V],
the logits after each greedy token is fed; .margins F32 [16], the top-two margin at each greedy choice."""
import os
import sys
from importlib.metadata import version

import numpy as np

import ckpt
from forward64 import Forward64
from golden_tiny import compare
from mlx_model import MlxModel

STEPS = 16


def prompts(vocab):
    v, n = vocab - 16, range(40)
    return [(i * i * 7 + 13 * i + 5) % v for i in n], [(97 * i + 31 * (i // 3) + (i ^ 21)) % v for i in n]


def main(folder):
    ck, mlx, t = ckpt.Checkpoint(folder), MlxModel(folder), {}
    f64 = Forward64(ck)
    for i, ids in enumerate(prompts(ck.text["vocab_size"])):
        logits, hidden = mlx.forward(ids), mlx.hidden(ids)
        greedy, after, margins = mlx.greedy(ids, STEPS)
        r = f64.forward([*ids, *greedy])
        print(f"seq{i}: float64 against mlx-lm:", compare("logits", np.concatenate([logits, after]), r["logits"]) + ";",
              compare("hidden", hidden, r["hidden"][:, :len(ids)]), f"| smallest routing gap {r['gaps'].min():.1e},",
              f"smallest greedy margin {margins.min():.2f}")
        assert np.abs(np.concatenate([logits, after]) - r["logits"]).max() < 1e-3
        for key, dt, a in (("ids", "I32", np.array(ids)), ("logits", "F32", logits), ("hidden", "F32", hidden), ("greedy", "I32", greedy),
                           ("greedy_logits", "F32", after), ("margins", "F32", margins)):
            t[f"seq{i}.{key}"] = (dt, a)
    note = {"made_by": "tools/golden/golden_tiny_mlx.py", "reference": f"mlx-lm {version('mlx-lm')}, mlx {version('mlx')}, CPU, float32 activations"}
    ckpt.write_file(os.path.join(folder, "golden.safetensors"), t, note)


if __name__ == "__main__":
    main(sys.argv[1])
