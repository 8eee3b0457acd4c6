"""Small numeric vectors (model.md 2.5 and 14) as JSON, computed in float64 and checked against the digits printed there.

usage: vectors.py OUT_FILE"""
import json
import sys

import numpy as np

import ckpt
from forward64 import rms, sigmoid, silu, softplus


def near(got, printed, digits):
    """got rounded to so many decimals is what the description prints."""
    assert np.allclose(got, printed, rtol=0, atol=0.51 * 10.0 ** -digits), (got, printed)


def quantizer():
    w = (((37 * np.arange(64)) % 64) - 20).astype(np.float32) / 64
    codes, s, b = ckpt.affine(w, 4)
    words, sb, bb = ckpt.quantize(w, 4)
    again = ckpt.quantize(w, 4, gpu=False)
    assert all((x == y).all() for x, y in zip((words, sb, bb), again))
    assert [f"{x:08x}" for x in words] == "e81a4c6f 5d7193c5 a4d6092b 1a3c6e82 7093b5d7 c6e82a4d 3b5e71a3 82b4d709".split()
    assert (sb[0], bb[0]) == (0xBD8A, 0x3F2C)
    deq = ckpt.dequantize(words, sb, bb, 4)
    assert deq[:4].tolist() == [-0.3388671875, 0.267578125, -0.13671875, 0.40234375]
    neg = -(0.5 + np.arange(64) / 64).astype(np.float32)
    out = {"mixed": {"w": w.tolist(), "bits": 4, "scale": float(s[0]), "bias": float(b[0]), "scale_bf16": int(sb[0]), "bias_bf16": int(bb[0]),
                     "words": words.tolist(), "dequantized": deq.tolist()}}
    for rule in ("gpu", "cpu"):
        codes, s, b = ckpt.affine(neg, 4, rule == "gpu")
        words, sb, bb = ckpt.quantize(neg, 4, rule == "gpu")
        out["negative_" + rule] = {"w": neg.tolist(), "bits": 4, "scale": float(s[0]), "bias": float(b[0]), "scale_bf16": int(sb[0]),
                                   "bias_bf16": int(bb[0]), "words": words.tolist(), "codes": codes.tolist()}
    near(out["negative_gpu"]["scale"], 0.098958336, 9), near(out["negative_cpu"]["scale"], 0.06453805, 8)
    assert out["negative_gpu"]["codes"][:4] == [10, 10, 10, 9] and out["negative_cpu"]["codes"][:4] == [15] * 4
    return out


def conv():
    past, now, w = [0.5, -1.0, 2.0], 0.25, [0.1, -0.2, 0.3, 0.4]
    y = float(np.dot(w, [*past, now]))
    near(y, 0.95, 10), near(silu(y), 0.6850594191, 10)
    return {"history": past, "current": now, "w": w, "sum": y, "out": float(silu(y))}


def rope():
    x, pos, half = 0.01 * (np.arange(256) + 1), 1000, 32
    f = 1e7 ** (-2 * np.arange(half) / 64)
    c, s, y = np.cos(pos * f), np.sin(pos * f), x.copy()
    y[:half], y[half:64] = x[:half] * c - x[half:64] * s, x[:half] * s + x[half:64] * c
    near(y[[0, 1, 31, 32, 63, 64]], [-0.2672464576, -0.2957458554, 0.3198940873, 0.1938538906, 0.6400529454, 0.65], 10)
    near(f[1], 0.6042963902, 10), near(f[31], 1.6548171e-07, 14)
    return {"x": "0.01*(i+1), i < 256", "pos": pos, "theta": 1e7, "rotary": 64, "frequencies": f.tolist(), "out": y.tolist()}


def gated_norm():
    i = np.arange(128)
    y = rms(np.sin(0.2 * i), 1e-6) * (0.5 + i / 256) * silu(2 * np.cos(0.3 * i))
    near(y[:4], [0, 0.237677874, 0.390651337, 0.39768607], 8), near(y.sum(), 2.2709575846, 10)
    return {"o": "sin(0.2*i)", "z": "2*cos(0.3*i)", "w": "0.5+i/256", "n": 128, "eps": 1e-6, "out": y.tolist(), "sum": float(y.sum())}


