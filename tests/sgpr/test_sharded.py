"""Training on rows that live on Dask's workers."""

import os
import pydoc
import signal
from contextlib import suppress
from itertools import islice

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp import VBDTCRegressor, VBFITCRegressor
from skvbgp._core import order
from skvbgp.kernels import RBF
from tests.observer import Observer

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

N, LATER = 1200, 300
PLACES = np.random.default_rng(1).uniform(-1.0, 1.0, (20, 2))

pytestmark = pytest.mark.usefixtures("client", "many_rows", "_few_steps")


@pytest.fixture
def _few_steps(monkeypatch):
    monkeypatch.setattr("skvbgp.sgpr._training._STREAM_STEPS", 2)


def make_data(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(4.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n) + 3.0


def as_arrays(X, y):
    return da.from_array(X, chunks=(170, 1)), da.from_array(y, chunks=210)


def as_frames(X, y):
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    frame = frames.from_pandas(
        pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}), npartitions=5
    )
    return frame[["a", "b"]], frame["y"]


OPTIONS = dict(n_inducing=8, max_iter=2, batch_size=400, random_state=0)
MODELS = {
    "DTC": VBDTCRegressor(**OPTIONS),
    "closed form": VBDTCRegressor(**OPTIONS, psi="closed_form"),
    "FITC": VBFITCRegressor(**OPTIONS, noise_kernel=RBF(0.5), psi="sampled"),
    "fixed": VBFITCRegressor(**OPTIONS, learn_hyperparameters=False),
}


def say(model):
    mean, std = model.predict(PLACES, return_std=True)
    return np.concatenate([mean, std, [model.lower_bound_], model.lower_bounds_])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "FITC" else pytest.mark.slow) for name in MODELS],
)
def test_training_is_that_of_rows_in_memory(name):
    (X, y), (later_X, later_y) = make_data(N), make_data(LATER, 1)
    model, local = clone(MODELS[name]), clone(MODELS[name])
    assert_allclose(say(model.fit(*as_arrays(X, y))), say(local.fit(X, y)), rtol=1e-8)
    model.partial_fit(*as_arrays(later_X, later_y))
    assert_allclose(say(model), say(local.partial_fit(later_X, later_y)), rtol=1e-8)
    assert model.n_samples_seen_ == N + LATER


def test_frames_give_their_names():
    X, y = make_data(N)
    model, local = clone(MODELS["DTC"]), clone(MODELS["DTC"])
    rows, targets = as_frames(X, y)
    assert_allclose(say(local.fit(X, y)), say_named(model.fit(rows, targets)), rtol=1e-8)
    assert list(model.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(rows.rename(columns={"a": "c"}), targets)
    with pytest.raises(TypeError, match="both be"):
        model.fit(rows, da.from_array(y))
    with pytest.raises(ValueError, match="partitions"):
        model.fit(rows, targets.repartition(npartitions=2))


def say_named(model):
    del model.feature_names_in_
    values = say(model)
    model.feature_names_in_ = np.array(["a", "b"], dtype=object)
    return values


def test_where_the_rows_are_does_not_matter():
    X, y = make_data(N)
    model = clone(MODELS["DTC"])
    first = say(model.fit(*as_arrays(X, y)))
    model.fit(da.from_array(X, chunks=50), da.from_array(y, chunks=N))
    assert_allclose(say(model), first, rtol=1e-8)


def test_more_rows_than_an_order_is_stored_of(monkeypatch):
    monkeypatch.setattr(order, "_STORED_ROWS", 100)
    X, y = make_data(N)
    model, local = clone(MODELS["DTC"]), clone(MODELS["DTC"])
    assert_allclose(say(model.fit(*as_arrays(X, y))), say(local.fit(X, y)), rtol=1e-8)


def test_going_on_from_a_fit():
    X, y = make_data(N)
    model, local = (clone(MODELS["FITC"]).set_params(warm_start=True) for _ in range(2))
    for _ in range(2):
        model.fit(*as_arrays(X, y))
        local.fit(X, y)
    assert_allclose(say(model), say(local), rtol=1e-8)


def test_few_rows_are_trained_on_in_memory():
    X, y = make_data(90)
    model, local = clone(MODELS["DTC"]), clone(MODELS["DTC"])
    assert_array_equal(say(model.fit(*as_arrays(X, y))), say(local.fit(X, y)))


def test_what_fails_leaves_the_estimator_as_it_was():
    X, y = make_data(N)
    model = clone(MODELS["DTC"]).fit(X, y)
    before = say(model)
    y[700] = np.nan
    for method in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="NaN"):
            method(*as_arrays(X, y))
        assert_array_equal(say(model), before)
    with pytest.raises(ValueError, match="All rows of X are equal"):
        model.fit(da.ones((N, 2), chunks=100), da.arange(N, chunks=100))
    for solver in ("exact", "collapsed"):
        with pytest.raises(TypeError, match="rows in memory"):
            clone(model).set_params(solver=solver).fit(*as_arrays(*make_data(N)))
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(*as_arrays(X[:, :1], y))
    few = clone(MODELS["DTC"]).fit(X[:20], y[:20])
    with pytest.raises(TypeError, match="few rows, in memory"):
        few.partial_fit(*as_arrays(*make_data(N)))


class Killing(Observer):
    """A callback that kills a worker at the end of a pass."""

    def __init__(self, pid):
        self.pids = [pid]

    def on_fit_task_end(self, estimator, context):
        if self.pids:
            os.kill(self.pids.pop(), signal.SIGKILL)


def test_a_worker_that_dies_between_two_steps_changes_nothing(client):
    X, y = make_data(N)
    model, local = clone(MODELS["DTC"]), clone(MODELS["DTC"])
    callback = Killing(next(iter(client.run(os.getpid).values())))
    model.set_callbacks(callback).fit(*as_arrays(X, y))
    assert not callback.pids
    assert_allclose(say(model), say(local.fit(X, y)), rtol=1e-8)


def kill_in_a_step(monkeypatch, folder, function, n_results, n_killed):
    """Let workers kill themselves in the first calls of a function of a module.

    It yields results, and they die in front of the first one, or of the second one, which is made
    while the first is on its way. Two die at once if both have rows.
    """
    original = pydoc.locate(function)

    def die():
        for k in range(n_killed):
            with suppress(FileExistsError):
                (folder / f"death {k}").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)

    def step(*args):
        results = original(*args)
        yield from islice(results, n_results)
        die()
        yield from results

    monkeypatch.setattr(function, step)
    return lambda: len(list(folder.glob("death *")))


@pytest.mark.slow
@pytest.mark.parametrize("n_results", [0, 1])
@pytest.mark.parametrize("n_killed", [1, 2])
def test_workers_that_die_in_a_step_change_nothing(monkeypatch, tmp_path, n_results, n_killed):
    X, y = make_data(N)
    model, expected = clone(MODELS["DTC"]), say(clone(MODELS["DTC"]).fit(X, y))
    function = "skvbgp.sgpr._sharded._sum_rows"
    count_killed = kill_in_a_step(monkeypatch, tmp_path, function, n_results, n_killed)
    model.fit(*as_arrays(X, y))
    assert count_killed() == n_killed
    assert_allclose(say(model), expected, rtol=1e-8)
