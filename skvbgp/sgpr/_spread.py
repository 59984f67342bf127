"""Blocks of rows on Dask's workers: steps and passes over them, where they are.

A step is one task for each worker that has some of its blocks, as it is for rows with independent
noise. Blocks are fetched for the start alone: a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates, Target
from skvbgp._core.shard import Shard
from skvbgp._core.sharded_blocks import ShardedBlocks, copy_blocks, divide
from skvbgp._core.shards import Begun
from skvbgp.sgpr._bound import Shared
from skvbgp.sgpr._data import Rows
from skvbgp.sgpr._memory import Statistics, sum_groups
from skvbgp.sgpr._quadrature import DrawRule, FixedRule
from skvbgp.sgpr._sharded import (
    ShardedBatch,
    ShardedData,
    Weights,
    scale_block,
    sum_batch,
)


@dataclass(frozen=True)
class SpreadRows:
    """The rows of blocks on workers, for predictions that condition on them.

    The frame of the blocks is that of training, times ``unit``.
    """

    blocks: ShardedBlocks
    unit: Array  # (d,)

    def plus(self, other: SpreadRows) -> SpreadRows:
        return SpreadRows(self.blocks.joined(other.blocks), self.unit)

    def lookup(self, X: Array) -> NDArray[np.intp]:
        """Block of each row in scaled coordinates."""
        return self.blocks.lookup(X * self.unit)


@dataclass(frozen=True)
class BlockBatch(ShardedBatch):
    """Blocks of a mini-batch, by their numbers."""

    blocks: ShardedBlocks
    chosen: Index
    target: Target

    def draw(self, rule: DrawRule, rng: np.random.RandomState) -> list[Array | None]:
        of_block = round(self.blocks.block_rows), self.blocks.rows.d  # about
        return [rule(of_block, rng) for _ in self.chosen]

    def begin(self, shared: Shared, weights: Weights, draws: list[Array | None]) -> Begun:
        shards = self.blocks.find(self.chosen)

        def own(s: int) -> tuple[Any, ...]:
            of_blocks = [draws[place] for place in shards[s].places]
            return shards[s].local, of_blocks, shared, self.target, weights

        return self.blocks.rows.begin_some(_sum_blocks, self.blocks.tasks(shards, own))


class SpreadData(ShardedData):
    """Rows on workers whose noise is correlated within blocks."""

    blocks: Any  # ShardedBlocks

    @classmethod
    def of(cls, data: ShardedData, unit: Array, block_rows: float) -> Self:
        """Rows that move to workers by place, in blocks of about as many rows as given.

        ``unit`` multiplies the scaled coordinates in which blocks are compact.
        """
        coordinates = data.coordinates
        frame = replace(coordinates, scale=coordinates.scale / unit)
        blocks = ShardedBlocks.of(data.X.rows, frame, block_rows)
        return cls(data.X, data.y, coordinates, data.target, blocks)  # type: ignore[arg-type]

    @property
    def n_pairs(self) -> int:
        return sum(self._call(_count_pairs, ()))

    def pick(self, chosen: Index) -> list[Rows]:
        return [
            scale_block(self.coordinates, self.target, block) for block in self.blocks.pick(chosen)
        ]

    def batch(self, chosen: Index) -> Any:
        return BlockBatch(self.blocks, chosen, self.target)

    def sum_groups(self, shared: Shared, rule: FixedRule) -> list[Statistics]:
        return self._call(_sum_all_blocks, (self.target, shared, rule))

    def _call(self, function: Any, shared: tuple[Any, ...]) -> list[Any]:
        """Results of a function of all shards."""
        tasks = self.blocks.tasks(range(len(self.blocks.sizes)), lambda s: shared)
        return self.blocks.rows.call_some(function, tasks)


# -- what runs on the workers --------------------------------------------------------------------


def _count_pairs(frame: Coordinates, n_blocks: int, shard: Shard) -> int:
    return sum(len(places) ** 2 for places in divide(frame, n_blocks, shard).places)


def _sum_blocks(
    frame: Coordinates,
    n_blocks: int,
    chosen: Index,
    draws: list[Array | None],
    shared: Shared,
    target: Target,
    weights: Weights,
    shard: Shard,
) -> Iterator[Any]:
    """Sums over some blocks of a shard: psi and information, then gradients at (v, V)."""
    blocks = copy_blocks(frame, n_blocks, chosen, shard)
    rows = [scale_block(shared.model.coordinates, target, block) for block in blocks]
    return sum_batch(shared, weights, rows, draws)


def _sum_all_blocks(
    frame: Coordinates,
    n_blocks: int,
    target: Target,
    shared: Shared,
    rule: FixedRule,
    shard: Shard,
) -> Statistics:
    """Sums over all blocks of a shard."""
    blocks = (copy_blocks(frame, n_blocks, [k], shard)[0] for k in range(n_blocks))
    groups = (scale_block(shared.model.coordinates, target, block) for block in blocks)
    return sum_groups(shared, rule, groups)
