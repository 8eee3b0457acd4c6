"""Checkpoints in numpy: safetensors in and out, bfloat16, the affine 4/8-bit packing (model.md 2)."""
import json
import os
import struct

import numpy as np

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "U32": "<u4", "I64": "<i8", "U8": "u1", "F64": "<f8"}
GROUP = 64


def to_bf16(x):
    """float -> bfloat16 bits (uint16), round to nearest even; finite input only."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    """bfloat16 bits -> float32 (exact)."""
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def read_header(path):
    """(header dict without __metadata__, metadata, offset of the data area)."""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        h = json.loads(f.read(n))
    return h, h.pop("__metadata__", {}), 8 + n


def read_file(path):
    """name -> (dtype string, array); BF16 stays as uint16 bits."""
    h, _, base = read_header(path)
    data = np.fromfile(path, np.uint8)
    out = {}
    for name, e in h.items():
        a, b = e["data_offsets"]
        out[name] = (e["dtype"], np.frombuffer(data[base + a:base + b].tobytes(), DTYPES[e["dtype"]]).reshape(e["shape"]))
    return out


def write_file(path, tensors, metadata=None, order=None, pad=True):
    """tensors: name -> (dtype string, array). Header keys sorted; data in `order` (default: sorted).

    pad=False leaves the header at its natural length, as MLX does, so that the data may start at an odd byte."""
    at, head = 0, {}
    order = sorted(tensors) if order is None else order
    for name in order:
        dt, a = tensors[name]
        n = a.size * np.dtype(DTYPES[dt]).itemsize
        head[name] = {"dtype": dt, "shape": list(a.shape), "data_offsets": [at, at + n]}
        at += n
    full = {"__metadata__": metadata} if metadata else {}
    full.update((k, head[k]) for k in sorted(head))
    text = json.dumps(full, separators=(",", ":"), ensure_ascii=False).encode()
    if pad:
        text += b" " * (-(len(text)) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            dt, a = tensors[name]
            f.write(np.ascontiguousarray(a).astype(DTYPES[dt], copy=False).tobytes())


def pack(codes, bits):
    """codes [..., I] -> U32 words [..., I*bits/32], lowest bits first."""
    per = 32 // bits
    c = codes.reshape(*codes.shape[:-1], -1, per).astype(np.uint32)
    return np.bitwise_or.reduce(c << (bits * np.arange(per, dtype=np.uint32)), axis=-1).astype(np.uint32)


def unpack(words, bits):
    """U32 words [..., W] -> codes [..., W*32/bits] as uint32."""
    per = 32 // bits
    c = (words[..., None] >> (bits * np.arange(per, dtype=np.uint32))) & np.uint32((1 << bits) - 1)
    return c.reshape(*words.shape[:-1], -1)


def half_away(x):
    t = np.trunc(x)
    return np.where(np.abs(x - t) >= np.float32(0.5), t + np.copysign(np.float32(1), x), t).astype(np.float32)


def affine(w, bits, gpu=True):
    """float32 [..., I] -> (codes uint32 [..., I], scales, biases float32 [..., I/64], not yet rounded): model.md 2.5.

    gpu: the rule of MLX's GPU kernels, else that of its CPU backend."""
    rnd = half_away if gpu else np.rint
    g = np.ascontiguousarray(w, np.float32).reshape(*w.shape[:-1], -1, GROUP)
    n = np.float32((1 << bits) - 1)
    mn, mx = g.min(-1), g.max(-1)
    if gpu:
        mx = np.maximum(mx, np.float32(0))
    s = np.maximum((mx - mn) / n, np.float32(1e-7))
    low = np.abs(mn) > np.abs(mx)
    edge, s = np.where(low, mn, mx), np.where(low, s, -s)
    q0 = rnd(edge / s)
    s = np.where(q0 != 0, edge / np.where(q0 != 0, q0, np.float32(1)), s).astype(np.float32)
    b = np.where(q0 != 0, edge, np.float32(0)).astype(np.float32)
    codes = np.clip(rnd((g - b[..., None]) / s[..., None]), 0, n).astype(np.uint32)
    return codes.reshape(w.shape), s, b


def quantize(w, bits, gpu=True):
    """float32 [..., I] -> (words U32, scales BF16 bits, biases BF16 bits)."""
    codes, s, b = affine(w, bits, gpu)
    return pack(codes, bits), to_bf16(s), to_bf16(b)


def dequantize(words, scales, biases, bits, dtype=np.float64):
    """scale*code + bias in `dtype` (scales, biases: BF16 bits)."""
    q = unpack(words, bits).astype(dtype).reshape(*words.shape[:-1], -1, GROUP)
    s, b = from_bf16(scales).astype(dtype), from_bf16(biases).astype(dtype)
    return (q * s[..., None] + b[..., None]).reshape(*words.shape[:-1], -1)


class Checkpoint:
    """A checkpoint folder in MLX layout. tensor(name) widens; weight(module) dequantizes."""

    def __init__(self, folder):
        self.dir = folder
        self.config = json.load(open(os.path.join(folder, "config.json")))
        self.text = self.config.get("text_config", self.config)
        self.quant = self.config["quantization"]
        index = os.path.join(folder, "model.safetensors.index.json")
        files = sorted(set(json.load(open(index))["weight_map"].values())) if os.path.exists(index) else ["model.safetensors"]
        self.files = files
        self.t = {}
        for f in files:
            self.t.update(read_file(os.path.join(folder, f)))

    def tensor(self, name, dtype=np.float64):
        dt, a = self.t[name]
        return (from_bf16(a) if dt == "BF16" else a).astype(dtype)

    def weight(self, module, dtype=np.float64):
        if module + ".scales" not in self.t:
            return self.tensor(module + ".weight", dtype)
        o = self.quant.get(module, self.quant)
        assert o["group_size"] == GROUP
        return dequantize(self.t[module + ".weight"][1], self.t[module + ".scales"][1], self.t[module + ".biases"][1], o["bits"], dtype)
