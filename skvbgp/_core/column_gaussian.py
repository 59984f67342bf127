"""A joint Gaussian of the columns, which turns missing entries into Gaussian inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from skvbgp._core.linalg import Array, exact_cholesky, tril_inverse
from skvbgp._core.order import Index, cut
from skvbgp._core.pickling import PickledByFields

#: Imagined rows for each column.
_IMAGINED = 1.0 / 6.0
#: Passes of EM, and the change of a correlation below which it ends.
_MAX_ITER = 100
_TOL = 1e-4
#: Numbers in the covariances of the rows of a tile.
_TILE = 2**20


class _Conditional(NamedTuple):
    """What k rows that miss m entries each may have there."""

    rows: Index  # (k,)
    columns: Index  # (k, m)
    mean: Array  # (k, m)
    covariance: Array  # (k, m, m)


class ColumnGaussian(ABC, PickledByFields):
    """x ~ N(mean, C), for columns of about zero mean and unit variance, with C^-1 = P."""

    mean: Array  # (d,)

    @abstractmethod
    def _pull(self, deviation: Array) -> Array:
        """Deviations (n, 1, d) times P."""

    @abstractmethod
    def _take_precision(self, columns: Index) -> Array:
        """The entries (p, m, m) of P for columns (p, m)."""

    @staticmethod
    def fit(
        X: Array, n_imagined: float | None = None, weight: Array | None = None
    ) -> ColumnGaussian:
        """EM from rows (n, d) whose missing entries are NaN, with a little shrinkage.

        Rows may have positive weights (n,).

        The covariance is the posterior mode under some imagined rows, by default one for six
        columns and at least one, of independent columns with unit variance, so that it is positive
        definite for any data.
        """
        d = X.shape[1]
        n_imagined = max(1.0, _IMAGINED * d) if n_imagined is None else n_imagined
        if np.isnan(X).any():
            return _climb(X, n_imagined, weight)
        if len(X) < d:
            return WideGaussian.of(X, n_imagined, weight)
        return DenseGaussian.of(X, 0.0, n_imagined, weight)

    def incomplete(self, X: Array) -> tuple[Index, Array, Array]:
        """Indices (u,) of the rows with missing entries, their means and covariances (u, d, d).

        An entry that is seen has its own value and no variance.
        """
        rows, d = np.flatnonzero(np.isnan(X).any(axis=1)), X.shape[1]
        mean, covariance = X[rows].copy(), np.zeros((len(rows), d, d))
        for part in self._condition(X[rows]):
            i, columns = part.rows[:, None], part.columns
            mean[i, columns] = part.mean
            covariance[i[:, :, None], columns[:, :, None], columns[:, None, :]] = part.covariance
        return rows, mean, covariance

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Means and variances, each (n, d), of rows given their entries that are seen."""
        mean, variance = X.copy(), np.zeros_like(X)
        for part in self._condition(X):
            places = part.rows[:, None], part.columns
            mean[places] = part.mean
            variance[places] = np.einsum("kmm->km", part.covariance)
        return mean, np.maximum(variance, 0.0)

    def _condition(self, X: Array) -> Iterator[_Conditional]:
        """Missing entries of rows (n, d) given those that are seen, of some rows at a time.

        With the precision P they have the covariance P_mm^-1, and the mean follows what P_ms pulls.
        """
        incomplete = np.flatnonzero(np.isnan(X).any(axis=1))
        for some in cut(len(incomplete), max(1, _TILE // X.shape[1] ** 2)):
            tile = incomplete[some]
            missing = np.isnan(X[tile])
            deviation = np.where(missing, 0.0, X[tile] - self.mean)
            # row by row: those of one product would depend on the other rows
            pull = self._pull(deviation[:, None])[:, 0]
            counts = missing.sum(axis=1)
            for m in np.unique(counts):
                rows = np.flatnonzero(counts == m)
                columns = np.nonzero(missing[rows])[1].reshape(-1, m)
                patterns, which = np.unique(columns, axis=0, return_inverse=True)
                inverse = np.asarray(np.linalg.inv(self._take_precision(patterns)))
                covariance = inverse[which.ravel()]
                change = covariance @ np.take_along_axis(pull[rows], columns, 1)[:, :, None]
                yield _Conditional(
                    tile[rows], columns, self.mean[columns] - change[:, :, 0], covariance
                )


@dataclass(frozen=True)
class DenseGaussian(ColumnGaussian):
    """That of a covariance as it is."""

    mean: Array
    covariance: Array  # C, (d, d)

    @classmethod
    def of(cls, X: Array, spread: Array | float, n_imagined: float, weight: Array | None) -> Self:
        """From rows without gaps, and sums of variances that there are besides."""
        mean, centred, total = _centre(X, n_imagined, weight)
        covariance = (centred.T @ centred + spread) / total
        covariance.flat[:: len(mean) + 1] += n_imagined / total
        return cls(mean, covariance)

    @cached_property
    def _precision(self) -> Array:
        return np.asarray(np.linalg.inv(self.covariance))

    def _pull(self, deviation: Array) -> Array:
        return deviation @ self._precision

    def _take_precision(self, columns: Index) -> Array:
        return self._precision[columns[:, :, None], columns[:, None, :]]

    def complete(self, X: Array, weight: Array | None) -> tuple[Array, Array]:
        """Rows with conditional means, and the weighted sum of their conditional covariances."""
        mean, d = X.copy(), X.shape[1]
        total = np.zeros(d * d)
        for part in self._condition(X):
            mean[part.rows[:, None], part.columns] = part.mean
            covariance = part.covariance
            if weight is not None:
                covariance = covariance * weight[part.rows, None, None]
            pairs = part.columns[:, :, None] * d + part.columns[:, None, :]
            total += np.bincount(pairs.ravel(), covariance.ravel(), d * d)
        return mean, total.reshape(d, d)


@dataclass(frozen=True)
class WideGaussian(ColumnGaussian):
    """That of more columns than rows, in whose number its matrices are: P = (I - B'B) / c."""

    mean: Array
    factor: Array  # B, (n, d)
    share: float  # c, the variance that imagined rows alone give

    @classmethod
    def of(cls, X: Array, n_imagined: float, weight: Array | None) -> Self:
        """From rows without gaps: C = c I + G'G, and B is L^-1 G of LL' = c I + G G'."""
        mean, centred, total = _centre(X, n_imagined, weight)
        share = n_imagined / total
        G = centred / np.sqrt(total)
        inner = G @ G.T
        inner.flat[:: len(G) + 1] += share
        return cls(mean, tril_inverse(exact_cholesky(inner)) @ G, share)

    def _pull(self, deviation: Array) -> Array:
        return (deviation - deviation @ self.factor.T @ self.factor) / self.share

    def _take_precision(self, columns: Index) -> Array:
        B = self.factor.T[columns]  # (p, m, n)
        return (np.eye(columns.shape[1]) - B @ B.transpose(0, 2, 1)) / self.share


def _climb(X: Array, n_imagined: float, weight: Array | None) -> DenseGaussian:
    """EM, from independent columns."""
    d = X.shape[1]
    gaussian = DenseGaussian(np.zeros(d), np.eye(d))
    for _ in range(_MAX_ITER):
        before = gaussian.covariance
        gaussian = DenseGaussian.of(*gaussian.complete(X, weight), n_imagined, weight)
        if np.max(np.abs(gaussian.covariance - before)) < _TOL:
            break
    return gaussian


def _centre(X: Array, n_imagined: float, weight: Array | None) -> tuple[Array, Array, float]:
    """Mean of the rows, what they differ by, weighted, and their number with the imagined ones."""
    mean = np.average(X, axis=0, weights=weight)
    centred = X - mean
    if weight is None:
        return mean, centred, len(X) + n_imagined
    centred *= np.sqrt(weight)[:, None]
    return mean, centred, float(np.sum(weight)) + n_imagined
