"""Starting values, and the weak prior of the default kernel's hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, divide_equally
from skvbgp.kernels import RBF, Constant, Kernel

#: Prior of the default kernel: median of the variance of f, and standard deviations of the
#: logarithms of the variance, of the length scales' common level and of each around it.
_VARIANCE = 2.0
_LOG_VARIANCE_STD = 2.0
_LEVEL_STD = 2.0
_DEVIATION_STD = 0.3
#: Range of the default kernel's hyperparameters, as a factor of their start.
_RANGE = 1e3


def default_kernel(length_scale: Array) -> Kernel:
    """Squared exponential that starts with some length scales (d,), those of `InputModel.frame`."""
    limits = np.array([1.0 / _RANGE, _RANGE])
    return Constant(_VARIANCE, value_bounds=_VARIANCE * limits) * RBF(
        length_scale, length_scale_bounds=length_scale[:, None] * limits
    )


@dataclass(frozen=True)
class ScalePrior:
    """Log-normal prior of the default kernel's theta = (log variance, log length scales).

    The level, the mean of the log length scales, is nearly free; that they deviate from
    one another has to be learned against this prior, see :ref:`ep-hyperprior`.
    """

    start: Array  # (1 + d,) prior median
    owners: Owners = ()  # by length scale: its input. What columns of an input share counts once.

    def log_density(self, theta: Array) -> tuple[float, Array]:
        """Logarithm of the density, up to its constant, and its gradient."""
        deviation = theta - self.start
        share = divide_equally(len(theta) - 1, self.owners)
        d = share.sum()
        level = share @ deviation[1:] / d
        scaled = np.concatenate(
            [
                [deviation[0] / _LOG_VARIANCE_STD, level / _LEVEL_STD],
                (deviation[1:] - level) / _DEVIATION_STD,
            ]
        )
        gradient = np.empty_like(theta)
        gradient[0] = -scaled[0] / _LOG_VARIANCE_STD
        gradient[1:] = -share * (scaled[1] / _LEVEL_STD / d + scaled[2:] / _DEVIATION_STD)
        return -0.5 * float(scaled[:2] @ scaled[:2] + share @ scaled[2:] ** 2), gradient
