import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_array_equal
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_info, threadpool_limits

from skvbgp._core import parallel
from skvbgp._core.parallel import parallel_map, spawn_seeds

BACKENDS = ["sequential", "threading", "loky"]


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


def test_exception_keeps_its_type(backend):
    with pytest.raises(UnusualError, match="odd"):
        parallel_map(fail, [("odd",)] * 2, n_jobs=2)


def test_blas_limit_is_lifted_after_an_exception():
    with threadpool_limits(2):
        before = blas_threads()
        with pytest.raises(UnusualError):
            parallel_map(fail, [("odd",)])
        assert blas_threads() == before


def test_payload_is_function_shared_and_task_alone(monkeypatch, rng):
    calls = []

    class Recorder:
        def __init__(self, n_jobs):
            assert n_jobs == 2

        def __call__(self, iterable):
            calls.extend(iterable)
            return []

    monkeypatch.setattr(parallel, "Parallel", Recorder)
    A, jitter, seed = rng.normal(size=(3, 3)), 1.0, 5
    parallel_map(noisy_cholesky, [(jitter, seed)], n_jobs=2, shared=(A,))
    [(_, arguments, keywords)] = calls
    # The very same objects: joblib and Dask recognise an array by its identity.
    assert [id(a) for a in arguments] == [id(a) for a in (noisy_cholesky, A, jitter, seed)]
    assert keywords == {}


def test_monitor_sees_each_result_in_the_order_of_the_tasks(backend):
    seen = []
    results = parallel_map(divmod, [(i, 3) for i in range(6)], n_jobs=2, monitor=seen.append)
    assert results == seen == [divmod(i, 3) for i in range(6)]


def test_monitor_is_called_before_the_next_task_runs():
    events = []

    def task(i):
        events.append(("task", i))
        return i

    parallel_map(task, [(0,), (1,)], monitor=lambda result: events.append(("seen", result)))
    assert events == [("task", 0), ("seen", 0), ("task", 1), ("seen", 1)]


def test_no_tasks():
    assert parallel_map(fail, []) == []


def test_spawn_seeds():
    seeds = spawn_seeds(0, 100)
    assert len(set(seeds)) == 100
    assert_array_equal(seeds, spawn_seeds(np.random.RandomState(0), 100))
    state = np.random.RandomState(0)
    assert not np.array_equal(spawn_seeds(state, 3), spawn_seeds(state, 3))
    check_random_state(int(seeds[0]))
