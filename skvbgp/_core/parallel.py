"""One way to run independent tasks, with the same results on every joblib backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController


def parallel_map(
    function: Callable[..., Any],
    tasks: Iterable[tuple[Any, ...]],
    *,
    n_jobs: int | None = None,
    shared: tuple[Any, ...] = (),
) -> list[Any]:
    """Call ``function(*shared, *task)`` for each task, on the active joblib backend.

    The results are equal bit for bit for every `n_jobs` and backend, because `function` runs
    with one BLAS thread everywhere, even without parallelism: the rounding of a matrix product
    or a Cholesky factor depends on the number of threads. (Where OpenBLAS keeps one limit per
    process, another thread of the user's that changes it meanwhile can break this.)

    Parameters
    ----------
    function : callable
        Function of a module (not a method or closure, which would send its object along with
        each task). It must not write to its arguments, nor draw from a shared generator:
        pass it a seed of `spawn_seeds`.
    tasks : iterable of tuples
        Own arguments of each call. What they hold is sent with the task: keep it small.
    n_jobs : int or None, default=None
        Number of workers, as everywhere in scikit-learn. Some backends ignore it.
    shared : tuple, default=()
        First arguments of all calls. Large arrays belong here, each as an item of its own:
        process-based backends then share them in memory and Dask sends them once.

    Returns
    -------
    results : list
        Results in the order of the tasks.

    Raises
    ------
    Exception
        Whatever `function` raises, with its type.
    """
    # Where the threads of a process share one limit, it has to outlast the first task to end.
    with _single_blas_thread():
        return list(
            Parallel(n_jobs=n_jobs)(delayed(_run_task)(function, *shared, *task) for task in tasks)
        )


def spawn_seeds(
    random_state: int | np.random.RandomState | None, n_seeds: int
) -> NDArray[np.int64]:
    """Draw one seed per task, before the tasks are distributed.

    Parameters
    ----------
    random_state : int, RandomState instance or None
        A `RandomState` is advanced.
    n_seeds : int
        Number of seeds.

    Returns
    -------
    seeds : ndarray of shape (n_seeds,)
        Seeds accepted by `check_random_state` once turned into `int`.
    """
    generator = check_random_state(random_state)
    return generator.randint(np.iinfo(np.int32).max, size=n_seeds, dtype=np.int64)


def _run_task(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run one task. The limit is set here because a worker may be another thread or process."""
    with _single_blas_thread():
        return function(*arguments)


def _single_blas_thread() -> AbstractContextManager[Any]:
    return _threadpools().limit(limits=1, user_api="blas")


@cache
def _threadpools() -> ThreadpoolController:
    """Controller of the loaded libraries, kept because finding them takes milliseconds."""
    return ThreadpoolController()
