"""Blocks of nearby rows: hyperplanes that divide them, and the block of any place.

Hyperplanes halve the rows of a chunk until one block is left on each side. The halves need no
pointers: the set of blocks ``[low, high)`` is split at ``middle = (low + high) // 2``, no other
set of blocks is split there, so its hyperplane is stored at index ``middle`` and finding the
block of a row is a binary search. Trees of successive chunks are stored one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array, eigh
from skvbgp._core.order import cut

_TWO_MEANS_STEPS = 10
_LOOKUP_CELLS = 2**16  # (row, chunk) pairs looked up at once: bounds memory, stays in cache
# Beyond so many rows blocks are made from as many, or from so many for each block if that is more.
_SAMPLE_ROWS = 2**18
_SAMPLE_ROWS_PER_BLOCK = 32


@dataclass(frozen=True, eq=False)
class Partition:
    """Division of the input space into B blocks, made by `balanced_partition`.

    Of the hyperplane in front of each block, rows with ``x @ normal > threshold`` belong to this
    block or a later one. The entry of a chunk's first block is not used.
    """

    centers: Array  # (B, d) means of the rows of each block
    sizes: NDArray[np.intp]  # (B,) numbers of rows the partition was made from
    normals: Array  # (B, d)
    thresholds: Array  # (B,)
    chunk_starts: NDArray[np.intp]  # (C + 1,) first block of each appended chunk, and B at the end

    @property
    def n_blocks(self) -> int:
        """Number of blocks of all chunks."""
        return len(self.sizes)

    def lookup(self, X: Array) -> NDArray[np.intp]:
        """Find the block (n,) of rows that are scaled like those the partition was made from.

        The tree of each chunk leads to one candidate; the candidate with the nearest center wins,
        the earliest if several are as near. With a single chunk this is the tree alone, so the rows
        it was made from find their own blocks again, ties aside. A row's label does not depend on
        the other rows, not even through rounding.
        """
        labels = np.empty(len(X), dtype=np.intp)  # (n,)
        for rows in cut(len(X), max(1, _LOOKUP_CELLS // (len(self.chunk_starts) - 1))):
            candidates = self._candidates(X[rows])  # (b, C)
            nearest = np.argmin(_squared_distance(X[rows], self.centers, candidates), axis=1)
            labels[rows] = np.take_along_axis(candidates, nearest[:, None], axis=1)[:, 0]
        return labels

    def _candidates(self, X: Array) -> NDArray[np.intp]:
        """Descend the tree of each chunk, by binary search for all rows at once."""
        low = np.tile(self.chunk_starts[:-1], (len(X), 1))  # (n, C)
        high = np.tile(self.chunk_starts[1:], (len(X), 1))  # (n, C)
        largest = int(np.max(np.diff(self.chunk_starts)))
        for _ in range((largest - 1).bit_length()):
            middle = (low + high) // 2
            # Once a single block is left it is its own middle, and `low` stays.
            after = _project(X, self.normals, middle) > self.thresholds[middle]
            low = np.where(after, middle, low)
            high = np.where(after, high, middle)
        return low

    def joined(self, other: Partition) -> Partition:
        """Join the partition of a later chunk, whose labels move up by ``self.n_blocks``."""
        return Partition(
            centers=np.concatenate([self.centers, other.centers]),
            sizes=np.concatenate([self.sizes, other.sizes]),
            normals=np.concatenate([self.normals, other.normals]),
            thresholds=np.concatenate([self.thresholds, other.thresholds]),
            chunk_starts=np.concatenate(
                [self.chunk_starts, self.n_blocks + other.chunk_starts[1:]]
            ),
        )


def balanced_partition(
    X: Array, n_blocks: int, choose: Callable[[Array, int], Array] | None = None
) -> tuple[Partition, NDArray[np.intp]]:
    """Divide finite rows X (n, d) into compact blocks whose sizes differ by at most one.

    They are scaled so that Euclidean distances are meaningful. The second result is the block of
    each, (n,). By default, each split is a balanced two-means started from a principal direction;
    otherwise ``choose(rows, n_before)`` is the normal of the hyperplane between so many rows and
    the others. Nothing is random, and another order of the rows gives the same blocks, up to
    rounding and ties.

    Ties: rows at exactly the same distance from a hyperplane, such as duplicates, may have to
    be separated for the sizes' sake. The earlier rows then go to the first side, while
    `Partition.lookup` sends all of them there. Every other row finds its own block.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp._core.partition import balanced_partition
    >>> partition, labels = balanced_partition(np.array([[0.0], [5.0], [0.1], [5.2]]), n_blocks=2)
    >>> labels
    array([0, 1, 0, 1])
    >>> partition.lookup(np.array([[-1.0], [4.0]]))
    array([0, 1])
    """
    n, d = X.shape
    if not 1 <= n_blocks <= n:
        raise ValueError(f"n_blocks must be between 1 and the number of rows, {n}; got {n_blocks}.")
    bounds = n * np.arange(n_blocks + 1) // n_blocks  # (B + 1,): rows that precede each block
    centers = np.empty((n_blocks, d))
    normals = np.zeros((n_blocks, d))
    thresholds = np.zeros(n_blocks)
    labels = np.empty(n, dtype=np.intp)

    unfinished = [(0, n_blocks, np.arange(n))]
    while unfinished:
        low, high, rows = unfinished.pop()
        X_node = X[rows]  # (k, d)
        if high - low == 1:
            labels[rows] = low
            centers[low] = X_node.mean(axis=0)
            continue
        middle = (low + high) // 2
        n_before = bounds[middle] - bounds[low]
        normals[middle] = (choose or _two_means_direction)(X_node, n_before)
        position = _project(X_node, normals, np.array([middle]))[:, 0]  # (k,)
        order = np.argsort(position, kind="stable")
        before, after = order[:n_before], order[n_before:]
        thresholds[middle] = (position[before[-1]] + position[after[0]]) / 2
        # Sorted, so that each side keeps the order of the rows.
        unfinished.append((low, middle, rows[np.sort(before)]))
        unfinished.append((middle, high, rows[np.sort(after)]))

    partition = Partition(
        centers=centers,
        sizes=np.diff(bounds),
        normals=normals,
        thresholds=thresholds,
        chunk_starts=np.array([0, n_blocks]),
    )
    return partition, labels


def partition_rows(
    X: Array, n_blocks: int, scaled: Callable[[Array], Array]
) -> tuple[Partition, list[NDArray[np.intp]]]:
    """Divide any number of rows, maybe on disk, into compact blocks.

    Up to 2**18 rows this is `balanced_partition`. Of more rows a random sample is divided, and the
    others are looked up piece by piece: memory holds two integers for each row, not X, and the
    sizes of the blocks vary by about a fifth.

    The partition is of rows that are ``scaled``, to coordinates in which Euclidean distances are
    meaningful. The row indices of each block are in ascending order.
    """
    n = len(X)
    n_sample = max(_SAMPLE_ROWS, _SAMPLE_ROWS_PER_BLOCK * n_blocks)
    if n > n_sample:
        sample = np.random.RandomState(0).randint(n, size=n_sample)
        partition, _ = balanced_partition(scaled(X[np.sort(sample)]), n_blocks)
        labels = np.empty(n, dtype=np.intp)
        for rows in cut(n, _LOOKUP_CELLS):
            labels[rows] = partition.lookup(scaled(X[rows]))
        sizes = np.bincount(labels, minlength=n_blocks)
        if sizes.min() > 0 and sizes.max() <= 3 * n / n_blocks:
            return replace(partition, sizes=sizes), group_rows(labels, n_blocks)
    # few rows, or so many equal ones that only their order can divide them evenly
    partition, labels = balanced_partition(scaled(X), n_blocks)
    return partition, group_rows(labels, n_blocks)


def group_rows(labels: NDArray[np.intp], n_blocks: int) -> list[NDArray[np.intp]]:
    """Turn labels (n,) into the sorted row indices of each block, empty blocks included."""
    ends = np.cumsum(np.bincount(labels, minlength=n_blocks))  # (B,)
    return np.split(np.argsort(labels, kind="stable"), ends[:-1])


def cut_by_block(labels: NDArray[np.intp], max_rows: int) -> list[tuple[int, NDArray[np.intp]]]:
    """The rows of each block that occurs among labels (n,), in pieces of at most so many rows.

    They are in ascending order of blocks and of rows.
    """
    order = np.argsort(labels, kind="stable")
    blocks, starts = np.unique(labels[order], return_index=True)
    return [
        (int(block), rows[start : start + max_rows])
        for block, rows in zip(blocks, np.split(order, starts[1:]), strict=True)
        for start in range(0, len(rows), max_rows)
    ]


def _two_means_direction(X: Array, n_before: int) -> Array:
    """Normal of the hyperplane between `n_before` rows and the others, by Lloyd's steps.

    For two given means, the best assignment with fixed sizes orders the rows along the
    difference of the means, so each step lowers the sum of squared distances.
    """
    centered = X - X.mean(axis=0)  # (k, d)
    # Start from the principal direction. Without the weights, whitened data would have none.
    weights = np.linalg.norm(centered, axis=1, keepdims=True)  # (k, 1)
    direction = eigh(centered.T @ (weights * centered))[1][:, -1]  # (d,)
    direction *= np.sign(direction[np.argmax(np.abs(direction))])  # LAPACK leaves the sign open
    for _ in range(_TWO_MEANS_STEPS):
        before = np.argpartition(centered @ direction, n_before - 1)[:n_before]
        # The two sums are opposite, so this is parallel to the difference of the means.
        direction = -centered[before].mean(axis=0)
    return direction


# BLAS rounds differently for different batch shapes. The two functions below add one feature after
# the other instead, so that a row has the same position alone, in any batch, and in the making.


def _project(X: Array, normals: Array, index: NDArray[np.intp]) -> Array:
    """Inner products of row ``i`` with ``normals[index[i, j]]``, for `index` of (n or 1, C)."""
    total = X[:, :1] * normals[index, 0]  # (n, C)
    for feature in range(1, X.shape[1]):
        total += X[:, feature, None] * normals[index, feature]
    return total


def _squared_distance(X: Array, centers: Array, index: NDArray[np.intp]) -> Array:
    """Squared distances of row ``i`` to ``centers[index[i, j]]``, for `index` of (n, C)."""
    total = np.zeros(index.shape)  # (n, C)
    for feature in range(X.shape[1]):
        total += (X[:, feature, None] - centers[index, feature]) ** 2
    return total
