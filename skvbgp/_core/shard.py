"""What a Dask worker has of the rows of collections, and is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_X_y

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import single_blas_thread
from skvbgp._core.scaling import RunningScale


class Block(NamedTuple):
    """Some rows in a worker's memory."""

    X: Array  # (n, d)
    y: Array  # (n,)


class NumberedBlock(NamedTuple):
    """A `Block` whose rows have moved."""

    X: Array
    y: Array
    numbers: Index  # (n,), those that they had before, ascending


class Shard:
    """The blocks of a worker, as one; an actor of Dask's."""

    def __init__(self, *blocks: Block | NumberedBlock) -> None:
        self.blocks = [Block(block.X, block.y) for block in blocks]
        self._numbers = [block.numbers for block in blocks if isinstance(block, NumberedBlock)]
        self._starts = np.cumsum([0, *(len(block.y) for block in blocks)])
        self._thread = ThreadPoolExecutor(1)
        self._next: tuple[str, Any] = ("", None)
        self._kept: dict[str, tuple[Any, Any]] = {}

    def keep(self, what: str, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make()`` has made for this key, or makes now; of the latest key alone."""
        if what not in self._kept or self._kept[what][0] != key:
            self._kept.pop(what, None)  # not both in memory at a time
            self._kept[what] = key, make()
        return self._kept[what][1]

    def run(self, function: Callable[..., Any], shared: tuple[Any, ...]) -> Any:
        """The result of ``function(*shared, self)``."""
        with single_blas_thread:
            return function(*shared, self)

    def begin(
        self, number: str, function: Callable[..., Iterator[Any]], shared: tuple[Any, ...]
    ) -> Any:
        """The first result of ``function(*shared, self)``; it goes on with the next one."""
        results = function(*shared, self)
        with single_blas_thread:
            first = next(results)
        self._next = number, self._thread.submit(_advance, results)
        return first

    def resume(self, number: str) -> Any:
        """The next result of what has begun with this number, None if there is none."""
        latest, result = self._next
        if latest != number:
            raise RuntimeError(f"Call {number} is over: {latest} has begun.")
        return result.result()

    def rows(self, index: Index) -> Block:
        """Copies of rows, whose index is sorted."""
        cuts = np.searchsorted(index, self._starts)
        parts = [
            Block(block.X[index[a:b] - start], block.y[index[a:b] - start])
            for block, start, a, b in zip(
                self.blocks, self._starts[:-1], cuts[:-1], cuts[1:], strict=True
            )
            if a < b
        ]
        return join_blocks(parts)

    def find(self, numbers: Index) -> tuple[Index, Index]:
        """Which of some sorted numbers are of rows here, before they moved, and of which rows."""
        places, local = [], []
        for own, start in zip(self._numbers, self._starts[:-1], strict=True):
            first, stop = np.searchsorted(numbers, own[[0, -1]] + (0, 1))
            at = np.searchsorted(own, numbers[first:stop])
            is_here = own[at] == numbers[first:stop]
            places.append(first + np.flatnonzero(is_here))
            local.append(start + at[is_here])
        return np.concatenate(places), np.concatenate(local)


AnyBlock = TypeVar("AnyBlock", Block, NumberedBlock)


def join_blocks(parts: Sequence[AnyBlock]) -> AnyBlock:
    """One after the other."""
    return type(parts[0])._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def pick_rows(block: AnyBlock, rows: NDArray[np.bool_]) -> AnyBlock:
    """Some of the rows."""
    return type(block)._make(array[rows] for array in block)


class BlockSummary(NamedTuple):
    """What is known of the rows of a block."""

    inputs: RunningScale
    box: Array  # (2, d), least and largest entries of X
    scale: RunningScale  # of y
    first: Array  # (d,) row
    at_one_place: bool


def load_block(X: Any, y: Any) -> Block:
    """A block of the collections as floating-point numbers, all of them finite."""
    X, y = check_X_y(X, y, dtype=np.float64, order="C", y_numeric=True, ensure_min_samples=0)
    return Block(X, np.asarray(y, dtype=np.float64))


def summarise(block: Block | NumberedBlock) -> BlockSummary | None:
    """Of a block without rows, nothing."""
    X, y = block.X, block.y
    if not len(y):
        return None
    at_one_place = bool(np.all(X == X[0]))
    box = np.array([X.min(axis=0), X.max(axis=0)])
    scale = RunningScale.of(y[:, None])
    return BlockSummary(RunningScale.of(X), box, scale, X[0].copy(), at_one_place)


def _advance(results: Iterator[Any]) -> Any:
    with single_blas_thread:
        return next(results, None)
