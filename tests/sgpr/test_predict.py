"""predict and sample_y of the four regressors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPICRegressor
from skvbgp.kernels import RBF, Constant
from tests.sgpr.cases import (
    REGRESSORS,
    SOLVERS,
    every,
    make_data,
    quick_for,
    small,
)

pytestmark = pytest.mark.usefixtures("quick_block_start")


@every
@pytest.mark.parametrize("include_noise", [True, False])
@pytest.mark.every_nth("include_noise", 2)
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
@pytest.mark.every_nth("cls", 2)
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


@quick_for(VBFITCRegressor, VBPICRegressor)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("psi", ["closed_form", "sampled"])
@pytest.mark.in_turn("solver", "psi")
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
@pytest.mark.every_nth("include_noise", 2)
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
    many = model.set_params(n_samples=16).predict(X)
    assert_array_equal(small(VBPICRegressor, n_samples=16).fit(X, y).predict(X), many)
    assert_array_equal(model.set_params(n_samples=2).predict(X), two)
    assert np.any(many != two)
