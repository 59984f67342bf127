"""The regressors in pickles, pipelines and searches."""

import copy
import pickle

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.sgpr.cases import every, make_data, small

pytestmark = pytest.mark.usefixtures("quick_block_start")


@every
def test_pickle_and_joblib(cls, tmp_path):
    X, y = make_data()
    model = small(cls).fit(X, y)
    unused = pickle.loads(pickle.dumps(model))
    expected = model.predict(X, return_std=True)
    joblib.dump(model, tmp_path / "model.joblib")
    copies = [
        unused,
        pickle.loads(pickle.dumps(model)),  # with what prediction has cached
        joblib.load(tmp_path / "model.joblib"),
        joblib.load(tmp_path / "model.joblib", mmap_mode="r"),
        copy.deepcopy(model),
    ]
    for other in copies:
        for mine, theirs in zip(other.predict(X, return_std=True), expected, strict=True):
            assert_array_equal(mine, theirs)
        assert other.lower_bound_ == model.lower_bound_


@every
@pytest.mark.parametrize("learn_hyperparameters", [True, False])
@pytest.mark.every_nth("learn_hyperparameters", 2)
def test_pickle_half_way_through_a_stream(cls, learn_hyperparameters):
    X, y = make_data(60)
    model = small(cls, learn_hyperparameters=learn_hyperparameters, n_inducing=15)
    model.partial_fit(X[:20], y[:20]).partial_fit(X[20:40], y[20:40])
    other = pickle.loads(pickle.dumps(model))
    model.partial_fit(X[40:], y[40:])
    other.partial_fit(X[40:], y[40:])
    for mine, theirs in zip(other.predict(X, True), model.predict(X, True), strict=True):
        assert_array_equal(mine, theirs)
    assert other.lower_bounds_ == model.lower_bounds_


@every
def test_pickle_does_not_hold_the_factors_of_the_blocks(cls):
    X, y = make_data(200)
    model = small(cls, max_iter=1).fit(X, y)
    before = len(pickle.dumps(model))
    model.predict(X, return_std=True)
    assert len(pickle.dumps(model)) < before + 30_000


@every
def test_clone_is_unfitted_and_equal(cls):
    X, y = make_data()
    model = small(cls).fit(X, y)
    other = clone(model)
    assert other.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        other.predict(X)
    assert_array_equal(other.fit(X, y).predict(X), model.predict(X))


@pytest.mark.thorough
@every
def test_grid_search_in_a_pipeline(cls):
    X, y = make_data(60)
    name = cls.__name__.lower()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), small(cls)),
        {f"{name}__n_inducing": [1, 12], f"{name}__normalize_y": [True]},
        cv=3,
    ).fit(X, y)
    assert search.best_params_[f"{name}__n_inducing"] == 12
    best = search.best_estimator_
    mean, std = best.predict(X, return_std=True)
    assert_array_equal(search.predict(X), mean)
    assert np.all(std > 0.0)
    by_hand = clone(best[-1]).fit(StandardScaler().fit_transform(X), y)
    assert_array_equal(by_hand.predict(StandardScaler().fit_transform(X)), mean)


@every
def test_cross_val_score(cls):
    X, y = make_data(90)
    scores = cross_val_score(small(cls, n_inducing=25, max_iter=10), X, y, cv=3)
    assert np.all(scores > 0.5)
