"""What is known about the noise of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.copies import (
    extra_log_dets,
    find_equal,
    make_keys,
    number_rows,
    own_gradient,
)
from skvbgp._core.linalg import Array
from skvbgp._core.scaling import scale_variance
from skvbgp.base import pick

#: How much higher the odds have to be that two rows at one place agree than that others do, if
#: those that agree are to be copies.
_COPY_ODDS = 30.0


@dataclass(frozen=True)
class RowNoise:
    """How many equal rows each one stands for, and the variance of these besides the learned one.

    With t the sum of the two variances, w rows of one place and one target are one row with the
    variance t / w, but for a factor of their density. Nor do targets at one place have to be equal:
    the row's is then their mean, and their scatter is known. Entries of X that had been missing are
    uncertain, and add as much to t as the function's mean squared slopes say. See
    :doc:`/theory/gp`.
    """

    weight: Array  # (n,), positive
    variance: Array  # (n,), squared units of y
    inputs: Array | None = None  # (n, g), variances of entries in units of their columns' spread
    outputs: Array | None = None  # (n, t), indicators of outputs with a learned variance each
    #: Whether equal rows are measurements that agree, of which one may be left out.
    can_part: bool = False
    #: (n,): sums of squared deviations of targets at a place from their mean.
    scatter: Array | None = None

    @classmethod
    def plain(cls, n: int) -> RowNoise:
        """Rows about which nothing is known."""
        return cls(np.ones(n), np.zeros(n))

    @classmethod
    def of(cls, noise: RowNoise | None, n: int) -> RowNoise:
        """What is known of n rows, where None is `plain`."""
        return cls.plain(n) if noise is None else noise

    @classmethod
    def joined(cls, parts: Sequence[tuple[RowNoise | None, int]]) -> RowNoise | None:
        """The noise of several sets of rows of given sizes; None is `plain`."""
        if all(noise is None for noise, _ in parts):
            return None
        known = [cls.of(noise, n) for noise, n in parts]
        widths = [noise.inputs.shape[1] for noise in known if noise.inputs is not None]
        inputs = [
            np.zeros((len(noise), widths[0])) if noise.inputs is None else noise.inputs
            for noise in known
            if widths
        ]
        return cls(
            np.concatenate([noise.weight for noise in known]),
            np.concatenate([noise.variance for noise in known]),
            np.concatenate(inputs) if inputs else None,
        )

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, index: Any) -> RowNoise:
        inputs = pick(self.inputs, index)
        outputs = pick(self.outputs, index)
        weight, variance = self.weight[index], self.variance[index]
        scatter = pick(self.scatter, index)
        return RowNoise(weight, variance, inputs, outputs, self.can_part, scatter)

    @property
    def others(self) -> Array:
        """How often (n,) those count that stay where one of equal rows is left out."""
        return np.maximum(self.weight - 1.0, 0.0) if self.can_part else np.zeros(len(self))

    def scaled(self, unit: float | Array) -> RowNoise:
        """The noise of targets in other units, of all rows or (n,)."""
        scaled = replace(self, variance=scale_variance(self.variance, unit))
        if self.scatter is None:
            return scaled
        return replace(scaled, scatter=self.scatter / unit / unit)

    def sharing(self, weight: Array) -> RowNoise:
        """The noise where only a part of those counts that each stands for, or all count less."""
        scatter = None if self.scatter is None else self.scatter * (weight / self.weight)
        return replace(self, weight=weight, scatter=scatter)

    def add_up(self, noise: float | Array, slopes: Sequence[float] = ()) -> Array:
        """The variances t (n,), from the learned one and the mean squared slopes (g,).

        Where outputs are told apart, the learned ones (t,).
        """
        t = (noise if self.outputs is None else self.outputs @ noise) + self.variance
        return t if self.inputs is None else t + self.inputs @ np.array(slopes)

    def spread(self, noise: float | Array, slopes: Sequence[float] = ()) -> Array:
        """Variances (n,) of the rows."""
        return self.add_up(noise, slopes) / self.weight

    def measure_rest(
        self, noise: float | Array, slopes: Sequence[float] = ()
    ) -> tuple[Array, Array]:
        """What all have besides, by row: half the log determinant, and squared errors over t."""
        t = self.add_up(noise, slopes)
        scatter = np.zeros_like(t) if self.scatter is None else self.scatter
        return 0.5 * extra_log_dets(t, self.weight), scatter / t

    def vjp(
        self, noise: float | Array, slopes: Sequence[float], d_spread: Array, precision: float
    ) -> tuple[float | Array, Array]:
        """Gradients in the learned variance and in the slopes (g,).

        Of a value whose gradient in `spread` is given, less what `measure_rest` says: the sums of
        half the log determinants and, times a precision, of half the squared errors.
        """
        t = self.add_up(noise, slopes)
        dt = own_gradient(t, self.weight, d_spread)
        if self.scatter is not None:
            dt = dt + 0.5 * precision * self.scatter / t**2
        d_noise = float(dt.sum()) if self.outputs is None else dt @ self.outputs
        return d_noise, np.zeros(len(slopes)) if self.inputs is None else dt @ self.inputs


def merge_rows(
    X: Array, y: Array, weight: Array, variance: Array, *, merges: bool
) -> tuple[Array, Array, RowNoise | None, NDArray[np.intp] | None]:
    """Rows of positive weight, of which equal ones may be one, with the sum of their weights.

    What has been merged, or has weights, is in an order that does not depend on the given one.
    The last result says which row each has become, -1 for none, or is None if all are as they were.
    """
    kept = weight > 0.0
    if not kept.all():
        X, y, weight, variance = X[kept], y[kept], weight[kept], variance[kept]
    is_plain = bool(np.all(weight == 1.0)) and not np.any(variance)
    noise = None if is_plain else RowNoise(weight, variance)
    as_given = X, y, noise, None if kept.all() else _number(kept, np.arange(len(y)))
    if not merges or (is_plain and not _may_repeat(X, y)):
        return as_given
    first, owner = find_equal(X, y, variance)
    if len(first) == len(y) and is_plain:
        return as_given
    total = np.bincount(owner, weight).astype(np.float64)
    return X[first], y[first], RowNoise(total, variance[first]), _number(kept, owner)


def discount_copies(X: Array, y: Array, noise: RowNoise | None) -> RowNoise | None:
    """What is known of the noise of merged rows (n, d), for learning the hyperparameters.

    Rows that agree to the last digit wherever there are several at one place are copies, not
    measurements: noise that was learned from their agreement would be zero. They count once. Where
    some differ, they count, and the others may be copies or measurements.
    """
    if noise is None or noise.scatter is not None or noise.weight.max() <= 1.0:
        return noise
    _, place = np.unique(make_keys(X), return_inverse=True)
    if place.max() + 1 == len(X):
        return replace(noise, weight=np.minimum(noise.weight, 1.0))
    return replace(noise, can_part=not _are_copies(place, y, noise.weight))


def _are_copies(place: NDArray[np.intp], y: Array, weight: Array) -> bool:
    """Whether rows at one place agree to the last digit, and not because y has few values.

    Most of them do, and the odds of that are much higher than for two rows at different places.
    """
    total, squares = weight.sum() ** 2, np.sum(weight**2)
    here = np.sum(np.bincount(place, weight) ** 2)  # pairs of rows, each twice
    alike = np.sum(np.bincount(np.unique(y, return_inverse=True)[1], weight) ** 2)
    equal = np.sum(np.maximum(weight**2 - weight, 0.0))
    pairs = np.array([equal, here - squares, alike - squares, total - here - alike + squares])
    pairs[pairs < 64.0 * np.finfo(float).eps * total] = 0.0
    agree, differ, agree_apart, differ_apart = pairs
    return bool(agree > differ and agree * differ_apart > _COPY_ODDS * differ * agree_apart)


def have_same_noise(first: RowNoise | None, second: RowNoise | None) -> bool:
    """Whether the same is known of as many rows."""
    if first is None or second is None:
        return first is second
    return all(np.array_equal(vars(first)[name], value) for name, value in vars(second).items())


def _may_repeat(X: Array, y: Array) -> bool:
    """Whether rows may be equal."""
    total = np.sort(number_rows(X, y))
    return bool(np.any(total[1:] == total[:-1])) or not np.isfinite(total[-1:]).all()


def _number(kept: NDArray[np.bool_], index: NDArray[np.intp]) -> NDArray[np.intp]:
    """The index of those that are kept, -1 for the others."""
    origin = np.full(len(kept), -1)
    origin[kept] = index
    return origin


#: X (n, d) and y (n,), or (n, m) of m outputs, scaled, and what is known of the noise.
Group = tuple[Array, Array, RowNoise | None]
