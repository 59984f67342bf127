"""The gradient of the function, and which inputs it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import thread_map

if TYPE_CHECKING:
    from skvbgp.gp._posterior import NeighbourPosterior

#: Rows of one task.
_TASK_ROWS = 64
#: Most rows that relevance is averaged over.
_RELEVANCE_ROWS = 1_000


def measure_gradient(posterior: NeighbourPosterior, X: Array) -> tuple[Array, Array]:
    """Mean and variance (n, d) of the function's derivatives at rows X, in the user's units.

    The belief in the processes is constant as long as the neighbours are the same.
    """
    near = None if posterior.is_exact else posterior.find(X)

    def measure(rows: slice) -> tuple[Array, Array]:
        return _measure_tile(posterior, X[rows], None if near is None else near[rows])

    tiles = [(slice(i, i + _TASK_ROWS),) for i in range(0, len(X), _TASK_ROWS)]
    means, variances = zip(*thread_map(measure, tiles), strict=True)
    unit = posterior.target.unit / posterior.coordinates.scale
    return np.concatenate(means) * unit, np.concatenate(variances) * unit**2


def _measure_tile(
    posterior: NeighbourPosterior, X: Array, near: Index | None
) -> tuple[Array, Array]:
    """The same in scaled units, of rows whose neighbours are given."""
    if near is not None:
        posterior, near = posterior.bring(near)
    scaled, mixture = posterior.coordinates.scaled(X), posterior.mixture
    means, variances = np.empty(X.shape), np.empty(X.shape)
    for i, x in enumerate(scaled):
        given = posterior.conditionals if near is None else posterior.condition_near(near[i])
        belief = mixture.weigh_place(given)[:, None]
        parts = [one.gradient(x) for one in given]
        slopes, spreads = (np.array(part) for part in zip(*parts, strict=True))
        matter = belief[:, 0] > 0.0  # what is not believed may have an infinite variance
        belief, slopes, spreads = belief[matter], slopes[matter], spreads[matter]
        means[i] = np.sum(belief * slopes, axis=0)
        total = np.sum(belief * (spreads + (slopes - means[i]) ** 2), axis=0)
        variances[i] = mixture.calibration * total
    return means, variances


def measure_relevance(posterior: NeighbourPosterior, variance: Array) -> Array:
    """Shares (d,) of the inputs in the variation of the predictive mean.

    The mean squared derivative at known rows, times the variances (D,) of the inputs. Of a
    category half the mean squared change when it becomes that of another row, which is the same
    for a linear function.
    """
    rows = posterior.rows
    step = -(-len(rows) // _RELEVANCE_ROWS)
    X, weight = rows.X[::step], None if rows.weight is None else rows.weight[::step]
    mean, _ = posterior.measure_gradient(X)
    relevance = np.average(mean**2, axis=0, weights=weight) * variance
    owners = np.array(posterior.mixture.processes[0].owners, dtype=np.intp)
    if len(owners):
        relevance = np.bincount(owners, relevance).astype(np.float64)
        for j in np.flatnonzero(np.bincount(owners) > 1):
            change = _swap(posterior, X, owners == j)
            relevance[j] = 0.5 * np.average(change**2, weights=weight)
    total = np.sum(relevance)
    return relevance / total if total > 0.0 else relevance


def _swap(posterior: NeighbourPosterior, X: Array, columns: NDArray[np.bool_]) -> Array:
    """How much the predictive mean of rows changes with some columns from other rows."""
    swapped = X.copy()
    order = np.random.default_rng(0).permutation(len(X))
    swapped[:, columns] = X[np.ix_(order, np.flatnonzero(columns))]
    after, before = (posterior.moments(rows, False)[0] for rows in (swapped, X))
    return after - before
