"""The gradient of the function, and which inputs it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skvbgp._core.linalg import Array, stack_pairs
from skvbgp._core.order import Index, cut
from skvbgp._core.parallel import thread_map
from skvbgp.base import Relevance, pick, share_out

if TYPE_CHECKING:
    from skvbgp.gp._posterior import NeighbourPosterior

#: Rows of one task, and entries of the slopes of a kernel between its rows and all known ones.
_TASK_ROWS, _TILE_SIZE = 64, 2**21


class Slopes(NamedTuple):
    """What C processes say of the function's derivatives at some rows."""

    belief: Array  # in the processes, (n, C)
    mean: Array  # (n, C, d)
    variance: Array  # (n, C, d)

    def mix(self, calibration: float) -> tuple[Array, Array]:
        """Mean and variance (n, d) of the mixture."""
        belief = self.belief[:, :, None]
        mean = np.sum(belief * self.mean, axis=1)
        # what is not believed may have an infinite variance
        variance = np.where(belief > 0.0, self.variance, 0.0)
        total = np.sum(belief * (variance + (self.mean - mean[:, None]) ** 2), axis=1)
        return mean, calibration * total


def measure_slopes(posterior: NeighbourPosterior, X: Array) -> Slopes:
    """The derivatives at rows X, in the user's units.

    The belief in the processes is constant as long as the neighbours are the same.
    """
    near, measure, size = posterior.find_near(X), _measure_tile, _TASK_ROWS
    if posterior.is_exact:  # the more rows at a time, the less often L^-1 is read
        _ = posterior.conditionals  # once, not in each thread
        measure, size = _measure_tile_from_all, min(size, _TILE_SIZE // posterior.rows.X.size)

    def measure_rows(rows: slice) -> Slopes:
        return measure(posterior, X[rows], pick(near, rows))

    tiles = [(rows,) for rows in cut(len(X), max(1, size))]
    belief, mean, variance = map(np.concatenate, zip(*thread_map(measure_rows, tiles), strict=True))
    units = posterior.coordinates.measure_units(X)[:, None]
    return Slopes(belief, *posterior.target.unscaled_slopes(mean, variance, units))


def _measure_tile_from_all(posterior: NeighbourPosterior, X: Array, near: Index | None) -> Slopes:
    """The same in scaled units, of rows that all known ones predict."""
    given, scales = zip(*posterior.condition_on_all(near), strict=True)
    evidence = [np.broadcast_to(scale.evidence, len(X)) for scale in scales]
    belief = posterior.mixture.weigh(np.column_stack(evidence))
    scaled = posterior.coordinates.scaled(X)
    pairs = [one.gradient(scaled, scale) for one, scale in zip(given, scales, strict=True)]
    means, variances = stack_pairs(pairs, axis=1)
    return Slopes(belief, means, variances)


def _measure_tile(posterior: NeighbourPosterior, X: Array, near: Index | None) -> Slopes:
    """The same of rows of which it is given what is near."""
    assert near is not None
    here, near = posterior.bring(near)
    scaled, mixture = posterior.coordinates.scaled(X), posterior.mixture
    belief = np.empty((len(X), len(mixture.processes)))
    means, variances = np.empty((2, *belief.shape, X.shape[1]))
    for i in range(len(X)):
        given = here.condition_on_near(near[i])
        belief[i] = mixture.weigh_place([scale for _, scale in given])
        pairs = (one.gradient(scaled[[i]], scale) for one, scale in given)
        means[i], variances[i] = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return Slopes(belief, means, variances)


def measure_relevance(posterior: NeighbourPosterior, among: Index | None = None) -> Relevance:
    """Shares (d,) of the inputs in the variation of the predictive mean, and of each process's.

    A process counts at a row as much as it is believed in there. ``among`` are the rows that count,
    None is all.
    """
    rows = posterior.rows
    among = np.arange(len(rows)) if among is None else among
    some = among[Relevance.choose_rows(len(among))]
    X = rows.X[some]
    weight = np.ones(len(X)) if rows.weight is None else rows.weight[some]
    slopes = posterior.measure_slopes(X)
    counts = weight[:, None] * np.insert(slopes.belief, 0, 1.0, axis=1)  # (n, 1 + C)
    shares = counts.sum(axis=0) / weight.sum()

    def average(values: Array) -> Array:
        """Of (n, 1 + C, ...) over the rows."""
        sums = np.einsum("nc,nc...->c...", counts, values)
        return (sums.T / np.maximum(weight.sum() * shares, np.finfo(float).tiny)).T

    squares = np.insert(slopes.mean, 0, slopes.mix(1.0)[0], axis=1) ** 2
    inputs, _ = rows.summarise()  # frames also know rows that a stream has forgotten
    relevance, owners = average(squares) * inputs.std**2, posterior.mixture.processes[0].owners

    def predict(X: Array) -> Array:
        """Means of rows, and those by each process, (n, 1 + C)."""
        parts = posterior.measure(X, with_variance=False)
        means = np.column_stack([posterior.mixture.average(parts), parts.mean])
        return posterior.target.unit * means

    mean, *each = share_out(relevance, X, owners, predict, average)
    return Relevance(mean, np.sqrt(shares[1:] @ (np.array(each) - mean) ** 2))
