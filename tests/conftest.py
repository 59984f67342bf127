"""What every test shares: a seeded generator, and one BLAS thread.

One thread makes sums come out in the same order on every machine and keeps `pytest -n` and the
workers of parallel tests from competing for the same cores.
"""

import gc
import logging
import os
import time
from contextlib import suppress
from zlib import crc32

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import skvbgp


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Ten thousand cases stay until the end: to look for garbage among them takes a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)  # and to look through what a test leaves, a hundredth of all time
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "cluster" in item.fixturenames:
            item.add_marker(pytest.mark.thorough)
        names = {name for mark in item.iter_markers("in_turn") for name in mark.args}
        if names and not is_next_in_turn(item, names):
            item.add_marker(pytest.mark.slow)
        if not all(is_one_in(item, *mark.args) for mark in item.iter_markers("every_nth")):
            item.add_marker(pytest.mark.thorough)


def is_one_in(item, name, n):
    """Whether a case is one in n of a parameter's that are not marked themselves.

    Tests begin with different ones, so that those of a module meet all.
    """
    marks = [(list_names(mark), mark.args[1]) for mark in item.iter_markers("parametrize")]
    ((axis, cases),) = (mark for mark in marks if name in mark[0])
    place = find_case(cases, [item.callspec.params[name] for name in axis])
    quick = sum(not getattr(case, "marks", ()) for case in list(cases)[:place])
    # of these bits, as it happens, those of a module's tests differ
    return (quick + (crc32(item.originalname.encode()) >> 9)) % n == 0


def is_next_in_turn(item, names):
    """Whether a case of a product has those values of some parameters whose turn it is.

    Each combination of the other parameters meets one combination of these, and the next one
    another. Tests begin with different ones.
    """
    others, place, n_places, left = crc32(item.originalname.encode()), 0, 1, set(names)
    for mark in item.iter_markers("parametrize"):
        axis = list_names(mark)
        index = find_case(mark.args[1], [item.callspec.params[name] for name in axis])
        if axis[0] in names:
            left.remove(axis[0])
            place, n_places = place + n_places * index, n_places * len(mark.args[1])
        else:
            others += index
    assert not left, f"{item.nodeid}: no parameters {left}"
    return place == others % n_places


def list_names(mark):
    """Names of the parameters that a mark gives cases of."""
    names = mark.args[0]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else names


def find_case(cases, values):
    """The number of a case, by its values themselves."""
    for number, case in enumerate(cases):
        if isinstance(case, type(pytest.param())):
            case = case.values
        elif len(values) == 1:
            case = (case,)
        if all(a is b for a, b in zip(case, values, strict=True)):
            return number
    raise LookupError(f"{values} is none of {cases}")


@pytest.fixture(autouse=True, scope="session")
def _single_threaded():
    from skvbgp._core.parallel import single_blas_thread

    with threadpool_limits(limits=1), single_blas_thread:  # which takes time to enter
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def unmerged(monkeypatch):
    """Copies stay rows of their own."""
    monkeypatch.setattr("skvbgp.base._weights.SUBSAMPLE", 0)


@pytest.fixture
def quick_block_start(monkeypatch):
    """Few steps for the start of the noise kernel, in tests of many small fits."""
    monkeypatch.setattr("skvbgp.sgpr._start._BLOCK_STEPS", 3)
    monkeypatch.setattr("skvbgp.sgpr._start._BLOCK_ITERATIONS", 5)


@pytest.fixture
def quick_searches(monkeypatch, quick_block_start):
    """Few draws and steps of every search, in tests that do not ask how good its result is."""
    # Here, for `pytest -n` reads this file before it starts its workers, and needs none of this.
    from skvbgp.kernel_selection._series import list_series_kernels

    for module, name, value in [
        ("sgpr._kernel_search", "_ITERATIONS", 2),
        ("sgpr._kernel_search", "_FOLLOWING_ITERATIONS", 1),
        ("decoupled._start", "_MAX_ITER", 5),
        ("base._exact_process", "_MAX_ITER", 5),
        ("gp.search._few_rows", "_N_DRAWS", 2),
        ("gp.classes._few_places", "_N_DRAWS", 2),
        ("ep.hybrid._free_posterior", "_MAX_ITER", 10),
        ("kernel_selection._training", "_DRAWS_PER_RESTART", 2),
        ("kernel_selection._training", "_SCREENING_ITERATIONS", 6),
        ("kernel_selection._belief", "_MAX_ITER", 5),
        ("kernel_selection._learner", "_SERIES_CLIMB", 4),
    ]:
        monkeypatch.setattr(f"skvbgp.{module}.{name}", value)
    monkeypatch.setattr(
        "skvbgp.kernel_selection._learner.list_series_kernels",
        lambda X, y: list_series_kernels(X, y)[:3],
    )


@pytest.fixture(scope="session")
def cluster():
    """Client of a Dask cluster of two worker processes with a thread each."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    settings = {
        # How long it takes to find that a worker is gone that rows are fetched from.
        "distributed.comm.timeouts.connect": "10s",
        "distributed.worker.multiprocessing-method": "forkserver",
    }
    with dask.config.set(settings):
        # Workers, and those that follow one that was killed, are forks of one process that has
        # imported everything.
        imports = ["distributed", "dask.dataframe", *(f"skvbgp.{name}" for name in skvbgp._HOMES)]
        distributed.utils.get_mp_context().set_forkserver_preload(imports)
        cluster = distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",  # its server starts anyway; without a free port it warns
            silence_logs=logging.CRITICAL,
        )
        with distributed.Client(cluster) as client:
            yield client
        try:
            cluster.close()
        except KeyError:  # it was told of the end of a worker before it was told of its start
            cluster.status = distributed.Status.closed  # as all else is by now


@pytest.fixture
def client(cluster):
    """The same, once both workers answer: a test before may have killed some.

    Dask knows of an error as long as there is a future that has it, maybe in a cycle of an
    exception's frames, and would say it again of equal rows.
    """
    gc.collect()
    try:
        cluster.wait_for_workers(2, timeout=20)
    except TimeoutError:  # Dask does not always start one again
        cluster.cluster.scale(0)
        cluster.cluster.scale(2)
        cluster.wait_for_workers(2, timeout=60)
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        with suppress(OSError):  # the scheduler has not seen yet that one is gone
            if len(cluster.run(os.getpid)) == 2:
                break
        time.sleep(0.1)
    return cluster


@pytest.fixture
def many_rows(monkeypatch):
    """Hundreds of rows are many: they stay where they are, and train in mini-batches."""
    monkeypatch.setattr("skvbgp.base._rows.SUBSAMPLE", 100)
    monkeypatch.setattr("skvbgp.base._start.SUBSAMPLE", 100)
    monkeypatch.setattr("skvbgp.sgpr._settings._COLLAPSED_ROWS", 100)
    monkeypatch.setattr("skvbgp.sgpr._settings._EXACT_ROWS", 100)
