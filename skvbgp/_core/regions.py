"""Rows of a cluster, moved to its workers by place."""

from __future__ import annotations

from operator import getitem
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import draw_distinct
from skvbgp._core.partition import Partition, balanced_partition
from skvbgp._core.scaling import Coordinates
from skvbgp._core.shards import Block, ShardedRows, join_blocks

#: Rows that regions are made from.
_SAMPLE_ROWS = 2**14


class Regions(NamedTuple):
    """Where rows are, by place."""

    cells: Partition  # in scaled coordinates
    shards: NDArray[np.intp]  # (n_cells,)

    def lookup(self, X: Array) -> NDArray[np.intp]:
        """Shard (n,) of each of X (scaled)."""
        return self.shards[self.cells.lookup(X)]


def move_to_regions(rows: ShardedRows, coordinates: Coordinates) -> Regions:
    """Give each worker the rows of a compact region, of nearly as many rows as the others'.

    Rows have other numbers afterwards. A shard is that of its worker's region.
    """
    client = rows._client
    workers = sorted(client.nthreads())
    some = draw_distinct(rows.n, min(rows.n, _SAMPLE_ROWS), np.random.RandomState(0))
    X = coordinates.scaled(rows.fetch(some).X)
    cells, _ = balanced_partition(X, min(len(workers), len(X)))
    if cells.n_blocks == len(rows._shards) == 1:  # they are there
        return Regions(cells, np.zeros(1, dtype=np.intp))
    by_shard = [iter(blocks) for blocks in rows._blocks]
    blocks = [next(by_shard[k]) for k in rows._shard_of]
    parts = [client.submit(_cut, block, cells, coordinates) for block in blocks]
    regions = [
        client.submit(
            _join,
            [client.submit(getitem, part, k) for part in parts],
            workers=[workers[k]],
            allow_other_workers=True,
        )
        for k in range(cells.n_blocks)
    ]
    occupied = np.flatnonzero(rows._settle(regions))
    distance = np.abs(np.arange(cells.n_blocks)[:, None] - occupied)  # in the order of the tree
    return Regions(cells, rows._shard_of[np.argmin(distance, axis=1)])


# -- what runs on the workers --------------------------------------------------------------------


def _cut(block: Block, cells: Partition, coordinates: Coordinates) -> list[Block]:
    """The rows of each cell."""
    labels = cells.lookup(coordinates.scaled(block.X))
    return [
        Block(block.X[own], block.y[own]) for own in (labels == k for k in range(len(cells.sizes)))
    ]


def _join(parts: list[Block]) -> Block:
    return join_blocks(parts)
