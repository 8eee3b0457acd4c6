"""Looks for a seed of the tiny checkpoint with clear decisions: no routing near-tie in any prompt, wide greedy margins.

usage: pick_seed.py TEMPLATES_DIR FIRST LAST   (numpy float64 only; prints every seed that passes)"""
import sys
import tempfile

import numpy as np

import ckpt
import golden_tiny
import make_tiny
from forward64 import Forward64

LEAST_GAP, LEAST_MARGIN = 1.5e-4, 0.2


def judge(templates, seed):
    """(smallest routing gap, smallest greedy margin), margin None where the gap already disqualifies."""
    with tempfile.TemporaryDirectory() as d:
        make_tiny.make(templates, d, seed)
        f = Forward64(ckpt.Checkpoint(d))
        usable, gap = make_tiny.V - 3, np.inf
        for n in sorted(golden_tiny.LENGTHS, reverse=True):
            gap = min(gap, f.forward(golden_tiny.prompt(n, usable))["gaps"].min())
            if gap < LEAST_GAP:
                return gap, None
        ids, margins = golden_tiny.greedy(Greedy(f), golden_tiny.prompt(65, usable))
        return gap, margins.min()


class Greedy:
    def __init__(self, f):
        self.f = f

    def forward(self, ids, want_hidden=False):
        return self.f.forward(ids)


if __name__ == "__main__":
    for seed in range(int(sys.argv[2]), int(sys.argv[3])):
        gap, margin = judge(sys.argv[1], seed)
        if margin is not None:
            print(seed, f"gap {gap:.2e} greedy margin {margin:.3f}", "<-" if margin >= LEAST_MARGIN else "", flush=True)
