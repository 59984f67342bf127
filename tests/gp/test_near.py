"""What models of near rows share."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBGPClassifier, VBGPRegressor
from skvbgp._core import parallel
from skvbgp.base import _neighbours
from skvbgp.kernels import Matern

pytestmark = pytest.mark.usefixtures("quick_searches")

FIXED = {"kernel": Matern(1.0), "n_neighbors": 10, "learn_hyperparameters": False}


@pytest.fixture
def asked(monkeypatch):
    """The numbers of workers that joblib is asked for."""
    numbers = []

    class Parallel(parallel.Parallel):
        def __init__(self, n_jobs, **options):
            numbers.append(n_jobs)
            super().__init__(n_jobs=n_jobs, **options)

    monkeypatch.setattr(parallel, "Parallel", Parallel)
    return numbers


@pytest.mark.parametrize("case", ["one output", "learned outputs", "classes"])
def test_workers_may_be_others_than_in_the_fit(rng, asked, case):
    X = rng.standard_normal((40, 2))
    y, outputs = np.sin(3.0 * X[:, 0]), {"output_covariance": "learned"}
    model, targets = {
        "one output": (VBGPRegressor(**FIXED), y),
        "learned outputs": (VBGPRegressor(**FIXED, **outputs), np.column_stack([y, 1.0 - y])),
        "classes": (VBGPClassifier(**FIXED), y > 0.0),
    }[case]
    model.fit(X, targets)
    predict = getattr(model, "predict_proba", model.predict)
    expected = predict(X)
    assert not asked
    model.set_params(n_jobs=1)
    assert_array_equal(predict(X), expected)
    assert set(asked) == {1}
    model.set_params(n_jobs=None)
    asked.clear()
    assert_array_equal(predict(X), expected)
    assert not asked


def test_rows_are_left_out_by_as_many_workers(rng, asked):
    """As say so now: the fit or the prediction before may have had others."""
    X = rng.standard_normal((40, 2))
    model = VBGPRegressor(**FIXED).fit(X, np.sin(3.0 * X[:, 0]))
    expected = model.loo_predict()
    assert not asked
    assert_array_equal(model.set_params(n_jobs=1).loo_predict(), expected)
    assert set(asked) == {1}


@pytest.mark.parametrize("case", ["regression", "classes"])
def test_what_is_known_goes_on_with_few_more_rows(rng, case):
    """Where all rows predict; what it begins with is then no longer kept."""
    X = rng.standard_normal((60, 2))
    y = np.sin(3.0 * X[:, 0])
    settings = FIXED | {"n_neighbors": 60}
    model, targets, known, name = {
        "regression": (VBGPRegressor(**settings), y, {}, "conditionals"),
        "classes": (VBGPClassifier(**settings), y > 0.0, {"classes": [False, True]}, "_known"),
    }[case]
    predict = "predict" if case == "regression" else "predict_proba"
    model.partial_fit(X[:57], targets[:57], **known)
    getattr(model, predict)(X)
    model.partial_fit(X[57:], targets[57:])
    posterior = model._state.posterior
    assert posterior._begun is not None
    found = getattr(model, predict)(X)
    assert posterior._begun is None and name in vars(posterior)
    whole = type(model)(**settings).fit(X, targets)
    if case == "regression":
        assert_allclose(found, whole.predict(X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("case", ["regression", "classes"])
def test_rows_that_are_known_are_not_prepared_again(rng, monkeypatch, case):
    """For a search among them; small chunks of a stream are joined."""
    sizes = []

    class Tree(_neighbours.cKDTree):
        def __init__(self, X, **options):
            sizes.append(len(X))
            super().__init__(X, **options)

    monkeypatch.setattr(_neighbours, "cKDTree", Tree)
    X = rng.standard_normal((60, 2))
    y = np.sin(3.0 * X[:, 0])
    settings = FIXED | {"learn_hyperparameters": True, "max_iter": 2}
    model, targets, known = {
        "regression": (VBGPRegressor(**settings), y, {}),
        "classes": (VBGPClassifier(**settings), y > 0.0, {"classes": [False, True]}),
    }[case]
    model.partial_fit(X[:57], targets[:57], **known).predict(X)
    sizes.clear()
    for i in (57, 58):
        model.partial_fit(X[i : i + 1], targets[i : i + 1])
    model.predict(X)
    assert sum(sizes) <= 2
    model.partial_fit(X[59:], targets[59:])
    found = model.predict(X)
    assert sum(sizes) <= 5
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), found)


def test_other_units_are_another_distance(rng):
    """Those of what is not learned follow every row."""
    X = rng.standard_normal((60, 2)) * np.linspace(1.0, 30.0, 60)[:, None] ** [0.0, 1.0]
    y = np.sin(3.0 * X[:, 0])
    model = VBGPRegressor(**FIXED).partial_fit(X[:40], y[:40])
    model.predict(X)
    model.partial_fit(X[40:], y[40:])
    assert_allclose(model.predict(X + 0.1), VBGPRegressor(**FIXED).fit(X, y).predict(X + 0.1))
