r"""A joint Gaussian of the columns, which turns missing entries into Gaussian inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut

#: Imagined rows for each column.
_IMAGINED = 1.0 / 6.0
#: Passes of EM, and the change of a correlation below which it ends.
_MAX_ITER = 100
_TOL = 1e-4
#: Numbers in the covariances of the rows of a tile.
_TILE = 2**20


@dataclass(frozen=True)
class ColumnGaussian:
    """x ~ N(mean, covariance), for columns of about zero mean and unit variance."""

    mean: Array  # (d,)
    covariance: Array  # (d, d)

    @classmethod
    def fit(
        cls, X: Array, n_imagined: float | None = None, weight: Array | None = None
    ) -> ColumnGaussian:
        """EM from rows (n, d) whose missing entries are NaN, with a little shrinkage.

        Rows may have positive weights (n,).

        The covariance is the posterior mode under some imagined rows, by default one for six
        columns and at least one, of independent columns with unit variance, so that it is positive
        definite for any data.
        """
        d = X.shape[1]
        n = len(X) if weight is None else float(np.sum(weight))
        n_imagined = max(1.0, _IMAGINED * d) if n_imagined is None else n_imagined
        prior = n_imagined * np.eye(d)
        gaussian = cls(np.zeros(d), np.eye(d))
        for _ in range(_MAX_ITER if np.isnan(X).any() else 1):
            filled, spread = X, np.zeros((d, d))
            if np.isnan(X).any():
                filled, spread = gaussian._complete(X, weight)
            mean = np.average(filled, axis=0, weights=weight)
            centred = filled - mean
            if weight is not None:
                centred *= np.sqrt(weight)[:, None]
            covariance = (centred.T @ centred + spread + prior) / (n + n_imagined)
            change = np.max(np.abs(covariance - gaussian.covariance))
            gaussian = cls(mean, covariance)
            if change < _TOL:
                break
        return gaussian

    def condition(self, X: Array) -> tuple[Array, Array]:
        """Means and covariances, (n, d) and (n, d, d), of rows given their entries that are seen.

        An entry that is seen has its own value and no variance.
        """
        missing = np.isnan(X)
        patterns, which = np.unique(missing, axis=0, return_inverse=True)
        which = which.ravel()
        seen = ~patterns
        pairs = seen[:, :, None] & seen[:, None, :]  # (patterns, d, d)
        padded = np.where(pairs, self.covariance, 0.0)
        padded[patterns[:, :, None] & np.eye(X.shape[1], dtype=bool)] = 1.0
        inverse = np.linalg.inv(padded) * pairs  # of the block that is seen, 0 elsewhere
        weights = self.covariance @ inverse
        both = patterns[:, :, None] & patterns[:, None, :]
        covariance = (self.covariance - weights @ self.covariance) * both
        deviation = np.where(missing, 0.0, X - self.mean)
        guess = np.einsum("njk,nk->nj", weights[which], deviation)
        return np.where(missing, self.mean + guess, X), covariance[which]

    def incomplete(self, X: Array) -> tuple[NDArray[np.intp], Array, Array]:
        """Indices (u,) of the rows with missing entries, their means and covariances."""
        d = X.shape[1]
        tiles = _cut_incomplete(X)
        parts = [self.condition(X[rows]) for rows in tiles]
        return (
            np.concatenate([np.empty(0, dtype=int), *tiles]),
            np.concatenate([np.empty((0, d)), *(mean for mean, _ in parts)]),
            np.concatenate([np.empty((0, d, d)), *(covariance for _, covariance in parts)]),
        )

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Means and variances, each (n, d), of rows given their entries that are seen."""
        mean, variance = X.copy(), np.zeros_like(X)
        for rows in _cut_incomplete(X):
            mean[rows], covariance = self.condition(X[rows])
            variance[rows] = np.einsum("njj->nj", covariance)
        return mean, np.maximum(variance, 0.0)

    def _complete(self, X: Array, weight: Array | None) -> tuple[Array, Array]:
        """Rows with conditional means, and the weighted sum of their conditional covariances."""
        mean, total = X.copy(), np.zeros_like(self.covariance)
        for rows in _cut_incomplete(X):
            mean[rows], covariance = self.condition(X[rows])
            if weight is not None:
                covariance = covariance * weight[rows, None, None]
            total += covariance.sum(axis=0)
        return mean, total


def _cut_incomplete(X: Array) -> list[NDArray[np.intp]]:
    """Indices of the rows with missing entries, in tiles."""
    rows = np.flatnonzero(np.isnan(X).any(axis=1))
    return [rows[some] for some in cut(len(rows), max(1, _TILE // X.shape[1] ** 2))]
