r"""The shape of errors, which is the same everywhere: skewed, or with heavy tails.

Standardised errors z_i of rows that are left out, which count w_i times, are explained by a mixture
of K normal distributions with weights pi_k, means a_k and variances b_k. Every component has seen
kappa more rows, of a standard normal distribution:

    sum_i w_i log sum_k pi_k N(z_i | a_k, b_k)
        + kappa sum_k (log pi_k - (log b_k + (1 + a_k^2) / b_k) / 2)

is maximised by expectation and maximisation. The z_i have mean zero and variance one, and so has
the mixture after every step: it changes no moment of what is predicted. Only where errors are
larger than predicted, as calibration does not follow a few that are huge, it is as wide as they
are. See :ref:`gp-shape`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from skvbgp._core.gaussian import log_normal
from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture
from skvbgp._core.scaling import RunningScale

#: Components, and the rows that all of them together have seen besides.
_COMPONENTS, _PRIOR_ROWS = 4, 10.0
#: Where means and variances start: quantiles of a normal distribution, drawn in.
_START_MEANS = 0.8 * ndtri((np.arange(_COMPONENTS) + 0.5) / _COMPONENTS)
_START_VARIANCE = 0.5
_MAX_ITER, _TOL = 300, 1e-6


def learn_shape(z: Array, weight: Array | None = None) -> NormalMixture | None:
    """The distribution (1, K) of errors z (n,), with mean zero and at least variance one.

    They count as often as their weights (n,) say. None, which is a normal distribution, if they
    are all the same.
    """
    weight = np.ones(len(z)) if weight is None else weight
    summary = RunningScale.of(z, weight)
    if not summary.std > 0.0:
        return None
    pi, a, b = _explain((z - summary.mean) / summary.std, weight)
    unit = max(1.0, float(summary.std))
    return NormalMixture(unit * a[None], unit * np.sqrt(b)[None], pi[None])


def _explain(z: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Weights, means and variances (K,) of the most probable mixture."""
    kappa = _PRIOR_ROWS / _COMPONENTS
    a, b = _START_MEANS, np.full(_COMPONENTS, _START_VARIANCE)
    pi = np.full(_COMPONENTS, 1.0 / _COMPONENTS)
    reached = -np.inf
    for _ in range(_MAX_ITER):
        value, shares = score_shape(pi, a, b, z, weight)
        if value < reached + _TOL * weight.sum():
            break
        reached = value
        count = shares.sum(axis=1) + kappa
        pi = count / count.sum()
        a = shares @ z / count
        squares = (shares * (z - a[:, None]) ** 2).sum(axis=1)
        b = (squares + kappa * (1.0 + a**2)) / count
    return pi, a, b


def score_shape(pi: Array, a: Array, b: Array, z: Array, weight: Array) -> tuple[float, Array]:
    """The objective, and how often each row is one of each component (K, n)."""
    log_joint = np.log(pi)[:, None] + log_normal(z - a[:, None], b[:, None])
    top = log_joint.max(axis=0)
    joint = np.exp(log_joint - top)
    total = joint.sum(axis=0)
    seen = np.log(pi) - 0.5 * (np.log(b) + (1.0 + a**2) / b)
    value = weight @ (top + np.log(total)) + _PRIOR_ROWS / _COMPONENTS * seen.sum()
    return float(value), weight * joint / total
