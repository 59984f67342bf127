"""fit and predict of the four regressors, as their users meet them."""

import copy
import pickle
import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvbgp import VBDTCRegressor, VBPICRegressor
from skvbgp.kernels import RBF, Constant, Matern, RationalQuadratic, White
from skvbgp.sgpr._learner import SparseLearner
from tests.oracles.sgpr import kl_theta
from tests.sgpr.cases import (
    BLOCKED,
    INDEPENDENT,
    REGRESSORS,
    SOLVERS,
    WITH_NOISE_KERNEL,
    make_data,
    small,
)

pytestmark = pytest.mark.usefixtures("quick_block_start")

every = pytest.mark.parametrize("cls", REGRESSORS)
each_solver = pytest.mark.parametrize("solver", SOLVERS)
with_noise_kernel = pytest.mark.parametrize("cls", WITH_NOISE_KERNEL)

HYPERPARAMETERS = [
    "inverse_length_scale_mean_",
    "inverse_length_scale_var_",
    "signal_std_mean_",
    "signal_std_var_",
    "noise_variance_",
]


def attributes(model):
    return {name: np.array(getattr(model, name)) for name in [*HYPERPARAMETERS, "inducing_inputs_"]}


def assert_same_model(a, b, X, rtol=1e-10):
    for name, value in attributes(a).items():
        assert_allclose(getattr(b, name), value, rtol=rtol, err_msg=name)
    assert_allclose(b.lower_bound_, a.lower_bound_, rtol=rtol)
    for mine, theirs in zip(b.predict(X, True), a.predict(X, True), strict=True):
        assert_allclose(mine, theirs, rtol=rtol)


# -- defaults ----------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("seed", [0, 1])
def test_defaults_fit_a_hundred_rows(cls, seed):
    X, y = make_data(150, seed=seed)
    model = cls(random_state=0).fit(X[:100], y[:100])
    mean, std = model.predict(X[100:], return_std=True)
    assert np.sqrt(np.mean((y[100:] - mean) ** 2)) < 0.5 * np.std(y[100:])
    assert 0.8 <= np.mean(np.abs(y[100:] - mean) < 1.96 * std) <= 1.0
    assert model.lower_bounds_[-1] > model.lower_bounds_[0]


@every
@each_solver
def test_fitted_attributes(cls, solver):
    X, y = make_data()
    model = small(cls, solver)
    assert model.fit(X, y) is model
    assert model.inverse_length_scale_mean_.shape == model.inverse_length_scale_var_.shape == (2,)
    assert model.inducing_inputs_.shape == (40 if solver == "exact" else 10, 2)
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


@every
def test_stochastic_solver_approaches_the_collapsed_one(cls):
    X, y = make_data(60)
    model = small(cls, psi="closed_form", max_iter=40)
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


# -- predict -----------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("include_noise", [True, False])
def test_covariance_agrees_with_std(cls, include_noise):
    X, y = make_data()
    model = small(cls).fit(X, y)
    X_new, _ = make_data(30, seed=1)
    options = {"include_noise": include_noise}
    mean, std = model.predict(X_new, return_std=True, **options)
    mean_again, cov = model.predict(X_new, return_cov=True, **options)
    assert_array_equal(mean, model.predict(X_new, **options))
    assert mean.shape == std.shape == (30,)
    assert cov.shape == (30, 30)
    assert_allclose(mean_again, mean, rtol=1e-9)
    assert_allclose(np.diagonal(cov), std**2, rtol=1e-8)
    assert_allclose(cov, cov.T, rtol=1e-8, atol=1e-10 * np.max(cov))
    assert np.linalg.eigvalsh(cov)[0] > -1e-10 * np.max(cov)
    assert np.max(np.abs(cov - np.diag(std**2))) > 0.05 * np.min(std**2)


