r"""Noise covariance C of Sec. IV of [Yu2019]_ and its gradients.

C = (diagonal, or diagonal blocks, of) k^eps(X, X) - k^eps(X, U) k^eps(U, U)^-1 k^eps(U, X)
plus sigma_n^2 I. Which part of the residual is kept is the only difference between the
models' likelihoods: nothing (DTC), its diagonal (FITC), its blocks (PITC, PIC).
"""

from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array, jittered_cholesky, tril_inverse
from skvbgp.kernels import Constant, Kernel


class NoiseGradients(NamedTuple):
    """Cotangents of the noise's parameters."""

    noise_variance: float
    theta: Array  # (p,)
    U: Array  # (m, d)


class WhiteNoise:
    """C = sigma_n^2 I (DTC)."""

    def __init__(self, noise_variance: float) -> None:
        self.noise_variance = noise_variance
        self._d_variance = 0.0

    def covariance(self, X: Array) -> Array:
        """Noise variances of the rows, (n,)."""
        return np.full(len(X), self.noise_variance)

    def marginal_variance(self, X: Array) -> Array:
        """Variance of the noise at new inputs, (n,)."""
        return self.covariance(X)

    def accumulate(self, X: Array, dC: Array) -> None:
        """Add the gradient that flows back through ``covariance(X)``."""
        self._d_variance += float(dC.sum())

    def gradients(self) -> NoiseGradients:
        return NoiseGradients(self._d_variance, np.empty(0), np.zeros((1, 1)))


class ResidualNoise:
    """Diagonal (FITC) or blocks (PITC, PIC) of the noise kernel's residual.

    Parameters
    ----------
    noise_variance : float
        sigma_n^2.
    kernel : Kernel
        k^eps.
    U : ndarray of shape (m, d)
        Inducing inputs, in the space in which the kernel is defined.
    correlated : bool
        Whether the rows of one group form a block.
    scale : float
        Factor of the kernel.
    """

    def __init__(
        self, noise_variance: float, kernel: Kernel, U: Array, *, correlated: bool, scale: float
    ) -> None:
        if scale != 1.0:
            kernel = Constant(scale, value_bounds="fixed") * kernel
        self.noise_variance = noise_variance
        self._kernel, self._U, self._correlated = kernel, U, correlated
        self._Kuu = kernel(U)
        L = jittered_cholesky(self._Kuu, "noise kernel's matrix of the inducing inputs")
        self._L_inv = tril_inverse(L)
        self._d_variance = 0.0
        self._d_theta = np.zeros_like(kernel.theta)
        self._dU = np.zeros_like(U)
        self._dKuu = np.zeros_like(self._Kuu)

    def _whitened_cross(self, X: Array) -> Array:
        return np.asarray(self._kernel(X, self._U) @ self._L_inv.T)  # (n, m)

    def covariance(self, X: Array) -> Array:
        """Noise covariance of one group of rows, (n,) or (n, n)."""
        if not self._correlated:
            return self.marginal_variance(X)
        A = self._whitened_cross(X)
        C = self._kernel(X) - A @ A.T
        C.flat[:: len(C) + 1] += self.noise_variance
        return np.asarray(C)

    def marginal_variance(self, X: Array) -> Array:
        """Variance of the noise at new inputs, (n,)."""
        residual = self._kernel.diag(X) - np.sum(self._whitened_cross(X) ** 2, axis=1)
        return np.asarray(np.maximum(residual, 0.0) + self.noise_variance)

    def cross_covariance(self, X: Array, X_block: Array) -> Array:
        """Covariance of the noise at new inputs with that of a block, (n, n_block)."""
        cross = self._whitened_cross(X) @ self._whitened_cross(X_block).T
        return np.asarray(self._kernel(X, X_block) - cross)

    def accumulate(self, X: Array, dC: Array) -> None:
        """Add the gradient that flows back through ``covariance(X)``."""
        Kxu = self._kernel(X, self._U)
        B = Kxu @ self._L_inv.T @ self._L_inv  # k(X, U) k(U, U)^-1, (n, m)
        if self._correlated:
            self._d_variance += float(np.trace(dC))
            weighted = dC @ B
            d_theta, _, _ = self._kernel.vjp(X, None, self._kernel(X), dC)
        else:
            self._d_variance += float(dC.sum())
            weighted = dC[:, None] * B
            d_theta, _ = self._kernel.vjp_diag(X, dC)
        self._dKuu += B.T @ weighted
        d_cross, _, dU = self._kernel.vjp(X, self._U, Kxu, -2.0 * weighted)
        self._d_theta += d_theta + d_cross
        self._dU += dU

    def gradients(self) -> NoiseGradients:
        """Everything accumulated since construction."""
        d_theta, dU, _ = self._kernel.vjp(self._U, None, self._Kuu, self._dKuu)
        return NoiseGradients(self._d_variance, self._d_theta + d_theta, self._dU + dU)
