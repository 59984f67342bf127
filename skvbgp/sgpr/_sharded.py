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
from skvbgp._core.linalg import Array, pack_lower, unpack_symmetric
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates, Target
from skvbgp._core.shard import Block, Shard
from skvbgp._core.shards import Begun, ShardedColumns, ShardedRows
from skvbgp.base import Targets
from skvbgp.sgpr._bound import DataGradients, DataTerms, Evaluation, Shared
from skvbgp.sgpr._data import Data, Rows, split_tiles
from skvbgp.sgpr._memory import Memory, Statistics, sum_groups
from skvbgp.sgpr._noise import Model
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._quadrature import DrawRule, FixedRule

#: v, and the triangle of V, which q enters the data terms by; None asks for no gradients.
Weights = tuple[Array, Array] | None


class ShardedBatch:
    """What a mini-batch has of the rows on workers."""

    def draw(self, rule: DrawRule, rng: np.random.RandomState) -> Any:
        """Draws of Lambda, as `begin` takes them."""
        raise NotImplementedError

    def begin(self, shared: Shared, weights: Weights, draws: Any) -> Begun:
        """Start sums over the rows: psi and information, then gradients at the weights."""
        raise NotImplementedError


@dataclass(frozen=True)
class RowBatch(ShardedBatch):
    """Rows of a mini-batch, by their numbers."""

    rows: ShardedRows
    index: Index  # sorted
    target: Target

    def draw(self, rule: DrawRule, rng: np.random.RandomState) -> Array | None:
        return rule((len(self.index), self.rows.d), rng)

    def begin(self, shared: Shared, weights: Weights, draws: Array | None) -> Begun:
        return self.rows.begin(
            _sum_rows,
            (shared, self.target, weights),
            self.index,
            lambda places: (pick_draws(draws, places),),
        )


class ShardedData(Data):
    """Rows of which X and y are `ShardedColumns`; those of mini-batches have independent noise."""

    X: Any
    y: Any
    weight: None
    variance: None

    def batch(self, chosen: Index) -> Any:
        return RowBatch(self.X.rows, np.sort(chosen).astype(np.int64), self.target)

    def remember(self, shared: Shared, rule: FixedRule) -> Memory:
        """The memory of all rows, by a pass over them on their workers."""
        parts = self.sum_groups(shared, rule)
        return Memory(shared.prior, reduce(Statistics.plus, parts))

    def sum_groups(self, shared: Shared, rule: FixedRule) -> list[Statistics]:
        """Sums over the rows of each worker."""
        return self.X.rows.call(_sum_shard, (self.target, shared, rule))


def gather_data(
    X: Array | ShardedColumns, targets: Targets, coordinates: Coordinates, target: Target
) -> Data:
    """The rows with their frames, wherever they are."""
    kind: Any = ShardedData if isinstance(X, ShardedColumns) else Data
    variance = target.scaled_noise(targets.variance)
    return kind(X, targets.y, coordinates, target, weight=targets.weight, variance=variance)


class ShardedEvaluation(Evaluation):
    """The data terms of a mini-batch, summed where its rows are.

    The draws are as `ShardedBatch.draw` makes them. At q, if there is one, the gradient will be
    asked for: the workers go on with it at once. There are the sums and `gradient`: the terms of
    single rows, which `value`, `ceiling` and `variance_slopes` ask for, stay where the rows are.
    """

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        batch: ShardedBatch,
        draws: Any,
        q: WhitenedGaussian | None,
    ) -> None:
        self._begin(model, parameters)
        self._batch, self._draws, self._q = batch, draws, q
        self._resume = self._sum(q)

    def _tasks(self, q: WhitenedGaussian) -> list[Callable[[], DataGradients]]:
        resume = self._resume if q is self._q else self._sum(q)
        return [lambda: reduce(DataGradients.plus, resume())]

    def _sum(self, q: WhitenedGaussian | None) -> Callable[[], list[DataGradients]]:
        """Keep the sums over the rows; what is returned waits for the gradients at q."""
        weights = None
        if q is not None:  # the triangle of V: what is sent counts as much as what is computed
            v, V = self._weights(q)
            weights = v, pack_lower(V)
        begun = self._batch.begin(self._shared, weights, self._draws)
        psi, information = (sum(parts) for parts in zip(*begun.first, strict=True))
        self._keep(unpack_symmetric(psi), information)
        return begun.resume


def scale_block(coordinates: Coordinates, target: Target, block: Block) -> Rows:
    """Rows of a worker in the frames of training."""
    return Rows(coordinates.scaled(block.X), target.scaled(block.y))


def pick_draws(draws: Array | None, places: NDArray[np.intp] | slice) -> Array | None:
    """Draws of some rows, if each has its own."""
    return draws if draws is None or draws.shape[1] == 1 else draws[:, places]


# -- what runs on the workers --------------------------------------------------------------------


def _sum_rows(
    shared: Shared, target: Target, weights: Weights, rows: Block, draws: Array | None
) -> Iterator[Any]:
    """Sums over some rows of a shard: psi and information, then gradients at (v, V)."""
    tiles = split_tiles(np.arange(len(rows.y)))
    scaled = scale_block(shared.model.coordinates, target, rows)
    batch = [scaled.take(tile) for tile in tiles]
    return sum_batch(shared, weights, batch, [pick_draws(draws, tile) for tile in tiles])


def sum_batch(
    shared: Shared, weights: Weights, batch: Sequence[Rows], draws: Sequence[Array | None]
) -> Iterator[Any]:
    """Sums over groups of a mini-batch: psi and information, then gradients at (v, V).

    Psi and V are sent as triangles.
    """
    terms = DataTerms(shared, batch, draws)
    yield pack_lower(terms.psi), terms.information
    if weights is not None:
        v, triangle = weights
        yield terms.backward(v, unpack_symmetric(triangle))


def _sum_shard(target: Target, shared: Shared, rule: FixedRule, shard: Shard) -> Statistics:
    """Sums over all rows of a shard, some at a time."""
    parts = (Data(*block, shared.model.coordinates, target) for block in shard.blocks)
    return sum_groups(shared, rule, (data.rows(i) for data in parts for i in data.groups()))
