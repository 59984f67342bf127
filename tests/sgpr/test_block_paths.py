"""Draws of VBPIC's function, and its slopes, which are those of a row's block."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBPICRegressor
from skvbgp._core.block_cache import BlockCache
from skvbgp._core.linalg import JITTER
from skvbgp.sgpr._block_conditional import BlockConditional
from skvbgp.sgpr._bound import Prior
from skvbgp.sgpr._left_out import Remembered
from skvbgp.sgpr._paths import draw_unit_functions
from skvbgp.sgpr._quadrature import ClosedForm
from tests.derivatives import check_mean_gradient
from tests.functions import (
    check_draws,
    check_gradients_of_draws,
    check_importances,
    check_same_functions,
)
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import SPARSE_SOLVERS, make_data, small
from tests.sgpr.problems import random_q, small_problem

pytestmark = pytest.mark.usefixtures("quick_block_start")

solvers = pytest.mark.parametrize("solver", SPARSE_SOLVERS)


def sort_by_block(model, X):
    """Block of each row."""
    state = model._state
    return state.blocks.lookup(state.model.coordinates.scaled(X))


# -- formulas ------------------------------------------------------------------------------------


@pytest.fixture
def problem():
    return small_problem("pitc")


def conditional(problem, draws):
    p = problem.parameters
    known = (problem.model, p, Prior(p), problem.model.noise(p), random_q(4), ClosedForm())
    return BlockConditional(Remembered(*known), draws)


@pytest.mark.parametrize("group", [0, 1])
def test_draws_are_the_literal_correction(problem, Xs, rng, group):
    """What two corrections make of a draw is what both data together do."""
    block, index = problem.batch[group], problem.groups[group]
    draws = rng.standard_normal((3, 3))
    local = conditional(problem, draws)
    prior = draw_unit_functions(2, 5, np.random.RandomState(0))
    u, noise = rng.standard_normal((4, 5)), rng.standard_normal((len(index), 5))
    nu, xi, alpha, beta = problem.theta
    C = oracles.noise_covariance(
        problem.data.X[index],
        problem.U_original,
        problem.noise_kernel,
        problem.parameters.noise_variance,
        np.zeros(len(index)),
        problem.noise_jitter,
    )
    L = np.linalg.cholesky(oracles.sigma_zz(problem.Z, JITTER))
    for i, e in enumerate(draws):
        lam, sigma_f = nu + np.sqrt(xi) * e[:-1], alpha + np.sqrt(beta) * e[-1]
        found = local.correct(i, prior, u, noise, 0, block)(Xs)
        g0 = prior(np.vstack([Xs * lam, block.X * lam, problem.Z]))
        for s in range(5):
            data = (block.X, block.y, problem.Z, L @ u[:, s], lam, sigma_f, C)
            expected = oracles.correct_pic(Xs, *data, g0[:, s], noise[:, s], JITTER)
            assert_allclose(found[:, s], expected, rtol=1e-7, atol=1e-8)


def test_slopes_are_the_limit_of_differences(problem, Xs, rng):
    """Of the joint distribution of two places, given each draw of theta."""
    block, draws, h = problem.batch[0], rng.standard_normal((3, 3)), 1e-3
    local = conditional(problem, draws)
    means, variances = local.slope_moments(Xs, 0, block)
    for k, e in enumerate(draws):
        one = conditional(problem, e[None])
        for i, x in enumerate(Xs):
            for j in range(2):
                ends = np.array([x, x])
                ends[:, j] += [h, -h]
                options = {"include_noise": False, "full": True}
                (mean,), covariance, _ = one.moments(ends, 0, block, **options)
                weights = np.array([0.5, -0.5]) / h
                assert_allclose(means[i, k, j], mean @ weights, rtol=1e-4, atol=1e-6)
                variance = weights @ covariance @ weights
                assert_allclose(variances[i, k, j], variance, rtol=1e-3, atol=1e-7)


# -- gradients -----------------------------------------------------------------------------------


@solvers
@pytest.mark.every_nth("solver", 2)
def test_mean_gradient_is_that_of_predict(solver):
    """Of f alone: what its block tells of a row's noise has no slope with every kernel."""
    X, y = make_data()
    model = small(VBPICRegressor, solver).fit(X, 10.0 * y)
    check_mean_gradient(model, X[:4] + 0.05, atol=1e-10)


