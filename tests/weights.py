"""What tests of the weights and the known noise of rows have in common."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

#: What weights and known variances of rows may not be, and in training besides.
NEITHER = [-1.0, np.nan, np.inf, [1.0, 2.0], "much", np.ones((30, 2))]
BAD = {"sample_weight": [*NEITHER, 1e200, 0.0, 1e-300], "y_var": [*NEITHER, 1e200]}


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


def check_predictions(model, X):
    """Known noise of new rows adds to the variances, and to nothing else."""
    y_var = np.arange(float(len(X)))
    mean, std = model.predict(X, return_std=True)
    told_mean, told = model.predict(X, return_std=True, y_var=y_var)
    assert_array_equal(told_mean, mean)
    assert_allclose(told**2, std**2 + y_var)
    plain, wider = (model.predict(X, return_cov=True, y_var=v)[1] for v in (None, y_var))
    assert_allclose(wider - plain, np.diag(y_var), atol=1e-12 * (1.0 + plain.max()))
    assert_array_equal(model.predict(X, y_var=2.0), mean)


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
