"""Tasks on a Dask cluster, which may fail in many ways but never wait for ever."""

import os
import re
import signal
import time
import warnings

import numpy as np
import pytest
from joblib import parallel_config
from sklearn import config_context, get_config

from skvbgp._core import parallel
from skvbgp._core.dispatch import find_dask
from skvbgp._core.parallel import LazyTasks, parallel_each, parallel_map

cloudpickle = pytest.importorskip("cloudpickle")
distributed = pytest.importorskip("distributed")


@pytest.fixture
def dask(client, monkeypatch):
    """Tasks go to the cluster."""
    monkeypatch.setattr("skvbgp._core.dispatch._PAUSE", 0.1)
    with parallel_config("dask"):
        yield client


@pytest.fixture
def scheduler(client):
    return client.cluster.scheduler


def add(shared, i):
    return float(shared.sum()) + i


ONES, TASKS = np.ones(1_000), [(i,) for i in range(9)]
EXPECTED = [1_000.0 + i for i in range(9)]


@pytest.mark.parametrize("n_losses", [0, 1, 3])
def test_what_cannot_be_sent_ahead_is_sent_again(dask, scheduler, monkeypatch, n_losses):
    """As if a worker had just died, and the scheduler were too busy to see it."""
    scatter, calls = scheduler.handlers["scatter"], []

    async def fail_at_first(*arguments, **options):
        calls.append(options)
        if len(calls) <= n_losses:
            raise OSError("Timed out while connecting to a worker")
        return await scatter(*arguments, **options)

    monkeypatch.setitem(scheduler.handlers, "scatter", fail_at_first)
    assert parallel_map(add, TASKS, shared=(ONES,)) == EXPECTED
    assert len(calls) == n_losses + 1  # once for all tasks


def test_losses_without_an_end_are_an_error(dask, scheduler, monkeypatch):
    async def fail(*arguments, **options):
        raise OSError("Timed out while connecting to a worker")

    monkeypatch.setitem(scheduler.handlers, "scatter", fail)
    with pytest.raises(RuntimeError, match="lost 4 times.*0 of 9 tasks") as caught:
        parallel_map(add, TASKS, shared=(ONES,))
    assert isinstance(caught.value.__cause__, OSError)


def test_tasks_go_on_after_what_they_share_is_lost(dask, scheduler):
    """Results that are there stay."""
    seen, lost = [], []

    def receive(result):
        seen.append(result)
        if len(seen) == 2 and not lost:
            lost.extend(key for key in scheduler.tasks if key.startswith("tuple-"))
            dask.cancel([distributed.Future(key, dask) for key in lost], force=True)

    parallel_each(add_slowly, TASKS, receive, shared=(ONES,))
    assert len(lost) == 1
    assert seen == EXPECTED


def add_slowly(shared, i):
    time.sleep(0.3)
    return add(shared, i)


def kill_own_worker(client_pid, i):
    assert os.getpid() != client_pid, "This would have killed the client."
    time.sleep(0.3)  # the other worker has what is shared by now
    if i == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return i


def test_a_task_that_kills_its_workers_is_an_error(dask, scheduler, monkeypatch):
    monkeypatch.setattr(scheduler, "allowed_failures", 0)
    with pytest.raises(RuntimeError, match="given up a task"):
        parallel_map(kill_own_worker, TASKS, shared=(os.getpid(),))


def test_tasks_that_no_worker_may_run_are_an_error(client, monkeypatch):
    monkeypatch.setattr("skvbgp._core.clients._LOOK_EVERY", 0.01)
    with parallel_config("dask", workers=["tcp://127.0.0.1:9"]):  # no worker is there
        with pytest.raises(RuntimeError, match="Dask does nothing.* no worker is left"):
            parallel_map(add, TASKS, shared=(ONES,))


def test_a_result_that_never_comes_is_an_error(dask, monkeypatch):
    """As if the last worker were lost after its task was done."""
    result, asked = distributed.Future.result, []

    def wait(self, timeout=None):
        if "_run_task" not in self.key:
            return result(self, timeout)
        asked.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(distributed.Future, "result", wait)
    with pytest.raises(RuntimeError, match="not sent a result within 300 seconds"):
        parallel_map(add, TASKS, shared=(ONES,))
    assert asked == [300.0]