def test_gradient_does_not_need_a_smooth_noise():
    X, y = make_data(60)
    model = small(VBPICRegressor, noise_kernel="auto").fit(X, y)
    mean, std = model.predict_gradient(X[:5])
    assert np.isfinite(mean).all()
    assert np.all(std > 0.0)


# -- draws ---------------------------------------------------------------------------------------


@solvers
@pytest.mark.every_nth("solver", 2)
def test_draws_have_the_moments_of_predict(solver, rng):
    """Within a block and across blocks; weights and y_var count as in predictions."""
    X, y = make_data(60)
    weight, y_var = rng.choice([0.5, 3.0], 60), rng.choice([0.0, 50.0], 60)
    model = small(VBPICRegressor, solver, n_samples=4).fit(X, 10.0 * y, weight, y_var)
    labels = sort_by_block(model, X)
    places = np.vstack([X[labels == 0][:4] + 0.05, X[labels == 1][:3], [[9.0, 9.0]]])
    assert len(np.unique(sort_by_block(model, places))) > 1
    check_draws(model, places, 1500)


@pytest.mark.thorough
def test_draws_of_a_wide_belief_in_the_hyperparameters():
    """All draws of theta have as many functions, and blocks have them in common."""
    X, y = make_data(30)
    wide = {"hyperparameter_variance": 0.3, "length_scale": 1.0, "signal_std": 3.0}
    model = small(VBPICRegressor, learn_hyperparameters=False, n_samples=10, **wide).fit(X, y)
    check_draws(model, np.vstack([X[:4] + 0.1, [[0.5, 1.0]]]), 2000)


@pytest.mark.thorough
def test_blocks_have_residuals_of_their_own():
    """Where few inducing inputs leave much open, functions jump between blocks."""
    X, y = make_data(200, d=1)
    model = small(VBPICRegressor, n_inducing=2, n_blocks=8).fit(X, y)
    grid = np.linspace(X.min(), X.max(), 1001)[:, None]
    steps = np.abs(np.diff(model.sample_function(50)(grid), axis=0)).mean(axis=1)
    meets = np.diff(sort_by_block(model, grid)) != 0
    assert meets.sum() == 7
    assert steps[meets].min() > 3.0 * steps[~meets].max()


@solvers
@pytest.mark.every_nth("solver", 2)
def test_a_function_is_the_same_wherever_it_is_evaluated(solver):
    X, y = make_data()
    model = small(VBPICRegressor, solver).fit(X, y)
    check_same_functions(model, X[:6] + 0.3, y[:6])


def test_a_function_is_the_same_when_its_blocks_are_forgotten():
    X, y = make_data()
    draws = small(VBPICRegressor).fit(X, y).sample_function(3).functions
    forgetful = replace(draws, functions=replace(draws.functions, recent=BlockCache(1)))
    values = draws(X)
    for _ in range(2):
        assert_array_equal(forgetful(X), values)
    known = [
        sum(d.functions.recent.get(k) is not None for k in range(4)) for d in (draws, forgetful)
    ]
    assert known == [4, 1]


@solvers
@pytest.mark.every_nth("solver", 2)
def test_gradient_of_functions(solver):
    X, y = make_data()
    model = small(VBPICRegressor, solver).fit(X, y)
    check_gradients_of_draws(model, X[:3] + 0.05)


# -- relevance -----------------------------------------------------------------------------------


@solvers
@pytest.mark.every_nth("solver", 2)
def test_importance_is_the_share_in_the_variation(solver):
    X, y = make_data(60)
    weight = np.where(np.arange(60) < 20, 3.0, 1.0)
    model = small(VBPICRegressor, solver).fit(X, y, weight)
    check_importances(model, X, weight)
    assert np.all(model.feature_importances_std_ > 0.0)
