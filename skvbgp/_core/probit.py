"""Derivatives of log Phi(z), accurate on both sides."""

from __future__ import annotations

import numpy as np
from scipy.special import erfcx

from skvbgp._core.linalg import Array

#: Below this, the second and the third are taken from their expansions: the direct forms cancel.
_FAR = -1e3


def measure_ratio(z: Array) -> Array:
    """The first: phi(z) / Phi(z)."""
    # the scaled error function overflows to inf where the ratio is 0
    return np.asarray(np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0)))


def measure_curvature(z: Array, ratio: Array) -> Array:
    """Minus the second, from the first; not below 0, whatever rounding does."""
    far = z < _FAR
    expansion = 1.0 - 1.0 / np.where(far, z, 1.0) ** 2
    return np.asarray(np.maximum(np.where(far, expansion, ratio * (z + ratio)), 0.0))


def measure_third(z: Array, ratio: Array) -> Array:
    """The third, from the first."""
    far = z < _FAR
    expansion = -2.0 / np.where(far, z, 1.0) ** 3
    return np.where(far, expansion, ratio * (z**2 - 1.0 + 3.0 * z * ratio + 2.0 * ratio**2))
