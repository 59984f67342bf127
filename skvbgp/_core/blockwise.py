"""Predictions of many rows: some at a time, or from the data of the block that each belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut
from skvbgp._core.parallel import LazyTasks, spread_each, thread_map
from skvbgp._core.partition import cut_by_block

#: Rows that are predicted at a time, which bounds the memory, and those of a block.
_TILE_ROWS, BLOCK_ROWS = 1024, 512
#: Rows of one of joblib's tasks.
_TASK_ROWS = 64

_Moments = TypeVar("_Moments", bound=tuple[Array, ...])


def in_tiles(function: Callable[[Any], _Moments], X: NDArray[Any]) -> _Moments:
    """What a function says of many rows, such as moments, tile by tile on several threads."""
    parts = zip(*_map_tiles(function, X), strict=True)
    return cast(_Moments, tuple(map(np.concatenate, parts)))


def by_tile(function: Callable[[Array], Array], X: Array) -> Array:
    """The same of a function that returns one array."""
    return np.concatenate(_map_tiles(function, X))


def _map_tiles(function: Callable[[Any], Any], X: NDArray[Any]) -> list[Any]:
    return thread_map(function, [(X[rows],) for rows in cut(len(X), _TILE_ROWS)])


def by_task(
    function: Callable[..., Array],
    rows: tuple[NDArray[Any], ...],
    *,
    shared: tuple[Any, ...],
    n_jobs: int | None,
) -> Array:
    """Results (n, ...) of ``function(*shared, *rows)`` on joblib's workers, some rows at a time."""
    tasks = [tuple(values[some] for values in rows) for some in cut(len(rows[0]), _TASK_ROWS)]
    parts: list[Array] = []
    spread_each(function, tasks, parts.append, n_jobs=n_jobs, shared=shared)
    return np.concatenate(parts)


def moments_by_block(
    function: Callable[..., tuple[Array, ...]],
    X: Array,
    labels: NDArray[np.intp],
    data_of: Callable[[int], tuple[Any, ...]],
    *,
    shared: tuple[Any, ...],
    n_jobs: int | None = None,
) -> tuple[Array, ...]:
    """Means and variances (n, ...) of rows, block by block, on joblib's workers or on threads.

    ``function(*shared, rows of X, *data_of(block))`` gives them, or other arrays by row; labels
    (n,) say which block a row is of. None of ``n_jobs`` leaves their number to the active backend.
    """
    pieces = cut_by_block(labels, BLOCK_ROWS)
    parts: list[tuple[Array, ...]] = []

    def task(i: int) -> tuple[Any, ...]:
        block, rows = pieces[i]
        return X[rows], *data_of(block)

    tasks = LazyTasks(len(pieces), task)
    spread_each(function, tasks, parts.append, n_jobs=n_jobs, shared=shared)
    return join_in_order(parts, [rows for _, rows in pieces])


def join_in_order(
    parts: Iterable[tuple[Array, ...]], rows: Sequence[NDArray[np.intp]]
) -> tuple[Array, ...]:
    """Arrays of all rows, in their order, from those of parts; ``rows`` says which each is of."""
    joined = []
    for values in zip(*parts, strict=True):
        dtype = np.result_type(*{own.dtype for own in values})
        whole = np.empty((sum(map(len, values)), *values[0].shape[1:]), dtype)
        for own, index in zip(values, rows, strict=True):
            whole[index] = own
        joined.append(whole)
    return tuple(joined)