def gdn():
    i, S, all_o, steps = np.arange(128), np.zeros((128, 128)), 0.0, []
    unit = lambda y: y / np.sqrt((y * y).sum() + 1e-6)
    for t in range(130):
        q = unit(np.sin(0.37 * (t + 1) + 0.11 * (i + 1))) / np.sqrt(128)
        k = unit(np.cos(0.23 * (t + 1) - 0.07 * (i + 1)))
        v = np.sin(0.05 * (t + 1) * ((i % 7) + 1))
        a, b = 0.5 * np.sin(0.3 * (t + 1)), 1.5 * np.cos(0.2 * (t + 1))
        S *= np.exp(-np.exp(0.25) * softplus(a - 1.0))
        S += np.outer(sigmoid(b) * (v - S @ k), k)
        o = S @ q
        all_o += o.sum()
        if t in (0, 1, 4, 63, 64, 129):
            steps.append({"t": t, "o": o.tolist(), "S_0_0": S[0, 0], "S_0_1": S[0, 1], "S_0_2": S[0, 2], "S_5_7": S[5, 7], "S_127_127": S[127, 127],
                          "S_sum": S.sum(), "S_norm": np.sqrt((S * S).sum()), "o_sum_so_far": all_o})
    at = {x["t"]: x for x in steps}
    near(at[0]["o"][:4], [0.000165996, 0.000331577, 0.000496329, 0.000659841], 9)
    near([at[0][x] for x in ("S_0_0", "S_0_1", "S_0_2")], [0.005099192, 0.005144261, 0.005164133], 9)
    near(at[0]["S_5_7"], 0.0288930226, 10), near(at[0]["S_sum"], 29.8493032192, 10)
    near(at[1]["o"][:4], [-0.000534175, -0.001062864, -0.001580635, -0.002082167], 9), near(at[1]["S_sum"], 80.2735277617, 10)
    near(at[4]["o"][:4], [-0.002789542, -0.005434897, -0.007800017, -0.009764657], 9), near(at[4]["S_sum"], 242.1576846226, 10)
    near(at[129]["o"][:4], [-0.001873196, -0.003669491, -0.005314841, -0.006740967], 9), near(at[129]["S_127_127"], -0.0166874380, 10)
    near(at[129]["S_norm"], 7.0151035804, 10), near(at[129]["o_sum_so_far"], -3.6328054051, 10)
    return {"q": "sin(0.37*(t+1)+0.11*(i+1))", "k": "cos(0.23*(t+1)-0.07*(i+1))", "v": "sin(0.05*(t+1)*((i mod 7)+1))", "a": "0.5*sin(0.3*(t+1))",
            "b": "1.5*cos(0.2*(t+1))", "A_log": 0.25, "dt_bias": -1.0, "S_index": "[v][k]", "note": "t, i from 0; q and k are not yet normalised", "steps": steps}


def published():
    """What a regenerated index of the published checkpoint must be."""
    return {"tensors": 2090, "language_tensors": 1757, "total_size": 20401929952, "language_bytes": 19508787456,
            "index_sha256": "0b28df60e33753a14e816d3b31577ae2c93884c58430a4a6de6ae9ea483842ea", "index_bytes": 215755,
            "config_sha256": "a822a9e48b0aafbe3144ec37d4fb067e178ed96615ce6e4420b3149893cc5767", "config_bytes": 23591,
            "shards": [{"tensors": 716, "bytes": 5288107104}, {"tensors": 498, "bytes": 5368405504},
                       {"tensors": 504, "bytes": 5368256256}, {"tensors": 372, "bytes": 4377161088}]}


if __name__ == "__main__":
    parts = {"quantizer": quantizer(), "conv": conv(), "rope": rope(), "gated_norm": gated_norm(), "gdn": gdn(), "published_checkpoint": published()}
    with open(sys.argv[1], "w") as f:
        json.dump(parts, f, indent=1)
        f.write("\n")
    print("vectors as printed in the description")
