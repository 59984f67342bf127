"""The data, kept block by block in scaled coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.partition import Partition, balanced_partition, group_rows, partition_rows
from skvbgp._core.pickling import PickledByFields
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import Neighbourhoods, Targets, Weighted, join_variances, join_weights, pick
from skvbgp.spectrum._features import features


@dataclass(frozen=True)
class Rows(Weighted):
    """Some rows, how often each counts, and its known noise.

    A row of weight w is y = f(x) with noise of variance t / w. Times sqrt(w) it is a row with the
    noise t of all others: a `target` that is linear in the weights of its `features`. Where the
    noise has a known variance v, too, the weight is w t / (t + v), see `as_weighted`.
    """

    X: Array  # (n, d)
    y: Array  # (n,)
    weight: Array | None = None  # (n,) positive; None is 1
    #: (n,): known variances of the noise besides the learned one, in squared units of y; None is 0.
    variance: Array | None = None

    def __len__(self) -> int:
        return len(self.y)

    @classmethod
    def of(cls, X: Array, y: Targets) -> Self:
        """Rows of X with their targets."""
        return cls(X, y.y, y.weight, y.variance)

    @classmethod
    def joined(cls, parts: Iterable[Rows]) -> Self:
        """One part after the other."""
        parts = list(parts)
        X, y = np.concatenate([p.X for p in parts]), np.concatenate([p.y for p in parts])
        return cls(X, y, join_weights(*parts), join_variances(*parts))

    def scaled(self, coordinates: Coordinates, target: Target) -> Rows:
        """The user's rows in the frames of training."""
        variance = target.scaled_noise(self.variance)
        return Rows(coordinates.scaled(self.X), target.scaled(self.y), self.weight, variance)

    def as_targets(self) -> Targets:
        """The targets alone."""
        return Targets(self.y, self.weight, variance=self.variance)

    def take(self, index: slice | Index | NDArray[np.bool_]) -> Rows:
        """Some of them."""
        weight, variance = pick(self.weight, index), pick(self.variance, index)
        return Rows(self.X[index], self.y[index], weight, variance)

    def share(self, noise_variance: float) -> Array:
        """What the learned variance is of each row's noise, (n,)."""
        if self.variance is None:
            return np.ones(len(self))
        return noise_variance / (noise_variance + self.variance)

    def log_shares(self, noise_variance: float) -> float:
        """What known noise adds to their log density beyond that of the weights they count as."""
        if self.variance is None:
            return 0.0
        return 0.5 * float(self.counts @ np.log(self.share(noise_variance)))

    def as_weighted(self, noise_variance: float, power: int = 1) -> Rows:
        """Rows without known noise that count as much less, by a power of their `share`."""
        if self.variance is None:
            return self
        return Rows(self.X, self.y, self.counts * self.share(noise_variance) ** power)

    @property
    def target(self) -> Array:
        """sqrt(w) y, (n,)."""
        return self.y if self.weight is None else np.sqrt(self.weight) * self.y

    def features(self, R: Array) -> Array:
        """sqrt(w) phi(x)' at frequencies R, (n, 2 m)."""
        Phi = features(self.X, R)
        return Phi if self.weight is None else np.sqrt(self.weight)[:, None] * Phi


#: The blocks of a mini-batch, and the weight that makes it unbiased.
Batch = tuple[list[Rows], float]


class DividedRows:
    """Rows in blocks by location: ``n`` of them, which count ``total`` times, in ``n_blocks``."""

    n: int
    n_blocks: int
    total: float

    def pick(self, chosen: Index) -> Iterator[Rows]:
        """The rows of some blocks, one block after the other."""
        raise NotImplementedError

    def take(self, index: Index) -> Rows:
        """Some rows, by number."""
        raise NotImplementedError

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
            yield list(self.pick(chosen)), self.n_blocks / len(chosen)


