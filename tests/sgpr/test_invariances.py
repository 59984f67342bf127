"""Units and origins, and the order of rows and columns, do not matter."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skvbgp import VBPICRegressor
from tests.sgpr.cases import (
    REGRESSORS,
    SOLVERS,
    WITH_NOISE_KERNEL,
    assert_same_model,
    attributes,
    every,
    make_data,
    small,
)

pytestmark = pytest.mark.usefixtures("quick_block_start")

each_solver = pytest.mark.parametrize("solver", SOLVERS)


@every
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("ab", [(4.0, 0.0), (-2.5, 7.0), (1e-4, 3.0)])
@pytest.mark.in_turn("solver", "ab")
def test_affine_map_of_the_targets(cls, solver, ab):
    a, b = ab
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
@pytest.mark.every_nth("solver", 2)
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
