"""The prior of a function's values at inducing inputs, in which they are whitened."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from skvbgp._core.linalg import cholesky_vjp, jittered_cholesky, tril_inverse, tril_times
from skvbgp.kernels._base import Array, Kernel
from skvbgp.kernels._squared_exponential import SquaredExponential


class InducingPrior:
    """Kernel and inducing inputs Z (m, d), with what all rows share.

    With k(Z, Z) = L L', the outputs u = L^-1 f(Z) are standard normal.

    Parameters
    ----------
    kernel : Kernel
    Z : ndarray of shape (m, d)
    nugget : float, default=0.0
        Variance by which the inducing outputs differ from f(Z).
    """

    def __init__(self, kernel: Kernel, Z: Array, nugget: float = 0.0) -> None:
        self.kernel, self.Z = kernel, Z
        self.K = kernel(Z)  # (m, m)
        K = self.K + nugget * np.eye(len(Z)) if nugget else self.K
        self.L_inv = tril_inverse(jittered_cholesky(K, "covariance of the inducing outputs"))

    @cached_property
    def K_inv(self) -> Array:
        """(m, m)."""
        return np.asarray(self.L_inv.T @ self.L_inv)

    @cached_property
    def se(self) -> SquaredExponential:
        """The kernel as uncertain inputs need it."""
        return SquaredExponential.of(self.kernel, self.Z.shape[1])

    def whiten(self, X: Array) -> Array:
        """A = k(X, Z) L^-T, (n, m): f(X) = A u but for what u leaves open."""
        return tril_times(self.L_inv, self.kernel(X, self.Z).T).T

    def vjp(self, LtdL: Array, dK: Array | float = 0.0) -> tuple[Array, Array]:
        """Gradients in theta (p,) and Z (m, d) from ``L.T @ dL`` and, if any, from that of K."""
        dtheta, dZ, _ = self.kernel.vjp(self.Z, None, self.K, cholesky_vjp(LtdL, self.L_inv) + dK)
        return dtheta, dZ
