"""Rows of a cluster, moved to its workers by place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, draw_distinct
from skvbgp._core.partition import Partition, balanced_partition
from skvbgp._core.scaling import Coordinates
from skvbgp._core.shard import AnyBlock, NumberedBlock, pick_rows
from skvbgp._core.shards import ShardedRows

#: Rows that regions are made from.
_SAMPLE_ROWS = 2**14
#: How far rows of equal entries are apart when they are divided, and what spreads their numbers.
_APART, _STEP = 1e-9, (5.0**0.5 - 1.0) / 2.0


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
    some = _draw_sample(rows)
    X = coordinates.scaled(rows.fetch(some).X)
    cells, _ = balanced_partition(X, min(rows.n_workers, len(X)))
    if cells.n_blocks == rows.n_shards == 1:  # they are there
        return Regions(cells, np.zeros(1, dtype=np.intp))
    shards = rows.exchange(_cut, (cells, coordinates), cells.n_blocks)
    occupied = np.flatnonzero(shards >= 0)
    distance = np.abs(np.arange(cells.n_blocks)[:, None] - occupied)  # in the order of the tree
    return Regions(cells, shards[occupied[np.argmin(distance, axis=1)]])


def move_to_boxes(rows: ShardedRows, coordinates: Coordinates, weights: Array) -> None:
    """Give each of several workers nearly as many rows, whose boxes hardly overlap.

    Each cut is at the median of the input whose middle half is widest, in scaled coordinates times
    weights, so that few places have near rows on both sides. Rows move once; they can be found by
    their numbers in the collections.
    """
    if rows.n_workers == 1 or rows.has_moved:
        return
    some = _draw_sample(rows)
    located = _locate(coordinates, weights, rows.fetch(some).X, some)
    cells, _ = balanced_partition(located, min(rows.n_workers, len(located)), _find_widest)
    rows.move(_cut_boxes, (cells, coordinates, weights), cells.n_blocks)


def _draw_sample(rows: ShardedRows) -> Index:
    return draw_distinct(rows.n, min(rows.n, _SAMPLE_ROWS), np.random.RandomState(0))


def _find_widest(located: Array, n_before: int) -> Array:
    """Normal of a cut through one input; the last column divides rows with equal entries of it."""
    low, high = np.quantile(located[:, :-1], [0.25, 0.75], axis=0)
    normal = np.zeros(located.shape[1])
    normal[int(np.argmax(high - low))] = normal[-1] = 1.0
    return normal


# -- what runs on the workers --------------------------------------------------------------------


def _cut(cells: Partition, coordinates: Coordinates, block: AnyBlock) -> list[AnyBlock]:
    """The rows of each cell."""
    return _divide(block, cells, coordinates.scaled(block.X))


def _cut_boxes(
    cells: Partition, coordinates: Coordinates, weights: Array, block: NumberedBlock
) -> list[NumberedBlock]:
    """The same of cells in weighted coordinates."""
    return _divide(block, cells, _locate(coordinates, weights, block.X, block.numbers))


def _locate(coordinates: Coordinates, weights: Array, X: Array, numbers: Index) -> Array:
    """Weighted coordinates, and what tells equal ones apart (n, d + 1)."""
    return np.column_stack([coordinates.scaled(X) * weights, _APART * (numbers * _STEP % 1.0)])


def _divide(block: AnyBlock, cells: Partition, located: Array) -> list[AnyBlock]:
    labels = cells.lookup(located)
    return [pick_rows(block, labels == k) for k in range(cells.n_blocks)]
