"""Training on rows that live on Dask's workers: mini-batches are fetched."""

import os
import pydoc
import signal
from contextlib import suppress

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_regressor

from skvbgp import DecoupledGPClassifier, DecoupledGPRegressor, EPDTCClassifier
from tests.observer import Observer

da = pytest.importorskip("dask.array")
KilledWorker = pytest.importorskip("distributed").KilledWorker

N, LATER = 400, 200


@pytest.fixture(autouse=True)
def _many(client, monkeypatch):
    """These rows are many: they stay where they are."""
    monkeypatch.setattr("skvbgp.base._rows.SUBSAMPLE", 100)


def make_data(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(n)


def as_arrays(X, y):
    return da.from_array(X, chunks=(170, 1)), da.from_array(y, chunks=210)


def say(model):
    mean, std = model.predict(make_data(20, 2)[0], return_std=True)
    return np.concatenate([mean, std, model.lower_bounds_])


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"likelihood": "student_t"}, marks=pytest.mark.slow),
        pytest.param({"replay": 0}, marks=pytest.mark.slow),
    ],
    ids=["default", "student_t", "no replay"],
)
def test_training_is_that_of_rows_in_memory(options):
    model = DecoupledGPRegressor(30, 8, max_iter=2, batch_size=200, random_state=0, **options)
    local, first, later = clone(model), make_data(N, 0), make_data(LATER, 1)
    assert_allclose(say(model.fit(*as_arrays(*first))), say(local.fit(*first)), rtol=1e-6)
    model.partial_fit(*as_arrays(*later))
    assert_allclose(say(model), say(local.partial_fit(*later)), rtol=1e-6)
    assert model.n_samples_seen_ == N + LATER


def test_weights_are_refused():
    X, y = as_arrays(*make_data(N, 0))
    for method in (DecoupledGPRegressor().fit, DecoupledGPRegressor().partial_fit):
        with pytest.raises(TypeError, match="sample_weight needs rows in memory"):
            method(X, y, sample_weight=np.ones(N))
    with pytest.raises(TypeError, match="sample_weight needs rows in memory"):
        DecoupledGPRegressor().fit(*make_data(N, 0), sample_weight=y)
    weight = da.ones(N, chunks=100)
    for forgetting, name in [(1, "sample_weight"), (50, "forgetting")]:
        with pytest.raises(TypeError, match=f"{name} needs rows in memory"):
            model = DecoupledGPClassifier(forgetting=forgetting)
            model.fit(*make_labels(N, 0, [0, 1]), sample_weight=weight)


def test_counts_are_refused():
    model = DecoupledGPRegressor(likelihood="poisson")
    with pytest.raises(TypeError, match="poisson.* needs rows in memory"):
        model.fit(*as_arrays(*make_data(N, 0)))


def make_labels(n, seed, labels):
    X, y = make_data(n, seed)
    rng = np.random.default_rng(seed + 100)
    place = (y + 0.3 * rng.standard_normal(n) > 0.2).astype(int) + (X[:, 1] > 0.5)
    return X, np.array(labels)[np.minimum(place, len(labels) - 1)]


def say_of_classes(model):
    score = model.decision_function(make_data(20, 2)[0])
    return np.concatenate([np.ravel(score), model.lower_bounds_])


def summarise(model):
    state = model._state
    summary = state.functions.summary
    return summary.n, summary.mean, summary.std, state.totals, state.class_weights


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        (["no", "yes"], {"class_weight": {"yes": 2.5}}),
        pytest.param([1, 5, 7], {"class_weight": "balanced"}),
        pytest.param([0, 1], {}, marks=pytest.mark.slow),
        pytest.param([0, 1], {"replay": 0, "class_weight": "balanced"}, marks=pytest.mark.slow),
        pytest.param([0.0, 1.0, 2.0], {"replay": 100}, marks=pytest.mark.slow),
    ],
)
def test_classes_are_learned_as_in_memory(many_labels, labels, options):
    model = DecoupledGPClassifier(30, 8, max_iter=2, batch_size=200, random_state=0, **options)
    local, first, later = clone(model), make_labels(N, 0, labels), make_labels(LATER, 1, labels)
    model.fit(*as_arrays(*first))
    assert_allclose(say_of_classes(model), say_of_classes(local.fit(*first)), rtol=1e-8)
    model.partial_fit(*as_arrays(*later))
    local.partial_fit(*later)
    assert_allclose(say_of_classes(model), say_of_classes(local), rtol=1e-8)
    for one, other in zip(summarise(model), summarise(local), strict=True):
        assert_allclose(one, other, rtol=1e-12)
    assert_array_equal(model.classes_, labels)
    assert model.n_samples_seen_ == N + LATER
    new = make_data(20, 2)[0]
    lazy = model.predict(da.from_array(new, chunks=(7, 2)))
    assert_array_equal(lazy.compute(), local.predict(new))


