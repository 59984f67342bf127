"""Inputs of classes through a function of each that is in front of a kernel.

The function is one of the values of the inputs alone: it makes them as normal as can be, see
`_warp`, or as wide as one another. Kernels with it and kernels without predict together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.owners import Owners, find_shared
from skvbgp.gp._warp import STRAIGHT, Warp, find_bendable, fit_values
from skvbgp.kernels._uncertain import UncertainCovariance, append_variances


@dataclass(frozen=True)
class RangeUnits:
    """Inputs that are stretched until their known values have ranges that are alike."""

    stretch: tuple[float, ...]  # (d,)

    def __call__(self, Z: Array) -> Array:
        """Rows (..., d) in these units."""
        return Z * np.array(self.stretch)

    def slope(self, Z: Array) -> Array:
        """Derivatives (..., d) of each column in what it was."""
        return np.broadcast_to(np.array(self.stretch), Z.shape)

    def moved(self, known: Index, now: Index, shared: NDArray[np.bool_]) -> Self:
        """The units of other columns, see `Warp`."""
        stretch = np.ones(len(shared))
        stretch[now] = np.array(self.stretch)[known]
        stretch[shared] = 1.0
        return type(self)(tuple(stretch.tolist()))


@dataclass(frozen=True)
class WarpedCovariance(UncertainCovariance):
    """The covariances of a kernel of warped inputs, at rows before the warp.

    Variances of entries are those of a straight line with the slope of the warp at their means.
    """

    warp: Warp | RangeUnits

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        return super().__call__(self._bend(X), None if Z is None else self._bend(Z))

    def diag(self, X: Array) -> Array:
        return super().diag(self._bend(X))

    def whole(self, X: Array) -> Array:
        return super().whole(self._bend(X))

    def vjp(self, X: Array, K: Array, dK: Array, dlost: Array) -> Array:
        return super().vjp(self._bend(X), K, dK, dlost)

    def vjp_whole(self, X: Array, dwhole: Array) -> Array:
        return super().vjp_whole(self._bend(X), dwhole)

    def _bend(self, X: Array) -> Array:
        mean, variance = X[:, : self.d], X[:, self.d :]
        if not variance.size:
            return self.warp(mean)
        return append_variances(self.warp(mean), variance * self.warp.slope(mean) ** 2)


def find_warp(X: Array, owners: Owners) -> Warp | None:
    """The warp of those inputs of rows X (n, d) whose values it makes more normal, if any.

    Columns that encode one input together stay as they are.
    """
    columns = find_bendable(X, np.flatnonzero(~find_shared(X.shape[1], owners)))
    shapes = np.array([fit_values(np.unique(X[:, j])) for j in columns]).reshape(-1, 2)
    is_bent = np.any(shapes != STRAIGHT, axis=1)
    if not is_bent.any():
        return None
    return Warp.of(columns[is_bent], shapes[is_bent].T.ravel(), X, np.ones(len(X)))


def find_ranges(X: Array, owners: Owners) -> RangeUnits | None:
    """The units in which columns of rows X (n, d) have ranges that are alike, if these are others.

    Distances stay as they are on average, where columns have unit variance. Columns that encode one
    input together stay as they are, and so do those of one value.
    """
    ranges = np.ptp(X, axis=0)
    moved = ~find_shared(X.shape[1], owners) & (ranges > 0.0)
    if not moved.any():
        return None
    stretch = np.ones(X.shape[1])
    stretch[moved] = np.sqrt(1.0 / np.mean(ranges[moved] ** -2.0)) / ranges[moved]
    return None if np.allclose(stretch, 1.0) else RangeUnits(tuple(stretch.tolist()))
