"""Blocks of near rows on Dask's workers: each has a region, and divides its rows into blocks.

They are numbered shard by shard: those of the first one, then those of the next one, each shard
with a tree of its own, as `Partition.joined` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, cut
from skvbgp._core.partition import Partition, partition_rows
from skvbgp._core.regions import Regions, move_to_regions
from skvbgp._core.scaling import Coordinates
from skvbgp._core.shard import Block, Shard
from skvbgp._core.shards import ShardedRows, group_by_shard

#: Rows that are fetched at a time, and most rows of a block.
_FETCHED_ROWS = 10_000


class Division(NamedTuple):
    """How a shard is divided into blocks."""

    partition: Partition  # in the frame of the blocks
    places: list[NDArray[np.intp]]  # in the shard, of each block's rows, ascending


class Own(NamedTuple):
    """Which of the asked ones belong to a shard."""

    places: NDArray[np.intp]  # in what was asked for
    local: Index  # numbers of the blocks in the shard


@dataclass(frozen=True)
class ShardedBlocks:
    """Rows on Dask's workers in blocks by location."""

    rows: ShardedRows  # in the user's units
    frame: Coordinates  # those in which blocks are compact
    block_rows: float  # rows of a block, about
    sizes: NDArray[np.intp]  # (n_shards,) number of blocks of each shard
    regions: tuple[Regions, ...]  # of each call's rows

    @classmethod
    def of(cls, rows: ShardedRows, frame: Coordinates, block_rows: float) -> Self:
        """Blocks of about as many rows as given, of each shard one at least.

        The rows move to workers by place first, so that blocks are as compact as in memory.
        """
        if block_rows > _FETCHED_ROWS:
            raise ValueError(
                f"n_blocks makes blocks of {block_rows:.0f} rows, of which some are fetched: of "
                f"a Dask collection they may have {_FETCHED_ROWS}. Ask for more blocks."
            )
        regions = (move_to_regions(rows, frame),)
        n_rows = rows.shard_sizes
        sizes = np.clip(np.round(n_rows / block_rows), 1, n_rows).astype(np.intp)
        return cls(rows, frame, block_rows, sizes, regions)

    def __len__(self) -> int:
        return int(self.sizes.sum())

    @property
    def starts(self) -> NDArray[np.intp]:
        """Number of the first block of each shard."""
        return np.cumsum(self.sizes) - self.sizes

    def joined(self, new: ShardedBlocks) -> Self:
        """These blocks, followed by others in the same frame."""
        n_shards = len(self.sizes)
        moved = tuple(part._replace(shards=part.shards + n_shards) for part in new.regions)
        return replace(
            self,
            rows=self.rows.joined(new.rows),
            sizes=np.append(self.sizes, new.sizes),
            regions=self.regions + moved,
        )

    def find(self, chosen: Index) -> dict[int, Own]:
        """Where blocks are, by shard."""
        shard_of = np.searchsorted(np.cumsum(self.sizes), chosen, side="right")
        places = group_by_shard(shard_of)
        starts = self.starts
        return {s: Own(own, chosen[own] - starts[s]) for s, own in places.items()}

    def tasks(
        self, shards: Iterable[int], own: Callable[[int], tuple[Any, ...]] = lambda s: ()
    ) -> dict[int, tuple[Any, ...]]:
        """Arguments by shard of a function: frame, number of blocks, and some of its own."""
        return {s: (self.frame, int(self.sizes[s]), *own(s)) for s in shards}

    def pick(self, chosen: Index) -> Iterator[Block]:
        """The rows of some blocks, in the client's memory, some at a time."""
        step = max(1, int(_FETCHED_ROWS / self.block_rows))
        for some in cut(len(chosen), step):
            yield from self._fetch(chosen[some])

    def _fetch(self, chosen: Index) -> list[Block]:
        shards = self.find(chosen)
        tasks = self.tasks(shards, lambda s: (shards[s].local,))
        found: list[Any] = [None] * len(chosen)
        parts = self.rows.call_some(copy_blocks, tasks)
        for own, blocks in zip(shards.values(), parts, strict=True):
            for place, block in zip(own.places, blocks, strict=True):
                found[place] = block
        return found

    def lookup(self, X: Array) -> NDArray[np.intp]:
        """Block (n,) of each of X, which are in the frame of the blocks.

        Of the candidates of all regions, it is the one with the nearest centre.
        """
        found = [self._find_candidates(regions, X) for regions in self.regions]
        labels, distances = (np.column_stack(part) for part in zip(*found, strict=True))
        nearest = np.argmin(distances, axis=1)
        return np.take_along_axis(labels, nearest[:, None], axis=1)[:, 0]

    def _find_candidates(self, regions: Regions, X: Array) -> tuple[NDArray[np.intp], Array]:
        """Block that each row falls into, and the squared distance to its centre, (n,)."""
        labels, distance = np.empty(len(X), np.intp), np.empty(len(X))
        places, starts = group_by_shard(regions.lookup(X)), self.starts
        tasks = self.tasks(places, lambda s: (X[places[s]],))
        parts = self.rows.call_some(_find_blocks, tasks)
        for (s, own), (local, squares) in zip(places.items(), parts, strict=True):
            labels[own], distance[own] = starts[s] + local, squares
        return labels, distance


# -- what runs on the workers --------------------------------------------------------------------


def divide(frame: Coordinates, n_blocks: int, shard: Shard) -> Division:
    """The blocks of a shard, which are made once."""

    def make() -> Division:
        X = np.concatenate([block.X for block in shard.blocks])
        return Division(*partition_rows(X, n_blocks, frame.scaled))

    key = frame.offset.tobytes(), frame.scale.tobytes(), n_blocks
    divided: Division = shard.keep("blocks", key, make)
    return divided


def copy_blocks(
    frame: Coordinates, n_blocks: int, chosen: Iterable[int], shard: Shard
) -> list[Block]:
    """The rows of some blocks of a shard."""
    places = divide(frame, n_blocks, shard).places
    return [shard.rows(places[k]) for k in chosen]


def _find_blocks(
    frame: Coordinates, n_blocks: int, X: Array, shard: Shard
) -> tuple[NDArray[np.intp], Array]:
    """Block of the shard (n,) that each of X falls into, and the squared distance to its centre."""
    partition = divide(frame, n_blocks, shard).partition
    labels = partition.lookup(X)
    return labels, np.sum((X - partition.centers[labels]) ** 2, axis=1)
