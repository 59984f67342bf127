"""What tests of the weights of rows have in common."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

NEITHER = [-1.0, np.nan, np.inf, 1e200, [1.0, 2.0], "much", np.ones((30, 2))]
#: What weights and known variances of rows may not be.
BAD = {"sample_weight": [*NEITHER, 0.0, 1e-300], "y_var": NEITHER}


def draw_weights(rng, n):
    """Weights, and the copies that they are."""
    weight = rng.integers(0, 4, n)
    return weight, rng.permutation(np.repeat(np.arange(n), weight))


def assert_same(a, b, X, rtol=1e-8):
    for one, other in zip(a.predict(X, True), b.predict(X, True), strict=True):
        assert_allclose(one, other, rtol=rtol)
    assert_allclose(a.lower_bound_, b.lower_bound_, rtol=rtol)


def check_refused(model, X, y, name="sample_weight"):
    """Neither method takes bad values of rows, and the fitted model stays as it was."""
    model.fit(X, y)
    before = pickle.dumps(vars(model))
    for bad in BAD[name]:
        for method in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=name):
                method(X, y, **{name: bad})
            assert pickle.dumps(vars(model)) == before


def check_routed(model, X, y, **grid):
    """A search hands weights to the last step of a pipeline and to its score."""
    weight = np.arange(float(len(y)))
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        name, _ = pipeline.steps[-1]
        grid = {f"{name}__{parameter}": values for parameter, values in grid.items()}
        search = GridSearchCV(pipeline, grid, cv=2).fit(X, y, sample_weight=weight)
        best = clone(search.best_estimator_)
        for k, held in enumerate(np.array_split(np.arange(len(y)), 2)):
            known = np.setdiff1d(np.arange(len(y)), held)
            best.fit(X[known], y[known], sample_weight=weight[known])
            score = best.score(X[held], y[held], sample_weight=weight[held])
            found = search.cv_results_[f"split{k}_test_score"][search.best_index_]
            assert_allclose(found, score, rtol=1e-10)
        Z = StandardScaler().fit_transform(X)
        expected = clone(best[-1]).fit(Z, y, sample_weight=weight)
    assert_array_equal(search.best_estimator_[-1].predict(Z), expected.predict(Z))


def check_routed_to_the_last_step(make, X, y, say):
    """A search hands weights to what ``make()`` makes, the last step of a pipeline."""
    weight = np.tile([0.5, 3.0], len(y) // 2)
    with config_context(enable_metadata_routing=True):
        model = make().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        search = GridSearchCV(make_pipeline(scaler, model), {}, cv=2)
        search.fit(X, y, sample_weight=weight)
    Z = StandardScaler().fit_transform(X)
    expected = make().fit(Z, y, sample_weight=weight)
    assert_array_equal(say(search.best_estimator_[-1], Z), say(expected, Z))


def check_streams_of_copies(model, chunks, y, rng, bounds=("lower_bounds_", "lower_bound_")):
    """Training cannot tell weights, in another order, from copies.

    Returns the model and the weights.
    """
    n = len(y)
    weight, copies = draw_weights(rng, n)
    shuffled, expected = rng.permutation(n), clone(model)
    for X in chunks:
        expected.partial_fit(X[copies], y[copies])
        model.partial_fit(X[shuffled], y[shuffled], sample_weight=weight[shuffled])
        said = model.predict(chunks[0], True), expected.predict(chunks[0], True)
        for one, other in zip(*said, strict=True):
            assert_array_equal(one, other)
        for name in bounds:
            assert_array_equal(getattr(model, name), getattr(expected, name))
    assert expected.n_samples_seen_ == len(chunks) * weight.sum()
    return model, weight
