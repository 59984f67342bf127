"""Inputs that are categories: the frequencies of their columns share a prior."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import SVBSSGPRegressor
from skvbgp.base._exact_process import ExactRows, log_density
from skvbgp.kernels import RBF, Matern
from skvbgp.spectrum._training import _length_scale
from tests.derivatives import numerical_gradient
from tests.gp.test_categories import distance, make_data

SCALES = [1.0, 0.8, 3.0]


def make_model(**parameters):
    settings = {"categorical_features": [1], "max_iter": 3, "random_state": 0}
    return SVBSSGPRegressor(**({"n_frequencies": 10} | settings | parameters))


def test_frequencies_of_the_prior_make_the_overlap_kernel(rng):
    """On average over many of them: cosines of differences."""
    X, y = make_data(20, rng)
    model = make_model(length_scale=SCALES, max_iter=1, posterior="point").fit(X, y)
    state = model._state
    encoded = state.coordinates.scaled(model._read(X, reset=False))
    length_scale = np.array(SCALES)[list(state.hyper.owners)] / state.coordinates.scale
    R = np.random.default_rng(0).standard_normal((200_000, 6)) / (2.0 * np.pi * length_scale)
    K = np.cos(2.0 * np.pi * (encoded[:1] - encoded) @ R.T).mean(axis=1)
    assert_allclose(K, np.exp(-0.5 * distance(X[:1], X, SCALES))[0], atol=0.01)


@pytest.mark.parametrize("kernel", [RBF(np.full(4, 1.5)), Matern(np.full(4, 1.5), nu=0.5)])
def test_gradient_of_what_columns_share(rng, kernel):
    owners, X = (0, 1, 1, 1), rng.standard_normal((12, 4))
    rows = ExactRows(X, rng.standard_normal(12), owners=owners)
    spread = np.array([0, 1, 2, 2, 2, 3])  # of signal, length scales and noise
    free = rng.standard_normal(4)

    def evaluate(free):
        return log_density(free[spread], kernel, rows)[0]

    _, gradient = log_density(free[spread], kernel, rows)
    assert len(np.unique(gradient[2:5])) == 1
    assert_allclose(np.bincount(spread, gradient), numerical_gradient(evaluate, free), rtol=1e-5)


def test_the_best_shared_scale_is_that_of_all_frequencies(rng):
    squares = rng.chisquare(1, (5, 4))
    found = _length_scale(squares, (0, 1, 1, 1))
    assert_allclose(found[1:], 0.5 / np.pi / np.sqrt(squares[:, 1:].mean()))


@pytest.mark.parametrize(
    "parameters",
    [{}, {"objective": "bound"}, {"posterior": "factorised"}, {"solver": "adam"}],
    ids=["joint", "bound", "factorised", "adam"],
)
@pytest.mark.every_nth("parameters", 3)
def test_columns_of_a_category_stay_equal(rng, parameters):
    X, y = make_data(80, rng)
    model = make_model(**parameters).fit(X[:60], y[:60])
    for _ in range(2):
        state = model._state
        assert len(np.unique(state.hyper.length_scale[2:])) == 1
        assert np.all(state.coordinates.scale[2:] == 1.0)
        assert model.length_scale_.shape == (3,) and model.frequencies_.shape == (10, 6)
        model.partial_fit(X[60:], y[60:])
