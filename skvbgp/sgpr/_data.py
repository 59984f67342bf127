"""Training data: scaled lazily, grouped into rows with independent noise or into blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, cut, shuffle_parts
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import Weighted, pick
from skvbgp.kernels._pairs import Pairs

#: Which rows belong to a group.
RowIndex = slice | Index

#: Rows of a group with independent noise: what one thread works on at a time.
_TILE_ROWS = 512


def split_tiles(index: Index) -> list[Index]:
    """Rows with independent noise, some at a time."""
    return np.array_split(index, -(-len(index) // _TILE_ROWS))


@dataclass(frozen=True)
class Rows(Weighted):
    """One group of data: rows with independent noise, or one block."""

    X: Array  # (n, d) scaled coordinates
    y: Array  # (n,) scaled
    weight: Array | None = None  # (n,) how often each counts
    variance: Array | None = None  # (n,) known variance of the noise besides the learned one
    gaps: Array | None = None  # (n, g) variances of missing entries, whose means are in X
    pairs: Pairs | None = None  # of the user's rows, for kernels at many hyperparameters

    def __len__(self) -> int:
        return len(self.y)

    def with_pairs(self, coordinates: Coordinates) -> Rows:
        """The same, with what kernels of them have in common at all hyperparameters."""
        return replace(self, pairs=Pairs(coordinates.original(self.X)))

    def take(self, index: RowIndex) -> Rows:
        """Some of them."""
        weight, variance = pick(self.weight, index), pick(self.variance, index)
        return Rows(self.X[index], self.y[index], weight, variance, pick(self.gaps, index))


@dataclass(frozen=True)
class Data(Weighted):
    """Rows of (X, y), with their groups."""

    X: Array  # (n, d), the user's own, maybe memory-mapped
    y: Array  # (n,), the user's own
    coordinates: Coordinates
    target: Target
    #: Row indices of each block; None where the noise is independent, so that any set of rows is a
    #: group.
    blocks: list[NDArray[np.intp]] | None = None
    weight: Array | None = None  # (n,) how often each row counts; None is 1
    #: (n,): known variances of the noise, in the units in which it is learned; None is 0. The frame
    #: of y may be another one.
    variance: Array | None = None
    #: (n, g): variances of missing entries, whose means are in X, by inputs that have some; None is
    #: 0.
    gaps: Array | None = None

    def __len__(self) -> int:
        return len(self.y)

    def undivided(self) -> Data:
        """The same rows, whose noise is independent."""
        return replace(self, blocks=None)

    @property
    def n_pairs(self) -> int:
        """Pairs of rows whose expectations the bound needs."""
        if self.blocks is None:
            return len(self)
        return sum(len(block) ** 2 for block in self.blocks)

    def rows(self, index: RowIndex) -> Rows:
        X, y = self.coordinates.scaled(self.X[index]), self.target.scaled(self.y[index])
        weight, variance = pick(self.weight, index), pick(self.variance, index)
        return Rows(X, y, weight, variance, pick(self.gaps, index))

    def groups(self) -> list[RowIndex]:
        """Every row once, in groups of bounded size."""
        if self.blocks is not None:
            return list(self.blocks)
        return list(cut(len(self), _TILE_ROWS))

    def segments(self, n_segments: int) -> list[list[RowIndex]]:
        """The groups, divided into at most ``n_segments`` lists of about equal length."""
        groups = self.groups()
        ends = np.arange(n_segments + 1) * len(groups) // n_segments
        return [groups[a:b] for a, b in pairwise(ends) if a < b]

    def n_batches(self, batch_size: int) -> int:
        """Mini-batches of about ``batch_size`` rows in one pass."""
        if self.blocks is None:
            return max(1, round(len(self) / batch_size))
        n_blocks = len(self.blocks)
        return -(-n_blocks // max(1, round(batch_size * n_blocks / len(self))))

    def minibatches(
        self, batch_size: int, rng: np.random.RandomState
    ) -> Iterator[tuple[Any, float]]:
        """One pass in random order: batches with the weight that makes them unbiased.

        The weight is the number of rows (of blocks) in all over that in the batch: every
        batch is an unbiased estimate of the full sum (Theorem 2 of [Yu2019]_).
        """
        n_batches = self.n_batches(batch_size)
        if self.blocks is None:
            for index in shuffle_parts(len(self), n_batches, rng):
                yield self.batch(index), len(self) / len(index)
            return
        for chosen in np.array_split(rng.permutation(len(self.blocks)), n_batches):
            yield self.batch(chosen), len(self.blocks) / len(chosen)

    def batch(self, chosen: Index) -> Any:
        """A mini-batch of some rows, or blocks, by their numbers."""
        if self.blocks is None:
            return [self.rows(tile) for tile in split_tiles(np.sort(chosen))]
        return self.pick(chosen)

    def draw_blocks(self, most: int, rng: np.random.RandomState) -> list[Rows]:
        """Random blocks, in random order: so many, or all if they are few."""
        assert self.blocks is not None
        return self.pick(rng.permutation(len(self.blocks))[:most])

    def pick(self, chosen: Index) -> list[Rows]:
        """Some blocks."""
        assert self.blocks is not None
        return [self.rows(self.blocks[k]) for k in chosen]
