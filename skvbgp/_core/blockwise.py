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
    function: Callable[..., tuple[Array, Array]],
    X: Array,
    labels: NDArray[np.intp],
    data_of: Callable[[int], tuple[Any, ...]],
    *,
    shared: tuple[Any, ...],
    n_jobs: int | None = None,
) -> tuple[Array, Array]:
    """Means and variances of rows, block by block, on joblib's workers or on threads.

    Parameters
    ----------
    function : callable
        ``function(*shared, rows of X, *data_of(block))`` gives means and variances.
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
    mean, variance : ndarrays of shape (n,)
    """
    pieces = rows_by_block(labels, _TILE_ROWS)
    mean, variance = np.empty(len(X)), np.empty(len(X))
    pending = iter(pieces)

    def task(i: int) -> tuple[Any, ...]:
        block, rows = pieces[i]
        return X[rows], *data_of(block)

    def receive(moments: tuple[Array, Array]) -> None:
        _, rows = next(pending)
        mean[rows], variance[rows] = moments

    spread_each(function, LazyTasks(len(pieces), task), receive, n_jobs=n_jobs, shared=shared)
    return mean, variance
