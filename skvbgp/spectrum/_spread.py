"""Rows on the workers of a Dask cluster: each has a region, and divides its rows into blocks.

Mini-batches, blocks and neighbours are fetched; sums over all new rows of a stream come back. The
model is that of rows in memory with the same blocks: those of the first shard, then those of the
next one, each shard with a tree of its own, as `Partition.append` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.partition import Partition, balanced_partition, group_rows, partition_rows
from skvbgp._core.regions import Regions, move_to_regions
from skvbgp._core.scaling import Coordinates, Target
from skvbgp._core.shard import Block as RawRows
from skvbgp._core.shard import Shard
from skvbgp._core.shards import ShardedRows
from skvbgp.base import find_near_scaled
from skvbgp.spectrum._bound import Statistics, sum_statistics
from skvbgp.spectrum._gaussian import Structure
from skvbgp.spectrum._local import Block, Local, Neighbours
from skvbgp.spectrum._posterior import SpectrumPosterior
from skvbgp.spectrum._rows import Blocks, Rows

#: Rows that are fetched at a time, and most rows of a block.
_FETCHED_ROWS = 10_000
#: Rows of a shard that are scaled at a time.
_SCALED_ROWS = 2**16
#: New rows that are predicted at a time, with all that they are conditioned on.
_TILE_ROWS = 1024


@dataclass(frozen=True)
class SpreadBlocks(Blocks):
    """Rows on Dask's workers, none of which has a weight.

    Attributes
    ----------
    workers : ShardedRows
        In the user's units.
    coordinates, target : Coordinates, Target
        The frames of the blocks.
    block_rows : float
        Rows of a block, about.
    sizes : ndarray of shape (n_shards,)
        Number of blocks of each shard.
    regions : tuple of Regions
        Of each call's rows.
    n_blocks, n, total : int
        Blocks and rows; these count once.
    """

    workers: ShardedRows
    coordinates: Coordinates
    target: Target
    block_rows: float
    sizes: NDArray[np.intp]
    regions: tuple[Regions, ...]
    n_blocks: int
    n: int
    total: float

    @classmethod
    def of(
        cls, workers: ShardedRows, coordinates: Coordinates, target: Target, block_rows: float
    ) -> Self:
        """Blocks of about as many rows as given, of each shard one at least.

        The rows move to workers by place first, so that blocks are as compact as in memory.
        """
        if block_rows > _FETCHED_ROWS:
            raise ValueError(
                f"n_blocks makes blocks of {block_rows:.0f} rows, of which some are fetched: of "
                f"a Dask collection they may have {_FETCHED_ROWS}. Ask for more blocks."
            )
        regions = (move_to_regions(workers, coordinates),)
        n_rows = workers.shard_sizes
        sizes = np.clip(np.round(n_rows / block_rows), 1, n_rows).astype(np.intp)
        n = workers.n
        n_blocks = int(sizes.sum())
        blocks = cls(workers, coordinates, target, block_rows, sizes, regions, n_blocks, n, n)
        workers.call_some(_check, blocks._tasks(range(len(sizes))))
        return blocks

    def joined(self, new: SpreadBlocks) -> SpreadBlocks:
        """These blocks, followed by others."""
        workers, n_shards = self.workers.joined(new.workers), len(self.sizes)
        moved = tuple(part._replace(shards=part.shards + n_shards) for part in new.regions)
        return replace(
            self,
            workers=workers,
            sizes=np.append(self.sizes, new.sizes),
            regions=self.regions + moved,
            n_blocks=self.n_blocks + new.n_blocks,
            n=workers.n,
            total=workers.n,
        )

    def take(self, index: Index) -> Rows:
        """Some rows, by number."""
        return self._scale(self.workers.fetch(index))

    def pick(self, chosen: Index) -> Iterator[Rows]:
        """Some blocks."""
        step = max(1, int(_FETCHED_ROWS / self.block_rows))
        for start in range(0, len(chosen), step):
            yield from self._fetch(chosen[start : start + step])

    def _fetch(self, chosen: Index) -> list[Rows]:
        ends = np.cumsum(self.sizes)
        shard_of = np.searchsorted(ends, chosen, side="right")
        local = chosen - (ends - self.sizes)[shard_of]
        places = {int(s): np.flatnonzero(shard_of == s) for s in np.unique(shard_of)}
        tasks = self._tasks(places, lambda s: (local[places[s]],))
        found: list[Any] = [None] * len(chosen)
        for own, blocks in zip(
            places.values(), self.workers.call_some(_copy_blocks, tasks), strict=True
        ):
            for place, block in zip(own, blocks, strict=True):
                found[place] = self._scale(block)
        return found

    def lookup(self, X: Array) -> NDArray[np.intp]:
        """Block of each row: of the candidates of all regions, the one with the nearest centre."""
        found = [self._find_candidates(regions, X) for regions in self.regions]
        labels, distances = (np.column_stack(part) for part in zip(*found, strict=True))
        nearest = np.argmin(distances, axis=1)
        return np.take_along_axis(labels, nearest[:, None], axis=1)[:, 0]

    def _find_candidates(self, regions: Regions, X: Array) -> tuple[NDArray[np.intp], Array]:
        """Block that each row falls into, and the squared distance to its centre, (n,)."""
        shard_of, labels, distance = regions.lookup(X), np.empty(len(X), np.intp), np.empty(len(X))
        places = {int(s): np.flatnonzero(shard_of == s) for s in np.unique(shard_of)}
        tasks = self._tasks(places, lambda s: (X[places[s]],))
        starts = np.cumsum(self.sizes) - self.sizes
        parts = self.workers.call_some(_find_blocks, tasks)
        for (s, own), (local, squares) in zip(places.items(), parts, strict=True):
            labels[own], distance[own] = starts[s] + local, squares
        return labels, distance

    def find_near(self, X: Array, k: int) -> Index:
        """Numbers (n, k) of the rows that are nearest to each of X (scaled)."""
        equal = np.ones(X.shape[1])
        return find_near_scaled(self.workers, self.coordinates, equal, X, k)

    def sum_statistics(self, structure: Structure, alphas: Array) -> Statistics:
        """`sum_statistics` of all rows, by the workers."""
        frames = (self.coordinates, self.target)
        parts = self.workers.call(_sum_statistics, (structure, alphas, *frames))
        return reduce(Statistics.plus, parts)

    def _scale(self, rows: RawRows) -> Rows:
        return Rows(*rows).scaled(self.coordinates, self.target)

    def _tasks(
        self, shards: Any, own: Callable[[int], tuple[Any, ...]] = lambda s: ()
    ) -> dict[int, tuple[Any, ...]]:
        """Arguments of functions that need the blocks of shards, by shard."""
        frames = (self.coordinates, self.target)
        return {s: (*frames, int(self.sizes[s]), *own(s)) for s in shards}


class SpreadPosterior(SpectrumPosterior):
    """A posterior of `SpreadBlocks`: what a place is conditioned on comes when it is predicted."""

    def _by_group(
        self, function: Callable[..., tuple[Array, Array]], X: Array, include_noise: bool
    ) -> tuple[Array, Array]:
        by_tile = super()._by_group
        tiles = [X[i : i + _TILE_ROWS] for i in range(0, len(X), _TILE_ROWS)]
        parts = [by_tile(function, tile, include_noise) for tile in tiles]
        means, variances = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def _group(self, X: Array, size: int) -> tuple[Index, Callable[[int], Local]]:
        rows, k = self._state.rows, self._n_neighbors
        assert isinstance(rows, SpreadBlocks)
        if self._mixture.is_global:
            nothing = Rows(X[:0], np.empty(0))
            return np.zeros(len(X), dtype=np.intp), lambda group: Block(nothing)
        if k is None:
            labels = rows.lookup(X)
            chosen = np.unique(labels)
            blocks = dict(zip(chosen.tolist(), rows.pick(chosen), strict=True))
            return labels, lambda group: Block(blocks[int(group)])
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


def _divide(
    coordinates: Coordinates, target: Target, n_blocks: int, shard: Shard
) -> tuple[Partition, list[NDArray[np.intp]]]:
    """The shard's partition, and the rows of each block in ascending order."""

    def make() -> tuple[Partition, list[NDArray[np.intp]]]:
        X = np.concatenate([block.X for block in shard.blocks])
        return partition_rows(X, n_blocks, coordinates.scaled)

    key = coordinates.offset.tobytes(), coordinates.scale.tobytes(), n_blocks
    divided: tuple[Partition, list[NDArray[np.intp]]] = shard.keep("spectrum", key, make)
    return divided


