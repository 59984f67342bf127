"""Inputs that are categories: their columns share a length scale of the prior kernel."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import DecoupledGPRegressor
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._start import log_evidence
from skvbgp.kernels import RBF, Matern
from tests.derivatives import numerical_gradient
from tests.gp.test_categories import distance, make_data

pytestmark = pytest.mark.usefixtures("quick_searches")

SCALES = [1.0, 0.8, 3.0]


def make_model(**parameters):
    settings = {"categorical_features": [1], "max_iter": 3, "random_state": 0}
    return DecoupledGPRegressor(40, 60, **(settings | parameters))


def test_predictions_are_those_of_the_overlap_kernel(rng):
    """With every row in the covariance's basis, a step on q(u) is exact."""
    X, y = make_data(30, rng)
    T = make_data(6, rng)[0]
    T[0, 1] = "unknown"
    fixed = {"learn_hyperparameters": False, "normalize_y": False, "max_iter": 1}
    model = make_model(kernel=1.5 * RBF(SCALES), **fixed).fit(X, y)
    mean, std = model.predict(T, True)

    def k(A, B):
        return 1.5 * np.exp(-0.5 * distance(A, B, SCALES))

    noise = model.noise_variance_
    K = k(X, X) + noise * np.eye(30)
    variance = 1.5 + noise - np.sum(k(T, X).T * np.linalg.solve(K, k(T, X).T), axis=0)
    assert_allclose(mean, k(T, X) @ np.linalg.solve(K, y), atol=1e-5)
    assert_allclose(std, np.sqrt(variance), rtol=1e-4)
    assert_allclose(model.kernel_.kernels[-1].length_scale, SCALES)


@pytest.mark.parametrize("kernel", [None, 1.5 * Matern(SCALES, nu=1.5)])
def test_gradient_of_what_columns_share(rng, kernel):
    X, y = make_data(20, rng)
    regressor = make_model(kernel=kernel, max_iter=1).fit(X, y)
    model, numbers = regressor._state.model, np.array(regressor._state.model.own_theta)
    rows = Basis(regressor._state.coordinates.scaled(regressor._read(X, reset=False)))
    x, shared = np.append(model.kernel.theta, -1.0), np.append(numbers, numbers.max() + 1)
    assert len(shared) == len(x) and len(set(shared)) == 1 + 3 + 1

    def evaluate(free):
        moved = x + free[shared]
        return log_evidence(model, moved, rows, y)[0] + model.log_prior(moved[:-1] + 0.1)[0]

    gradient = log_evidence(model, x, rows, y)[1]
    gradient[:-1] += model.log_prior(x[:-1] + 0.1)[1]
    expected = numerical_gradient(evaluate, np.zeros(shared.max() + 1))
    assert_allclose(np.bincount(shared, gradient), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("growth", ["rows", "stream", "per_input"])
@pytest.mark.every_nth("growth", 2)
def test_columns_of_a_category_stay_equal(rng, growth):
    X, y = make_data(80, rng)
    scales = "per_input" if growth == "per_input" else True
    model = make_model(generalized_length_scales=scales, batch_size=40)
    if growth == "stream":
        few = X[:, 1] != "c"
        model.partial_fit(X[few][:40], y[few][:40]).partial_fit(X[40:], y[40:])
    else:
        model.fit(X, y)
    state = model._state
    theta = state.parameters.theta
    assert len(np.unique(theta[3:])) == 1 and len(np.unique(theta)) == 4
    assert np.all(state.coordinates.scale[2:] == 1.0) and np.all(state.coordinates.offset[2:] == 0)
    assert len(model.kernel_.kernels[-1].length_scale) == 3
