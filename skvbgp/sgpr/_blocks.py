"""The division of rows into blocks, and the blocks that predictions need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.partition import Partition, group_rows, partition_rows
from skvbgp.base import Targets
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._sharded import ShardedData
from skvbgp.sgpr._spread import SpreadData, SpreadRows


@dataclass(frozen=True)
class Division:
    """Where the blocks are."""

    partition: Partition
    unit: Array  # (d,) the partition lives in scaled coordinates times this

    def lookup(self, X: Array) -> NDArray[np.intp]:
        """Block of each row in scaled coordinates."""
        return self.partition.lookup(X * self.unit)

    def group(self, X: Array) -> list[NDArray[np.intp]]:
        """Which of all rows in scaled coordinates are in each block; others are a ValueError."""
        labels, sizes = self.lookup(X), self.partition.sizes
        if not np.array_equal(np.bincount(labels, minlength=len(sizes)), sizes):
            raise ValueError(
                "The noise of rows is correlated in blocks: give all rows of the fit, and no "
                "others. (Of rows at one place, some may be in another block: then no row can be "
                "left out.)"
            )
        return group_rows(labels, len(sizes))


@dataclass(frozen=True)
class BlockRows(Division):
    """The rows of the blocks, kept for predictions that condition on them."""

    X: tuple[Array, ...]  # by block, user's coordinates
    targets: tuple[Targets, ...]  # by block

    @property
    def n_rows(self) -> int:
        """How many they are."""
        return int(self.partition.sizes.sum())

    @property
    def rows(self) -> tuple[Array, Targets]:
        """All of them, one block after the other."""
        return np.concatenate(self.X), reduce(Targets.joined, self.targets)

    @property
    def n_divided(self) -> int:
        """Rows that were divided first; those that came later are in blocks of their own calls."""
        return int(self.partition.sizes[: self.partition.chunk_starts[1]].sum())

    def plus(self, other: BlockRows) -> BlockRows:
        return BlockRows(
            self.partition.joined(other.partition),
            self.unit,
            self.X + other.X,
            self.targets + other.targets,
        )


#: In memory, or on workers.
KeptBlocks = BlockRows | SpreadRows


def divide(
    data: Data, y: Targets, n_blocks: int, unit: Array, *, keeps: bool
) -> tuple[Data, KeptBlocks | Division | None]:
    """The data divided into blocks, and what is kept of these: their rows, or where they are.

    ``unit`` multiplies the scaled coordinates in which blocks are compact.
    """
    if isinstance(data, ShardedData):
        spread = SpreadData.of(data, unit, len(data) / n_blocks)
        return spread, SpreadRows(spread.blocks, unit) if keeps else None
    partition, index = partition_rows(data.X, n_blocks, lambda X: data.coordinates.scaled(X) * unit)
    divided = replace(data, blocks=index)
    if not keeps:
        return divided, Division(partition, unit)
    parts = zip(*((data.X[rows], y[rows]) for rows in index), strict=True)
    return divided, BlockRows(partition, unit, *parts)
