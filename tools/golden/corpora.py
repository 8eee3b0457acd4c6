"""Evaluation texts for the tests, and the ids of whole corpora (the real tokenizer, `tokenizers` library).

usage: corpora.py take SOURCE_DIR    cut the evaluation texts into tests/data/corpus (TAKEN below)
       corpora.py ids                compute corpus_ids.json again from every corpus file that is there, keep the others
       corpora.py check              the same, but only report differences; also checks vectors.jsonl, qwen36_goldens.json"""
import hashlib
import json
import lzma
import os
import sys

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DATA = os.path.join(ROOT, "tests", "data")
TOKENIZER = os.path.join(DATA, "tokenizer", "Qwen3.6-35B-A3B-4bit.tokenizer.json.xz")
SHA = "87a7830d63fcf43bf241c3c5242e96e62dd3fdc29224ca26fed8ea333db72de4"
IDS = os.path.join(DATA, "tokenizer", "corpus_ids.json")
MOST = 4_000_000  # bytes of a corpus that are encoded
TAKEN = {"wikitext2_test": None, "hellaswag_val_1000": None, "promessi_sposi": 250_000, "war-and-peace": 200_000}


def take(src):
    """Whole texts, or the lines that fit into so many bytes."""
    for name, limit in TAKEN.items():
        text = lzma.open(os.path.join(src, name + ".txt.xz")).read()
        if limit:
            text = text[:text.rindex(b"\n", 0, limit) + 1]
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]
        with open(os.path.join(DATA, "corpus", name + ".txt.xz"), "wb") as f:
            f.write(lzma.compress(text, filters=filters))


def tokenizer():
    from tokenizers import Tokenizer
    raw = lzma.open(TOKENIZER).read()
    assert hashlib.sha256(raw).hexdigest() == SHA
    return Tokenizer.from_str(raw.decode())


def entry(tok, file):
    """The first bytes of the file (whole characters, at most MOST) as one string."""
    raw = lzma.open(os.path.join(ROOT, file)).read()
    text = raw[:MOST].decode("utf-8", "ignore" if len(raw) > MOST else "strict")
    ids = np.array(tok.encode(text).ids, "<u4")
    return {"file": file, "bytes": len(text.encode()), "tokens": len(ids), "sha256_of_ids_u32le": hashlib.sha256(ids.tobytes()).hexdigest()}


def corpus_ids(check):
    tok, old = tokenizer(), {e["file"]: e for e in json.load(open(IDS))} if os.path.exists(IDS) else {}
    files = set(old) | {f"tests/data/corpus/{n}.txt.xz" for n in TAKEN}
    train = os.path.join(ROOT, "tools", "train", "corpus")
    if not check and os.path.isdir(train):
        files |= {"tools/train/corpus/" + f for f in os.listdir(train) if f.endswith(".txt.xz")}
    for f in sorted(files):
        if not os.path.exists(os.path.join(ROOT, f)):
            print(f, "is not here")
            continue
        new = entry(tok, f)
        print(f, "as recorded" if old.get(f) == new else "CHANGED" if f in old else "new")
        assert not check or old.get(f) == new
        old[f] = new
    if not check:
        with open(IDS, "w") as f:
            json.dump([old[k] for k in sorted(old)], f, indent=1)
            f.write("\n")
    return tok


def check_vectors(tok):
    folder = os.path.dirname(IDS)
    lines = [json.loads(l) for l in open(os.path.join(folder, "vectors.jsonl"), encoding="utf-8")]
    for v in lines + json.load(open(os.path.join(folder, "qwen36_goldens.json")))["vectors"]:
        assert tok.encode(v["text"]).ids == v["ids"], v["name"]
        if v in lines:
            assert tok.decode(v["ids"], skip_special_tokens=False) == v.get("text_of_ids", v["text"]), v["name"]
    print(len(lines), "vectors and the published goldens as recorded")


if __name__ == "__main__":
    if sys.argv[1] == "take":
        take(sys.argv[2])
    else:
        tok = corpus_ids(sys.argv[1] == "check")
        if sys.argv[1] == "check":
            check_vectors(tok)
