"""How step sizes fall during training."""

import numpy as np


def cosine_annealing(step: int, n_steps: int) -> float:
    """Share of the first step size, from 1 at step 0 to 0 at ``n_steps``, along a cosine."""
    return float(0.5 * (1.0 + np.cos(np.pi * step / n_steps)))
