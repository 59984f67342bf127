"""The four regressors with their defaults, and what a fit leaves behind."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPITCRegressor
from tests.sgpr.cases import (
    BLOCKED,
    HYPERPARAMETERS,
    SOLVERS,
    WITH_NOISE_KERNEL,
    assert_same_model,
    every,
    make_data,
    quick_for,
    small,
)

pytestmark = pytest.mark.usefixtures("quick_block_start")

each_solver = pytest.mark.parametrize("solver", SOLVERS)


@every
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.thorough), 1])
def test_defaults_fit_a_hundred_rows(cls, seed):
    X, y = make_data(150, seed=seed)
    model = cls(random_state=0).fit(X[:100], y[:100])
    mean, std = model.predict(X[100:], return_std=True)
    assert np.sqrt(np.mean((y[100:] - mean) ** 2)) < 0.5 * np.std(y[100:])
    assert 0.8 <= np.mean(np.abs(y[100:] - mean) < 1.96 * std) <= 0.98
    assert model.lower_bounds_[-1] > model.lower_bounds_[0]


@every
@each_solver
def test_fitted_attributes(cls, solver):
    X, y = make_data()
    model = small(cls, solver, max_iter=3)
    assert model.fit(X, y) is model
    assert model.inverse_length_scale_mean_.shape == model.inverse_length_scale_var_.shape == (2,)
    rows = 10 if solver != "exact" or cls in WITH_NOISE_KERNEL else 40
    assert model.inducing_inputs_.shape == (rows, 2)
    for name in HYPERPARAMETERS:
        assert np.all(getattr(model, name) > 0.0), name
    assert np.isfinite(model.lower_bound_)
    assert model.n_iter_ == len(model.lower_bounds_) == 3
    assert (model.n_samples_seen_, model.n_features_in_) == (40, 2)


@every
def test_bound_of_the_collapsed_solver_rises_and_is_the_last_of_its_passes(cls):
    X, y = make_data()
    model = small(cls, max_iter=8, tol=0.0).fit(X, y)
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)
    assert model.lower_bounds_[-1] > model.lower_bounds_[0] + 1.0
    assert_allclose(model.lower_bound_, model.lower_bounds_[-1], rtol=1e-8)


@quick_for(VBDTCRegressor, VBPITCRegressor)
def test_stochastic_solver_approaches_the_collapsed_one(cls):
    X, y = make_data()
    model = small(cls, psi="closed_form", max_iter=15)
    start = clone(model).set_params(learn_hyperparameters=False).fit(X, y).lower_bound_
    exact = clone(model).fit(X, y).lower_bound_
    stochastic = clone(model).set_params(solver="stochastic").fit(X, y).lower_bound_
    assert start < stochastic < exact
    assert exact - stochastic < 0.5 * (exact - start)


@every
def test_posterior_after_sampled_training_is_that_of_the_closed_form(cls):
    """At the same parameters: the last pass must not leave a single draw's q(u) behind."""
    X, y = make_data(60)
    model = small(cls, "stochastic", psi="sampled", warm_start=True)
    if cls in BLOCKED:
        model.set_params(n_blocks=1)
    mean, std = model.fit(X, y).predict(X, return_std=True)
    model.set_params(psi="closed_form", learn_hyperparameters=False).fit(X, y)
    exact, exact_std = model.predict(X, return_std=True)
    assert np.max(np.abs(mean - exact) / exact_std) < 0.35
    assert_allclose(std, exact_std, rtol=0.2)


@every
def test_refit_forgets_the_first_fit(cls):
    X, y = make_data()
    other_X, other_y = make_data(30, 3, seed=1)
    refitted = small(cls).fit(other_X, other_y).fit(X, y)
    assert_same_model(small(cls).fit(X, y), refitted, X)


@pytest.mark.thorough
@pytest.mark.parametrize("cls", [VBDTCRegressor, VBFITCRegressor])
def test_training_over_draws_ends_as_high_as_in_closed_form(cls):
    """Though it takes Lambda at its mean, and the variances after the rest."""
    X, y = make_data(120)
    options = dict(solver="collapsed", max_iter=100, random_state=0)
    sampled, closed = (cls(20, psi=psi, **options).fit(X, y) for psi in ("sampled", "closed_form"))
    assert sampled.lower_bound_ > closed.lower_bound_ - 2.0


@pytest.mark.parametrize("max_iter, longest", [(None, 2), (4, 4)])
@pytest.mark.every_nth("max_iter", 2)
def test_training_over_draws_has_its_own_default_of_iterations(max_iter, longest, monkeypatch):
    monkeypatch.setattr("skvbgp.sgpr._learner._LBFGS_MEAN_ITERATIONS", 2)
    X, y = make_data(30)
    options = {"solver": "collapsed", "tol": 0.0, "random_state": 0}
    model = VBDTCRegressor(10, psi="sampled", max_iter=max_iter, **options).fit(X, y)
    assert model.n_iter_ == longest
    closed = VBDTCRegressor(10, psi="closed_form", max_iter=max_iter, **options).fit(X, y)
    assert closed.n_iter_ > 2
