r"""Inputs through a function of each, after which the regression is as smooth everywhere.

An input z, in units of its spread, becomes asinh((z - m) / s), in units of the spread of that: a
straight line near the centre m, and a logarithm beyond the width s. First m and s make the known
values of the input as normal as can be; then the evidence of y under one kernel moves them. See
:doc:`/theory/gp_learning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates, RunningScale
from skvbgp._optim.maximum import train
from skvbgp.gp._process import Process, train_process
from skvbgp.gp._row_noise import Group

#: Most rows that a warp is learned from, and the kernel.
WARP_ROWS, WARP_KERNEL = 400, "Matern-5/2"
#: Centre, and logarithm of the width, of an input whose values are as normal as they are.
STRAIGHT = (0.0, 1.0)
#: Standard deviation of their normal priors, and their limits.
_STD = 0.5
_LIMITS = ((-6.0, 6.0), (-4.0, 4.0))
#: What is tried for the known values: quantiles as centres, and widths.
_QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
_WIDTHS = np.geomspace(0.03, 10.0, 12)
#: An input with fewer distinct values is left as it is.
_LEAST_VALUES = 3
#: What the evidence has to gain, in nats, where all rows are neighbours, and where near rows are,
#: among which any function is about straight.
_LEAST_GAIN, _LEAST_GAIN_NEAR = 10.0, 40.0
#: Iterations that train a warp.
_ITERATIONS = 40


@dataclass(frozen=True)
class Warp:
    """One function (asinh((z - centre) / width) - offset) / scale for each of some columns.

    The others stay as they are.
    """

    columns: Index  # (c,)
    centre: Array  # (c,)
    width: Array
    offset: Array
    scale: Array

    @classmethod
    def of(cls, columns: Index, vector: Array, Z: Array, weight: Array) -> Self:
        """That of centres and logarithms of widths (2 c,) after which rows have unit variance."""
        centre, log_width = np.split(vector, 2)
        width = np.exp(log_width)
        bent = RunningScale.of(np.arcsinh((Z[:, columns] - centre) / width), weight)
        return cls(columns, centre, width, bent.mean, bent.unit)

    def __call__(self, Z: Array) -> Array:
        """Rows (..., d) after the warp."""
        return self.bend(np.array(Z))

    def bend(self, Z: Array) -> Array:
        """The same in the place of the rows, of which there may be many."""
        numbers = self.centre, self.width, self.offset, self.scale
        for j, m, s, offset, scale in zip(self.columns, *numbers, strict=True):
            Z[..., j] = (np.arcsinh((Z[..., j] - m) / s) - offset) / scale
        return Z

    def invert(self, W: Array) -> Array:
        """The rows that become W (..., d)."""
        Z = np.array(W)
        a = W[..., self.columns] * self.scale + self.offset
        Z[..., self.columns] = self.centre + self.width * np.sinh(a)
        return Z

    def slope(self, Z: Array) -> Array:
        """Derivatives (..., d) of each column after the warp in what it was."""
        slope = np.ones_like(Z)
        u = (Z[..., self.columns] - self.centre) / self.width
        slope[..., self.columns] = 1.0 / (self.scale * self.width * np.hypot(1.0, u))
        return slope

    def moved(self, known: Index, now: Index, shared: NDArray[np.bool_]) -> Self:
        """The same of other columns: ``known`` and ``now`` say which of them begin the inputs.

        Those that are ``shared`` (d,), as they encode one input together, stay as they are.
        """
        order = np.argsort(known)  # they go by inputs, and a category's columns are behind numbers
        found = order[np.searchsorted(known, self.columns, sorter=order)]
        columns = now[found]  # of numbers, which have one each
        kept = ~shared[columns]
        parts = (part[kept] for part in (self.centre, self.width, self.offset, self.scale))
        return type(self)(columns[kept], *parts)

    def vjp(self, Z: Array, dW: Array, weight: Array) -> Array:
        """Gradient in `of`'s vector from that in its rows after the warp, each (n, d)."""
        W, dW = self(Z)[:, self.columns], dW[..., self.columns]
        share = (weight / weight.sum())[:, None]
        da = (dW - share * (dW.sum(axis=0) + W * np.sum(dW * W, axis=0))) / self.scale
        u = (Z[..., self.columns] - self.centre) / self.width
        du = da / np.hypot(1.0, u)
        return np.append(-np.sum(du, axis=0) / self.width, -np.sum(du * u, axis=0))


@dataclass(frozen=True)
class WarpedCoordinates(Coordinates):
    """Scaled coordinates after a warp."""

    warp: Warp

    @property
    def parts(self) -> tuple[Array, ...]:
        warp = self.warp
        columns = warp.columns.astype(np.float64)
        return (*super().parts, columns, warp.centre, warp.width, warp.offset, warp.scale)

    def scaled(self, X: Array) -> Array:
        return self.warp.bend(super().scaled(X))

    def original(self, X: Array) -> Array:
        return super().original(self.warp.invert(X))

    def measure_units(self, X: Array) -> Array:
        return super().measure_units(X) / self.warp.slope(super().scaled(X))