def _check(coordinates: Coordinates, target: Target, n_blocks: int, shard: Shard) -> None:
    """Refuse rows that are too far; the blocks are there then."""
    for block in shard.blocks:
        target.scaled(block.y)
    _divide(coordinates, target, n_blocks, shard)


def _copy_blocks(
    coordinates: Coordinates, target: Target, n_blocks: int, chosen: Index, shard: Shard
) -> list[RawRows]:
    _, index = _divide(coordinates, target, n_blocks, shard)
    return [shard.rows(index[k]) for k in chosen]


def _find_blocks(
    coordinates: Coordinates, target: Target, n_blocks: int, X: Array, shard: Shard
) -> tuple[NDArray[np.intp], Array]:
    """Block of the shard (n,) that each of X falls into, and the squared distance to its centre."""
    partition, _ = _divide(coordinates, target, n_blocks, shard)
    labels = partition.lookup(X)
    return labels, np.sum((X - partition.centers[labels]) ** 2, axis=1)


def _sum_statistics(
    structure: Structure, alphas: Array, coordinates: Coordinates, target: Target, shard: Shard
) -> Statistics:
    parts = [
        sum_statistics(structure, alphas, [rows.take(slice(i, i + _SCALED_ROWS)).scaled(*frames)])
        for rows, frames in ((Rows(*block), (coordinates, target)) for block in shard.blocks)
        for i in range(0, len(rows), _SCALED_ROWS)
    ]
    return reduce(Statistics.plus, parts)
