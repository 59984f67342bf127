"""Rows of a cluster, moved to its workers by place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import draw_distinct
from skvbgp._core.partition import Partition, balanced_partition
from skvbgp._core.scaling import Coordinates
from skvbgp._core.shard import Block
from skvbgp._core.shards import ShardedRows

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
    some = draw_distinct(rows.n, min(rows.n, _SAMPLE_ROWS), np.random.RandomState(0))
    X = coordinates.scaled(rows.fetch(some).X)
    cells, _ = balanced_partition(X, min(rows.n_workers, len(X)))
    if cells.n_blocks == rows.n_shards == 1:  # they are there
        return Regions(cells, np.zeros(1, dtype=np.intp))
    shards = rows.exchange(_cut, (cells, coordinates), cells.n_blocks)
    occupied = np.flatnonzero(shards >= 0)
    distance = np.abs(np.arange(cells.n_blocks)[:, None] - occupied)  # in the order of the tree
    return Regions(cells, shards[occupied[np.argmin(distance, axis=1)]])


# -- what runs on the workers --------------------------------------------------------------------


def _cut(cells: Partition, coordinates: Coordinates, block: Block) -> list[Block]:
    """The rows of each cell."""
    labels = cells.lookup(coordinates.scaled(block.X))
    return [
        Block(block.X[own], block.y[own]) for own in (labels == k for k in range(len(cells.sizes)))
    ]
