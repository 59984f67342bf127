r"""The local conditional of Proposition 1: a Bayesian linear model of the rows of one block.

Given the frequencies, a block's targets are N(0, K), K = lambda Phi' Phi + noise I with
lambda = sigma_s^2 / m. All that depends on the block comes from one factorisation: of K for
blocks with fewer rows than features, of Gamma = Phi Phi' + (noise / lambda) I for others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array, cholesky, log_determinant, tril_inverse
from skvbgp.spectrum._features import features, features_vjp


class EvidenceGradient(NamedTuple):
    """log N(y | 0, K) of a block, with its gradients."""

    value: float
    R: Array  # (m, d)
    log_signal_variance: float
    log_noise_variance: float


def evidence_gradient(
    X: Array, y: Array, R: Array, signal_variance: float, noise_variance: float
) -> EvidenceGradient:
    """Evidence of a block, and its gradients in the frequencies and log variances."""
    n, m = len(X), len(R)
    Phi, scale = features(X, R), signal_variance / m
    if n <= 2 * m:
        K = scale * (Phi @ Phi.T)
        K.flat[:: n + 1] += noise_variance
        L = cholesky(K, "covariance of a block")
        L_inv = tril_inverse(L)
        K_inv = L_inv.T @ L_inv
        a = K_inv @ y
        log_det, trace = log_determinant(L), float(np.trace(K_inv))
        K_inv_Phi = K_inv @ Phi
    else:
        Gamma = Phi.T @ Phi
        Gamma.flat[:: 2 * m + 1] += noise_variance / scale
        L = cholesky(Gamma, "precision of a block's weights")
        L_inv = tril_inverse(L)
        Gamma_inv = L_inv.T @ L_inv
        a = (y - Phi @ (Gamma_inv @ (Phi.T @ y))) / noise_variance
        log_det = log_determinant(L) + 2 * m * np.log(scale) + (n - 2 * m) * np.log(noise_variance)
        trace = (n - 2 * m) / noise_variance + float(np.trace(Gamma_inv)) / scale
        K_inv_Phi = Phi @ (Gamma_inv / scale)
    value = -0.5 * (float(y @ a) + log_det + n * np.log(2.0 * np.pi))
    dPhi = scale * (np.outer(a, a @ Phi) - K_inv_Phi)
    d_noise = 0.5 * noise_variance * (float(a @ a) - trace)
    d_signal = 0.5 * (float(a @ y) - n) - d_noise  # both together scale K
    return EvidenceGradient(value, features_vjp(X, Phi, dPhi), d_signal, d_noise)


class LocalConditional:
    """p(f* | y_k, theta) of one block, given its features.

    Parameters
    ----------
    Phi : ndarray of shape (n, 2 m)
        Features of the block's rows.
    y : ndarray of shape (n,)
    signal_variance, noise_variance : float
        sigma_s^2, and the noise of the local conditional.
    """

    def __init__(self, Phi: Array, y: Array, signal_variance: float, noise_variance: float) -> None:
        n, n_features = Phi.shape
        self._scale = 2.0 * signal_variance / n_features
        self._noise_variance = noise_variance
        self._Phi = Phi if n <= n_features else None
        if self._Phi is not None:
            K = self._scale * (Phi @ Phi.T)
            K.flat[:: n + 1] += noise_variance
            self._root = tril_inverse(cholesky(K, "covariance of a block")).T
            self._weights = self._scale * (Phi.T @ (self._root @ (self._root.T @ y)))
        else:
            Gamma = Phi.T @ Phi
            Gamma.flat[:: n_features + 1] += noise_variance / self._scale
            self._root = tril_inverse(cholesky(Gamma, "precision of a block's weights")).T
            self._weights = self._root @ (self._root.T @ (Phi.T @ y))

    def mean(self, Phi: Array) -> Array:
        """phi' Gamma^-1 Phi y of rows with features Phi, (n,)."""
        return Phi @ self._weights

    def covariance(self, Phi: Array, *, full: bool) -> Array:
        """Noise times phi' Gamma^-1 phi: variances (n,), or the matrix (n, n)."""
        if self._Phi is not None:
            A = self._scale * ((Phi @ self._Phi.T) @ self._root)
            if full:
                return self._scale * (Phi @ Phi.T) - A @ A.T
            own = self._scale * 0.5 * Phi.shape[1]  # cos^2 + sin^2 = 1 for each frequency
            return np.maximum(own - np.einsum("ij,ij->i", A, A), 0.0)
        A = Phi @ self._root
        if full:
            return self._noise_variance * (A @ A.T)
        return self._noise_variance * np.einsum("ij,ij->i", A, A)
