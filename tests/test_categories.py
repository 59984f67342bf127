"""What every estimator does that takes categories."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tests.fits import FitOnce
from tests.gp.test_categories import make_data
from tests.test_common import CLASSES, FIRST, SIBLING_CLASSES, quickest

pytestmark = pytest.mark.usefixtures("quick_searches")
TAKE_CATEGORIES = [
    quickest(one).set_params(categorical_features=[1])
    for one in FIRST
    if "categorical_features" in one.get_params()
]
CASES = [
    pytest.param(
        one,
        marks=pytest.mark.thorough if type(one) in SIBLING_CLASSES else [],
        id=type(one).__name__,
    )
    for one in TAKE_CATEGORIES  # siblings' own tests are those of the family
]


def every(test):
    """By default, every second one: how they read categories is one home."""
    return pytest.mark.every_nth("estimator", 3)(pytest.mark.parametrize("estimator", CASES)(test))


fit_once = FitOnce()


def make_rows(estimator, n=60):
    X, y = make_data(n, np.random.default_rng(3))
    return X, (y > np.median(y)).astype(int) if is_classifier(estimator) else y


def say(model, X):
    return model.predict_proba(X)[:, 1] if is_classifier(model) else model.predict(X)


@every
def test_unknown_and_missing_categories_of_single_rows(estimator):
    X, y = make_rows(estimator)
    X[::6, 1] = None
    model = clone(estimator).fit(X, y)
    for category in ("a", "unknown", None, np.nan):
        row = X[1:2].copy()
        row[:, 1] = category
        assert np.isfinite(say(model, row)).all()
        if not is_classifier(model):
            assert model.predict(row, True)[1] > 0.0
    before, row = say(model, X[:1]), X[:1].copy()
    row[:, 1] = np.nan
    assert_array_equal(say(model, row), before)
    assert model.n_features_in_ == 3


@every
def test_pipelines_clones_and_pickles(estimator):
    pd = pytest.importorskip("pandas")
    X, y = make_rows(estimator)
    frame = pd.DataFrame({"x": X[:, 0].astype(float), "c": X[:, 1], "z": X[:, 2].astype(float)})
    model = fit_once(clone(estimator), X, y)
    expected = say(model, X)
    typed = clone(estimator).set_params(categorical_features="from_dtype")
    pipeline = make_pipeline(FunctionTransformer(), typed).fit(frame.astype({"c": "category"}), y)
    assert_allclose(say(pipeline, frame.astype({"c": "category"})), expected, rtol=1e-9)
    assert_allclose(say(pickle.loads(pickle.dumps(model)), X), expected, rtol=1e-11)
    assert_allclose(say(clone(model).fit(X.tolist(), y), X.tolist()), expected, rtol=1e-9)


@every
def test_streams_and_warm_starts_keep_the_categories_of_the_first_fit(estimator):
    X, y = make_rows(estimator)
    few = X[:, 1] != "c"
    classes = {"classes": [0, 1]} if is_classifier(estimator) else {}
    stream = clone(estimator).partial_fit(X[few], y[few], **classes)
    stream.partial_fit(X[~few], y[~few])
    assert np.isfinite(say(stream, X)).all()
    known = [list(c) for c in stream._categories.encoder.categories_]
    assert known == [["a", "b"]]
    with pytest.raises(ValueError, match="features|columns"):
        stream.partial_fit(X[:, :2], y)
    if "warm_start" in estimator.get_params():
        warm = clone(estimator).set_params(warm_start=True).fit(X, y).fit(X[5:], y[5:])
        assert np.isfinite(say(warm, X)).all()
        if not warm._learns_of_columns:
            return
        with pytest.raises(ValueError, match="warm_start: other inputs"):
            warm.set_params(categorical_features=None).fit(X[:, ::2].astype(float), y)


@every
def test_what_is_said_of_the_function(estimator):
    X, y = make_rows(estimator)
    model = fit_once(clone(estimator), X, y)
    if not hasattr(model, "predict_gradient"):
        pytest.skip("It has no function.")
    importances = model.feature_importances_
    assert importances.shape == model.feature_importances_std_.shape == (3,)
    assert_allclose(importances.sum(), 1.0)
    assert importances[1] > importances[2]
    slope, std = model.predict_gradient(X[:4])
    assert_array_equal(np.isnan(slope), [[False, True, False]] * 4)
    assert np.all(std[:, ::2] > 0.0)
    functions = model.sample_function(3, random_state=0)
    assert functions(X[:4]).shape == (4, 3)
    assert np.isnan(functions.gradient(X[:4])).all(axis=2)[:, 1].all()


@every
def test_rows_of_dask_collections_have_no_categories(estimator):
    array = pytest.importorskip("dask.array")
    X, y = make_rows(estimator)
    numbers = X[:, [0, 2, 2]].astype(float)
    with pytest.raises(TypeError, match="Dask"):
        clone(estimator).fit(array.from_array(numbers), array.from_array(y))


def test_every_estimator_is_here_whose_mathematics_allow_it():
    names = {cls.__name__ for cls in CLASSES} - {type(one).__name__ for one in TAKE_CATEGORIES}
    assert names == {
        "HybridGPLVM",
    }
