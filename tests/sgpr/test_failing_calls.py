"""Calls of fit and partial_fit that fail leave an estimator as it was."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError

from tests.sgpr.cases import REGRESSORS, every, make_data, small

pytestmark = pytest.mark.usefixtures("quick_block_start")

N = 42


def bad_calls():
    X, y = make_data(10)
    infinite = X.copy()
    infinite[3, 1] = np.inf
    return {
        "infinity in X": (infinite, y),
        "NaN in y": (X, np.where(np.arange(10) == 4, np.nan, y)),
        "width": (np.hstack([X, X]), y),
        "length": (X, y[:-1]),
        "string in y": (X, ["a"] * 10),
        "string in X": (np.full((10, 2), "a"), y),
        "no rows": (X[:0], y[:0]),
    }


def assert_untouched(model, before):
    now = vars(model)
    assert now.keys() == before.keys()
    for name, value in before.items():
        assert now[name] is value, name


@every
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("call", bad_calls())
@pytest.mark.in_turn("method")
@pytest.mark.every_nth("call", 2)
def test_a_failing_call_changes_nothing(cls, method, call):
    if (method, call) == ("fit", "width"):
        pytest.skip("fit may take another number of columns")
    X, y = make_data(N)
    model = small(cls, max_iter=1).partial_fit(X, y)
    expected, before = model.predict(X, return_std=True), dict(vars(model))
    lower_bounds = list(model.lower_bounds_)
    with pytest.raises(ValueError):
        getattr(model, method)(*bad_calls()[call])
    assert_untouched(model, before)
    assert model.lower_bounds_ == lower_bounds
    for mine, theirs in zip(model.predict(X, return_std=True), expected, strict=True):
        assert_array_equal(mine, theirs)


@every
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.every_nth("method", 2)
def test_a_failure_at_the_very_end_changes_nothing(cls, method, monkeypatch):
    X, y = make_data(N)
    model = small(cls, max_iter=1).partial_fit(X[:20], y[:20])
    untouched = small(cls, max_iter=1).partial_fit(X[:20], y[:20])
    before = dict(vars(model))
    publish = cls._publish

    def failing(self, *args):
        publish(self, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cls, "_publish", failing)
        with pytest.raises(KeyboardInterrupt):
            getattr(model, method)(X[20:], y[20:])
    assert_untouched(model, before)
    for each in (model, untouched):
        each.partial_fit(X[20:], y[20:])
    assert_array_equal(model.predict(X), untouched.predict(X))


@every
@pytest.mark.parametrize("call", sorted(bad_calls().keys() - {"width"}))
@pytest.mark.every_nth("call", 3)
def test_a_failing_first_call_leaves_it_unfitted(cls, call):
    model = small(cls)
    before = dict(vars(model))
    with pytest.raises(ValueError):
        model.partial_fit(*bad_calls()[call])
    assert_untouched(model, before)
    with pytest.raises(NotFittedError):
        model.predict(make_data(3)[0])
    X, y = make_data(10, 3)
    assert model.partial_fit(X, y).n_features_in_ == 3


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.every_nth("cls", 2)
def test_state_of_an_earlier_moment_is_not_modified(cls):
    """A shallow copy goes on as it was: the state is replaced, never written to."""
    X, y = make_data(N)
    model = small(cls).partial_fit(X[:20], y[:20])
    earlier, expected = copy.copy(model), model.predict(X)
    model.partial_fit(X[20:], y[20:])
    assert_array_equal(earlier.predict(X), expected)
    assert np.any(model.predict(X) != expected)
