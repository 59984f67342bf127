"""Equal rows as one: what finds them, and what one with a weight leaves out of their density.

Rows that share f and whose noise of variance t is independent are, w of them with one target, a
row with noise of variance t / w, but for a factor of their density:

    prod_w N(y | f, t) = (2 pi t)^-((w - 1) / 2) w^-(1 / 2) N(y | f, t / w).

This is what a row of any weight w > 0 counts as.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array


def extra_log_dets(t: float | Array, weight: Array) -> Array:
    """What the log determinant of all copies has more than log(t / w), by row (n,)."""
    return np.asarray((weight - 1.0) * np.log(t) + np.log(weight))


def own_gradient(t: float | Array, weight: Array | None, d_spread: Array) -> Array:
    """Gradient in t, by row (n,), of a value minus half the sum of `extra_log_dets`.

    ``d_spread`` is that of the value in t / w. Without weights, there are no copies.
    """
    if weight is None:
        return d_spread
    return np.asarray(d_spread / weight - 0.5 * (weight - 1.0) / t)


def make_keys(*columns: Array) -> NDArray[Any]:
    """One value for each row (n,) of arrays (n,) and (n, d), the same for equal ones."""
    table = np.column_stack(columns)
    table += 0.0  # no negative zeros
    return table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel()


def merge_copies(
    X: Array, y: Array, weight: Array, *others: Array
) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """The first (m,) of equal rows, which of these each row is (n,), and their weights (m,).

    Their order does not depend on that of the rows.
    """
    _, first, owner = np.unique(make_keys(X, y, *others), return_index=True, return_inverse=True)
    return first, owner.ravel(), np.bincount(owner.ravel(), weight).astype(np.float64)
