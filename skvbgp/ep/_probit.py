r"""The probit likelihood seen through a Gaussian: log Z = log Phi(z), z = t c / sqrt(r).

Here t is the label, c the mean of a Gaussian over the latent value and r one plus its variance.
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
    curvature: Array  # -d^2 log Z / dc^2, from 0 to 1 / r
    d_r: Array  # d log Z / dr


def probit_moments(t: Array, c: Array, r: Array) -> ProbitMoments:
    """Moments for labels t of -1 or 1, each argument (n,); finite for margins of any size."""
    root = np.sqrt(r)
    z = t * c / root
    # phi(z) / Phi(z); the scaled error function overflows to inf where the ratio is 0
    ratio = np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0))
    far = z < _FAR_MARGIN
    expansion = 1.0 - 1.0 / np.where(far, z, 1.0) ** 2
    curvature = np.where(far, expansion, ratio * (z + ratio))
    return ProbitMoments(
        log_ndtr(z), t * ratio / root, np.maximum(curvature, 0.0) / r, -0.5 * ratio * z / r
    )