@every
def test_covariance_of_one_row(cls):
    X, y = make_data()
    model = small(cls).fit(X, y)
    mean, cov = model.predict(X[:1], return_cov=True)
    assert mean.shape == (1,)
    assert_allclose(cov, [model.predict(X[:1], return_std=True)[1] ** 2], rtol=1e-8)


@every
def test_std_and_covariance_at_once_is_an_error(cls):
    X, y = make_data()
    with pytest.raises(RuntimeError, match="return_std and return_cov"):
        small(cls, max_iter=1).fit(X, y).predict(X, return_std=True, return_cov=True)


@pytest.mark.parametrize("cls", [c for c in REGRESSORS if c is not VBPICRegressor])
def test_noise_adds_its_variance_and_leaves_the_mean(cls):
    X, y = make_data()
    model = small(cls).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    latent, latent_std = model.predict(X, return_std=True, include_noise=False)
    assert_array_equal(latent, mean)
    added = std**2 - latent_std**2
    if cls is VBDTCRegressor:
        assert_allclose(added, model.noise_variance_, rtol=1e-8)
    else:  # the noise kernel's residual comes on top
        assert np.all(added > model.noise_variance_ * (1.0 - 1e-8))
        assert np.max(added) > 1.001 * model.noise_variance_


def test_noise_of_the_own_block_moves_the_mean_of_an_observation():
    X, y = make_data()
    kernel = Constant(1.0) * RBF(1.0)
    model = small(VBPICRegressor, noise_kernel=kernel, max_iter=2).fit(X, y)
    observed, latent = model.predict(X), model.predict(X, include_noise=False)
    assert np.mean((observed - y) ** 2) < 0.9 * np.mean((latent - y) ** 2)


@every
@each_solver
@pytest.mark.parametrize("psi", ["closed_form", "sampled"])
def test_row_by_row_prediction_equals_the_batch(cls, solver, psi):
    X, y = make_data()
    model = small(cls, solver, psi=psi).fit(X, y)
    X_new = np.concatenate([X[:5], make_data(15, seed=1)[0], X[:5]])
    for include_noise in (True, False):
        batch = model.predict(X_new, return_std=True, include_noise=include_noise)
        rows = [model.predict(x[None], return_std=True, include_noise=include_noise) for x in X_new]
        for together, alone in zip(batch, np.transpose(rows, (1, 0, 2)), strict=True):
            assert_allclose(alone[:, 0], together, rtol=1e-10, atol=1e-10)


@every
def test_prediction_in_tiles(cls):
    """More rows than one tile, and each at its own place."""
    X, y = make_data()
    model = small(cls).fit(X, y)
    X_new, _ = make_data(2500, seed=1)
    for all_rows, last in zip(
        model.predict(X_new, return_std=True),
        model.predict(X_new[1000:1100], return_std=True),
        strict=True,
    ):
        assert all_rows.shape == (2500,)
        assert_allclose(all_rows[1000:1100], last, rtol=1e-10)


@every
@pytest.mark.parametrize("include_noise", [True, False])
def test_samples_have_the_predictive_moments(cls, include_noise):
    X, y = make_data()
    model = small(cls).fit(X, y)
    X_new, _ = make_data(4, seed=1)
    n = 20_000
    samples = model.sample_y(X_new, n, random_state=3, include_noise=include_noise)
    mean, cov = model.predict(X_new, return_cov=True, include_noise=include_noise)
    variance = np.diagonal(cov)
    assert samples.shape == (4, n)
    assert np.all(np.abs(samples.mean(axis=1) - mean) < 5.0 * np.sqrt(variance / n))
    error = np.sqrt((np.outer(variance, variance) + cov**2) / n)
    assert np.all(np.abs(np.cov(samples) - cov) < 5.0 * error)


@every
def test_samples_are_reproducible(cls):
    X, y = make_data()
    model = small(cls, max_iter=1).fit(X, y)
    draw = model.sample_y(X[:3])
    assert draw.shape == (3, 1)
    assert_array_equal(model.sample_y(X[:3], random_state=0), draw)
    assert np.all(model.sample_y(X[:3], random_state=1) != draw)