@dataclass(frozen=True)
class BlockedRows(PickledByFields, DividedRows):
    """Rows in memory divided into blocks by location; rows that come later join their block.

    A block that has outgrown its capacity is divided in its turn, so that the cost of adding a row
    does not depend on the number of rows, nor does that of a prediction from its block. The
    first one from neighbours visits all of them, see `neighbourhoods`.
    """

    partition: Partition  # the blocks of the first rows
    first: Rows  # first rows, scaled and sorted by block
    ends: NDArray[np.intp]  # (n_blocks + 1,) block k has the rows ``ends[k]`` to ``ends[k + 1]``
    capacity: int  # most rows of a block
    changed: dict[int, Rows]  # rows of the blocks that are not as in `first` any more
    #: Blocks divided since: a partition of the block for each division, and the names of its parts;
    #: the first part keeps the name of the block.
    divided: dict[int, tuple[tuple[Partition, NDArray[np.intp]], ...]]
    n_blocks: int  # of now, as what follows
    n: int  # rows
    total: float  # rows, each as often as it counts

    @classmethod
    def of(cls, rows: Rows, coordinates: Coordinates, target: Target, n_blocks: int) -> BlockedRows:
        """Blocks of the user's rows, which are scaled one block after the other."""
        partition, index = partition_rows(rows.X, n_blocks, coordinates.scaled)
        ends = np.append(0, np.cumsum(partition.sizes))
        X_sorted, y_sorted = np.empty(rows.X.shape), np.empty(len(rows))
        variance = None if rows.variance is None else np.empty(len(rows))
        for k, own in enumerate(index):
            block, place = rows.take(own).scaled(coordinates, target), slice(ends[k], ends[k + 1])
            X_sorted[place], y_sorted[place] = block.X, block.y
            if variance is not None:
                variance[place] = block.variance
        weight = pick(rows.weight, np.concatenate(index))
        return cls(
            partition=partition,
            first=Rows(X_sorted, y_sorted, weight, variance),
            ends=ends,
            capacity=2 * int(partition.sizes.max()),
            changed={},
            divided={},
            n_blocks=n_blocks,
            n=len(rows),
            total=rows.total,
        )

    def block(self, k: int) -> Rows:
        """The rows of a block."""
        if k in self.changed:
            return self.changed[k]
        return self.first.take(slice(self.ends[k], self.ends[k + 1]))

    def pick(self, chosen: Index) -> Iterator[Rows]:
        return (self.block(k) for k in chosen)

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """The rows of block k are those from ``starts[k]`` to ``starts[k + 1]`` of `all_rows`."""
        sizes = np.zeros(self.n_blocks, dtype=np.intp)
        sizes[: len(self.ends) - 1] = np.diff(self.ends)
        for k, rows in self.changed.items():
            sizes[k] = len(rows)
        return np.append(0, np.cumsum(sizes))

    @cached_property
    def all_rows(self) -> Rows:
        """The rows of all blocks."""
        if not self.changed:
            return self.first
        return Rows.joined(self.block(k) for k in range(self.n_blocks))

    def take(self, index: Index) -> Rows:
        return self.all_rows.take(index)

    @cached_property
    def neighbourhoods(self) -> Neighbourhoods:
        """Those of `all_rows`; blocks with new rows build them again."""
        return Neighbourhoods([self.all_rows.X])

    def lookup(self, X: Array) -> NDArray[np.intp]:
        """Block of each row."""
        labels = self.partition.lookup(X)
        pending = np.unique(labels).tolist()
        while pending:
            block = pending.pop()
            rows = np.flatnonzero(labels == block)
            for partition, names in self.divided.get(block, ()):
                labels[rows] = names[partition.lookup(X[rows])]
                stays = labels[rows] == block
                pending.extend(np.unique(labels[rows[~stays]]).tolist())
                rows = rows[stays]
        return labels

    def add(self, new: Rows) -> BlockedRows:
        """The blocks after more rows, which are scaled."""
        changed, divided, n_blocks = dict(self.changed), dict(self.divided), self.n_blocks
        labels = self.lookup(new.X)
        for block in np.unique(labels).tolist():
            rows = Rows.joined([self.block(block), new.take(labels == block)])
            if len(rows) <= self.capacity:
                changed[block] = rows
                continue
            n_parts = -(-2 * len(rows) // self.capacity)
            names = np.append(block, np.arange(n_blocks, n_blocks + n_parts - 1))
            partition, part_labels = balanced_partition(rows.X, n_parts)
            divided[block] = (*divided.get(block, ()), (partition, names))
            n_blocks += n_parts - 1
            for name, part in zip(names.tolist(), group_rows(part_labels, n_parts), strict=True):
                changed[name] = rows.take(part)
        return replace(
            self,
            changed=changed,
            divided=divided,
            n_blocks=n_blocks,
            n=self.n + len(new),
            total=self.total + new.total,
        )
