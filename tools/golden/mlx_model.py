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
