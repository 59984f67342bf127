"""The data, kept block by block in scaled coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.partition import (
    Partition,
    balanced_partition,
    group_rows,
    partition_rows,
)
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import Neighbourhoods

Data = tuple[Array, Array]  # X (n, d) and y (n,), scaled
#: The blocks of a mini-batch, and the weight that makes it unbiased.
Batch = tuple[list[Data], float]


@dataclass(frozen=True)
class BlockedRows:
    """Rows divided into blocks by location; rows that come later join their block.

    A block that has outgrown its capacity is divided in its turn, so that neither adding a row
    nor a prediction depends on the number of rows.

    Attributes
    ----------
    partition : Partition
        The blocks of the first rows.
    X, y : ndarray of shape (n, d) and (n,)
        First rows, sorted by block.
    ends : ndarray of shape (n_blocks + 1,)
        Block k has the rows ``ends[k]`` to ``ends[k + 1]``.
    capacity : int
        Most rows of a block.
    changed : dict
        Rows of the blocks that are not as in X and y any more.
    divided : dict
        Blocks divided since: a partition of the block for each division, and the names of
        its parts; the first part keeps the name of the block.
    n_blocks, n : int
        Blocks and rows, of now.
    """

    partition: Partition
    X: Array
    y: Array
    ends: NDArray[np.intp]
    capacity: int
    changed: dict[int, Data]
    divided: dict[int, tuple[tuple[Partition, NDArray[np.intp]], ...]]
    n_blocks: int
    n: int

    @classmethod
    def of(
        cls, X: Array, y: Array, coordinates: Coordinates, target: Target, n_blocks: int
    ) -> BlockedRows:
        """Blocks of rows, which are scaled one block after the other."""
        partition, index = partition_rows(X, n_blocks, coordinates.scaled)
        ends = np.append(0, np.cumsum(partition.sizes))
        X_sorted, y_sorted = np.empty(X.shape), np.empty(len(y))
        for k, rows in enumerate(index):
            X_sorted[ends[k] : ends[k + 1]] = coordinates.scaled(X[rows])
            y_sorted[ends[k] : ends[k + 1]] = target.scaled(y[rows])
        capacity = 2 * int(partition.sizes.max())
        return cls(partition, X_sorted, y_sorted, ends, capacity, {}, {}, n_blocks, len(y))

    @property
    def n_first(self) -> int:
        """Number of first rows, which training uses."""
        return len(self.y)

    def block(self, k: int) -> Data:
        """X and y of a block."""
        if k in self.changed:
            return self.changed[k]
        rows = slice(self.ends[k], self.ends[k + 1])
        return self.X[rows], self.y[rows]

    @cached_property
    def all_rows(self) -> Data:
        """X and y of all blocks."""
        if not self.changed:
            return self.X, self.y
        X, y = zip(*(self.block(k) for k in range(self.n_blocks)), strict=True)
        return np.concatenate(X), np.concatenate(y)

    @cached_property
    def neighbourhoods(self) -> Neighbourhoods:
        """Those of `all_rows`."""
        return Neighbourhoods([self.all_rows[0]])

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # the rest is rebuilt

    def lookup(self, X: Array) -> NDArray[np.intp]:
        """Block of each row."""
        labels = self.partition.lookup(X)
        pending = [(block, 0) for block in np.unique(labels) if block in self.divided]
        while pending:
            block, level = pending.pop()
            rows = np.flatnonzero(labels == block)
            partition, names = self.divided[block][level]
            labels[rows] = names[partition.lookup(X[rows])]
            if level + 1 < len(self.divided[block]):
                pending.append((block, level + 1))
            new = np.unique(labels[rows])
            pending.extend((k, 0) for k in new if k != block and k in self.divided)
        return labels

    def add(self, X: Array, y: Array) -> BlockedRows:
        """The blocks after more rows."""
        changed, divided, n_blocks = dict(self.changed), dict(self.divided), self.n_blocks
        labels = self.lookup(X)
        for block in np.unique(labels):
            own, (X_old, y_old) = labels == block, self.block(block)
            X_all, y_all = np.concatenate([X_old, X[own]]), np.concatenate([y_old, y[own]])
            n_parts = -(-2 * len(y_all) // self.capacity) if len(y_all) > self.capacity else 1
            parts = [np.arange(len(y_all))]
            names = np.append(block, np.arange(n_blocks, n_blocks + n_parts - 1))
            if n_parts > 1:
                partition, part_labels = balanced_partition(X_all, n_parts)
                parts = group_rows(part_labels, n_parts)
                divided[block] = (*divided.get(block, ()), (partition, names))
                n_blocks += n_parts - 1
            changed |= {
                int(name): (X_all[part], y_all[part])
                for name, part in zip(names, parts, strict=True)
            }
        n = self.n + len(y)
        return replace(self, changed=changed, divided=divided, n_blocks=n_blocks, n=n)

    def n_batches(self, batch_size: int) -> int:
        """Mini-batches of about ``batch_size`` rows in one pass."""
        return max(1, min(self.n_blocks, round(self.n / batch_size)))

    def minibatches(self, batch_size: int, rng: np.random.RandomState) -> Iterator[Batch]:
        """One pass in random order: blocks, with the weight that makes a batch unbiased.

        The weight is the number of blocks over that of the batch (Theorem 1 and App. G of
        [Hoang2017]_, there for draws with replacement).
        """
        order = rng.permutation(self.n_blocks)
        for chosen in np.array_split(order, self.n_batches(batch_size)):
            yield [self.block(k) for k in chosen], self.n_blocks / len(chosen)
