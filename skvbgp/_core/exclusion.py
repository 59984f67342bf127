r"""Probabilities of more than two classes, from the scores z_c of each one versus the rest.

    log p_c = log Phi(z_c) - exclusion log Phi(-z_c) + constant

With an exclusion of 1, this is the probability of class c given that exactly one of the events
"c, and not the rest" holds; with 0, the normalised probability of c in its own problem. See
:ref:`ep-link`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from skvbgp._core.linalg import Array, normalise_logs

#: Values that are tried.
_EXCLUSIONS = np.linspace(0.0, 1.0, 21)
#: Standard errors by which a larger exclusion has to be better.
_N_ERRORS = 2.0


def log_probabilities(scores: Array, exclusion: float) -> Array:
    """Logarithms (n, k) of the probabilities of k > 2 classes."""
    return normalise_logs(log_ndtr(scores) - exclusion * log_ndtr(-scores))


def learn_exclusion(scores: Array, codes: NDArray[np.intp], weight: Array | None) -> float:
    """The least exclusion that is not clearly worse than the best for rows left out.

    They have scores (n, k), none of which a row counts in itself, and classes ``codes`` (n,), and
    count as often as their weights (n,) say; None is once.
    """
    own = np.arange(len(codes)), codes
    holds, fails = log_ndtr(scores), log_ndtr(-scores)
    logs = np.array([normalise_logs(holds - exclusion * fails)[own] for exclusion in _EXCLUSIONS])
    counts = np.ones(len(codes)) if weight is None else weight
    best = logs[np.argmax(logs @ counts)]
    lost = best - logs  # (n_exclusions, n)
    mean = lost @ counts / counts.sum()
    variance = (lost - mean[:, None]) ** 2 @ counts / counts.sum()
    is_close = mean <= _N_ERRORS * np.sqrt(variance / counts.sum())
    return float(_EXCLUSIONS[np.argmax(is_close)])
