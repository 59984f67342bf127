"""Equal rows as one: what finds them, and what one with a weight leaves out of their density.

Rows that share f and whose noise of variance t is independent are, w of them with one target, a
row with noise of variance t / w, but for a factor of their density:

    prod_w N(y | f, t) = (2 pi t)^-((w - 1) / 2) w^-(1 / 2) N(y | f, t / w).

This is what a row of any weight w > 0 counts as. Where all noise is to stay the same, a rotation of
the targets makes sqrt(w) y of one and zero of the others, which are noise alone:

    prod_w N(y | f, t) = N(sqrt(w) y | sqrt(w) f, t) N(0 | 0, t)^(w - 1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import LOG_2PI, Array

#: For each of some rows which one it has become, or None: every one itself.
Origin = NDArray[np.intp] | None
#: Rows that are compared at a time, to find equal ones.
_TILE_ROWS = 2**14


def extra_log_dets(t: float | Array, weight: Array) -> Array:
    """What the log determinant of all copies has more than log(t / w), by row (n,)."""
    return (weight - 1.0) * np.log(t) + np.log(weight)


class Copies(NamedTuple):
    """What the density of all copies has more than that of the rows, see :ref:`sgpr-weights`."""

    number: float = 0.0
    log_det: float = 0.0

    @classmethod
    def of(cls, own: Array | float, weight: Array | None) -> Copies:
        """Of rows with weights (n,), whose copies have noise of variances ``own`` of their own."""
        if weight is None:
            return cls()
        return cls(float(np.sum(weight - 1.0)), float(extra_log_dets(own, weight).sum()))

    @property
    def log_density(self) -> float:
        """What their log density has more."""
        return -0.5 * (self.number * LOG_2PI + self.log_det)


def own_gradient(t: float | Array, weight: Array | None, d_spread: Array) -> Array:
    """Gradient in t, by row (n,), of a value minus half the sum of `extra_log_dets`.

    ``d_spread`` is that of the value in t / w. Without weights, there are no copies.
    """
    if weight is None:
        return d_spread
    return d_spread / weight - 0.5 * (weight - 1.0) / t


def rotate_copies(y: Array, weight: Array | None) -> tuple[Array, Array, float]:
    """Rotated targets (n,) or (n, k), and factors (n, n) of the covariance of f at the rows.

    The last result is the number of the other targets, which are noise alone.
    """
    weight = np.ones(len(y)) if weight is None else weight
    root = np.sqrt(weight)
    n_others = y.size // len(y) * float(np.sum(weight - 1.0))
    return (y.T * root).T, np.outer(root, root), n_others


def noise_log_density(n: float, log_t: float | Array) -> Array:
    """log N(0 | 0, t I) of n targets, whose slope in log t is -n / 2."""
    return np.asarray(-0.5 * n * (LOG_2PI + log_t))


def follow_rows(first: Origin, then: Origin) -> Origin:
    """Which row each has become, -1 for none, after two changes; None is one that moves no row."""
    if first is None or then is None:
        return then if first is None else first
    return np.where(first < 0, -1, then[first])


def join_origins(first: Origin, n_first: int, second: Origin, n_second: int) -> Origin:
    """Which row each of two sets has become that became so many, one after the other now."""
    if first is None and second is None:
        return None
    own = np.arange(n_first) if first is None else first
    new = np.arange(n_second) if second is None else second
    return np.append(own, np.where(new < 0, -1, new + n_first))


def make_keys(*columns: NDArray[Any]) -> NDArray[Any]:
    """One value for each row (n,) of arrays (n,) and (n, k), the same for equal ones.

    Missing entries (NaN) are equal to each other.
    """
    table = np.ascontiguousarray(np.column_stack(columns), dtype=np.float64)
    table += 0.0  # no negative zeros
    np.copyto(table, np.nan, where=np.isnan(table))  # nor those of NaN
    return table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel()


def number_rows(X: Array, start: Array | float = 0.0) -> Array:
    """One number for each row (n,), the same for equal ones, and mostly for no others.

    Besides ``start`` (n,). Tables of many rows are not copied.
    """
    factors = 1.0 + np.random.default_rng(0).random((X.shape[1],))
    total = np.zeros(len(X)) + start
    with np.errstate(over="ignore", invalid="ignore"):
        for column, factor in zip(X.T, factors, strict=True):
            total += factor * column
    return total


def find_equal(
    *columns: NDArray[Any], limit: float = np.inf
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first (m,) of equal rows of arrays (n,) and (n, k), and which of these each row is (n,).

    Their order does not depend on that of the rows. Where more than ``limit`` rows are distinct,
    all are taken as such, in their own order. No more is read than it takes to know.
    """
    n = len(columns[0])
    keys = make_keys(*(values[:0] for values in columns))
    first, owner = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    for start in range(0, n, _TILE_ROWS):
        rows = np.arange(start, min(start + _TILE_ROWS, n))
        new = make_keys(*(values[start : start + _TILE_ROWS] for values in columns))
        keys, index, kind = np.unique(np.append(keys, new), return_index=True, return_inverse=True)
        if len(keys) > limit:
            return np.arange(n), np.arange(n)
        known, kind = np.split(kind, [len(first)])
        first, owner = np.append(first, rows)[index], np.append(known[owner], kind)
    return first, owner
