"""Targets without noise and few inducing inputs: closed forms drown in rounding, no fit fails."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import VBPICRegressor, VBPITCRegressor


def smooth(n, seed):
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, X[:, 0]


def log_density_of_noise(y):
    """Of targets that are taken as white noise."""
    return -0.5 * len(y) * (np.log(2.0 * np.pi * y.var()) + 1.0)


@pytest.mark.parametrize(
    "n, seed, options",
    [
        (30, 2, {"n_inducing": 5}),
        (60, 1, {"n_inducing": 20}),
        (30, 2, {"n_inducing": 5, "psi": "closed_form"}),
        pytest.param(
            *(60, 1, {"n_inducing": 20, "psi": "closed_form"}), marks=pytest.mark.thorough
        ),
        (60, 0, {"n_inducing": 32, "solver": "collapsed"}),
    ],
)
def test_a_function_is_found(n, seed, options):
    X, y = smooth(n, seed)
    model = VBPICRegressor(random_state=0, **options).fit(X, y)
    new, truth = smooth(50, 99)
    mean, std = model.predict(new, return_std=True)
    assert_allclose(mean, truth, atol=0.02)
    assert np.all((std > 0.0) & (std < 0.1))
    assert model.lower_bound_ > log_density_of_noise(y)


@pytest.mark.parametrize(
    "n, seed, m, psi",
    [
        (60, 1, 20, "auto"),
        (60, 2, 5, "auto"),
        pytest.param(60, 0, 20, "closed_form", marks=pytest.mark.thorough),
        (30, 0, 5, "auto"),
    ],
)
def test_where_predictions_do_not_use_blocks(n, seed, m, psi):
    X, y = smooth(n, seed)
    model = VBPITCRegressor(noise_kernel="auto", n_inducing=m, psi=psi, random_state=0).fit(X, y)
    new, truth = smooth(50, 99)
    mean, std = model.predict(new, return_std=True)
    assert_allclose(mean, truth, atol=0.5)
    assert np.all(np.isfinite(std) & (std > 0.0))


def test_a_search_does_not_end_where_nothing_is_left_of_q():
    """Rows that would have been left out of it said more than all that was known.

    How high the bound ends, rounding decides: with noise of 1e-7 beside functions of 1e4.
    """
    X, _ = smooth(100, 2)
    y = X[:, 0] * X[:, 1]
    model = VBPITCRegressor(noise_kernel="auto", n_inducing=5, random_state=0).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.all(np.isfinite(mean) & np.isfinite(std) & (std > 0.0))
    assert np.isfinite(model.lower_bound_)


def test_training_goes_on_from_where_closed_forms_drown():
    X, y = smooth(30, 2)
    model = VBPICRegressor(n_inducing=5, warm_start=True, random_state=0).fit(X, y)
    again = model.fit(X, y)
    assert_allclose(again.predict(X), y, atol=0.02)
