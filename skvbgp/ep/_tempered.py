"""Likelihoods of rows that count less than once: a power of those of one row."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from skvbgp._core.linalg import Array
from skvbgp.ep._likelihoods import Likelihood, Moments

#: Nodes of the Gauss-Hermite rule, and logarithms of its weights.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_LOG_WEIGHTS = np.log(_WEIGHTS / _WEIGHTS.sum())
#: Below this variance of g, slopes at the nodes are exact, and its tilted moments cancel.
_NARROW = 0.01


def tempered_moments(
    likelihood: Likelihood, t: Array, c: Array, s: Array, noise: Array, power: Array
) -> Moments:
    """Moments of p(t | g)^power under g ~ N(c, s), for each row; f is g plus noise."""
    root = np.sqrt(s)[:, None]
    g = c[:, None] + root * _NODES  # (n, k)
    exponent = power[:, None]
    rows = np.repeat(np.arange(len(t)), len(_NODES))
    flat = likelihood.moments(t[rows], g.ravel(), noise[rows])
    given = Moments(*(values.reshape(g.shape) for values in flat))
    log_parts = exponent * given.log_z + _LOG_WEIGHTS
    log_z = logsumexp(log_parts, axis=1)
    share = np.exp(log_parts - log_z[:, None])
    slopes = exponent * given.slope
    slope = np.sum(share * slopes, axis=1)
    spread = np.sum(share * (slopes - slope[:, None]) ** 2, axis=1)
    curvature = np.sum(share * exponent * given.curvature, axis=1) - spread
    wide = s > _NARROW
    place = share[wide] @ _NODES
    variance = np.sum(share[wide] * (_NODES - place[:, None]) ** 2, axis=1)  # in units of s
    slope[wide], curvature[wide] = place / root[wide, 0], (1.0 - variance) / s[wide]
    d_v = np.sum(share * exponent * given.d_v, axis=1)
    return Moments(log_z, slope, np.maximum(curvature, 0.0), d_v)