class Unreadable:
    def __reduce__(self):
        return fail, ("unreadable",)


def fail(message):
    raise ArithmeticError(message)


def make_unreadable(i):
    return Unreadable()


@pytest.mark.parametrize(
    ("function", "task", "shared"),
    [
        (add, (Unreadable(),), (ONES,)),
        (add, (1,), (Unreadable(),)),
        (make_unreadable, (1,), ()),
    ],
)
def test_what_cannot_be_read_is_an_error(dask, function, task, shared):
    with pytest.raises(Exception, match="unreadable"):
        parallel_map(function, [task] * 2, shared=shared)


def test_exception_keeps_its_type(dask):
    with pytest.raises(ArithmeticError, match="odd"):
        parallel_map(fail, [("odd",)] * 2)


def test_nothing_goes_on_once_a_result_is_refused(dask, scheduler):
    def refuse(result):
        raise ArithmeticError("refused")

    before = set(scheduler.tasks)
    with pytest.raises(ArithmeticError, match="refused") as caught:
        parallel_each(add_slowly, TASKS, refuse, shared=(ONES,))
    end = time.monotonic() + 10.0
    while not before.issuperset(scheduler.tasks) and time.monotonic() < end:
        time.sleep(0.05)
    assert before.issuperset(scheduler.tasks)
    del caught  # whose frames are there until here


def tell_settings():
    warnings.warn("odd", RuntimeWarning, stacklevel=1)
    return get_config()["working_memory"], parallel.single_blas_thread._n_inside


def test_tasks_have_the_settings_of_the_client(dask):
    with config_context(working_memory=77), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert parallel_map(tell_settings, [()] * 2) == [(77, 1)] * 2
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="odd"):
            parallel_map(tell_settings, [()])


class Callable:
    """Stands for a kernel."""

    def __call__(self, other):
        raise AssertionError("Dask has called it.")


def count(*arguments):
    return len(arguments)


def test_items_of_a_task_are_left_as_they_are(dask):
    assert parallel_map(count, [(Callable(), 1)], shared=(Callable(), 2)) == [4]


def test_quick_tasks_go_together_and_few_are_made_ahead(dask, scheduler):
    made, received, keys = [], [], set()

    def make(i):
        made.append(i)
        return (i,)

    def receive(result):
        received.append(result)
        keys.update(key for key in list(scheduler.tasks) if re.match("_run_task-", str(key)))

    parallel_each(add, LazyTasks(500, make), receive, shared=(ONES,))
    assert received == [1_000.0 + i for i in range(500)]
    assert made == list(range(500))
    assert len(keys) < 100
    made.clear()
    most = []
    parallel_each(
        add_slowly, LazyTasks(9, make), lambda result: most.append(len(made)), shared=(ONES,)
    )
    assert most[0] <= 2 * 2 + 2


@pytest.mark.filterwarnings("error")
def test_large_tasks_do_not_go_through_the_scheduler(dask):
    """Dask warns of 10 MB at a time, be they of one task or of several quick ones."""
    rows = np.ones((4, 400_000))
    assert parallel_map(row_sums, [(rows,), (2.0 * rows,)]) == [1_600_000.0, 3_200_000.0]
    tasks = LazyTasks(200, lambda i: (np.full((4, 4_000), float(i)),))
    assert parallel_map(row_sums, tasks) == [16_000.0 * i for i in range(200)]


def row_sums(rows):
    return float(rows.sum())


def add_on_dask(shared, i):
    assert find_dask() is not None
    return sum(parallel_map(add, [(i,), (i + 1,)], shared=(shared,)))


def test_tasks_have_tasks(dask):
    """More of them than workers: one that waits makes room."""
    assert parallel_map(add_on_dask, TASKS, shared=(ONES,)) == [2_001.0 + 2 * i for i in range(9)]