@every
def test_unfitted(cls):
    X, _ = make_data(5)
    for method in (cls().predict, cls().sample_y):
        with pytest.raises(NotFittedError):
            method(X)


def test_draws_of_prediction_may_be_changed_after_fit():
    X, y = make_data()
    model = small(VBPICRegressor, n_samples=2).fit(X, y)
    two = model.predict(X)
    many = model.set_params(n_samples=64).predict(X)
    assert_array_equal(small(VBPICRegressor, n_samples=64).fit(X, y).predict(X), many)
    assert_array_equal(model.set_params(n_samples=2).predict(X), two)
    assert np.any(many != two)


# -- invariances -------------------------------------------------------------------------------


@every
@each_solver
@pytest.mark.parametrize(("a", "b"), [(4.0, 0.0), (-2.5, 7.0), (1e-4, 3.0)])
def test_affine_map_of_the_targets(cls, solver, a, b):
    X, y = make_data()
    model = small(cls, solver).fit(X, y)
    moved = small(cls, solver).fit(X, a * y + b)
    rtol = 1e-6
    X_new, _ = make_data(20, seed=1)
    mean, std = model.predict(X_new, return_std=True)
    mean_moved, std_moved = moved.predict(X_new, return_std=True)
    assert_allclose((mean_moved - b) / a, mean, rtol=rtol)
    assert_allclose(std_moved, abs(a) * std, rtol=rtol)
    power = dict.fromkeys(["signal_std_mean_"], 1)
    power |= dict.fromkeys(["signal_std_var_", "noise_variance_"], 2)
    for name, value in attributes(model).items():
        expected = value * abs(a) ** power.get(name, 0)
        assert_allclose(getattr(moved, name), expected, rtol=rtol, err_msg=name)
    shift = -len(y) * np.log(abs(a))
    assert_allclose(moved.lower_bound_, model.lower_bound_ + shift, rtol=rtol)
    expected = np.array(model.lower_bounds_) + shift
    assert_allclose(moved.lower_bounds_, expected, rtol=rtol)
    if cls in WITH_NOISE_KERNEL:
        expected = a**2 * model.noise_kernel_(X_new)
        assert_allclose(moved.noise_kernel_(X_new), expected, rtol=rtol)


@every
@each_solver
def test_affine_map_of_the_inputs(cls, solver):
    scale, shift = np.array([250.0, 0.03]), np.array([-40.0, 2.0])
    X, y = make_data()
    model = small(cls, solver).fit(X, y)
    moved = small(cls, solver).fit(X * scale + shift, y)
    X_new, _ = make_data(20, seed=1)
    rtol = 1e-6
    for mine, theirs in zip(
        moved.predict(X_new * scale + shift, return_std=True),
        model.predict(X_new, return_std=True),
        strict=True,
    ):
        assert_allclose(mine, theirs, rtol=rtol)
    expected = attributes(model)
    expected["inverse_length_scale_mean_"] /= scale
    expected["inverse_length_scale_var_"] /= scale**2
    expected["inducing_inputs_"] = expected["inducing_inputs_"] * scale + shift
    for name, value in expected.items():
        assert_allclose(getattr(moved, name), value, rtol=rtol, err_msg=name)
    assert_allclose(moved.lower_bound_, model.lower_bound_, rtol=rtol)


@every
@pytest.mark.parametrize("inducing", ["given", "every row"])
def test_order_of_the_rows(cls, inducing):
    X, y = make_data()
    given = {"inducing_inputs": X[::5]} if inducing == "given" else {"n_inducing": 100}
    order = np.random.default_rng(1).permutation(len(X))
    model = small(cls, learn_hyperparameters=False, **given)
    first, second = clone(model).fit(X, y), clone(model).fit(X[order], y[order])
    assert_same_model(first, second, X, rtol=1e-8)


