"""The prior of inducing variables u under a kernel; q(u) is in `_core.gaussian`."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from skvbgp._core.linalg import (
    Array,
    cholesky_vjp,
    jittered_cholesky,
    tril_gram,
    tril_inverse,
    tril_times,
)
from skvbgp._core.pickling import PickledByFields


@dataclass(eq=False)
class InducingPrior(PickledByFields):
    """Kernel and inducing inputs Z (m, d), with what all rows share: u = L^-1 f(Z).

    The inducing outputs may differ from f(Z) by noise of a small variance, the nugget.
    """

    kernel: Any  # or another covariance function, of rows that Z are like
    Z: Array
    nugget: float = 0.0

    def __post_init__(self) -> None:
        _ = self.L_inv  # once, not in each thread

    @cached_property
    def K(self) -> Array:
        """The kernel at Z, (m, m)."""
        return np.asarray(self.kernel(self.Z))

    @cached_property
    def L(self) -> Array:
        """Lower Cholesky factor of the covariance of the inducing outputs, (m, m)."""
        K = self.K + self.nugget * np.eye(len(self.Z)) if self.nugget else self.K
        return jittered_cholesky(K, "covariance of the inducing outputs")

    @cached_property
    def L_inv(self) -> Array:
        """L^-1."""
        return tril_inverse(self.L)

    @cached_property
    def K_inv(self) -> Array:
        """(m, m)."""
        return tril_gram(self.L_inv)

    def whiten(self, X: Array) -> Array:
        """A = k(X, Z) L^-T, (n, m): f(X) = A u but for what u leaves open."""
        return tril_times(self.L_inv, self.kernel(X, self.Z).T).T

    def vjp(self, LtdL: Array, dK: Array | float = 0.0) -> tuple[Array, Array]:
        """Gradients in theta (p,) and Z (m, d) from ``L.T @ dL`` and, if any, from that of K."""
        dtheta, dZ, _ = self.kernel.vjp(self.Z, None, self.K, cholesky_vjp(LtdL, self.L_inv) + dK)
        return dtheta, dZ
