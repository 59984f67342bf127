"""Training on rows that live on Dask's workers: mini-batches are fetched."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp import DecoupledGPClassifier, DecoupledGPRegressor, EPDTCClassifier

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

N, LATER = 400, 200


@pytest.fixture(autouse=True)
def _many(client, monkeypatch):
    """These rows are many: they stay where they are."""
    monkeypatch.setattr("skvbgp.base._regressor.SUBSAMPLE", 100)


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
    monkeypatch.setattr("skvbgp.base._classifier.SUBSAMPLE", 100)