@pytest.mark.parametrize("cls", [c for c in REGRESSORS if c is not VBPICRegressor])
def test_order_of_the_columns(cls):
    """PIC's predictions are averages over draws, of which each column has its own."""
    X, y = make_data()
    model = small(cls, learn_hyperparameters=False, inducing_inputs=X[::5], psi="closed_form")
    swapped = clone(model).set_params(inducing_inputs=X[::5, ::-1]).fit(X[:, ::-1], y)
    expected = model.fit(X, y).predict(X, return_std=True)
    for mine, theirs in zip(swapped.predict(X[:, ::-1], True), expected, strict=True):
        assert_allclose(mine, theirs, rtol=1e-8)


# -- hyperparameters ---------------------------------------------------------------------------

GIVEN = {
    "length_scale": [0.7, 2.5],
    "signal_std": 1.7,
    "noise_variance": 0.3,
    "hyperparameter_variance": 0.02,
}


@every
@pytest.mark.parametrize("normalize_y", [True, False])
def test_given_hyperparameters_are_kept(cls, normalize_y):
    X, y = make_data()
    Z = X[::5] + 0.1
    model = small(
        cls,
        learn_hyperparameters=False,
        normalize_y=normalize_y,
        inducing_inputs=Z,
        **GIVEN,
    ).fit(X, y)
    assert_allclose(model.inverse_length_scale_mean_, [1.0 / 0.7, 1.0 / 2.5], rtol=1e-12)
    assert_allclose(model.inverse_length_scale_var_, [0.02, 0.02], rtol=1e-12)
    assert_allclose(model.signal_std_mean_, 1.7, rtol=1e-12)
    assert_allclose(model.signal_std_var_, 0.02, rtol=1e-12)
    assert_allclose(model.noise_variance_, 0.3, rtol=1e-12)
    assert_allclose(model.inducing_inputs_, Z, rtol=1e-12)
    assert model.lower_bounds_ == [model.lower_bound_]
    assert model.n_iter_ == 1


@every
def test_learning_moves_the_given_hyperparameters(cls):
    X, y = make_data()
    Z = X[::5] + 0.1
    start = small(cls, learn_hyperparameters=False, inducing_inputs=Z, **GIVEN).fit(X, y)
    learned = small(cls, inducing_inputs=Z, **GIVEN).fit(X, y)
    assert learned.lower_bound_ > start.lower_bound_
    for name, value in attributes(start).items():
        assert np.any(np.abs(getattr(learned, name) / value - 1.0) > 1e-3), name


@every
@pytest.mark.parametrize("normalize_y", [True, False])
def test_starting_values_from_the_data(cls, normalize_y):
    X, y = make_data(200)
    model = small(cls, learn_hyperparameters=False, normalize_y=normalize_y).fit(X, y)
    assert_allclose(1.0 / model.inverse_length_scale_mean_, 0.5 * X.std(axis=0) * np.sqrt(2.0))
    size = y.std()
    assert_allclose(model.signal_std_mean_, size)
    assert_allclose(model.noise_variance_, 0.1 * size**2)
    assert_allclose(model.inverse_length_scale_var_, 0.01 * model.inverse_length_scale_mean_**2)
    assert_allclose(model.signal_std_var_, 0.01 * model.signal_std_mean_**2)


@every
def test_scalar_length_scale_is_one_for_every_input(cls):
    X, y = make_data()
    model = small(cls, learn_hyperparameters=False, length_scale=0.4).fit(X, y)
    assert_allclose(model.inverse_length_scale_mean_, [2.5, 2.5])


@every
def test_scale_of_the_targets_does_not_matter_for_given_hyperparameters(cls):
    """normalize_y is a matter of numerics once everything is given on y's own scale."""
    X, y = make_data()
    y = y - y.mean()
    model = small(cls, learn_hyperparameters=False, inducing_inputs=X[::5] + 0.1, **GIVEN)
    if cls in WITH_NOISE_KERNEL:
        model.set_params(noise_kernel=Constant(0.4) * RBF(1.0))
    a = clone(model).set_params(normalize_y=True).fit(X, y)
    b = clone(model).set_params(normalize_y=False).fit(X, y)
    for mine, theirs in zip(a.predict(X, True), b.predict(X, True), strict=True):
        assert_allclose(mine, theirs, rtol=1e-8, atol=1e-10)


