"""Blocks and kernels on a real Dask cluster of two worker processes."""

import os
import signal
import time

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import skvbgp._core.parallel
import skvbgp.sgpr._memory
from skvbgp import SVBSSGPRegressor, VBKSRegressor, VBPICRegressor, VBPITCRegressor
from skvbgp._core.parallel import parallel_each, parallel_map

cloudpickle = pytest.importorskip("cloudpickle")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")


def make_data(n):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    y = np.sin(4.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)
    return X, y


BLOCKS = dict(n_inducing=12, n_blocks=20, learn_hyperparameters=False, random_state=0)
REGRESSORS = {
    "PITC": VBPITCRegressor(**BLOCKS),
    "PIC": VBPICRegressor(**BLOCKS),
    "VBKS": VBKSRegressor(
        depth=1, n_inducing=20, n_restarts=1, max_iter=3, top_k=2, random_state=0
    ),
    "SVBSSGP": SVBSSGPRegressor(n_frequencies=5, n_blocks=20, max_iter=1, random_state=0),
}


def fit_and_predict(regressor, n=600):
    X, y = make_data(n)
    model = regressor.fit(X, y)
    return np.array([*model.predict(X[:100], return_std=True), np.full(100, model.lower_bound_)])


def slow_pid(data, seconds):
    time.sleep(seconds)
    return os.getpid()


def test_both_workers_take_part(client):
    pids, workers = set(), set(client.run(os.getpid).values())
    for _ in range(5):  # Dask decides when a worker takes over what waits for another
        with parallel_config("dask"):
            pids |= set(parallel_map(slow_pid, [(0.2,)] * 8, shared=(np.ones(10_000),)))
        if pids == workers:
            break
    assert pids == workers


@pytest.mark.parametrize("name", REGRESSORS)
def test_results_are_those_without_dask(client, name):
    with distributed.get_task_stream(client) as stream, parallel_config("dask"):
        results = fit_and_predict(REGRESSORS[name])
    assert stream.data  # something ran on the workers
    assert_array_equal(results, fit_and_predict(REGRESSORS[name]))


@pytest.mark.parametrize("name", ["PIC", pytest.param("VBKS", marks=pytest.mark.slow)])
def test_a_worker_that_dies_changes_nothing(client, monkeypatch, name):
    victims = list(client.run(os.getpid).values())[:1]

    def with_a_death(function, tasks, receive, **options):
        def receive_and_kill(result):
            receive(result)
            if victims:
                os.kill(victims.pop(), signal.SIGKILL)

        parallel_each(function, tasks, receive_and_kill, **options)

    expected = fit_and_predict(REGRESSORS[name])
    with monkeypatch.context() as patch, parallel_config("dask"):
        patch.setattr(skvbgp._core.parallel, "parallel_each", with_a_death)
        results = fit_and_predict(REGRESSORS[name])
    assert not victims
    assert_array_equal(results, expected)


def hold_last(rows, block_info=None):
    """The rows of a block; the last one is there once the gate is open."""
    array = block_info[0]
    if array["chunk-location"][0] == array["num-chunks"][0] - 1:
        distributed.Event("gate").wait()
    return rows


@pytest.mark.slow
def test_a_worker_that_dies_in_a_lazy_prediction_changes_nothing(client):
    X, y = make_data(600)
    model, places = REGRESSORS["PIC"].fit(X, y), np.tile(X, (200, 1))
    expected = np.tile(model.predict(X), 200)
    held = da.from_array(places, chunks=2_000).map_blocks(hold_last, dtype=float)
    future = client.compute(model.predict(held))
    victim = next(iter(client.run(os.getpid).values()))
    assert not future.done()
    os.kill(victim, signal.SIGKILL)
    distributed.Event("gate").set()
    assert_allclose(future.result(), expected, rtol=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.in_turn("name")
def test_payload_of_a_task_does_not_grow_with_the_data(monkeypatch, name):
    """Blocks of as many rows; what all tasks share is not part of it but of VBKS's data.

    A prediction of SVBSSGP has a tile's near rows, which fewer rows have more of in common, unless
    there is one for each.
    """
    monkeypatch.setattr(skvbgp.sgpr._memory, "_N_SEGMENTS", 1)
    monkeypatch.setattr(skvbgp.sgpr._memory, "_SEGMENT_ROWS", 60)

    def largest(n):
        tasks_sent, shared_sent = [], []

        def measured(function, tasks, receive, *, n_jobs=None, shared=()):
            shared_sent.append(len(cloudpickle.dumps(shared)))
            for i in range(len(tasks)):
                tasks_sent.append(len(cloudpickle.dumps((function, tasks[i]))))
                receive(function(*shared, *tasks[i]))

        with monkeypatch.context() as patch:
            patch.setattr(skvbgp._core.parallel, "effective_n_jobs", lambda n_jobs: 2)
            patch.setattr(skvbgp._core.parallel, "parallel_each", measured)
            regressor = clone(REGRESSORS[name])
            for parameter, value in {"n_blocks": n // 30, "n_neighbors": 1}.items():
                if parameter in regressor.get_params():
                    regressor.set_params(**{parameter: value})
            fit_and_predict(regressor, n)
        return max(tasks_sent), max(shared_sent)

    (few, few_shared), (many, many_shared) = largest(600), largest(1800)
    assert many <= 1.05 * few
    if name != "VBKS":
        assert many_shared <= 1.05 * few_shared + 30 * 100  # the partition of the blocks
