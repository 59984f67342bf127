import os
import platform
import threading
import time
from multiprocessing import get_context

import numpy as np
import pytest
from joblib import parallel_config
from joblib.externals.loky import get_reusable_executor
from numpy.testing import assert_array_equal
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_info, threadpool_limits

from skvbgp._core import parallel
from skvbgp._core.parallel import (
    LazyTasks,
    parallel_each,
    parallel_map,
    single_blas_thread,
    spawn_seeds,
    spread_each,
)


@pytest.fixture(autouse=True)
def _outside_of_the_context_of_all_tests():
    single_blas_thread.__exit__()
    yield
    single_blas_thread.__enter__()


BACKENDS = ["sequential", "threading", pytest.param("loky", marks=pytest.mark.thorough)]


@pytest.fixture(params=BACKENDS)
def backend(request):
    with parallel_config(backend=request.param):
        yield request.param


class UnusualError(ArithmeticError):
    pass


def noisy_cholesky(A, jitter, seed):
    noise = check_random_state(seed).normal(size=len(A))  # (n,)
    factor = np.linalg.cholesky(A @ A.T + jitter * np.eye(len(A)))  # (n, n)
    return factor, factor @ noise


def fail(message):
    raise UnusualError(message)


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def page_faults_of_repeated_arrays():
    """Page faults of a process that fills arrays of 400 kB again and again."""
    import resource  # Unix alone has it

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        arrays = [np.ones(50_000) for _ in range(8)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.thorough
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tells how glibc's malloc is set")
def test_workers_keep_freed_memory(monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)  # Dask's cluster leaves it behind
    get_reusable_executor().shutdown(wait=True)  # its workers may have started with it
    faults = parallel_map(page_faults_of_repeated_arrays, [()] * 4, n_jobs=2)
    assert min(faults) < 5_000  # 400 arrays of 98 pages; a process may do other things beside


def test_results_equal_bit_by_bit_in_order_of_tasks(backend, rng):
    A = rng.normal(size=(400, 400))  # above 1 MB: loky hands it over as a memory map
    A.flags.writeable = False
    tasks = list(zip([1.0, 2.0, 3.0, 4.0], spawn_seeds(0, 4).tolist(), strict=True))
    with threadpool_limits(1):
        expected = [noisy_cholesky(A, *task) for task in tasks]
    with threadpool_limits(2):
        results = parallel_map(noisy_cholesky, tasks, n_jobs=2, shared=(A,))
    for result, wanted in zip(results, expected, strict=True):
        assert_array_equal(result[0], wanted[0])
        assert_array_equal(result[1], wanted[1])


def test_tasks_run_with_one_blas_thread(backend):
    with threadpool_limits(2):
        before = blas_threads()
        for threads in parallel_map(blas_threads, [()] * 3, n_jobs=2):
            assert threads <= {1}
        assert blas_threads() == before


def test_tasks_of_a_thread_stay_on_it():
    """They would otherwise share the cores with those of all other threads."""

    def threads_of_subtasks():
        return set(parallel.thread_map(threading.get_ident, [()] * 3)) == {threading.get_ident()}

    with threadpool_limits(2):
        assert all(parallel.thread_map(threads_of_subtasks, [()] * 3))


def thread_ids_of_a_map():
    with threadpool_limits(2):
        return parallel.thread_map(threading.get_ident, [()] * 4)


def test_threads_are_kept():
    with threadpool_limits(2):
        names = [set(parallel.thread_map(threading.get_ident, [()] * 8)) for _ in range(20)]
    assert len(set().union(*names)) <= 2


def test_nothing_goes_on_after_an_exception():
    started, done = [], []

    def work(i):
        started.append(i)
        if i == 0:
            raise UnusualError
        time.sleep(0.05)
        done.append(i)

    with threadpool_limits(2):
        with pytest.raises(UnusualError):
            parallel.thread_map(work, [(i,) for i in range(40)])
        at_return = list(done)
        time.sleep(0.1)
    assert done == at_return
    assert len(started) < 40


def test_nothing_goes_on_if_a_result_is_refused():
    """When BLAS has its threads again, whoever holds the exception."""
    done = []

    def work(i):
        time.sleep(0.05)
        done.append(i)

    def refuse(result):
        raise UnusualError

    with threadpool_limits(2):
        try:
            spread_each(work, [(i,) for i in range(40)], refuse)
        except UnusualError as error:
            held = error
        at_return = list(done)
        time.sleep(0.1)
    assert done == at_return
    assert held.__traceback__ is not None and len(done) < 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows starts processes anew")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    with threadpool_limits(2):
        parallel.thread_map(threading.get_ident, [()] * 4)
        with get_context("fork").Pool(1) as pool:
            assert len(pool.apply_async(thread_ids_of_a_map).get(timeout=30)) == 4


def test_exception_keeps_its_type(backend):
    with pytest.raises(UnusualError, match="odd"):
        parallel_map(fail, [("odd",)] * 2, n_jobs=2)


def test_blas_limit_is_lifted_after_an_exception():
    with threadpool_limits(2):
        before = blas_threads()
        with pytest.raises(UnusualError):
            parallel_map(fail, [("odd",)])
        assert blas_threads() == before


@pytest.mark.thorough
def test_results_arrive_one_by_one_in_the_order_of_the_tasks(backend):
    seen = []
    parallel_each(divmod, [(i, 3) for i in range(6)], seen.append, n_jobs=2)
    assert seen == [divmod(i, 3) for i in range(6)]


def test_a_result_is_received_before_the_next_task_is_made_and_run():
    events = []

    def task(i):
        events.append(("task", i))
        return i

    def make(i):
        events.append(("made", i))
        return (i,)

    parallel_each(task, LazyTasks(2, make), lambda result: events.append(("seen", result)))
    assert events == [(what, i) for i in (0, 1) for what in ("made", "task", "seen")]


def thread_names(barrier, i):
    barrier.wait(timeout=10)
    return i, threading.current_thread().name


def test_spread_each_uses_local_threads_until_workers_are_asked_for():
    def names(n_threads, **options):
        seen = []
        barrier = threading.Barrier(n_threads)
        spread_each(thread_names, [(0,), (1,)], seen.append, shared=(barrier,), **options)
        assert [i for i, _ in seen] == [0, 1]
        return {name.split("-")[0].split("_")[0] for _, name in seen}

    with threadpool_limits(2, user_api="blas"):
        assert names(2) == {"ThreadPoolExecutor"}
        assert names(1, n_jobs=1) == {"MainThread"}
        with parallel_config("threading", n_jobs=2):
            assert "MainThread" not in names(2)


def test_lazy_tasks_are_made_anew_each_time():
    tasks = LazyTasks(3, lambda i: (object(), i))
    assert len(tasks) == 3
    assert tasks[2][1] == 2
    assert tasks[2][0] is not tasks[2][0]
    with pytest.raises(IndexError):
        tasks[3]


def test_no_tasks():
    assert parallel_map(fail, []) == []


def test_spawn_seeds():
    seeds = spawn_seeds(0, 100)
    assert len(set(seeds)) == 100
    assert_array_equal(seeds, spawn_seeds(np.random.RandomState(0), 100))
    state = np.random.RandomState(0)
    assert not np.array_equal(spawn_seeds(state, 3), spawn_seeds(state, 3))
    check_random_state(int(seeds[0]))
