"""The template of the classifiers, on the smallest model that honours its contract."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr
from sklearn import config_context
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skvbgp.base import (
    Labels,
    Learner,
    VariationalClassifier,
    class_probabilities,
    fit_method,
)


@dataclass(frozen=True)
class RidgeState:
    """Gram matrix and cross-products of the rows, which are kept, too."""

    classes: np.ndarray
    gram: np.ndarray
    products: np.ndarray
    X: np.ndarray
    y: Labels


@dataclass(frozen=True)
class RidgePosterior:
    """Signs of new rows."""

    weights: np.ndarray

    def decisions(self, X):
        return 2.0 * (X @ self.weights[:-1] + self.weights[-1])


@dataclass(frozen=True)
class RidgeLearner(Learner):
    """Least squares of signs on [X, 1]; what ``restart_below`` rows have set is not for good."""

    n_passes: int
    restart_below: int

    def max_passes(self, y):
        return self.n_passes

    def start(self, X, y, rng, before):
        p = X.shape[1] + 1
        none = Labels(y.classes, y.codes[:0])
        empty = RidgeState(y.classes, np.eye(p), np.zeros((p, len(y.problems()))), X[:0], none)
        return before or empty

    def train(self, state, X, y, end_pass):
        solved = self._add(state, X, y)
        for _ in range(self.n_passes):
            if end_pass(lambda: solved):
                break
        return solved

    def update(self, state, X, y, end_pass):
        updated = self._add(state, X, y)
        end_pass(lambda: updated)
        return updated

    def rows_to_restart(self, state, X, y):
        if len(state.y) >= self.restart_below:
            return None
        return np.concatenate([state.X, X]), state.y.joined(y)

    def _add(self, state, X, y):
        A = np.column_stack([X, np.ones(len(X))])
        counted = A.T * y.counts
        return RidgeState(
            state.classes,
            state.gram + counted @ A,
            state.products + counted @ np.column_stack(y.problems()),
            np.concatenate([state.X, X]),
            state.y.joined(y),
        )

    def posterior(self, state):
        return RidgePosterior(np.linalg.solve(state.gram, state.products))

    def attributes(self, state):
        numbers = {"classes_": state.classes, "n_problems_": state.products.shape[1]}
        return numbers | {"gram_": state.gram, "grams_": [state.gram]}


class Ridge(VariationalClassifier):
    _parameter_constraints: dict = {"n_passes": [int], "restart_below": [int]}

    def __init__(self, n_passes=2, restart_below=0, *, warm_start=False, random_state=None):
        self.n_passes = n_passes
        self.restart_below = restart_below
        self.warm_start = warm_start
        self.random_state = random_state

    def _learner(self):
        return RidgeLearner(self.n_passes, self.restart_below)


class Imputing(Ridge):
    """Admits missing entries and takes a further argument, as a subclass of the package may."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _inputs(self, X, fill=None):
        return np.where(np.isnan(X), 0.0 if fill is None else fill, X)

    @fit_method
    def fit(self, X, y, fill=None):
        return self._fit(X, y, fill=fill)

    @fit_method
    def partial_fit(self, X, y, classes=None, fill=None):
        return self._partial_fit(X, y, classes=classes, fill=fill)

    def predict_proba(self, X, fill=None):
        return class_probabilities(self._decisions(X, fill=fill))


@pytest.fixture
def data(rng):
    y = rng.choice(["a", "b", "c"], 90)
    centres = {"a": [3.0, 0.0], "b": [0.0, 3.0], "c": [-3.0, -3.0]}
    return np.array([centres[label] for label in y]) + rng.standard_normal((90, 2)), y


@parametrize_with_checks([Ridge(), Imputing()], xfail_strict=True)
def test_contract(estimator, check):
    check(estimator)


def test_a_subclass_has_parameters_of_its_own():
    class Given(Ridge):
        def __init__(self):
            super().__init__()

    for _ in range(2):  # scikit-learn's names are kept
        assert Ridge().get_params()["n_passes"] == 2
        assert Given().get_params() == {}


def test_two_classes(data):
    X, y = data
    X, y = X[y != "c"], y[y != "c"]
    model = Ridge().fit(X, y)
    decision, probabilities = model.decision_function(X), model.predict_proba(X)
    assert model.n_problems_ == 1
    assert_array_equal(model.classes_, ["a", "b"])
    assert_allclose(probabilities, np.column_stack([ndtr(-decision), ndtr(decision)]), rtol=1e-12)
    assert_array_equal(model.predict(X), np.where(decision > 0.0, "b", "a"))
    assert model.score(X, y) > 0.95


