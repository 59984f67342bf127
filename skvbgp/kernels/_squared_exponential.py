"""The squared-exponential family, whose expectations over Gaussian inputs have closed forms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels._base import Kernel
from skvbgp.kernels._compose import Product
from skvbgp.kernels._constant import Constant
from skvbgp.kernels._distance import centre
from skvbgp.kernels._stationary import RBF


@dataclass(frozen=True)
class SquaredExponential:
    """A kernel read as variance * exp(-sum_i (x_i - x'_i)^2 / l_i^2 / 2)."""

    variance: float
    length_scale: Array  # (d,)
    factors: tuple[RBF | Constant, ...]  # the kernel's own factors, in the order of its `theta`

    @classmethod
    def of(cls, kernel: Kernel, n_features: int) -> SquaredExponential:
        """Read a kernel of so many inputs: `RBF`, maybe times `Constant` kernels, or ValueError."""
        factors = kernel.kernels if isinstance(kernel, Product) else (kernel,)
        known = tuple(factor for factor in factors if isinstance(factor, RBF | Constant))
        rbf = [factor for factor in known if isinstance(factor, RBF)]
        if len(rbf) != 1 or len(known) < len(factors):
            raise ValueError(
                "Uncertain or missing inputs need a squared-exponential kernel, RBF() or "
                f"Constant() * RBF(); got {kernel!r}."
            )
        length_scale = np.broadcast_to(rbf[0].length_scale, (n_features,))
        variance = float(np.prod([c.value for c in known if isinstance(c, Constant)]))
        return cls(variance, length_scale, known)

    def dtheta(self, dlog_variance: float, dlog_length_scale: Array) -> Array:
        """Gradient in the kernel's `theta`, from those in log variance and log l (d,)."""
        return np.concatenate(
            [
                factor._dtheta(length_scale=dlog_length_scale)
                if isinstance(factor, RBF)
                else factor._dtheta(value=dlog_variance)
                for factor in self.factors
            ]
        )


def unit_se(X: Array, Z: Array | None = None) -> Array:
    """exp(-|x - z|^2 / 2) of shape (n, m): one matrix product and one exponential.

    ``Z=None`` stands for X, as in kernels: rows are then at no distance from themselves, which
    rounding would say of those that are far away.
    """
    is_symmetric = Z is None
    X, Z = centre(X, Z)
    left = np.column_stack([X, -0.5 * np.sum(X**2, axis=1), np.ones(len(X))])
    right = np.column_stack([Z, np.ones(len(Z)), -0.5 * np.sum(Z**2, axis=1)])
    exponent = left @ right.T
    np.minimum(exponent, 0.0, out=exponent)
    if is_symmetric:
        np.fill_diagonal(exponent, 0.0)
    return np.exp(exponent, out=exponent)