@with_noise_kernel
@pytest.mark.parametrize("normalize_y", [True, False])
@pytest.mark.parametrize("noise_variance", [None, 0.3])
def test_amplitude_of_a_given_noise_kernel(cls, normalize_y, noise_variance):
    """On y's scale if noise_variance is given, otherwise relative to y's variance."""
    X, y = make_data()
    kernel = Constant(0.4) * Matern([1.0, 2.0], nu=1.5)
    model = small(
        cls,
        learn_hyperparameters=False,
        normalize_y=normalize_y,
        noise_variance=noise_variance,
        noise_kernel=kernel,
    ).fit(X, y)
    unit = 1.0 if noise_variance is not None else np.var(y)
    assert_allclose(model.noise_kernel_(X), unit * kernel(X), rtol=1e-10)


@with_noise_kernel
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Constant(0.3) * Matern([1.0, 2.0], nu=0.5), 0.3 * sk.Matern([1.0, 2.0], nu=0.5)),
        (RBF(2.0, isotropic=True) + White(0.1), sk.RBF(2.0) + sk.WhiteKernel(0.1)),
        (
            RationalQuadratic(1.0, alpha=0.5, isotropic=True) * RBF([3.0, 2.0]),
            sk.RationalQuadratic(1.0, alpha=0.5) * sk.RBF([3.0, 2.0]),
        ),
    ],
    ids=["matern", "sum", "product"],
)
def test_noise_kernels_of_scikit_learn(cls, ours, theirs):
    X, y = make_data()
    expected = small(cls, noise_kernel=ours).fit(X, y)
    model = small(cls, noise_kernel=theirs).fit(X, y)
    assert_same_model(expected, model, X, rtol=1e-8)
    assert_allclose(model.noise_kernel_(X), expected.noise_kernel_(X), rtol=1e-8)
    default = small(cls).fit(X, y)
    assert not np.allclose(default.predict(X), model.predict(X), rtol=1e-4)


@with_noise_kernel
def test_given_noise_kernel_is_not_modified(cls):
    X, y = make_data()
    kernel = Constant(0.4) * RBF([1.0, 2.0])
    before = kernel.theta.copy()
    model = small(cls, noise_kernel=kernel).fit(X, y)
    assert model.noise_kernel is kernel
    assert_array_equal(kernel.theta, before)
    assert not np.allclose(model.noise_kernel_(X), np.var(y) * kernel(X), rtol=1e-3)


# -- limits ------------------------------------------------------------------------------------


@every
def test_every_row_an_inducing_input_is_the_exact_gp(cls):
    X, y = make_data(40)
    y = y - 10.0
    length_scale, signal_std, noise_variance, variance = [0.6, 1.0], 2.1, 0.2, 1e-12
    kernel = sk.ConstantKernel(signal_std**2) * sk.RBF(length_scale)
    kernel += sk.WhiteKernel(noise_variance)
    exact = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y)
    model = small(
        cls,
        inducing_inputs=X,
        length_scale=length_scale,
        signal_std=signal_std,
        noise_variance=noise_variance,
        hyperparameter_variance=variance,
        learn_hyperparameters=False,
        normalize_y=False,
    ).fit(X, y)
    mean, std = exact.predict(X, return_std=True)  # the noise kernel has no residual at Z = X
    mine, my_std = model.predict(X, return_std=True)
    assert_allclose(mine, mean, atol=2e-6)
    assert_allclose(my_std, std, rtol=2e-6)
    X_new, _ = make_data(25, seed=1)
    mean, cov = exact.predict(X_new, return_cov=True)
    cov -= noise_variance * np.eye(len(cov))
    mine, my_std = model.predict(X_new, return_std=True, include_noise=False)
    assert_allclose(mine, mean, atol=2e-6)
    assert_allclose(my_std, np.sqrt(np.diagonal(cov)), rtol=2e-6)
    if cls is not VBPICRegressor:  # there rows of different blocks share the inducing inputs only
        _, my_cov = model.predict(X_new, return_cov=True, include_noise=False)
        assert_allclose(my_cov, cov, atol=1e-5)
    # the bound is short of the evidence by the divergence of q(theta) from its prior, which
    # is standard normal in the coordinates of the inducing inputs
    scale = X.std(axis=0)
    unit = y.std()  # of the prior of the signal's standard deviation
    kl = kl_theta(
        scale / length_scale, variance * scale**2, signal_std / unit, variance / unit**2, 0.0, 4.0
    )
    evidence = exact.log_marginal_likelihood_value_
    assert_allclose(model.lower_bound_ + kl, evidence, atol=2e-5)


