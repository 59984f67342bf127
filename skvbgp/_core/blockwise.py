"""Predictions of rows from the data of the block that each of them belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import LazyTasks, spread_each
from skvbgp._core.partition import rows_by_block

#: Rows of a block that are predicted at a time.
_TILE_ROWS = 512


def moments_by_block(
    function: Callable[..., tuple[Array, ...]],
    X: Array,
    labels: NDArray[np.intp],
    data_of: Callable[[int], tuple[Any, ...]],
    *,
    shared: tuple[Any, ...],
    n_jobs: int | None = None,
) -> tuple[Array, ...]:
    """Means and variances of rows, block by block, on joblib's workers or on threads.

    Parameters
    ----------
    function : callable
        ``function(*shared, rows of X, *data_of(block))`` gives means and variances, or other
        arrays by row.
    X : ndarray of shape (n, d)
    labels : ndarray of shape (n,)
        Block of each row.
    data_of : callable
        What a worker has to know of a block.
    shared : tuple
        What it has to know of all of them.
    n_jobs : int or None
        Number of joblib's workers; None leaves them to the active backend.

    Returns
    -------
    mean, variance, ... : ndarrays of shape (n, ...)
    """
    pieces = rows_by_block(labels, _TILE_ROWS)
    parts: list[tuple[Array, ...]] = []

    def task(i: int) -> tuple[Any, ...]:
        block, rows = pieces[i]
        return X[rows], *data_of(block)

    tasks = LazyTasks(len(pieces), task)
    spread_each(function, tasks, parts.append, n_jobs=n_jobs, shared=shared)
    rows = np.concatenate([rows for _, rows in pieces])
    order = np.argsort(rows)
    return tuple(np.concatenate(part)[order] for part in zip(*parts, strict=True))
