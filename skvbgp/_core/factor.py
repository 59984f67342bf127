"""What is known of a positive definite matrix C = L L': L^-1, or L in blocks, of less work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.linalg import (
    LAST_JITTER,
    Array,
    NotPositiveDefiniteError,
    check_finite,
    tril_inverse,
    tril_times,
    triu_times,
)
from skvbgp._core.order import cut_evenly

#: Rows of a block: as many as keep what is not a product of matrices short, and the products quick.
_BLOCK_ROWS = 80
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
        return self.inverse @ y

    def unwhiten(self, y: Array) -> Array:
        return y @ self.inverse

    def solve(self, values: Array) -> Array:
        return triu_times(self.inverse, tril_times(self.inverse, values))


@dataclass(frozen=True)
class BlockFactor:
    """That of which L is known, and the inverses of the blocks on its diagonal.

    Everything is products of matrices, in NumPy, so that other threads run meanwhile. What is above
    the blocks on the diagonal of L is not set.
    """

    L: Array
    rows: tuple[slice, ...]  # of the blocks
    inverses: tuple[Array, ...]  # of these on the diagonal

    @classmethod
    def of(
        cls, measure: Callable[[slice], Array], noise: Array, jitter: float, unit: Array
    ) -> BlockFactor:
        """That of K + diag(noise + jitter unit), all (n,).

        ``measure`` gives columns of K from their first row on, and may be asked for them again: as
        in `jittered_cholesky` the jitter grows tenfold until it is enough, or
        `NotPositiveDefiniteError`.
        """
        while jitter <= LAST_JITTER:
            try:
                return cls._of(measure, noise + jitter * unit)
            except np.linalg.LinAlgError:
                jitter *= 10.0
        raise NotPositiveDefiniteError.even_with_jitter(_NAME)

    @classmethod
    def _of(cls, measure: Callable[[slice], Array], load: Array) -> BlockFactor:
        n, inverses = len(load), list[Array]()
        L, blocks = np.empty((n, n)), cut_evenly(n, max(1, -(-n // _BLOCK_ROWS)))
        for rows in blocks:
            columns, size = measure(rows), rows.stop - rows.start
            columns.flat[: size**2 : size + 1] += load[rows]
            before = slice(rows.start)
            columns -= L[rows.start :, before] @ L[rows, before].T
            own = np.asarray(np.linalg.cholesky(columns[:size]), dtype=np.float64)
            L[rows, rows] = own
            inverses.append(tril_inverse(own))
            np.matmul(columns[size:], inverses[-1].T, out=L[rows.stop :, rows])
        check_finite(np.diagonal(L), _NAME)
        return cls(L, tuple(blocks), tuple(inverses))

    @property
    def inverse(self) -> Array:
        inverse = np.zeros_like(self.L)
        for rows, columns in self._invert(np.float64):
            inverse[rows.start :, rows] = columns
        return inverse

    @cached_property
    def log_diagonal(self) -> Array:
        return np.log(np.diagonal(self.L))

    @cached_property
    def precision(self) -> Array:
        """Of single precision, but for ill-conditioned matrices: this is most of the work."""
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
