"""Location and scale of data that may arrive in chunks, and the frames they give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut

_TILE_ROWS = 2**17
#: Farthest that a value may lie from the known data, in units of their spread.
_FARTHEST = 1e147
#: Largest known variance of noise relative to that of y.
_LARGEST_VARIANCE = 1e20


@dataclass(frozen=True)
class RunningScale:
    """Number, mean and standard deviation of the rows seen so far."""

    n: float  # or the sum of their weights
    mean: Array  # (k,)
    std: Array  # (k,) of the population

    @classmethod
    def of(cls, values: Array, weight: Array | None = None) -> RunningScale:
        """Summary of an (n, k) array, read in tiles, whose rows may have positive weights (n,)."""
        if len(values) > _TILE_ROWS:
            tiles = cut(len(values), _TILE_ROWS)
            parts = (cls.of(values[t], None if weight is None else weight[t]) for t in tiles)
            return reduce(RunningScale.merged, parts)
        largest = np.max(np.abs(values), axis=0)
        unit = np.where(largest > 0.0, largest, 1.0)
        mean = np.average(values / unit, axis=0, weights=weight) * unit
        deviation = values - mean
        largest = np.max(np.abs(deviation), axis=0)
        spread = np.where(largest > 0.0, largest, 1.0)
        std = np.sqrt(np.average((deviation / spread) ** 2, axis=0, weights=weight)) * spread
        return cls(len(values) if weight is None else float(np.sum(weight)), mean, std)

    def merged(self, other: RunningScale) -> RunningScale:
        """Summary of both sets of rows."""
        n = self.n + other.n
        share = other.n / n
        shift = other.mean - self.mean
        parts = np.stack(
            [
                np.sqrt(1.0 - share) * self.std,
                np.sqrt(share) * other.std,
                np.sqrt(share * (1.0 - share)) * np.abs(shift),
            ]
        )
        unit = np.max(parts, axis=0)
        unit = np.where(unit > 0.0, unit, 1.0)
        std = np.sqrt(np.sum((parts / unit) ** 2, axis=0)) * unit
        return RunningScale(n, self.mean + share * shift, std)

    def faded(self, share: float) -> RunningScale:
        """Summary of the same rows, which count less by a factor."""
        return RunningScale(share * self.n, self.mean, self.std)

    @property
    def unit(self) -> Array:
        """The standard deviation, or 1 where a column is constant up to rounding."""
        return np.where(self.std > _rounding(self.mean), self.std, 1.0)


def _rounding(value: Array) -> Array:
    """What values may differ by and still be equal up to rounding."""
    return 10.0 * np.finfo(float).eps * np.abs(value)


@dataclass(frozen=True)
class Coordinates:
    """Scaled coordinates (x - offset) / scale, in which a model is defined."""

    offset: Array  # (d,)
    scale: Array  # (d,)

    @classmethod
    def of(cls, X: Array, weight: Array | None = None) -> Coordinates:
        """Origin and units of the rows of X, which may have positive weights (n,)."""
        summary = RunningScale.of(X, weight)
        return cls(summary.mean, summary.unit)

    @classmethod
    def of_seen(cls, X: Array, weight: Array | None = None) -> Coordinates:
        """The same where entries are missing (NaN); every column has one at least."""
        columns = [
            cls.of(x[seen, None], None if weight is None else weight[seen]).parts
            for x, seen in zip(X.T, ~np.isnan(X.T), strict=True)
        ]
        return cls(*map(np.concatenate, zip(*columns, strict=True)))

    @property
    def parts(self) -> tuple[Array, ...]:
        """What they are made of."""
        return self.offset, self.scale

    def filled(self, known: Array, X: Array) -> Coordinates:
        """The coordinates, with units from rows X for columns that are constant in the known rows.

        The unit of a column is the median distance of those entries that differ: nothing changes
        for the known rows, which stay at the origin of these columns.
        """
        scale = self.scale.copy()
        for j in np.flatnonzero(self.scale == 1.0):
            if np.any(known[:, j] != known[0, j]):
                continue
            with np.errstate(over="ignore"):
                distance = np.abs(X[:, j] - self.offset[j])
            distance = distance[distance > _rounding(self.offset[j])]
            if len(distance):
                scale[j] = np.median(distance)
        check_unit(scale, "X")
        return Coordinates(self.offset, scale)

    def keeping(self, columns: NDArray[np.bool_]) -> Coordinates:
        """Coordinates in which some columns (d,) are as they are given."""
        offset, scale = np.where(columns, 0.0, self.offset), np.where(columns, 1.0, self.scale)
        return Coordinates(offset, scale)

    def scaled(self, X: Array) -> Array:
        return standardise(X, self.offset, self.scale, "X")

    def original(self, X: Array) -> Array:
        return X * self.scale + self.offset

    def measure_units(self, X: Array) -> Array:
        """How far one step of each coordinate goes at rows of X, (n, d)."""
        return np.broadcast_to(self.scale, X.shape)


@dataclass(frozen=True)
class Target:
    """Affine map between y and the scaled target."""

    mean: float
    unit: float

    @classmethod
    def of_scale(cls, summary: RunningScale, *, centred: bool = True) -> Target:
        """Its unit is the spread of y, its origin the mean or zero."""
        unit = float(summary.unit[0])
        check_unit(unit, "y")
        return Target(float(summary.mean[0]) if centred else 0.0, unit)

    def scaled(self, y: Array) -> Array:
        return standardise(y, self.mean, self.unit, "y")

    def original(self, y: Array) -> Array:
        return y * self.unit + self.mean

    def scaled_noise(self, variance: Array | None) -> Array | None:
        """Known variances (n,) of the noise of y as those of the scaled target; None is none."""
        return None if variance is None else scale_variance(variance, self.unit)

    def unscaled(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Mean and (co)variance of y, or of its transform, from those of the scaled target."""
        return self.original(mean), variance * self.unit**2

    def unscaled_slopes(self, mean: Array, variance: Array, scale: Array) -> tuple[Array, Array]:
        """The same of derivatives (..., d), from those in inputs in units of ``scale``.

        These are (d,), or others in every row.
        """
        unit = self.unit / scale
        return mean * unit, variance * unit**2


def scale_variance(variance: Array, unit: float | Array) -> Array:
    """Known variances of noise (n,) for a target in other units, of all rows or (n,)."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = variance / unit / unit
    if np.any(scaled > _LARGEST_VARIANCE):
        raise ValueError(f"y_var is more than {_LARGEST_VARIANCE:g} times the variance of y.")
    return scaled


def check_unit(unit: float | Array, name: str) -> None:
    """Refuse data whose spread has no square in double precision."""
    if np.any(np.asarray(unit) > 1e153) or np.any(np.asarray(unit) < 1e-153):
        raise ValueError(f"The spread of {name} is beyond 1e153 or below 1e-153: rescale it.")


def standardise(values: Array, offset: Array | float, scale: Array | float, name: str) -> Array:
    """(values - offset) / scale, with no other array of their size on the way, near enough."""
    with np.errstate(over="ignore"):
        scaled = np.asarray(values - offset)
        scaled /= scale
    return check_near(scaled, name)


def check_near(scaled: Array, name: str) -> Array:
    """The same scaled values, whose distances have squares in double precision."""
    most = np.fmax.reduce(scaled, axis=None, initial=0.0)
    least = np.fmin.reduce(scaled, axis=None, initial=0.0)
    if max(most, -least) > _FARTHEST:
        raise ValueError(
            f"{name} has an entry that is more than {_FARTHEST:g} spreads away from the other data."
        )
    return scaled
