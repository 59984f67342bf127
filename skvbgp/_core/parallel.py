"""One way to run independent tasks, with the same results on every joblib backend."""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController

from skvbgp._core.dispatch import dispatch, find_dask
from skvbgp._core.journal import use_journal


def parallel_map(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    *,
    n_jobs: int | None = None,
    shared: tuple[Any, ...] = (),
) -> list[Any]:
    """Results of `parallel_each`, in the order of the tasks."""
    results: list[Any] = []
    parallel_each(function, tasks, results.append, n_jobs=n_jobs, shared=shared)
    return results


def parallel_each(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    receive: Callable[[Any], object],
    *,
    n_jobs: int | None = None,
    shared: tuple[Any, ...] = (),
) -> None:
    """Call ``function(*shared, *task)`` for each task, on the active joblib backend.

    The results are equal bit for bit for every `n_jobs` and backend, because `function` runs
    with one BLAS thread everywhere, even without parallelism: the rounding of a matrix product
    or a Cholesky factor depends on the number of threads. (Where OpenBLAS keeps one limit per
    process, another thread of the user's that changes it meanwhile can break this.)

    Dask runs the tasks of a worker that dies on another one. What it has sent ahead may die with
    the worker, though; then all tasks whose results are not there yet are started again. If
    workers die again and again, or none is left, that is a RuntimeError.

    The function is one of a module (not a method or closure, which would send its object along with
    each task). It must not write to its arguments, nor draw from a shared generator: pass it a seed
    of `spawn_seeds`. What it raises is raised here.

    What a task holds is sent with it: keep it small. An item of ``tasks`` is asked for shortly
    before its task starts; see `LazyTasks`. ``shared`` are the first arguments of all calls, whose
    large arrays process-based backends share in memory, and Dask sends once. ``receive`` is called
    in this thread with each result, in the order of the tasks, as soon as it and all before it are
    there. Some backends ignore `n_jobs`.
    """
    dask = find_dask()
    # as long as the last task: threads of a process share one limit
    with single_blas_thread, use_journal(None):
        if dask is not None:
            run, *_ = delayed(_run_task)()
            run = run.with_config_and_warning_filters(get_config(), warnings.filters)
            dispatch(dask, run, tasks, receive, (function, *shared))
            return
        calls = (delayed(_run_task)(function, *shared, *tasks[i]) for i in range(len(tasks)))
        for result in Parallel(n_jobs=n_jobs, return_as="generator")(calls):
            receive(result)


def spread_each(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    receive: Callable[[Any], object],
    *,
    n_jobs: int | None = None,
    shared: tuple[Any, ...] = (),
) -> None:
    """`parallel_each` if the user has asked joblib for workers, and else on local threads.

    The user asks by `n_jobs`, or by ``joblib.parallel_config`` of a backend with several workers.
    """
    if n_jobs is not None or effective_n_jobs(None) > 1:
        parallel_each(function, tasks, receive, n_jobs=n_jobs, shared=shared)
        return
    with single_blas_thread, use_journal(None):
        for result in _run_on_threads(lambda i: function(*shared, *tasks[i]), len(tasks)):
            receive(result)


def thread_map(function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Call ``function(*task)`` for each task, on the threads that BLAS would have used.

    A few large tasks, each with one BLAS thread, use the cores better than many small BLAS calls
    with several: those wait for each other at the end of every call, for long if another process
    takes a core meanwhile. The results are in order, and equal bit for bit for every number of
    threads. Inside `parallel_map`, or another task, they run one after the other. The function must
    not write to what other tasks read.
    """
    tasks = list(tasks)
    _keep_freed_memory()
    with single_blas_thread, use_journal(None):
        return list(_run_on_threads(lambda i: function(*tasks[i]), len(tasks)))


def concurrently(*thunks: Callable[[], Any]) -> list[Any]:
    """Results of some functions without arguments, see `thread_map`."""
    return thread_map(lambda thunk: thunk(), [(thunk,) for thunk in thunks])


class LazyTasks(Sequence[tuple[Any, ...]]):
    """Tasks that are made when they are asked for, so that few of them are in memory at a time.

    ``make`` gives the task of a number in ``range(n_tasks)``, the same each time.
    """

    def __init__(self, n_tasks: int, make: Callable[[int], tuple[Any, ...]]) -> None:
        self._n_tasks, self._make = n_tasks, make

    def __len__(self) -> int:
        return self._n_tasks

    def __getitem__(self, i: int) -> tuple[Any, ...]:  # type: ignore[override]
        return self._make(range(self._n_tasks)[i])


def spawn_seeds(
    random_state: int | np.random.RandomState | None, n_seeds: int
) -> NDArray[np.int64]:
    """Draw one seed per task, before the tasks are distributed; a `RandomState` is advanced.

    `check_random_state` accepts them once turned into `int`.
    """
    generator = check_random_state(random_state)
    return generator.randint(np.iinfo(np.int32).max, size=n_seeds, dtype=np.int64)


def _run_task(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run one task. The limits are set here because a worker may be another process."""
    _keep_freed_memory()
    with single_blas_thread:
        return function(*arguments)


@cache
def _keep_freed_memory() -> None:
    """Have the process keep the memory of freed arrays, for the next ones.

    glibc returns blocks that are larger than any it has seen freed, and the page faults of their
    successors cost up to a quarter of a task's time. The limit follows the largest block freed,
    up to 32 MiB; this one is never touched. Elsewhere it has no effect.
    """
    np.empty(31 * 2**20, dtype=np.uint8)


def _run_on_threads(function: Callable[[int], Any], n: int) -> Iterator[Any]:
    """Results of ``function(0)`` to ``function(n - 1)``; inside of `single_blas_thread`."""
    n_threads = min(single_blas_thread.n_threads, n)
    if n_threads <= 1 or getattr(_thread, "is_worker", False):
        yield from map(function, range(n))
        return
    pool = _pool_of(os.getpid(), n_threads)
    futures = deque(pool.submit(function, i) for i in range(n))
    try:
        while futures:
            yield futures.popleft().result()
    finally:  # nothing goes on behind the back of who has asked for it
        for future in futures:
            future.cancel()
        wait(futures)


@cache
def _pool_of(pid: int, n_threads: int) -> ThreadPoolExecutor:
    """Threads of a process, kept: to start them takes longer than many a task of small data.

    A forked process has copies of the executor, but not of its threads.
    """
    return ThreadPoolExecutor(n_threads, initializer=_become_worker)


_thread = threading.local()


def _become_worker() -> None:
    """Mark a thread of a pool: what it calls in turn has this one thread."""
    _thread.is_worker = True


class _SingleBlasThread:
    """Context in which BLAS uses one thread; it may be entered again, also by other threads.

    ``n_threads`` are those that BLAS had before, which `thread_map` may use instead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self.n_threads = 1

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                pools = _find_threadpools().select(user_api="blas")
                self.n_threads = max((pool["num_threads"] for pool in pools.info()), default=1)
                self._limits = pools.limit(limits=1)
            self._n_inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._limits.restore_original_limits()


single_blas_thread = _SingleBlasThread()


def single_openmp_thread() -> AbstractContextManager[Any]:
    """Context in which the loops of scikit-learn's compiled code have one thread."""
    context: AbstractContextManager[Any] = _find_threadpools().limit(limits=1, user_api="openmp")
    return context


@cache
def _find_threadpools() -> ThreadpoolController:
    """Controller of the loaded libraries, kept because finding them takes milliseconds.

    scikit-learn's OpenMP is among them: `sklearn.utils`, imported above, loads it.
    """
    return ThreadpoolController()