def test_more_classes_are_one_versus_the_rest(data):
    X, y = data
    model = Ridge().fit(X, y)
    decision = model.decision_function(X)
    assert model.n_problems_ == 3
    for k, label in enumerate("abc"):
        one = Ridge().fit(X, y == label)
        assert_allclose(decision[:, k], one.decision_function(X), rtol=1e-12)
    expected = ndtr(decision) / ndtr(decision).sum(axis=1, keepdims=True)
    assert_allclose(model.predict_proba(X), expected, rtol=1e-12)
    assert_array_equal(model.predict(X), model.classes_[np.argmax(expected, axis=1)])


def test_probabilities_far_from_every_class():
    far = class_probabilities(np.array([[-60.0, -50.0, -70.0]]))
    assert_allclose(far, [[0.0, 1.0, 0.0]], atol=1e-200)


@pytest.mark.parametrize("restart_below", [0, 45])
def test_a_stream_equals_one_fit(data, restart_below):
    X, y = data
    model = Ridge(restart_below=restart_below)
    order = np.argsort(y)  # each of the first chunks has one class
    for rows in np.array_split(order, 9):
        model.partial_fit(X[rows], y[rows], classes=["b", "a", "c"])
    expected = Ridge().fit(X, y)
    assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-10)


def test_classes_are_declared_once(data):
    X, y = data
    with pytest.raises(ValueError, match="first call of partial_fit"):
        Ridge().partial_fit(X, y)
    model = Ridge().partial_fit(X[:5], y[:5], classes=["a", "b", "c"])
    model.partial_fit(X[5:], y[5:])
    before, state = dict(vars(model)), model._state
    with pytest.raises(ValueError, match=r"classes are \['a', 'b', 'c'\]"):
        model.partial_fit(X, y, classes=["a", "b"])
    with pytest.raises(ValueError, match=r"labels \['d'\]"):
        model.partial_fit(X[:1], ["d"])
    assert vars(model) == before
    assert model._state is state


@pytest.mark.parametrize("labels", [np.ones(4), ["x"] * 4])
def test_one_class(labels, rng):
    X, model = rng.standard_normal((4, 2)), Ridge()
    before = dict(vars(model))
    with pytest.raises(ValueError, match="one class"):
        model.fit(X, labels)
    with pytest.raises(ValueError, match="one class"):
        model.partial_fit(X, labels, classes=labels)
    with pytest.raises(ValueError, match=r"one class: \[\]"):
        model.partial_fit(X, labels, classes=[])
    assert vars(model) == before
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_who_writes_to_what_is_published_changes_no_prediction(data):
    X, y = data
    model = Ridge().fit(X, y)
    before = model.predict_proba(X)
    for gram in (model.gram_, *model.grams_):
        gram[...] = 0.5
    assert_array_equal(model.predict_proba(X), before)


def test_warm_start_goes_on_with_the_same_classes(data):
    X, y = data
    model = Ridge(warm_start=True).fit(X, y).fit(X, y)
    expected = Ridge().fit(np.concatenate([X, X]), np.concatenate([y, y]))
    assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-10)
    with pytest.raises(ValueError, match="warm_start: the classes were"):
        model.fit(X, y == "a")
    with pytest.raises(ValueError, match="X has 1 features, but the fit before had"):
        model.fit(X[:, :1], y)


def test_further_arguments_and_missing_entries(data):
    X, y = data
    X[3, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        Ridge().fit(X, y)
    with pytest.raises(ValueError, match="infinity"):
        Imputing().fit(np.where(np.isnan(X), np.inf, X), y)
    model = Imputing().fit(X, y, fill=5.0).partial_fit(X, y, fill=5.0)
    filled = Ridge().fit(np.nan_to_num(X, nan=5.0), y).partial_fit(np.nan_to_num(X, nan=5.0), y)
    assert_allclose(model.decision_function(X[:3]), filled.decision_function(X[:3]), rtol=1e-12)
    with config_context(enable_metadata_routing=True):
        routed = Imputing().set_fit_request(fill=True).set_predict_proba_request(fill=True)
        pipe = make_pipeline(StandardScaler(), routed).fit(X, y, fill=1.0)
        inner = Imputing().fit(StandardScaler().fit_transform(X), y, fill=1.0)
        expected = inner.predict_proba(StandardScaler().fit_transform(X), fill=1.0)
        assert_allclose(pipe.predict_proba(X, fill=1.0), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["string", "Int64", "boolean", "category"])
def test_labels_may_be_missing_in_columns_of_any_type(kind):
    pandas = pytest.importorskip("pandas")
    values = pandas.Series([1, 0, 1, 0, 1, 0]).astype(kind)
    values[[1, 4]] = pandas.NA
    for missing in (np.nan, pandas.NA):
        labels = Labels.of_some(values, missing)
        assert len(labels.classes) == 2
        assert_array_equal(labels.codes, [1, -1, 1, 0, -1, 0])