def describe_warp(coordinates: Coordinates) -> Array:
    """Centre and width (d, 2) of each input's warp, in the user's units; straight is infinite."""
    shape = np.tile([np.nan, np.inf], (len(coordinates.scale), 1))
    if isinstance(coordinates, WarpedCoordinates):
        warp, columns = coordinates.warp, coordinates.warp.columns
        offset, scale = coordinates.offset[columns], coordinates.scale[columns]
        shape[columns] = np.column_stack([warp.centre * scale + offset, warp.width * scale])
    return shape


@dataclass(frozen=True)
class WarpedProcess:
    """A process of warped inputs: what learns the warp, the same one for all groups of rows."""

    process: Process
    columns: Index
    shape: Array  # centres and logarithms of widths, (2 c,)
    mean: Array  # of their prior

    @property
    def vector(self) -> Array:
        return np.append(self.process.vector, self.shape)

    @property
    def bounds(self) -> Array:
        return np.vstack([self.process.bounds, np.repeat(_LIMITS, len(self.columns), axis=0)])

    def with_vector(self, vector: Array) -> Self:
        first, shape = np.split(vector, [-len(self.shape)])
        return replace(self, process=self.process.with_vector(first), shape=shape)

    def log_prior(self) -> tuple[float, Array]:
        value, gradient = self.process.log_prior()
        shift = (self.shape - self.mean) / _STD
        return value - 0.5 * float(shift @ shift), np.append(gradient, -shift / _STD)

    def make_warp(self, groups: Sequence[Group]) -> Warp:
        """The warp after which all of these rows together have unit variance."""
        return Warp.of(self.columns, self.shape, *_join(groups))

    def log_evidence(self, *groups: Group) -> float:
        warp = self.make_warp(groups)
        return sum(self.process.log_evidence(warp(X), y, known) for X, y, known in groups)

    def evidence(self, *groups: Group) -> tuple[float, Array]:
        (Z, weight), warp = _join(groups), self.make_warp(groups)
        parts = [self.process.differentiate(warp(X), y, known) for X, y, known in groups]
        values, gradients, cotangents = zip(*parts, strict=True)
        d_shape = warp.vjp(Z, np.concatenate(cotangents), weight)
        return sum(values), np.append(np.sum(gradients, axis=0), d_shape)


def _join(groups: Sequence[Group]) -> tuple[Array, Array]:
    """Rows (n, d) of all groups, and how often each counts: once for every value."""
    weights = [
        (1.0 if y.ndim == 1 else y.shape[1]) * (np.ones(len(X)) if known is None else known.weight)
        for X, y, known in groups
    ]
    return np.concatenate([X for X, _, _ in groups]), np.concatenate(weights)


def learn_warp(
    process: Process,
    groups: Sequence[Group],
    columns: Index,
    *,
    is_exact: bool,
    max_iter: int | None,
    tol: float,
) -> Warp | None:
    """The warp of columns with which a process explains groups best, if that is worth it."""
    X, _ = _join(groups)
    columns = find_bendable(X, columns)
    if not len(columns):
        return None
    settings: dict[str, Any] = {"max_iter": max_iter or _ITERATIONS, "tol": tol}
    shape = np.array([fit_values(np.unique(X[:, j])) for j in columns]).T.ravel()
    straight = train_process(process, groups, **settings)
    warped = train(WarpedProcess(process, columns, shape, shape), [tuple(groups)], **settings)
    least = _LEAST_GAIN if is_exact else _LEAST_GAIN_NEAR
    if warped.value < straight.value + least:
        return None
    return warped.process.make_warp(groups)


def find_bendable(X: Array, columns: Index) -> Index:
    """Those of columns of X that have more than two values."""
    return columns[[len(np.unique(X[:, j])) >= _LEAST_VALUES for j in columns]]


def fit_values(z: Array) -> tuple[float, float]:
    """Centre and logarithm of the width with which distinct values are most normal.

    By likelihood, if that gains more than the two are worth by BIC. (How often a value is there
    does not count: the density of values that repeat has no limit.)
    """
    centres, n = np.quantile(z, _QUANTILES), len(z)
    u = (z - centres[:, None, None]) / _WIDTHS[:, None]  # (centres, widths, n)
    log_slope = -np.log(np.hypot(1.0, u) * _WIDTHS[:, None]).sum(axis=-1)
    gain = 0.5 * n * np.log(np.var(z) / np.var(np.arcsinh(u), axis=-1)) + log_slope
    i, j = np.unravel_index(np.argmax(gain), gain.shape)
    if gain[i, j] < np.log(n):
        return STRAIGHT
    return float(centres[i]), float(np.log(_WIDTHS[j]))
