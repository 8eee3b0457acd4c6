"""Goldens of the tiny checkpoint from transformers fp32, checked against numpy float64 and mlx-lm float32.

usage: golden_tiny.py CHECKPOINT_DIR   (writes golden.safetensors into it)

Keys, per prompt of N tokens: p{N}.ids I32 [N]; p{N}.pos I32 [M], the recorded positions; p{N}.hidden F32 [L+1][M][H],
the embedding and then the residual stream after every layer (before the final norm); p{N}.logits F32 [M][V];
p{N}.experts I32 [L][M][8], sorted; p{N}.gaps F32 [L][N], probability of the 8th expert over that of the 9th, minus 1.
greedy.ids I32 [16] follow prompt 65; greedy.margins F32 [16] are the top-two logit margins there."""
import os
import sys

import numpy as np

import ckpt
from forward64 import Forward64

LENGTHS = (1, 5, 63, 64, 65, 200, 700)
STEPS = 16


def prompt(n, vocab):
    """Seeded noise; 200 and 700 also hold runs and a repeated block, so that attention and state see structure."""
    ids = np.random.default_rng(1000 + n).integers(0, vocab, n)
    if n >= 200:
        ids[40:60] = ids[40]
        ids[120:160] = ids[60:100]
    if n >= 700:
        ids[300:420] = ids[60:180]
        ids[500:516] = ids[0]
    return ids.astype(np.int32)


def recorded(n):
    if n in (1, 5, 65):
        return np.arange(n)
    if n <= 65:
        return np.unique([*range(4), *range(0, n, 8), *range(n - 8, n)])
    return np.unique([*range(0, n, 50), *range(n - 8, n)])


def greedy(model, ids):
    seq, margins = list(ids), []
    for _ in range(STEPS):
        lg = model.forward(seq, want_hidden=False)["logits"][-1]
        top = np.sort(lg)
        margins.append(top[-1] - top[-2])
        seq.append(int(lg.argmax()))
    return np.array(seq[len(ids):], np.int32), np.array(margins, np.float32)


def compare(name, a, b):
    d = np.abs(a.astype(np.float64) - b)
    return f"{name} max {d.max():.2e} rms {np.sqrt((d * d).mean()):.2e}"


def main(folder):
    from hf_model import HfModel
    from mlx_model import MlxModel
    ck = ckpt.Checkpoint(folder)
    hf, f64, mlx = HfModel(ck), Forward64(ck), MlxModel(folder)
    usable, out = ck.text["vocab_size"] - 3, {}
    for n in LENGTHS:
        ids, pos = prompt(n, usable), recorded(n)
        a, b, c = hf.forward(ids), f64.forward(ids), mlx.forward(ids)
        top = np.sort(b["logits"], -1)
        print(f"p{n}: transformers against float64: {compare('logits', a['logits'], b['logits'])};",
              compare("hidden", a["hidden"], b["hidden"]), f"| mlx-lm: {compare('logits', c, b['logits'])}",
              f"| logits std {b['logits'].std():.2f}, hidden max {np.abs(b['hidden']).max():.1f}; smallest margin",
              f"{(top[:, -1] - top[:, -2]).min():.4f}, smallest routing gap {b['gaps'].min():.2e}; experts differ at",
              f"{(a['experts'] != b['experts']).any(-1).sum()} places; distinct experts", [len(np.unique(e)) for e in b["experts"]])
        assert (a["experts"] == b["experts"]).all()
        out[f"p{n}.ids"], out[f"p{n}.pos"] = ("I32", ids), ("I32", pos)
        out[f"p{n}.hidden"], out[f"p{n}.logits"] = ("F32", a["hidden"][:, pos]), ("F32", a["logits"][pos])
        out[f"p{n}.experts"], out[f"p{n}.gaps"] = ("I32", a["experts"][:, pos]), ("F32", b["gaps"])
    ids, margins = greedy(hf, prompt(65, usable))
    print("greedy", ids.tolist(), "smallest margin", margins.min())
    out["greedy.ids"], out["greedy.margins"] = ("I32", ids), ("F32", margins)
    from importlib.metadata import version
    note = {"made_by": "tools/golden/golden_tiny.py", "reference": f"transformers {version('transformers')}, torch {version('torch')}, fp32"}
    ckpt.write_file(os.path.join(folder, "golden.safetensors"), out, note)


if __name__ == "__main__":
    main(sys.argv[1])
