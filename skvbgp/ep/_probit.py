r"""The probit likelihood seen through a Gaussian: log Z = log Phi(z), z = y c / sqrt(t).

Here c is the mean of a Gaussian over the latent value and t one plus its variance.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, log_ndtr

from skvbgp._core.linalg import Array

#: Below this margin, the curvature is taken from its expansion: the direct form cancels.
_FAR_MARGIN = -1e3


class ProbitMoments(NamedTuple):
    """log Z of every row and what its derivatives need, each (n,)."""

    log_z: Array
    slope: Array  # d log Z / dc
    curvature: Array  # -d^2 log Z / dc^2, from 0 to 1 / t
    d_t: Array  # d log Z / dt


def probit_moments(y: Array, c: Array, t: Array) -> ProbitMoments:
    """Moments for labels y of -1 or 1, each argument (n,); finite for margins of any size."""
    root = np.sqrt(t)
    z = y * c / root
    # phi(z) / Phi(z); the scaled error function overflows to inf where the ratio is 0
    ratio = np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0))
    far = z < _FAR_MARGIN
    expansion = 1.0 - 1.0 / np.where(far, z, 1.0) ** 2
    curvature = np.where(far, expansion, ratio * (z + ratio))
    return ProbitMoments(
        log_ndtr(z), y * ratio / root, np.maximum(curvature, 0.0) / t, -0.5 * ratio * z / t
    )
