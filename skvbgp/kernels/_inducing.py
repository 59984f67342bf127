"""The prior of inducing variables u under a kernel; q(u) is in `_core.gaussian`."""

from functools import cached_property

import numpy as np

from skvbgp._core.linalg import (
    Array,
    cholesky_vjp,
    jittered_cholesky,
    tril_gram,
    tril_inverse,
    tril_times,
)
from skvbgp.kernels._base import Kernel


class InducingPrior:
    """Kernel and inducing inputs Z (m, d), with what all rows share: u = L^-1 f(Z).

    The inducing outputs may differ from f(Z) by noise of a small variance, the nugget. K (m, m) is
    the kernel at Z, if it is there already.
    """

    def __init__(
        self, kernel: Kernel, Z: Array, nugget: float = 0.0, K: Array | None = None
    ) -> None:
        self.kernel, self.Z = kernel, Z
        self.K = kernel(Z) if K is None else K  # (m, m)
        K = self.K + nugget * np.eye(len(Z)) if nugget else self.K
        self.L_inv = tril_inverse(jittered_cholesky(K, "covariance of the inducing outputs"))

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
