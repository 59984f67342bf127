"""Gaussian sites that stand for likelihoods, and the slopes of log Phi, the probit's."""

from __future__ import annotations

import numpy as np
from scipy.special import erfcx

from skvbgp._core.linalg import Array

#: Below this, the second and the third are taken from their expansions: the direct forms cancel.
_FAR = -1e3
#: The share of what is known at a row that its own site may hold, below 1 for rounding's sake.
MAX_SHARE = 1.0 - 1e-12


def measure_ratio(z: Array) -> Array:
    """The first derivative of log Phi(z), accurate on both sides: phi(z) / Phi(z)."""
    # the scaled error function overflows to inf where the ratio is 0
    return np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0))


def measure_curvature(z: Array, ratio: Array) -> Array:
    """Minus the second, from the first; not below 0, whatever rounding does."""
    far = z < _FAR
    expansion = 1.0 - 1.0 / np.where(far, z, 1.0) ** 2
    return np.maximum(np.where(far, expansion, ratio * (z + ratio)), 0.0)


def measure_third(z: Array, ratio: Array) -> Array:
    """The third, from the first."""
    far = z < _FAR
    expansion = -2.0 / np.where(far, z, 1.0) ** 3
    return np.where(far, expansion, ratio * (z**2 - 1.0 + 3.0 * z * ratio + 2.0 * ratio**2))


def match_moments(
    slope: Array, curvature: Array, mean: Array, variance: Array
) -> tuple[Array, Array]:
    """tau and nu of sites exp(nu f - tau f^2 / 2) that give cavities the likelihoods' moments.

    The log normaliser of a likelihood under a cavity N(mean, variance) has these first and minus
    second derivatives in the mean: f has the mean ``mean + variance * slope`` and the variance
    ``variance - variance**2 * curvature`` there.
    """
    rest = 1.0 - variance * curvature
    return curvature / rest, (slope + mean * curvature) / rest
