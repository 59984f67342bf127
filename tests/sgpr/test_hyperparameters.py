"""Hyperparameters that are given, learned, or from the data."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from skvbgp import VBDTCRegressor
from skvbgp.kernels import RBF, Constant, Matern, RationalQuadratic, White
from tests.sgpr.cases import (
    GIVEN,
    WITH_NOISE_KERNEL,
    assert_same_model,
    attributes,
    every,
    make_data,
    small,
)

pytestmark = pytest.mark.usefixtures("quick_block_start")

with_noise_kernel = pytest.mark.parametrize("cls", WITH_NOISE_KERNEL)


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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["length_scale", "signal_std", "hyperparameter_variance"])
def test_starting_values_without_squares_are_refused(name):
    with pytest.raises(ValueError, match=f"The starting.* {name}.* out of range"):
        small(VBDTCRegressor, **{name: 1e300}).fit(*make_data())


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
@pytest.mark.in_turn("normalize_y")
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


@pytest.mark.in_turn("cls")
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
@pytest.mark.every_nth("ours", 2)
@pytest.mark.thorough
def test_noise_kernels_of_scikit_learn(cls, ours, theirs):
    X, y = make_data()
    expected = small(cls, noise_kernel=ours).fit(X, y)
    model = small(cls, noise_kernel=theirs).fit(X, y)
    assert_same_model(expected, model, X, rtol=1e-8)
    assert_allclose(model.noise_kernel_(X), expected.noise_kernel_(X), rtol=1e-8)
    default = small(cls).fit(X, y)
    assert not np.allclose(default.predict(X), model.predict(X), rtol=1e-4)


@with_noise_kernel
@pytest.mark.every_nth("cls", 2)
def test_given_noise_kernel_is_not_modified(cls):
    X, y = make_data()
    kernel = Constant(0.4) * RBF([1.0, 2.0])
    before = kernel.theta.copy()
    model = small(cls, noise_kernel=kernel).fit(X, y)
    assert model.noise_kernel is kernel
    assert_array_equal(kernel.theta, before)
    assert not np.allclose(model.noise_kernel_(X), np.var(y) * kernel(X), rtol=1e-3)
