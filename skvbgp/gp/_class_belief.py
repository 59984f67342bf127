"""Shares of kernels in predictions of classes, from what they say of votes that are left out.

With log p_ck what kernel c says of vote k, left out, of N votes, and q_c its number of
hyperparameters, which have been chosen by the same votes, the shares w maximise

    sum_k log sum_c w_c exp(log p_ck - q_c / N) + 1/2 sum_c log w_c.

The last sum is a Dirichlet prior, worth half a vote for each kernel. The objective is concave, and
expectation maximisation ascends it. See :doc:`/theory/gp_classes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from skvbgp._core.linalg import Array

#: Votes that the prior gives to each kernel.
_PRIOR = 0.5
_MAX_ITER = 500
#: It ends when no share changes by more.
_TOL = 1e-6


def learn_shares(parts: Sequence[Array], counts: Array, n_free: Sequence[int]) -> Array:
    """The best shares (C,).

    Parameters
    ----------
    parts : sequence of ndarrays of shape (M, K)
        Log probabilities of the classes, by each kernel.
    counts : ndarray of shape (M, K)
        How often each label was left out.
    n_free : sequence of int
        Numbers of hyperparameters.
    """
    votes = counts > 0.0
    weight = counts[votes] / counts.sum()
    penalty = np.array(n_free) / counts.sum()
    log_p = np.stack([part[votes] for part in parts]) - penalty[:, None]  # (C, votes)
    prior = _PRIOR / counts.sum()
    shares = np.full(len(log_p), 1.0 / len(log_p))
    for _ in range(_MAX_ITER):
        before = shares
        joint = np.log(shares)[:, None] + log_p
        owned = np.exp(joint - logsumexp(joint, axis=0)) @ weight
        shares = (owned + prior) / (1.0 + len(log_p) * prior)
        if np.max(np.abs(shares - before)) < _TOL:
            break
    return shares
