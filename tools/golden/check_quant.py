"""Checks the recorded quantizer vectors of tests/data/quant against model.md 2.5 in numpy: every word, scale and bias.

usage: check_quant.py QUANT_DIR"""
import json
import lzma
import os
import sys
import tempfile

import numpy as np

import ckpt


def load(path):
    with tempfile.NamedTemporaryFile() as f:
        f.write(lzma.open(path).read())
        f.flush()
        return ckpt.read_file(f.name)


def widen(dtype, a):
    return ckpt.from_bf16(a) if dtype == "BF16" else a.astype(np.float32)


def store(dtype, x):
    with np.errstate(over="ignore"):  # float16 goes to infinity, as in MLX
        return ckpt.to_bf16(x) if dtype == "BF16" else x.astype(np.float16 if dtype == "F16" else np.float32)


def same(a, b):
    return (np.ascontiguousarray(a).view(np.uint8) == np.ascontiguousarray(b).view(np.uint8)).all()


def dequant_forms(dtype, codes, s, b):
    """(code*scale rounded, then + bias rounded; both at once): what the CPU and the CUDA backend do."""
    c = codes.astype(np.float32).reshape(*s.shape, ckpt.GROUP)
    s, b = widen(dtype, s)[..., None], widen(dtype, b)[..., None]
    two = store(dtype, widen(dtype, store(dtype, c * s)) + b)
    one = store(dtype, (c.astype(np.float64) * s + b).astype(np.float32))
    return two.reshape(codes.shape), one.reshape(codes.shape)


def main(folder):
    cpu, cuda = (load(os.path.join(folder, f)) for f in ("quant.safetensors.xz", "quant.cuda.safetensors.xz"))
    groups = 0
    for m in json.load(open(os.path.join(folder, "quant.json"))):
        n, bits = m["name"], m["bits"]
        dtype, w = cpu[n + ".input"]
        for gpu in (False, True):
            get = lambda what: cuda.get(f"{n}.cuda.{what}", cpu[f"{n}.{what}"])[1] if gpu else cpu[f"{n}.{what}"][1]
            codes, s, b = ckpt.affine(widen(dtype, w), bits, gpu)
            for what, mine in (("weight", ckpt.pack(codes, bits)), ("scales", store(dtype, s)), ("biases", store(dtype, b))):
                assert same(mine, get(what)), (n, gpu, what)
            two, one = dequant_forms(dtype, codes, get("scales"), get("biases"))
            assert same(one if gpu else two, get("dequant")), (n, gpu, "dequant")
        groups += s.size
    print(f"{groups} groups: CPU and CUDA words, scales, biases and dequantized values all equal")


if __name__ == "__main__":
    main(sys.argv[1])
