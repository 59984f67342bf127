"""A prior by which the length scales of inputs are alike."""

from __future__ import annotations

import numpy as np

from skvbgp._core.linalg import Array

#: Standard deviations of the logarithms' level, and of each around it.
_LEVEL_STD, _APART_STD = 2.0, 0.3


def log_alike(deviation: Array, share: Array) -> tuple[float, Array]:
    """Log density up to its constant, and its gradient (D,) in the logarithms.

    The level, the mean of the logarithms, is nearly free; that they deviate from one another has to
    be learned against this prior, see :ref:`ep-hyperprior`.

    Parameters
    ----------
    deviation : ndarray of shape (D,)
        Logarithms of the length scales, less their prior medians.
    share : ndarray of shape (D,)
        How much each counts: those that columns of an input share count once together.
    """
    d = share.sum()
    level = share @ deviation / d
    apart = (deviation - level) / _APART_STD
    value = -0.5 * float((level / _LEVEL_STD) ** 2 + share @ apart**2)
    return value, np.asarray(-share * (level / _LEVEL_STD**2 / d + apart / _APART_STD))
