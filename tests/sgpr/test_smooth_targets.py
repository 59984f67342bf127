"""Targets without noise and few inducing inputs: closed forms drown in rounding, no fit fails."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import VBPICRegressor, VBPITCRegressor
from skvbgp.sgpr._learner import SparseLearner


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
        pytest.param(*(60, 1, {"n_inducing": 20}), marks=pytest.mark.thorough),
        (30, 2, {"n_inducing": 5, "psi": "closed_form"}),
        pytest.param(
            *(60, 1, {"n_inducing": 20, "psi": "closed_form"}), marks=pytest.mark.thorough
        ),
        (60, 0, {"n_inducing": 32, "solver": "collapsed"}),
    ],
)
@pytest.mark.every_nth("n", 2)
@pytest.mark.thorough
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
        pytest.param(60, 1, 20, "auto", marks=pytest.mark.thorough),
        pytest.param(60, 2, 5, "auto", marks=pytest.mark.thorough),
        pytest.param(60, 0, 20, "closed_form", marks=pytest.mark.thorough),
        (30, 0, 5, "auto"),
    ],
)
@pytest.mark.thorough
def test_where_predictions_do_not_use_blocks(n, seed, m, psi):
    X, y = smooth(n, seed)
    model = VBPITCRegressor(noise_kernel="auto", n_inducing=m, psi=psi, random_state=0).fit(X, y)
    new, truth = smooth(50, 99)
    mean, std = model.predict(new, return_std=True)
    assert_allclose(mean, truth, atol=0.5)
    assert np.all(np.isfinite(std) & (std > 0.0))


@pytest.mark.parametrize("options", [{"noise_kernel": "auto"}, {"psi": "closed_form"}])
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.in_turn("noise")
@pytest.mark.every_nth("options", 2)
def test_blocks_do_not_hide_a_function_from_new_rows(options, noise):
    """With few inducing inputs, f was 0: the bound of rows in blocks is higher by hundreds of nats.

    Without noise, its own is .1 below functions of 1e4, and closed forms drown.
    """
    X, _ = smooth(100, 2)
    new, _ = smooth(100, 9)
    y = X[:, 0] * X[:, 1] + noise * np.random.default_rng(5).standard_normal(100)
    model = VBPITCRegressor(n_inducing=5, random_state=0, **options).fit(X, y)
    mean, std = model.predict(new, return_std=True)
    error = mean - new[:, 0] * new[:, 1]
    assert np.sqrt(np.mean(error**2)) < 0.15  # 1.1 is that of f = 0
    assert np.mean(np.abs(error) < 2.0 * std) > 0.9
    assert np.isfinite(model.lower_bound_)


@pytest.mark.thorough
def test_blocks_keep_f_where_new_rows_are_told_as_well(monkeypatch):
    """White noise is not trained and, if it is asked for all the same, does not lead."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2.0, 2.0, (70, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(70)
    model, tried = VBPITCRegressor(n_inducing=20, random_state=0), []
    learn = SparseLearner._learn_white
    monkeypatch.setattr(
        SparseLearner, "_learn_white", lambda *given: tried.append(1) or learn(*given)
    )
    bound = model.fit(X, y).lower_bound_
    assert not tried
    monkeypatch.setattr("skvbgp.sgpr._kernel_search._HIDDEN", -np.inf)
    assert model.fit(X, y).lower_bound_ == bound
    assert tried


def test_training_goes_on_from_where_closed_forms_drown():
    X, y = smooth(30, 2)
    model = VBPICRegressor(n_inducing=5, warm_start=True, random_state=0).fit(X, y)
    again = model.fit(X, y)
    assert_allclose(again.predict(X), y, atol=0.02)
