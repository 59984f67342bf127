"""The columns of X as the latent-variable model sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.column_gaussian import ColumnGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.scaling import Coordinates, check_unit

#: Imagined rows in the covariance of the joint Gaussian.
_N_IMAGINED = 1


@dataclass(frozen=True)
class CompletedRows:
    """Entries y_ij of rows as Gaussians given the entries that are seen."""

    mean: Array  # (n, d)
    incomplete: NDArray[np.intp]  # (u,) indices of the rows with missing entries
    covariance: Array  # (u, d, d) of those rows; the others have none


@dataclass(frozen=True)
class ColumnModel:
    """Units of the columns, and their joint Gaussian in these units."""

    coordinates: Coordinates  # location and spread of every column
    gaussian: ColumnGaussian  # of the columns in these coordinates
    binary: NDArray[np.bool_]  # (d,) which columns have two values
    low: Array  # (d,) smallest value of each column
    high: Array  # (d,) largest value; it may be the smallest as well

    @classmethod
    def of(cls, X: Array, binary: NDArray[np.bool_], counts: Array | None = None) -> ColumnModel:
        """Learn from rows (n, d) with missing entries, which may have positive weights (n,)."""
        empty = np.flatnonzero(np.isnan(X).all(axis=0))
        if len(empty):
            raise ValueError(f"Columns {empty.tolist()} of X have no entry: leave them out.")
        coordinates = Coordinates.of_seen(X, counts)
        check_unit(coordinates.scale, "X")
        low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
        gaussian = ColumnGaussian.fit(coordinates.scaled(X), _N_IMAGINED, counts)
        model = cls(coordinates, gaussian, binary, low, high)
        model.check(X)
        return model

    def check(self, X: Array) -> None:
        """Refuse a third value in a binary column; the second may be new."""
        rows = np.vstack([self.low, self.high, X])
        low = np.where(self.low < self.high, self.low, np.nanmin(rows, axis=0))
        high = np.where(self.low < self.high, self.high, np.nanmax(rows, axis=0))
        other = self.binary & np.any(~np.isnan(rows) & (rows != low) & (rows != high), axis=0)
        if other.any():
            j = int(np.flatnonzero(other)[0])
            raise ValueError(
                f"Column {j} of X is binary with the values {low[j]:g} and {high[j]:g}, "
                "but has others."
            )

    def complete(self, X: Array) -> CompletedRows:
        """Rows given the entries that are seen."""
        Y = self.coordinates.scaled(X)
        rows, mean, covariance = self.gaussian.incomplete(Y)
        Y[rows] = mean
        return CompletedRows(Y, rows, covariance)

    def continuous(self, X: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Scaled entries of the continuous columns, 0 where missing, and which are seen."""
        seen = ~np.isnan(X[:, ~self.binary])
        Y = self.coordinates.scaled(X)[:, ~self.binary]
        return np.where(seen, Y, 0.0), seen

    def signs(self, X: Array) -> Array:
        """Entries of the binary columns as -1 and 1, 0 where missing."""
        X = X[:, self.binary]
        sign = np.where(X == self.high[self.binary], 1.0, -1.0)
        return np.where(np.isnan(X), 0.0, sign)

    def original(self, mean: Array, variance: Array, probability: Array) -> tuple[Array, Array]:
        """Mean and standard deviation (n, d) of entries in the units of X.

        From those of the continuous columns and the probabilities of the high values.
        """
        values, std = np.empty((2, len(mean), len(self.binary)))
        scale, continuous = self.coordinates.scale, ~self.binary
        values[:, continuous] = mean * scale[continuous] + self.coordinates.offset[continuous]
        std[:, continuous] = np.sqrt(variance) * scale[continuous]
        low, gap = self.low[self.binary], (self.high - self.low)[self.binary]
        values[:, self.binary] = low + gap * probability
        std[:, self.binary] = gap * np.sqrt(probability * (1.0 - probability))
        return values, std
