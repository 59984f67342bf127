"""Steps and passes over rows that live on Dask's workers.

The data terms are sums over rows: a shard gets parameters, q(u) and the numbers of some of its
rows, and sends back their sums. Mini-batches and draws come from the client's generator, so that
they do not depend on where the rows are, and are those of rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, shuffled_parts
from skvbgp._core.scaling import Coordinates, Target
from skvbgp._core.shards import Block, Shard, ShardedColumns, ShardedRows
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
    X: Array | ShardedColumns, y: Array | ShardedColumns, coordinates: Coordinates, target: Target
) -> Data:
    """The rows with their frames, wherever they are."""
    kind: Any = ShardedData if isinstance(X, ShardedColumns) else Data
    return kind(X, y, coordinates, target)


class ShardedEvaluation(Evaluation):
    """The data terms of a mini-batch, summed where its rows are.

    Parameters
    ----------
    model, parameters
        As of `Evaluation`.
    batch : ShardedBatch
    draws : ndarray of shape (S, 1 or n, d), or None
    q : WhitenedGaussian or None
        At which the gradient will be asked for, which then comes with the sums.
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
        psi, information, self._gradients = self._sum(q)
        self._keep(psi, information)

    def _backward(self, q: WhitenedGaussian) -> DataGradients:
        gradients = self._gradients if q is self._q else self._sum(q)[2]
        assert gradients is not None
        return gradients

    def _sum(self, q: WhitenedGaussian | None) -> tuple[Array, Array, DataGradients | None]:
        weights = None if q is None else self._weights(q)
        parts = self._batch.rows.call_on_rows(
            _sum_rows,
            (self._model, self._parameters, self._batch.target, weights),
            self._batch.index,
            lambda places: (pick_draws(self._draws, places),),
        )
        psi, information, gradients = zip(*(sums for _, sums in parts), strict=True)
        total = None if q is None else reduce(DataGradients.plus, gradients)
        return sum(psi), sum(information), total


def evaluate(
    model: Model,
    parameters: Parameters,
    batch: Sequence[Rows] | ShardedBatch,
    draw_rule: DrawRule,
    rng: np.random.RandomState,
    q: WhitenedGaussian | None = None,
) -> Evaluation:
    """The data terms of a mini-batch, wherever its rows are; ``q`` is where it saves a message."""
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
) -> tuple[Array, Array, DataGradients | None]:
    """Sums over some rows of a shard: psi, information, and gradients at (v, V)."""
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
    gradients = None if weights is None else groups.backward(*weights)
    return groups.psi, groups.information, gradients


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
    for block in shard.blocks:
        sizes = np.array([len(tile) for tile in split_tiles(np.arange(len(block.y)))])
        total = total.plus(
            sum_groups(
                coordinates, target, model, parameters, prior, noise, draw_rule, *block, sizes, 0
            )
        )
    return total
