"""What is known of a positive definite matrix C = L L': L^-1, or L in blocks, in less time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.linalg import (
    LAST_JITTER,
    Array,
    NotPositiveDefiniteError,
    check_finite,
    tril_gram,
    tril_inverse,
    tril_times,
    triu_times,
)
from skvbgp._core.order import Index, cut

#: Rows of a block: as many as keep what is not a product of matrices short, and the products quick.
_BLOCK_ROWS = 128
#: Rows of a product of which only what is below the diagonal is needed.
_GRAM_ROWS = 256
#: What errors call the matrix.
_NAME = "covariance of rows"
#: Ratio of L's entries on the diagonal down to which C^-1's are computed in single precision.
_SINGLE_RATIO = 1e-3


class Diagonals(NamedTuple):
    """Those of a factor that has been used for everything else."""

    log_diagonal: Array
    precision: Array


@dataclass(frozen=True)
class InverseFactor:
    """That of which L^-1 is known, as moments of many places need it."""

    inverse: Array

    @cached_property
    def log_diagonal(self) -> Array:
        return -np.log(np.diagonal(self.inverse))

    @cached_property
    def precision(self) -> Array:
        return np.sum(self.inverse**2, axis=0)

    def whiten(self, y: Array) -> Array:
        return tril_times(self.inverse, y)

    def unwhiten(self, y: Array) -> Array:
        return y @ self.inverse

    def solve(self, values: Array) -> Array:
        return triu_times(self.inverse, tril_times(self.inverse, values))

    def take_precision(self, index: Index, columns: Index) -> Array:
        """Entries (m, k) of C^-1, k of each of some rows (m,)."""
        if 3 * len(index) > len(self.inverse):  # then all rows take less
            return tril_gram(self.inverse)[index[:, None], columns]
        return np.take_along_axis(self.inverse[:, index].T @ self.inverse, columns, axis=1)


@dataclass(frozen=True)
class BlockFactor:
    """That of which L is known, and the inverses of the blocks on its diagonal.

    Everything is products of matrices, in NumPy, so that other threads run meanwhile. What is above
    the blocks on the diagonal of L is none of it.
    """

    L: Array
    rows: tuple[slice, ...]  # of the blocks
    inverses: tuple[Array, ...]  # of these on the diagonal

    @classmethod
    def of(cls, K: Array, noise: Array, jitter: float, unit: Array) -> BlockFactor:
        """That of K + diag(noise + jitter unit), all (n,); of K the lower triangle is read.

        As in `jittered_cholesky` the jitter grows tenfold until it is enough, or
        `NotPositiveDefiniteError`.
        """
        while jitter <= LAST_JITTER:
            L = K.copy()
            L.flat[:: len(K) + 1] += noise + jitter * unit
            try:
                inverses = _factorise(L)
            except np.linalg.LinAlgError:
                jitter *= 10.0
            else:
                check_finite(np.diagonal(L), _NAME)
                starts = range(0, len(L), _BLOCK_ROWS)
                rows = (slice(i, min(i + _BLOCK_ROWS, len(L))) for i in starts)
                return cls(L, tuple(rows), tuple(inverses))
        raise NotPositiveDefiniteError.even_with_jitter(_NAME)

    @property
    def inverse(self) -> Array:
        inverse = np.zeros_like(self.L)
        for rows, columns in self._invert(np.float64):
            inverse[rows.start :, rows] = columns
        return inverse

    @cached_property
    def log_diagonal(self) -> Array:
        return np.log(np.diagonal(self.L))

    @property
    def precision(self) -> Array:
        """Of single precision, but for ill-conditioned matrices: this is much of the work.

        Kept by hand: Python 3.11 makes a cached property of one object at a time.
        """
        known = vars(self)
        if "_precision" not in known:
            known["_precision"] = self._measure_precision()
        result: Array = known["_precision"]
        return result

    def _measure_precision(self) -> Array:
        diagonal, precision = np.diagonal(self.L), np.empty(len(self.L))
        is_single = diagonal.min() >= _SINGLE_RATIO * diagonal.max()
        for rows, columns in self._invert(np.float32 if is_single else np.float64):
            precision[rows] = np.einsum("ij,ij->j", columns, columns)
        return precision

    def _invert(self, dtype: type[Any]) -> Iterator[tuple[slice, Any]]:
        """Columns of L^-1 from their first row on, block by block, and which these are."""
        L, inverses = np.empty(self.L.shape, dtype), [one.astype(dtype) for one in self.inverses]
        for rows in self.rows:
            L[rows, : rows.stop] = self.L[rows, : rows.stop]
        for c, rows in enumerate(self.rows):
            columns = np.empty((len(L) - rows.start, rows.stop - rows.start), dtype)
            columns[: len(inverses[c])] = inverses[c]
            for other, inverse in zip(self.rows[c + 1 :], inverses[c + 1 :], strict=True):
                before = slice(rows.start, other.start)
                told = L[other, before] @ columns[: other.start - rows.start]
                own = columns[other.start - rows.start : other.stop - rows.start]
                np.matmul(inverse, told, out=own)
                np.negative(own, out=own)
            yield rows, columns

    def whiten(self, y: Array) -> Array:
        result = np.empty_like(y)
        for rows, inverse in zip(self.rows, self.inverses, strict=True):
            before = slice(rows.start)
            result[rows] = inverse @ (y[rows] - self.L[rows, before] @ result[before])
        return result

    def unwhiten(self, y: Array) -> Array:
        result = np.empty_like(y)
        for rows, inverse in zip(self.rows[::-1], self.inverses[::-1], strict=True):
            after = slice(rows.stop, None)
            result[rows] = inverse.T @ (y[rows] - self.L[after, rows].T @ result[after])
        return result

    def solve(self, values: Array) -> Array:
        return self.unwhiten(self.whiten(values))

    def take_precision(self, index: Index, columns: Index) -> Array:
        """Entries (m, k) of C^-1, k of each of some rows (m,)."""
        unit = np.zeros((len(self.L), len(index)))
        unit[index, np.arange(len(index))] = 1.0
        return np.take_along_axis(self.solve(unit).T, columns, axis=1)


def _factorise(C: Array) -> list[Array]:
    """Put L in the place of C's lower triangle, by halves, and return its inverted blocks."""
    if len(C) <= _BLOCK_ROWS:
        C[...] = np.linalg.cholesky(C)
        return [tril_inverse(C)]
    k = -(-len(C) // (2 * _BLOCK_ROWS)) * _BLOCK_ROWS  # whole blocks
    first = _factorise(C[:k, :k])
    _divide(C[k:, :k], C[:k, :k], first)
    for rows in cut(len(C) - k, _GRAM_ROWS):
        C[k:, k:][rows, : rows.stop] -= C[k:, :k][rows] @ C[k : k + rows.stop, :k].T
    return [*first, *_factorise(C[k:, k:])]


def _divide(B: Array, L: Array, inverses: list[Array]) -> None:
    """Put B L^-T in the place of B (m, n), by halves of L's blocks."""
    if len(inverses) == 1:
        B[...] = B @ inverses[0].T
        return
    half = len(inverses) // 2
    k = half * _BLOCK_ROWS
    _divide(B[:, :k], L[:k, :k], inverses[:half])
    B[:, k:] -= B[:, :k] @ L[k:, :k].T
    _divide(B[:, k:], L[k:, k:], inverses[half:])
