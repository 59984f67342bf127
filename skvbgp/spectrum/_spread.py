"""Rows on the workers of a Dask cluster: each has a region, and divides its rows into blocks.

Mini-batches, blocks and neighbours are fetched; sums over all new rows of a stream come back. The
model is that of rows in memory with the same blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, cut
from skvbgp._core.partition import balanced_partition, group_rows
from skvbgp._core.scaling import Coordinates, Target
from skvbgp._core.shard import Block, Shard
from skvbgp._core.sharded_blocks import ShardedBlocks
from skvbgp._core.shards import ShardedRows
from skvbgp.base import find_near
from skvbgp.spectrum._block_model import SharedRows
from skvbgp.spectrum._bound import Statistics, sum_statistics
from skvbgp.spectrum._gaussian import Structure
from skvbgp.spectrum._neighbours import Local, Neighbours
from skvbgp.spectrum._posterior import Grouping, SpectrumPosterior
from skvbgp.spectrum._rows import DividedRows, Rows

#: Rows of a shard that are scaled at a time.
_SCALED_ROWS = 2**16
#: New rows that are predicted at a time, with all that they are conditioned on.
_TILE_ROWS = 1024


@dataclass(frozen=True)
class SpreadBlocks(DividedRows):
    """Rows on Dask's workers, none of which has a weight."""

    blocks: ShardedBlocks  # their frame is that of training
    target: Target
    n_blocks: int
    n: int  # rows
    total: float  # the same, as they count once

    @classmethod
    def of(
        cls, workers: ShardedRows, coordinates: Coordinates, target: Target, block_rows: float
    ) -> Self:
        """Blocks of about as many rows as given, of each shard one at least."""
        blocks = ShardedBlocks.of(workers, coordinates, block_rows)
        workers.call(_check, (target,))
        return cls._around(blocks, target)

    @classmethod
    def _around(cls, blocks: ShardedBlocks, target: Target) -> Self:
        return cls(blocks, target, len(blocks), blocks.rows.n, blocks.rows.n)

    def joined(self, new: SpreadBlocks) -> SpreadBlocks:
        """These blocks, followed by others."""
        return self._around(self.blocks.joined(new.blocks), self.target)

    def take(self, index: Index) -> Rows:
        return self._scale(self.blocks.rows.fetch(index))

    def pick(self, chosen: Index) -> Iterator[Rows]:
        return map(self._scale, self.blocks.pick(chosen))

    def lookup(self, X: Array) -> NDArray[np.intp]:
        """Block of each row."""
        return self.blocks.lookup(X)

    def find_near(self, X: Array, k: int) -> Index:
        """Numbers (n, k) of the rows that are nearest to each of X (scaled)."""
        equal = np.ones(X.shape[1])
        return find_near(self.blocks.rows, self.blocks.frame, equal, X, k)

    def sum_statistics(self, structure: Structure, alphas: Array) -> Statistics:
        """`sum_statistics` of all rows, by the workers."""
        frames = (self.blocks.frame, self.target)
        parts = self.blocks.rows.call(_sum_statistics, (structure, alphas, *frames))
        return reduce(Statistics.plus, parts)

    def _scale(self, rows: Block) -> Rows:
        return Rows(*rows).scaled(self.blocks.frame, self.target)


class SpreadPosterior(SpectrumPosterior):
    """A posterior of `SpreadBlocks`: what a place is conditioned on comes when it is predicted."""

    def by_group(
        self,
        function: Callable[..., tuple[Array, ...]],
        X: Array,
        shared: tuple[Any, ...] = (),
        own: Callable[[Local], tuple[Any, ...]] = lambda local: (),
        groups: Grouping | None = None,
    ) -> tuple[Array, ...]:
        assert groups is None  # those of known rows, in memory
        by_tile = super().by_group
        parts = [by_tile(function, X[rows], shared, own) for rows in cut(len(X), _TILE_ROWS)]
        return tuple(map(np.concatenate, zip(*parts, strict=True)))

    def _group(self, X: Array, size: int) -> Grouping:
        rows, k = self._state.rows, self._n_neighbors
        assert isinstance(rows, SpreadBlocks)
        if self._mixture.is_global:
            nothing = Rows(X[:0], np.empty(0))
            return np.zeros(len(X), dtype=np.intp), lambda group: SharedRows(nothing)
        if k is None:
            labels = rows.lookup(X)
            chosen = np.unique(labels)
            blocks = dict(zip(chosen.tolist(), rows.pick(chosen), strict=True))
            return labels, lambda group: SharedRows(blocks[int(group)])
        if k >= rows.n:
            raise ValueError(
                f"n_neighbors={k} are all rows of a Dask collection, which are not gathered."
            )
        used, place = np.unique(rows.find_near(X, k), return_inverse=True)
        known, near = rows.take(used), place.reshape(len(X), k)
        n_groups = -(-len(X) // size)
        _, labels = balanced_partition(X, n_groups)
        members = group_rows(labels, n_groups)
        return labels, lambda group: Neighbours.of(known, near[members[group]])


# -- what runs on the workers --------------------------------------------------------------------


def _check(target: Target, shard: Shard) -> None:
    """Refuse rows that are too far."""
    for block in shard.blocks:
        target.scaled(block.y)


def _sum_statistics(
    structure: Structure, alphas: Array, coordinates: Coordinates, target: Target, shard: Shard
) -> Statistics:
    parts = [
        sum_statistics(structure, alphas, rows.take(some).scaled(coordinates, target))
        for rows in (Rows(*block) for block in shard.blocks)
        for some in cut(len(rows), _SCALED_ROWS)
    ]
    return reduce(Statistics.plus, parts)
