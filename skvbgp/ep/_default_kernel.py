"""Starting values, and the weak prior of the default kernel's hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skvbgp._core.alike import log_alike
from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, divide_equally
from skvbgp.kernels import RBF, Constant, Kernel

#: Prior of the default kernel: median of the variance of f, and std. of its logarithm.
_VARIANCE = 2.0
_LOG_VARIANCE_STD = 2.0
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

    That of the length scales is `log_alike`.
    """

    start: Array  # (1 + d,) prior median
    owners: Owners = ()  # by length scale: its input. What columns of an input share counts once.

    def log_density(self, theta: Array) -> tuple[float, Array]:
        """Logarithm of the density, up to its constant, and its gradient."""
        deviation = theta - self.start
        scaled = float(deviation[0]) / _LOG_VARIANCE_STD
        value, slope = log_alike(deviation[1:], divide_equally(len(theta) - 1, self.owners))
        return value - 0.5 * scaled**2, np.append(-scaled / _LOG_VARIANCE_STD, slope)
