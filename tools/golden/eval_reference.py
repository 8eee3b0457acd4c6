"""A reference for `lily eval compare`, computed by transformers in fp32 on the dequantized weights.

usage: eval_reference.py CHECKPOINT_DIR GOLDEN OUT_FILE

GOLDEN is a file of demo_golden.py: its ids are taken, and its log-probabilities must come out again. The keys are those
of src/run/reference.h; the eight most likely tokens of each row are kept."""
import sys

import numpy as np

import ckpt

TOP = 8


def main(folder, golden, out_file):
    from hf_model import HfModel
    recorded = ckpt.read_file(golden)
    ids = recorded["ids"][1]
    logits = HfModel(ckpt.Checkpoint(folder)).forward(ids, want_hidden=False)["logits"].astype(np.float64)
    high = logits.max(-1, keepdims=True)
    logprobs = logits - high - np.log(np.exp(logits - high).sum(-1, keepdims=True))
    order = np.argsort(-logits, axis=-1, kind="stable")[:, :TOP]
    chosen = np.append(logprobs[np.arange(len(ids) - 1), ids[1:]], 0).astype(np.float32)
    off = np.abs(chosen[:-1] - recorded["hf.logprob"][1]).max()
    print(f"log-probabilities within {off:.1e} of the golden's")
    assert off < 1e-3 and (order[:, 0] == recorded["hf.argmax"][1]).all()
    ckpt.write_file(out_file, {
        "ids": ("I32", ids), "starts": ("I32", np.zeros(1, np.int32)), "chosen": ("F32", chosen),
        "top_ids": ("I32", order.astype(np.int32)),
        "top_logprobs": ("F32", np.take_along_axis(logprobs, order, -1).astype(np.float32))}, {"made_by": "tools/golden/eval_reference.py"})


if __name__ == "__main__":
    main(*sys.argv[1:])