def test_a_stream_may_begin_on_workers(many_labels):
    model = DecoupledGPClassifier(30, 8, max_iter=2, batch_size=200, random_state=0)
    local, first, later = clone(model), make_labels(N, 0, [0, 1]), make_labels(LATER, 1, [0, 1])
    for one, data in ((model, as_arrays(*first)), (local, first)):
        one.partial_fit(*data, classes=[1, 0, 2])  # the third has no rows
        one.partial_fit(*later)  # in memory
    assert_allclose(say_of_classes(model), say_of_classes(local), rtol=1e-8)
    assert_array_equal(model.classes_, [0, 1, 2])


def test_few_labels_are_those_in_memory():
    model = DecoupledGPClassifier(30, 8, max_iter=2, random_state=0)
    data = make_labels(50, 0, ["a", "b", "c"])
    expected = say_of_classes(clone(model).fit(*data))
    assert_allclose(say_of_classes(model.fit(*as_arrays(*data))), expected, rtol=1e-12)


def test_what_labels_cannot_be_is_refused(many_labels):
    X, y = as_arrays(*make_labels(N, 0, [0, 1]))
    model = DecoupledGPClassifier()
    with pytest.raises(TypeError, match="sample_weight needs rows in memory"):
        model.fit(X, y, sample_weight=np.ones(N))
    with pytest.raises(TypeError, match="sample_weight needs rows in memory"):
        model.fit(*make_labels(N, 0, [0, 1]), sample_weight=y)
    with pytest.raises(TypeError, match="must be a dask.array"):
        model.fit(np.ones((N, 2)), y)
    with pytest.raises(ValueError, match="classes must be given"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="All rows of X are equal"):
        model.fit(da.ones_like(X), y)
    with pytest.raises(ValueError, match="class_weight must be between"):
        DecoupledGPClassifier(class_weight={1: 1e12}).fit(X, y)
    with pytest.raises(TypeError, match="EPDTCClassifier cannot be trained on Dask"):
        EPDTCClassifier().fit(X, y)
    assert not vars(model).keys() - model.get_params().keys()


@pytest.fixture
def many_labels(monkeypatch):
    monkeypatch.setattr("skvbgp.base._labels.SUBSAMPLE", 100)


# -- workers that die ------------------------------------------------------------------------------


def kill_workers(client):
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)


class Killing(Observer):
    """A callback that kills both workers at the end of the first pass."""

    def __init__(self, client):
        self.clients = [client]

    def on_fit_task_end(self, estimator, context):
        if self.clients:
            kill_workers(self.clients.pop())


def let_workers_die(monkeypatch, folder, function, n_deaths=1):
    """Let workers kill themselves in the first calls of a function of a module, at its begin."""
    original = pydoc.locate(function)

    def die_or_work(*arguments, **options):
        for k in range(n_deaths):
            with suppress(FileExistsError):
                (folder / f"death {k}").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    monkeypatch.setattr(function, die_or_work)
    return lambda: len(list(folder.glob("death *")))


REGRESSOR = DecoupledGPRegressor(30, 8, max_iter=2, batch_size=200, random_state=0)
CLASSIFIER = DecoupledGPClassifier(30, 8, max_iter=2, batch_size=200, random_state=0)
#: A model, rows that it learns, rows that come later, and what it says, of which the first numbers
#: are one for each of some places.
CASES = {
    "regression": (REGRESSOR, make_data(N, 0), make_data(LATER, 1), say),
    "classes": (
        CLASSIFIER,
        make_labels(N, 0, ["no", "yes"]),
        make_labels(LATER, 1, ["no", "yes"]),
        say_of_classes,
    ),
}