@every
@pytest.mark.parametrize("length_scale", [1e-2, 1e-4])
def test_bound_stays_below_the_evidence_at_extreme_parameters(cls, length_scale):
    """Where the signal outweighs the noise so much that rounding decides the trace term.

    The evidence at these (nearly certain) hyperparameters bounds it from above.
    """
    X, y = make_data()
    for signal_std, noise_variance in [(2.0, 0.2), (1e3, 1e-4), (1e6, 1e-7)]:
        model = small(
            cls,
            n_inducing=100,
            length_scale=length_scale,
            signal_std=signal_std,
            noise_variance=noise_variance,
            hyperparameter_variance=1e-12,
            learn_hyperparameters=False,
            normalize_y=False,
        )
        if signal_std == 1e6:  # beyond what the arithmetic can carry
            with pytest.raises(ValueError, match="noise is too small for the signal"):
                model.fit(X, y - 10.0)
            continue
        model.fit(X, y - 10.0)
        kernel = sk.ConstantKernel(signal_std**2) * sk.RBF(length_scale)
        kernel += sk.WhiteKernel(noise_variance)
        exact = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y - 10.0)
        assert model.lower_bound_ <= exact.log_marginal_likelihood_value_


@pytest.mark.parametrize("cls", BLOCKED)
def test_blocks_of_one_row_are_fitc(cls):
    X, y = make_data(30)
    same = {"inducing_inputs": X[::3], "learn_hyperparameters": False, "psi": "closed_form"}
    fitc = small(WITH_NOISE_KERNEL[0], **same)
    model = small(cls, n_blocks=30, **same)
    assert_allclose(model.fit(X, y).lower_bound_, fitc.fit(X, y).lower_bound_, rtol=1e-10)
    if cls is not VBPICRegressor:
        assert_allclose(model.predict(X), fitc.predict(X), rtol=1e-10)


def test_more_inducing_inputs_raise_the_bound():
    X, y = make_data()
    parameters = {**GIVEN, "learn_hyperparameters": False, "normalize_y": False}
    bounds = []
    for m in (2, 10, 40):
        model = small(VBDTCRegressor, inducing_inputs=X[:m], **parameters).fit(X, y)
        scale = X[:m].std(axis=0)  # unit of the coordinates in which the prior is standard normal
        nu, xi = scale / GIVEN["length_scale"], 0.02 * scale**2
        bounds.append(model.lower_bound_ + kl_theta(nu, xi, 1.7, 0.02, 0.0, 4.0))
    assert bounds[0] < bounds[1] < bounds[2]


# -- starts, seeds and workers -----------------------------------------------------------------


