"""Steps and passes over rows that live on Dask's workers.

The data terms are sums over rows: a shard gets parameters, q(u) and the numbers of some of its
rows, and sends back their sums. Mini-batches and draws come from the client's generator, so that
they do not depend on where the rows are, and are those of rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, shuffled_parts
from skvbgp._core.scaling import Coordinates, Target, scale_variance
from skvbgp._core.shard import Block, Shard
from skvbgp._core.shards import ShardedColumns, ShardedRows
from skvbgp.base import Targets
from skvbgp.sgpr._bound import DataGradients, Evaluation, Groups, Model, Prior
from skvbgp.sgpr._data import Data, Rows, split_tiles
from skvbgp.sgpr._memory import Memory, Statistics, sum_groups
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._quadrature import DrawRule


@dataclass(frozen=True)
class ShardedBatch:
    """Rows of a mini-batch, by their numbers."""

    rows: ShardedRows
    index: Index  # sorted
    target: Target

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.index), self.rows.d


class ShardedData(Data):
    """Rows of which X and y are `ShardedColumns`; their noise is independent."""

    X: Any
    y: Any
    weight: None
    variance: None

    def minibatches(
        self, batch_size: int, rng: np.random.RandomState
    ) -> Iterator[tuple[Any, float]]:
        for index in shuffled_parts(len(self), self.n_batches(batch_size), rng):
            batch = ShardedBatch(self.X.rows, np.sort(index).astype(np.int64), self.target)
            yield batch, len(self) / len(index)

    def remember(self, model: Model, parameters: Parameters, draw_rule: DrawRule) -> Memory:
        """The memory of all rows, by a pass over them on their workers."""
        shared = (self.coordinates, self.target, model, parameters, draw_rule)
        parts = self.X.rows.call(_sum_shard, shared)
        return Memory.of(Prior(parameters), reduce(Statistics.plus, parts))


def gather_data(
    X: Array | ShardedColumns, targets: Targets, coordinates: Coordinates, target: Target
) -> Data:
    """The rows with their frames, wherever they are."""
    kind: Any = ShardedData if isinstance(X, ShardedColumns) else Data
    v = targets.variance
    variance = None if v is None else scale_variance(v, target.unit)
    return kind(X, targets.y, coordinates, target, weight=targets.weight, variance=variance)


class ShardedEvaluation(Evaluation):
    """The data terms of a mini-batch, summed where its rows are.

    Parameters
    ----------
    model, parameters
        As of `Evaluation`.
    batch : ShardedBatch
    draws : ndarray of shape (S, 1 or n, d), or None
    q : WhitenedGaussian or None
        At which the gradient will be asked for: the workers go on with it at once.
    """

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        batch: ShardedBatch,
        draws: Array | None,
        q: WhitenedGaussian | None,
    ) -> None:
        self._begin(model, parameters)
        self._batch, self._draws, self._q = batch, draws, q
        self._resume = self._sum(q)

    def _backward(self, q: WhitenedGaussian) -> DataGradients:
        resume = self._resume if q is self._q else self._sum(q)
        return reduce(DataGradients.plus, resume())

    def _sum(self, q: WhitenedGaussian | None) -> Callable[[], list[DataGradients]]:
        """Keep the sums over the rows; what is returned waits for the gradients at q."""
        begun = self._batch.rows.begin(
            _sum_rows,
            (
                self._model,
                self._parameters,
                self._batch.target,
                None if q is None else self._weights(q),
            ),
            self._batch.index,
            lambda places: (pick_draws(self._draws, places),),
        )
        psi, information = (sum(parts) for parts in zip(*begun.first, strict=True))
        self._keep(psi, information)
        return begun.resume


def evaluate(
    model: Model,
    parameters: Parameters,
    batch: Sequence[Rows] | ShardedBatch,
    draw_rule: DrawRule,
    rng: np.random.RandomState,
    q: WhitenedGaussian | None = None,
) -> Evaluation:
    """The data terms of a mini-batch, wherever its rows are.

    With ``q``, workers go on with the gradient at q while the caller has something else to do.
    """
    if isinstance(batch, ShardedBatch):
        return ShardedEvaluation(model, parameters, batch, draw_rule(batch, rng), q)
    return Evaluation(model, parameters, batch, [draw_rule(group, rng) for group in batch])


def pick_draws(draws: Array | None, places: NDArray[np.intp] | slice) -> Array | None:
    """Draws of some rows, if each has its own."""
    return draws if draws is None or draws.shape[1] == 1 else draws[:, places]


# -- what runs on the workers --------------------------------------------------------------------


def _sum_rows(
    model: Model,
    parameters: Parameters,
    target: Target,
    weights: tuple[Array, Array] | None,
    rows: Block,
    draws: Array | None,
) -> Iterator[Any]:
    """Sums over some rows of a shard: psi and information, then gradients at (v, V)."""
    tiles = split_tiles(np.arange(len(rows.y)))
    scaled = Rows(model.coordinates.scaled(rows.X), target.scaled(rows.y))
    groups = Groups(
        model,
        parameters,
        Prior(parameters),
        model.noise(parameters),
        [Rows(scaled.X[tile], scaled.y[tile]) for tile in tiles],
        [pick_draws(draws, tile) for tile in tiles],
    )
    yield groups.psi, groups.information
    if weights is not None:
        yield groups.backward(*weights)


def _sum_shard(
    coordinates: Coordinates,
    target: Target,
    model: Model,
    parameters: Parameters,
    draw_rule: DrawRule,
    shard: Shard,
) -> Statistics:
    """Sums over all rows of a shard, some at a time."""
    prior, noise = Prior(parameters), model.noise(parameters)
    total = Statistics.none(len(parameters.U))
    shared = model, parameters, prior, noise, draw_rule
    for block in shard.blocks:
        sizes = np.array([len(tile) for tile in split_tiles(np.arange(len(block.y)))])
        total = total.plus(sum_groups(*shared, Data(*block, coordinates, target), sizes, 0))
    return total
