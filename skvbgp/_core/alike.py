"""A prior by which the length scales of inputs are alike."""

from __future__ import annotations

from skvbgp._core.linalg import Array

#: Standard deviations of the logarithms' level, and of each around it.
_LEVEL_STD, _APART_STD = 2.0, 0.3


def log_alike(deviation: Array, share: Array) -> tuple[float, Array]:
    """Log density up to its constant, and its gradient (D,) in the logarithms.

    These deviate (D,) from their prior medians. Their mean, the level, is nearly free; that they
    differ from one another has to be learned against this prior, see :ref:`ep-hyperprior`. Those
    that columns of an input share count once together, each by its share (D,).
    """
    d = share.sum()
    level = share @ deviation / d
    apart = (deviation - level) / _APART_STD
    value = -0.5 * float((level / _LEVEL_STD) ** 2 + share @ apart**2)
    return value, -share * (level / _LEVEL_STD**2 / d + apart / _APART_STD)