@every
def test_warm_start_goes_on_from_the_fit_before(cls):
    X, y = make_data()
    model = small(cls, psi="closed_form").fit(X, y)
    before, bound = attributes(model), model.lower_bound_
    expected = model.predict(X, return_std=True)
    model.set_params(warm_start=True, learn_hyperparameters=False).fit(X, y)
    for name, value in before.items():
        assert_array_equal(getattr(model, name), value, err_msg=name)
    if cls in INDEPENDENT:  # blocks are formed anew, in inputs scaled by the learned nu
        assert_allclose(model.lower_bound_, bound, rtol=1e-10)
        for mine, theirs in zip(model.predict(X, return_std=True), expected, strict=True):
            assert_allclose(mine, theirs, rtol=1e-10)
    assert model.n_samples_seen_ == len(X)
    assert model.n_iter_ == 1
    assert model.lower_bounds_ == [model.lower_bound_]


@every
def test_warm_start_improves(cls):
    X, y = make_data()
    model = small(cls, max_iter=2, warm_start=True).fit(X, y)
    bounds = [model.lower_bound_] + [model.fit(X, y).lower_bound_ for _ in range(3)]
    assert np.all(np.diff(bounds) > 0.0)
    assert len(model.lower_bounds_) == model.n_iter_ == 2
    cold = small(cls, max_iter=2).fit(X, y)
    assert bounds[-1] > cold.lower_bound_ + 1.0


@every
def test_what_a_start_learns_from_y_is_left_out_of_a_warm_start_alone(cls, monkeypatch):
    X, y = make_data()
    starts = []

    def spy(self, state, data, rng):
        starts.append(state)
        return state.parameters

    monkeypatch.setattr(SparseLearner, "_improve_start", spy)
    model = small(cls, "stochastic", max_iter=1, warm_start=True).fit(X, y)
    assert len(starts) == 1
    model.fit(X, y)
    assert len(starts) == 1
    model.set_params(warm_start=False).fit(X, y)
    assert len(starts) == 2
    few = small(cls, "stochastic", max_iter=1, warm_start=True)
    few.partial_fit(X[:5], y[:5]).partial_fit(X[5:], y[5:])  # starts again with all rows
    assert len(starts) == 4


@every
def test_warm_start_after_a_stream(cls):
    """New targets of another mean and scale have come in between."""
    X, y = make_data(60)
    y = np.where(np.arange(60) < 30, y, 5.0 * y + 40.0)
    parameters = {**GIVEN, "inducing_inputs": X[::5], "learn_hyperparameters": False}
    streamed = small(cls, warm_start=True, **parameters)
    streamed.partial_fit(X[:30], y[:30]).partial_fit(X[30:], y[30:]).fit(X, y)
    expected = small(cls, **parameters).fit(X, y)
    assert streamed.n_samples_seen_ == 60
    for mine, theirs in zip(streamed.predict(X, True), expected.predict(X, True), strict=True):
        assert_allclose(mine, theirs, rtol=1e-8)


@every
def test_stream_after_a_warm_start_on_other_data(cls):
    """The rows of the first fit no longer count, not even in the mean of y."""
    X, y = make_data(60)
    y = np.where(np.arange(60) < 20, 100.0, 0.0) + y
    parameters = {**GIVEN, "inducing_inputs": X[::5], "learn_hyperparameters": False}
    model = small(cls, warm_start=True, **parameters).fit(X[:20], y[:20])
    model.fit(X[20:40], y[20:40]).partial_fit(X[40:], y[40:])
    expected = small(cls, **parameters)
    expected.partial_fit(X[20:40], y[20:40]).partial_fit(X[40:], y[40:])
    for mine, theirs in zip(model.predict(X, True), expected.predict(X, True), strict=True):
        assert_allclose(mine, theirs, rtol=1e-8)


@every
def test_warm_start_with_other_features_is_a_clear_error(cls):
    X, y = make_data()
    model = small(cls, warm_start=True).fit(X, y)
    expected = model.predict(X)
    with pytest.raises(ValueError, match="features"):
        model.fit(make_data(40, 3)[0], y)
    assert_array_equal(model.predict(X), expected)