def say_lazily(model):
    method = model.predict if is_regressor(model) else model.decision_function
    return method(da.from_array(make_data(20, 2)[0], chunks=(7, 2)))


@pytest.fixture(params=CASES)
def case(request, many_labels):
    model, *others = CASES[request.param]
    return clone(model), *others


def test_workers_that_die_between_two_passes_change_nothing(client, case):
    model, rows, _, describe = case
    expected, callback = describe(clone(model).fit(*rows)), Killing(client)
    model.set_callbacks(callback).fit(*as_arrays(*rows))
    assert not callback.clients
    assert_allclose(describe(model), expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["_core.shards._copy", "_core.shards.summarise"])
def test_a_worker_that_dies_in_a_step_changes_nothing(monkeypatch, tmp_path, case, function):
    model, rows, _, describe = case
    expected = describe(clone(model).fit(*rows))
    count_deaths = let_workers_die(monkeypatch, tmp_path, f"skvbgp.{function}")
    model.fit(*as_arrays(*rows))
    assert count_deaths() == 1
    assert_allclose(describe(model), expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["_load_labels", "_count_labels", "_number_labels"])
def test_a_worker_that_dies_while_classes_are_found(monkeypatch, tmp_path, many_labels, function):
    model, rows, _, describe = CASES["classes"]
    expected = describe(clone(model).fit(*rows))
    count_deaths = let_workers_die(monkeypatch, tmp_path, f"skvbgp._core.labels.{function}")
    model = clone(model).fit(*as_arrays(*rows))
    assert count_deaths() == 1
    assert_allclose(describe(model), expected, rtol=1e-6)


@pytest.mark.slow
def test_workers_that_die_between_two_calls_change_nothing(client, case):
    model, rows, later, describe = case
    local = clone(model).fit(*rows)
    model.fit(*as_arrays(*rows))
    lazy, expected = say_lazily(model), describe(model)[:20]
    kill_workers(client)
    assert_allclose(describe(model), describe(local), rtol=1e-6)  # it needs no rows
    model.partial_fit(*as_arrays(*later))
    assert_allclose(describe(model), describe(local.partial_fit(*later)), rtol=1e-6)
    assert_allclose(lazy.compute(), expected, rtol=1e-10)  # of the model as it was


@pytest.mark.slow
def test_a_worker_that_dies_in_a_lazy_prediction_changes_nothing(monkeypatch, tmp_path, case):
    model, rows, _, describe = case
    expected = describe(model.fit(*rows))[:20]
    count_deaths = let_workers_die(monkeypatch, tmp_path, "skvbgp._core.row_methods._evaluate")
    assert_allclose(say_lazily(model).compute(), expected, rtol=1e-10)
    assert count_deaths() == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_workers_that_die_for_ever_leave_the_estimator_as_it_was(
    monkeypatch, tmp_path, case, method
):
    """Dask may blame what the rows are made from, or forget that it has to make them."""
    monkeypatch.setattr("skvbgp._core.clients._LOOK_EVERY", 0.2)
    model, rows, later, describe = case
    before = describe(model.fit(*rows))
    count_deaths = let_workers_die(monkeypatch, tmp_path, "skvbgp._core.shards._copy", 99)
    reasons = "lost 4 times in one step|Dask does nothing|workers died while running it"
    with pytest.raises((RuntimeError, KilledWorker), match=reasons):
        getattr(model, method)(*as_arrays(*later))
    assert_array_equal(describe(model), before)
    assert count_deaths() > 0


@pytest.mark.slow
def test_rows_that_are_lost_for_good_leave_the_estimator_as_it_was(client, case):
    model, rows, _, describe = case
    before = describe(model.fit(*rows))
    parts = [client.scatter(part) for part in rows]
    X, y = (
        da.from_delayed(part, values.shape, dtype=values.dtype)
        for part, values in zip(parts, rows, strict=True)
    )
    model.set_callbacks(Killing(client))
    with pytest.raises(RuntimeError, match="cannot be made again"):
        model.fit(X, y)
    model.set_callbacks()
    assert_array_equal(describe(model), before)
