r"""Noise covariance C of Sec. IV of [Yu2019]_ and its gradients.

C = (diagonal, or diagonal blocks, of) k^eps(X, X) - k^eps(X, U) k^eps(U, U)^-1 k^eps(U, X)
plus sigma_n^2 I. Which part of the residual is kept is the only difference between the
models' likelihoods: nothing (DTC), its diagonal (FITC), its blocks (PITC, PIC).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array, jittered_cholesky, tril_inverse
from skvbgp.kernels import Constant, Kernel


class NoiseGradients(NamedTuple):
    """Cotangents of the noise's parameters, from one group of rows or several."""

    noise_variance: float
    theta: Array  # (p,)
    U: Array | float  # (m, d)
    Kuu: Array | float  # (m, m) what flows through k^eps(U, U); added to theta and U last

    def plus(self, other: NoiseGradients) -> NoiseGradients:
        return NoiseGradients(*(a + b for a, b in zip(self, other, strict=True)))


class WhiteNoise:
    """C = sigma_n^2 I (DTC)."""

    def __init__(self, noise_variance: float) -> None:
        self.noise_variance = noise_variance

    def covariance(self, X: Array) -> Array:
        """Noise variances of the rows, (n,)."""
        return np.full(len(X), self.noise_variance)

    def marginal_variance(self, X: Array) -> Array:
        """Variance of the noise at new inputs, (n,)."""
        return self.covariance(X)

    def vjp(self, X: Array, dC: Array) -> NoiseGradients:
        """Gradients of ``sum(dC * covariance(X))``, short of :meth:`completed`."""
        return NoiseGradients(float(dC.sum()), np.empty(0), 0.0, 0.0)

    def completed(self, gradients: NoiseGradients) -> NoiseGradients:
        """The sum over groups, with what the groups share."""
        return gradients


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

    def vjp(self, X: Array, dC: Array) -> NoiseGradients:
        """Gradients of ``sum(dC * covariance(X))``, short of :meth:`completed`."""
        Kxu = self._kernel(X, self._U)
        B = Kxu @ self._L_inv.T @ self._L_inv  # k(X, U) k(U, U)^-1, (n, m)
        if self._correlated:
            d_variance = float(np.trace(dC))
            weighted = dC @ B
            d_theta, _, _ = self._kernel.vjp(X, None, self._kernel(X), dC)
        else:
            d_variance = float(dC.sum())
            weighted = dC[:, None] * B
            d_theta, _ = self._kernel.vjp_diag(X, dC)
        d_cross, _, dU = self._kernel.vjp(X, self._U, Kxu, -2.0 * weighted)
        assert dU is not None
        return NoiseGradients(d_variance, d_theta + d_cross, dU, B.T @ weighted)

    def completed(self, gradients: NoiseGradients) -> NoiseGradients:
        """The sum over groups, with what the groups share."""
        dKuu = np.asarray(gradients.Kuu)
        d_theta, dU, _ = self._kernel.vjp(self._U, None, self._Kuu, dKuu)
        return gradients._replace(theta=gradients.theta + d_theta, U=gradients.U + dU)
