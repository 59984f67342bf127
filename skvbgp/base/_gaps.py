"""Missing entries of X: what they may be, given the entries of the row that are seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.column_gaussian import ColumnGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.order import cut, draw_distinct, thin
from skvbgp._core.scaling import Coordinates, RunningScale, check_unit
from skvbgp._core.shards import ShardedColumns

#: Most rows that the joint Gaussian of the columns is learned from.
_LEARNED_FROM = 10_000
#: Rows that are searched for gaps at a time.
_TILE_ROWS = 2**17
#: Least variance of what is missing, in units of its column's spread.
_LEAST_VARIANCE = 1e-12
#: Most known rows that tell how much an input matters that had no gaps.
_SLOPE_ROWS = 200


def find_gaps(X: Array) -> NDArray[np.bool_]:
    """Which columns of rows (n, d) have missing entries, (d,); rows are read some at a time."""
    found = np.zeros(X.shape[1], dtype=bool)
    for rows in cut(len(X), _TILE_ROWS):
        found |= np.isnan(X[rows]).any(axis=0)
    return found


def _take_some(X: Array | ShardedColumns) -> Array:
    """Rows that the joint Gaussian is learned from, at random.

    Every so many-th one may be without any entry of a column.
    """
    if len(X) <= _LEARNED_FROM:
        return X[:]
    return X[draw_distinct(len(X), _LEARNED_FROM, np.random.RandomState(0))]


@dataclass(frozen=True)
class Gaps:
    """A joint Gaussian of the columns, and which of these have had gaps.

    A column without any entry counts as constant.
    """

    coordinates: Coordinates  # location and spread of the columns
    gaussian: ColumnGaussian  # of the columns in these coordinates
    #: (d,): whether an entry of the column is missing in the training rows.
    columns: NDArray[np.bool_]

    @classmethod
    def of(cls, X: Array) -> Self:
        """Learn from rows (n, d), some entries of which may be NaN."""
        missing = np.isnan(X)
        empty = missing.all(axis=0)
        if empty.any():
            X = np.where(empty, 0.0, X)
        return cls._learn(Coordinates.of_seen(X), X, np.asarray(missing.any(axis=0)))

    @classmethod
    def of_many(cls, X: Array) -> Self:
        """The same from rows that may be many, of which few are looked at closely."""
        if len(X) <= _LEARNED_FROM:
            return cls.of(X)
        sample = _take_some(X)
        for j in np.flatnonzero(np.isnan(sample).all(axis=0)):  # rarely known: rows that have it
            seen = np.flatnonzero(~np.isnan(X[:, j]))
            sample = np.concatenate([sample, X[seen[thin(len(seen), _LEARNED_FROM)]]])
        return replace(cls.of(sample), columns=find_gaps(X))

    @classmethod
    def of_whole(cls, inputs: RunningScale, X: ShardedColumns) -> Self:
        """Learn from rows without gaps, whose moments are known and of which few are looked at."""
        coordinates = Coordinates(inputs.mean, inputs.unit)
        return cls._learn(coordinates, X, np.zeros(X.shape[1], dtype=bool))

    @classmethod
    def _learn(
        cls, coordinates: Coordinates, X: Array | ShardedColumns, columns: NDArray[np.bool_]
    ) -> Self:
        check_unit(coordinates.scale, "X")
        sample = coordinates.scaled(_take_some(X))
        return cls(coordinates, ColumnGaussian.fit(sample), columns)

    def precede(self, X: Array) -> bool:
        """Whether rows have a gap in a column that had none."""
        return bool(np.any(np.isnan(X) & ~self.columns))

    def fill(self, X: Array) -> tuple[Array, Array | None]:
        """The rows with the means of what is missing, and its variances (n, d).

        The latter are in squared units of the columns' spread, None if nothing is missing.
        """
        missing = np.isnan(X)
        if not missing.any():
            return X, None
        mean, variance = self.gaussian.moments(self.coordinates.scaled(X))
        filled = np.where(missing, self.coordinates.original(mean), X)
        return filled, np.where(missing, np.maximum(variance, _LEAST_VARIANCE), 0.0)

    def measure_slope(self, j: int, X: Array, predict: Callable[[Array], Array]) -> Any:
        """How much predictions of known rows X change, squared, if input j were missing.

        In relation to the variance of what would be missing; of predictions (n, t) each, (t,).
        """
        X = X[thin(len(X), _SLOPE_ROWS)]
        empty = X.copy()
        empty[:, j] = np.nan
        filled, inputs = self.fill(empty)
        assert inputs is not None  # an entry of every row is missing
        before, after = predict(X), predict(filled)
        return np.mean((after - before) ** 2, axis=0) / np.mean(inputs[:, j])

    def measure_stds(self, inputs: Array | None) -> Array | None:
        """Standard deviations (n, d) in units of X, from variances (n, g) of rows `filled`."""
        if inputs is None:
            return None
        std = np.zeros((len(inputs), len(self.columns)))
        std[:, self.columns] = np.sqrt(inputs)
        return std * self.coordinates.scale
