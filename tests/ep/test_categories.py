"""Inputs that are categories: their columns share a length scale of the kernel."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import EPDTCClassifier
from skvbgp.ep._bound import Objective, ScalePrior, make_vague, solve
from skvbgp.kernels import RBF
from tests.derivatives import numerical_gradient
from tests.gp.test_categories import distance, make_data

SCALES = [1.0, 0.8, 3.0]


def make_classes(n, rng):
    X, y = make_data(n, rng)
    return X, (y > 0.0).astype(int)


def make_model(**parameters):
    settings = {"n_inducing": 30, "categorical_features": [1], "max_iter": 4, "random_state": 0}
    return EPDTCClassifier(**(settings | parameters))


def test_evidence_is_that_of_the_overlap_kernel(rng):
    """Rows as inducing inputs, and the sites that EP has found: a literal Gaussian evidence."""
    X, y = make_classes(25, rng)
    T = make_data(5, rng)[0]
    T[0, 1] = "unknown"
    fixed = {"learn_hyperparameters": False, "kernel": 1.5 * RBF(SCALES)}
    model = make_model(**fixed).fit(X, y)

    def k(A, B):
        return 1.5 * np.exp(-0.5 * distance(A, B, SCALES))

    C = k(X, X) + np.diag(1.0 / model.site_precision_)
    mean = k(T, X) @ np.linalg.solve(C, model.site_mean_)
    variance = 1.5 - np.sum(k(T, X).T * np.linalg.solve(C, k(T, X).T), axis=0)
    assert_allclose(model.decision_function(T), mean / np.sqrt(1.0 + variance), rtol=1e-5)
    assert_allclose(model.kernel_.kernels[-1].length_scale, SCALES)


@pytest.mark.parametrize("kernel", [None, 1.5 * RBF(SCALES)])
@pytest.mark.every_nth("kernel", 2)
def test_gradient_of_what_columns_share(rng, kernel):
    X, y = make_classes(16, rng)
    X[::5, 0] = np.nan
    model = make_model(kernel=kernel, max_iter=1, n_inducing=6).fit(X, y)
    learner, state = model._learner(), model._state
    problem, p = learner._pose(state.start, state.inputs, state.y), state.start.parameters
    solution = solve(problem, p, make_vague(problem), 1e-10)
    objective = Objective(
        problem, p, solution.correction_weights, solution.sites, learn_inducing=False, tol=1e-10
    )
    x, owners = objective.x, p.columns.owners
    assert owners == (0, 2, 1, 1, 1, 1)
    shared = np.array([0, *(1 + j for j in owners), *range(4, 4 + len(x) - 7)])

    def evaluate(free):
        return objective(x + 0.1 * (shared == 2) + free[shared])[0]

    gradient = objective(x + 0.1 * (shared == 2))[1]
    assert len(np.unique(gradient[3:7])) == 1
    expected = numerical_gradient(evaluate, np.zeros(shared.max() + 1))
    assert_allclose(np.bincount(shared, gradient), expected, rtol=1e-4, atol=1e-5)


def test_the_prior_of_a_shared_scale_is_that_of_one(rng):
    owners = (0, 1, 1, 1)
    start, theta = rng.standard_normal((2, 3))
    spread = [0, *(1 + j for j in owners)]
    value, gradient = ScalePrior(start[spread], owners).log_density(theta[spread])
    expected, slope = ScalePrior(start).log_density(theta)
    assert_allclose(value, expected)
    assert_allclose(np.bincount(spread, gradient), slope)


def test_columns_of_a_category_stay_equal(rng):
    X, y = make_classes(60, rng)
    model = make_model(n_restarts=1).fit(X, y)
    scales = np.array(model._state.start.parameters.kernel.kernels[-1].length_scale)
    assert len(np.unique(scales)) == 3 and len(np.unique(scales[2:])) == 1
    assert len(model.kernel_.kernels[-1].length_scale) == 3
    assert model.observed_features_.tolist() == [True] * 3


def test_uncertain_and_missing_numbers_beside_categories(rng):
    X, y = make_classes(40, rng)
    X[::6, 0] = np.nan
    variance = np.zeros((40, 3))
    variance[:, 2] = 0.1
    model = make_model().fit(X, y, X_var=variance)
    assert np.isfinite(model.predict_proba(X, X_var=variance)).all()
    X[:, 2] = np.nan
    model = make_model().fit(X, y)
    assert model.observed_features_.tolist() == [True, True, False]
    assert len(model.kernel_.kernels[-1].length_scale) == 2
    variance[0, 1] = 0.1
    with pytest.raises(ValueError, match="X_var must be 0 for the categories"):
        model.predict(X, X_var=variance)
    with pytest.raises(ValueError, match=r"X_var has shape \(40, 2\), but X has \(40, 3\)"):
        model.predict(X, X_var=variance[:, :2])


def test_inducing_inputs_are_given_as_rows(rng):
    X, y = make_classes(40, rng)
    model = make_model(inducing_inputs=X[:5].tolist(), learn_hyperparameters=False).fit(X, y)
    assert_allclose(model.inducing_inputs_, model._categories.encode(X[:5]))
