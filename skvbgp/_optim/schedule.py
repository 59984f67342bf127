"""How step sizes fall during training."""

from collections.abc import Callable

import numpy as np

#: ``(step, n_steps) -> share`` of the first step size.
Annealing = Callable[[int, int], float]


def cosine_annealing(step: int, n_steps: int) -> float:
    """Share of the first step size, from 1 at step 0 to 0 at ``n_steps``, along a cosine."""
    return float(0.5 * (1.0 + np.cos(np.pi * step / n_steps)))


def no_annealing(step: int, n_steps: int) -> float:
    """All of the first step size, always."""
    return 1.0
