r"""The local conditional of Proposition 1: a Bayesian linear model of the rows of one block.

Given the frequencies, a block's targets are N(0, K), K = lambda Phi' Phi + noise I with
lambda = sigma_s^2 / m. All that depends on the block comes from one factorisation: of K for
blocks with at most as many rows as features, of Gamma = Phi Phi' + (noise / lambda) I for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import LOG_2PI, Array, cholesky, log_determinant, tril_inverse
from skvbgp.spectrum._features import Lines, features_vjp
from skvbgp.spectrum._rows import Rows
from skvbgp.spectrum._state import Hyperparameters


class EvidenceGradient(NamedTuple):
    """log N(y | 0, K) of a block, with its gradients."""

    value: float
    R: Array  # (m, d)
    log_signal_variance: float
    log_noise_variance: float


class BlockModel:
    """p(y_k | theta) and p(f* | y_k, theta) of one block, given its features.

    Features (n, 2 m) and targets (n,) are those of the block's rows, see `Rows`; for `mean`,
    targets may be several, (n, k). The variances are sigma_s^2 and the noise of the local
    conditional.
    """

    def __init__(self, Phi: Array, y: Array, signal_variance: float, noise_variance: float) -> None:
        n, n_features = Phi.shape
        self._Phi, self._y = Phi, y
        self._scale, self._noise_variance = 2.0 * signal_variance / n_features, noise_variance
        self._by_rows = n <= n_features
        if self._by_rows:
            matrix = self._scale * (Phi @ Phi.T)
            matrix.flat[:: n + 1] += noise_variance
            self._L = cholesky(matrix, "covariance of a block")
        else:
            matrix = Phi.T @ Phi
            matrix.flat[:: n_features + 1] += noise_variance / self._scale
            self._L = cholesky(matrix, "precision of a block's weights")
        self._root = tril_inverse(self._L).T  # the inverse is root root'

    @cached_property
    def _weights(self) -> Array:
        """Gamma^-1 Phi y."""
        if self._by_rows:
            return self._scale * (self._Phi.T @ (self._root @ (self._root.T @ self._y)))
        return self._root @ (self._root.T @ (self._Phi.T @ self._y))

    def mean(self, Phi: Array) -> Array:
        """phi' Gamma^-1 Phi y of rows with features Phi, (n,) or (n, k)."""
        return Phi @ self._weights

    def covariance(self, Phi: Array, *, full: bool) -> Array:
        """Noise times phi' Gamma^-1 phi: variances (n,), or the matrix (n, n)."""
        if self._by_rows:
            A = self._scale * ((Phi @ self._Phi.T) @ self._root)
            if full:
                return self._scale * (Phi @ Phi.T) - A @ A.T
            own = self._scale * np.einsum("ij,ij->i", Phi, Phi)
            return np.maximum(own - np.einsum("ij,ij->i", A, A), 0.0)
        A = Phi @ self._root
        if full:
            return self._noise_variance * (A @ A.T)
        return self._noise_variance * np.einsum("ij,ij->i", A, A)

    def evidence_gradient(self, X: Array) -> EvidenceGradient:
        """Evidence, and its gradients in the frequencies and log variances.

        X are the block's rows, whose features the model has.
        """
        (n, n_features), Phi, y = self._Phi.shape, self._Phi, self._y
        scale, noise_variance = self._scale, self._noise_variance
        inverse = self._root @ self._root.T
        log_det, trace = log_determinant(self._L), float(np.trace(inverse))
        if self._by_rows:
            a, K_inv_Phi = inverse @ y, inverse @ Phi
        else:
            excess = n - n_features
            a = (y - Phi @ (inverse @ (Phi.T @ y))) / noise_variance
            log_det += n_features * np.log(scale) + excess * np.log(noise_variance)
            trace = excess / noise_variance + trace / scale
            K_inv_Phi = Phi @ (inverse / scale)
        value = -0.5 * (float(y @ a) + log_det + n * LOG_2PI)
        dPhi = scale * (np.outer(a, a @ Phi) - K_inv_Phi)
        d_noise = 0.5 * noise_variance * (float(a @ a) - trace)
        d_signal = 0.5 * (float(a @ y) - n) - d_noise  # both together scale K
        return EvidenceGradient(value, features_vjp(X, Phi, dPhi), d_signal, d_noise)

    def own_noise_gradient(self) -> Array:
        """Gradient of the evidence in the logarithm of each row's noise, (n,)."""
        t, Phi, root = self._noise_variance, self._Phi, self._root
        a = (self._y - self.mean(Phi)) / t  # K^-1 y
        if self._by_rows:
            diagonal = np.einsum("ij,ij->i", root, root)  # of K^-1
        else:
            A = Phi @ root
            diagonal = (1.0 - np.einsum("ij,ij->i", A, A)) / t
        return np.asarray(0.5 * t * (a**2 - diagonal))


def evidence_gradient(
    rows: Rows, R: Array, signal_variance: float, noise_variance: float
) -> EvidenceGradient:
    """Evidence of a block at frequencies R, and its gradients."""
    weighted = rows.as_weighted(noise_variance)
    model = BlockModel(weighted.features(R), weighted.target, signal_variance, noise_variance)
    evidence = model.evidence_gradient(rows.X)
    n_more = rows.total - len(rows)  # copies: a density each, but one residual for all
    value = evidence.value - 0.5 * n_more * np.log(2.0 * np.pi * noise_variance)
    slope = evidence.log_noise_variance - 0.5 * n_more
    if rows.variance is not None:
        own = model.own_noise_gradient() - 0.5 * (rows.counts - 1.0)
        slope = float(rows.share(noise_variance) @ own)
    value += rows.log_shares(noise_variance)
    return evidence._replace(value=value, log_noise_variance=slope)


class SharedRows(NamedTuple):
    """Rows that all of some new ones are conditioned on.

    What is asked about n* new rows is linear in the weights of features: lines Phi (L, 2 m), of
    each row one or, one after the other, several. They depend on the frequencies, of which there
    are several draws, and so do the answers: one for each draw, along with its lines.
    """

    rows: Rows
    places: slice = slice(None)  # which of all known rows they are

    def condition(
        self, lines: Lines, draws: Sequence[Array], hyper: Hyperparameters, *, full: bool
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Lines, their means (L,), and variances (L,) or (``full``) covariance, of each draw."""
        noise_variance = hyper.local_noise_variance
        rows = self.rows.as_weighted(noise_variance)
        for R in draws:
            Phi, known = lines(R), rows.features(R)
            model = BlockModel(known, rows.target, hyper.signal_variance, noise_variance)
            yield Phi, model.mean(Phi), model.covariance(Phi, full=full)

    def draw(
        self,
        lines: Lines,
        draws: Sequence[Array],
        hyper: Hyperparameters,
        s: Sequence[Array],
        noise: Sequence[Array],
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Lines, the same means, and errors (L, q) of functions phi' s.

        By their weights s (2 m, q) and the rows' ``noise`` (n, q), in units of its deviation.
        """
        rows = self.rows.as_weighted(hyper.local_noise_variance)
        for R, weights, e in zip(draws, s, noise, strict=True):
            Phi, known = lines(R), rows.features(R)
            values = known @ weights + np.sqrt(hyper.local_noise_variance) * e
            y = np.column_stack([rows.target, values])
            model = BlockModel(known, y, hyper.signal_variance, hyper.local_noise_variance)
            means = model.mean(Phi)
            yield Phi, means[:, 0], Phi @ weights - means[:, 1:]
