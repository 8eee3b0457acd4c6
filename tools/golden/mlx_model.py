"""The checkpoint in mlx-lm with float32 activations: every BF16 parameter widened, products with the stored codes."""
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)


class MlxModel:
    def __init__(self, folder):
        self.model, _ = load_model(Path(folder))
        wide = lambda v: v.astype(mx.float32) if mx.issubdtype(v.dtype, mx.floating) else v
        self.model.update(tree_map(wide, self.model.parameters()))
        self.model.eval()

    def forward(self, ids, piece=None):
        """float32 logits [T][V]; the prompt goes in as one call, or in calls of `piece` tokens through the cache."""
        cache, out = make_prompt_cache(self.model), []
        for a in range(0, len(ids), piece or len(ids)):
            lg = self.model(mx.array([list(map(int, ids[a:a + (piece or len(ids))]))]), cache=cache)
            mx.eval(lg)
            out.append(np.array(lg[0].astype(mx.float32)))
        return np.concatenate(out)

    def hidden(self, ids):
        """float32 residual stream [L+1][T][H]: the embedding, then after each layer, before the final norm."""
        lm = self.model.language_model.model
        x = lm.embed_tokens(mx.array([list(map(int, ids))]))
        out = [x]
        for layer in lm.layers:
            x = layer(x, mask=None if layer.is_linear else "causal", cache=None)
            out.append(x)
        return np.stack([np.array(v[0]) for v in out])

    def greedy(self, ids, steps):
        """(ids I32 [steps], logits after each of them is fed [steps][V], top-two margin at each choice [steps])."""
        cache, out, logits, margins = make_prompt_cache(self.model), [], [], []
        row = np.array(self.model(mx.array([list(map(int, ids))]), cache=cache)[0, -1])
        for _ in range(steps):
            top = np.sort(row)
            margins.append(top[-1] - top[-2])
            out.append(int(row.argmax()))
            row = np.array(self.model(mx.array([[out[-1]]]), cache=cache)[0, -1])
            logits.append(row)
        return np.array(out, np.int32), np.stack(logits), np.array(margins, np.float32)