@every
@each_solver
def test_random_state(cls, solver):
    X, y = make_data()
    first = small(cls, solver, random_state=5).fit(X, y)
    for seed in (5, np.random.RandomState(5)):
        again = small(cls, solver, random_state=seed).fit(X, y)
        assert_array_equal(again.predict(X), first.predict(X))
        assert again.lower_bounds_ == first.lower_bounds_
    other = small(cls, solver, random_state=6).fit(X, y)
    assert np.all(other.predict(X) != first.predict(X))
    generator = np.random.RandomState(5)
    model = small(cls, solver, random_state=generator)
    assert np.all(model.fit(X, y).predict(X) != model.fit(X, y).predict(X))


@every
def test_number_of_workers_changes_nothing(cls):
    X, y = make_data(600)  # several tasks in the pass that ends a fit
    parameters = {"n_inducing": 4, "max_iter": 1, "batch_size": 300, "psi": "sampled"}
    if cls in BLOCKED:
        parameters["n_blocks"] = 20
    alone = small(cls, "stochastic", **parameters).fit(X, y)
    together = small(cls, "stochastic", n_jobs=2, **parameters).fit(X, y)
    assert together.lower_bound_ == alone.lower_bound_
    X_new = X[:50]
    for mine, theirs in zip(together.predict(X_new, True), alone.predict(X_new, True), strict=True):
        assert_array_equal(mine, theirs)


# -- persistence and meta-estimators -----------------------------------------------------------


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


# -- kinds of input ----------------------------------------------------------------------------


@every
@each_solver
def test_read_only_and_memory_mapped_input(cls, solver, tmp_path):
    X, y = make_data()
    expected = small(cls, solver).fit(X, y).predict(X, return_std=True)
    read_only = [X.copy(), y.copy()]
    for name, values in zip("Xy", read_only, strict=True):
        values.flags.writeable = False
        np.save(tmp_path / f"{name}.npy", values)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "Xy"]
    for X_in, y_in in (read_only, mapped):
        model = small(cls, solver).fit(X_in, y_in)
        for mine, theirs in zip(model.predict(X_in, return_std=True), expected, strict=True):
            assert_array_equal(mine, theirs)
        model.partial_fit(X_in, y_in)


@every
@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_other_numbers_are_taken_as_float64(cls, dtype):
    X, y = make_data()
    X, targets = (10.0 * X).astype(dtype), (10.0 * y).astype(dtype if dtype is not bool else int)
    expected = small(cls).fit(X.astype(float), targets.astype(float))
    model = small(cls).fit(X, targets)
    mean, std = model.predict(X, return_std=True)
    assert mean.dtype == std.dtype == np.float64
    assert_array_equal(mean, expected.predict(X.astype(float)))


@every
def test_lists_and_other_memory_layouts(cls):
    X, y = make_data()
    expected = small(cls).fit(X, y).predict(X)
    doubled, wide = np.repeat(y, 2), np.repeat(X, 2, axis=1)
    for X_in, y_in in [
        (X.tolist(), y.tolist()),
        (np.asfortranarray(X), y),
        (wide[:, ::2], doubled[::2]),
    ]:
        assert_array_equal(small(cls).fit(X_in, y_in).predict(X_in), expected)


@every
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(cls, library):
    frames = pytest.importorskip(library)
    X, y = make_data()
    expected = small(cls).fit(X, y).predict(X)
    frame, column = frames.DataFrame({"east": X[:, 0], "north": X[:, 1]}), frames.Series(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = small(cls).fit(frame, column)
        assert_array_equal(model.predict(frame), expected)
        model.partial_fit(frame[:5], column[:5])
        model.sample_y(frame[:5])
    assert list(model.feature_names_in_) == ["east", "north"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["north", "east"]])
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame[["north", "east"]], column)


@pytest.mark.parametrize("cls", INDEPENDENT)
def test_column_of_targets_warns(cls):
    from sklearn.exceptions import DataConversionWarning

    X, y = make_data()
    with pytest.warns(DataConversionWarning):
        model = small(cls).fit(X, y[:, None])
    assert_array_equal(model.predict(X), small(cls).fit(X, y).predict(X))
