#!/usr/bin/env python3
"""Checkpoints whose matrices have different kinds: each module once with 8 bits and once unquantised, against plain C. Kinds of
the same weights, so that every tier must say the same; a row that is read in a form which nobody made is far off."""
import array
import json
import os
import platform
import re
import struct
import subprocess
import sys
import tempfile
import traceback

LILY = os.environ.get("LILY", "./lily")
TINY, DEMO = "tests/data/tiny-mlx", "models/demo"
TOKENS = "260"
EXACT, FAST = 1e-3, 5e-3  # mean KL: 1e-7 and 4e-4 as it is, 7e-5 where one token then takes another expert on a near tie, 1 and more where rows are missing
MODULES = ["in_proj_qkv", "in_proj_z", "in_proj_(a|b)", "out_proj", "q_proj", "(k|v)_proj", "o_proj", r"mlp\.gate$", "shared_expert_gate", r"shared_expert\.down",
           r"shared_expert\.(gate|up)_", r"switch_mlp\.down", r"switch_mlp\.gate_", r"switch_mlp\.up", r"switch_mlp\.(gate|up)_", "lm_head", "."]


def bf16(words):
    return array.array("f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words)))


def read_tensors(source):
    data = open(f"{source}/model.safetensors", "rb").read()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]]) for k, v in header.items()}


def convert(tensors, base, kind):
    """The module as 8 bits, or as fp32 without scales; its override of the config."""
    _, shape, data = tensors[base + ".weight"]
    groups = tensors[base + ".scales"][1][-1]
    bits = shape[-1] * 32 // (groups * 64)
    codes = data if bits == 8 else bytes(x for b in data for x in (b & 15, b >> 4))
    if kind == 8:
        tensors[base + ".weight"] = ("U32", shape[:-1] + [groups * 16], codes)
        return {"group_size": 64, "bits": 8}
    scales, biases = (bf16(array.array("H", tensors.pop(base + s)[2])) for s in (".scales", ".biases"))
    numbers = array.array("f", (c * s + b for g, (s, b) in enumerate(zip(scales, biases)) for c in codes[64 * g : 64 * g + 64]))
    tensors[base + ".weight"] = ("F32", shape[:-1] + [groups * 64], numbers.tobytes())
    return False


def write_checkpoint(folder, source, pattern, kind):
    tensors, changed = read_tensors(source), {}
    for base in [k[: -len(".scales")] for k in tensors if k.endswith(".scales")]:
        if re.search(pattern, base) and "embed_tokens" not in base:
            changed[base] = convert(tensors, base, kind)
    assert changed, pattern
    config = json.load(open(f"{source}/config.json"))
    for key in ("quantization", "quantization_config"):
        config[key].update(changed)
    json.dump(config, open(f"{folder}/config.json", "w"))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        open(f"{folder}/{name}", "wb").write(open(f"{source}/{name}", "rb").read())
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def run(*args):
    return subprocess.run([LILY, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)


def lily(*args):
    p = run(*args)
    assert p.returncode == 0, (args, p.stderr)
    return p.stdout


def compare(folder, reference, bound, *options):
    found = json.loads(lily("eval", "compare", reference, "-m", folder, "--json", *options))
    assert found["kl"] < bound, (options, found["kl"], found["same_top"])


def check_cpu(folder, reference):
    for tier in [[]] + ([["--cpu-tier", "avx2"]] if platform.machine() == "x86_64" else []):
        compare(folder, reference, EXACT, "--device", "cpu", *tier)
        compare(folder, reference, FAST, "--device", "cpu", *tier, "--fast")


def check_card(folder, reference):
    """As on the CPU, or refused with the reason."""
    if "needs the same" not in run("eval", "compare", reference, "-m", folder, "--device", "cuda").stderr:
        compare(folder, reference, FAST, "--device", "cuda")


def check_all(source, kinds, check):
    """The number of failures."""
    failed = 0
    with tempfile.TemporaryDirectory() as temp:
        reference = f"{temp}/reference"
        exact = ["--cpu-tier", "scalar"] if source == TINY else []
        lily("eval", "record", "README.md", "-m", source, "--device", "cpu", *exact, "--max-tokens", TOKENS, "--out", reference)
        for number, (pattern, kind) in enumerate((p, k) for p in MODULES for k in kinds):
            folder = f"{temp}/{number}"
            os.mkdir(folder)
            try:
                write_checkpoint(folder, source, pattern, kind)
                check(folder, reference)
            except Exception:
                failed += 1
                traceback.print_exc()
                print("FAIL", check.__name__, pattern, kind, flush=True)
    return failed


def main():
    tests, skipped = 2 * len(MODULES), 0
    failed = check_all(TINY, (8, "fp32"), check_cpu)
    if run("run", "-m", DEMO, "--device", "cuda", "-n", "1", "hi").returncode == 0:
        tests += len(MODULES)
        failed += check_all(DEMO, (8,), check_card)
    else:
        skipped = 1
        print("SKIP mixed kinds on a card: no CUDA card answers")
    print(f"{tests - failed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
