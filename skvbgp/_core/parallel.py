"""One way to run independent tasks, with the same results on every joblib backend."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
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
    monitor: Callable[[Any], None] | None = None,
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
    monitor : callable or None, default=None
        Called in the calling thread with each result, in the order of the tasks, as soon as
        it and all before it are there.

    Returns
    -------
    results : list
        Results in the order of the tasks.

    Raises
    ------
    Exception
        Whatever `function` raises, with its type.
    """
    with single_blas_thread:  # as long as the last task: threads of a process share one limit
        calls = (delayed(_run_task)(function, *shared, *task) for task in tasks)
        if monitor is None:
            return list(Parallel(n_jobs=n_jobs)(calls))
        results = []
        for result in Parallel(n_jobs=n_jobs, return_as="generator")(calls):
            monitor(result)
            results.append(result)
        return results


def thread_map(function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Call ``function(*task)`` for each task, on the threads that BLAS would have used.

    A few large tasks, each with one BLAS thread, use the cores better than many small BLAS
    calls with several: those wait for each other at the end of every call, for long if another
    process takes a core meanwhile. The results are in order, and equal bit for bit for every
    number of threads. Inside `parallel_map` the tasks run one after the other.

    Parameters
    ----------
    function : callable
        It must not write to what other tasks read.
    tasks : iterable of tuples
        Arguments of each call.

    Returns
    -------
    results : list
        Results in the order of the tasks.
    """
    tasks = list(tasks)
    with single_blas_thread:
        n_threads = min(single_blas_thread.n_threads, len(tasks))
        if n_threads <= 1:
            return [function(*task) for task in tasks]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(lambda task: function(*task), tasks))


def concurrently(*thunks: Callable[[], Any]) -> list[Any]:
    """Results of some functions without arguments, see `thread_map`."""
    return thread_map(lambda thunk: thunk(), [(thunk,) for thunk in thunks])


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
    """Run one task. The limit is set here because a worker may be another process."""
    with single_blas_thread:
        return function(*arguments)


class _SingleBlasThread:
    """Context in which BLAS uses one thread; it may be entered again, also by other threads.

    Attributes
    ----------
    n_threads : int
        Threads that BLAS had before: those that `thread_map` may use instead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self.n_threads = 1

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                pools = _threadpools().select(user_api="blas")
                self.n_threads = max((pool["num_threads"] for pool in pools.info()), default=1)
                self._limits = pools.limit(limits=1)
            self._n_inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._limits.restore_original_limits()


single_blas_thread = _SingleBlasThread()


@cache
def _threadpools() -> ThreadpoolController:
    """Controller of the loaded libraries, kept because finding them takes milliseconds."""
    return ThreadpoolController()
