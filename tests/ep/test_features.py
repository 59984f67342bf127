"""The sparse prior of f: its limits and its gradients."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.gaussian import InducingOutputs
from skvbgp.ep import _features
from skvbgp.ep._features import TILE_ROWS, SparsePrior, cut_tiles
from skvbgp.ep._inputs import Inputs
from skvbgp.ep._posterior import LatentPosterior
from skvbgp.kernels import RBF, Constant, Linear, Matern
from tests.derivatives import numerical_gradient
from tests.ep.problems import (
    APPROXIMATIONS,
    JITTER,
    KERNEL,
    LENGTH_SCALE,
    VARIANCE,
    small_inputs,
    small_prior,
)
from tests.oracles import ep as oracles

each = pytest.mark.parametrize("approximation", APPROXIMATIONS)


@each
def test_prior_is_that_of_the_dense_twin(approximation):
    prior, inputs = small_prior(approximation), small_inputs()
    K, residual = oracles.uncertain_prior(
        inputs.mean,
        inputs.variance,
        prior.inducing.Z,
        VARIANCE,
        LENGTH_SCALE,
        approximation,
        JITTER,
    )
    assert_allclose(prior.A @ prior.A.T + np.diag(prior.noise), K, atol=1e-9)
    assert_allclose(prior.residual, residual, atol=1e-9)


@each
def test_small_input_variances_are_certain_inputs(approximation):
    inputs = small_inputs(uncertain=False)
    almost = Inputs(inputs.mean, np.full_like(inputs.mean, 1e-12))
    inducing = small_prior().inducing
    a = SparsePrior(inducing, inputs, approximation)
    b = SparsePrior(inducing, almost, approximation)
    for name in ("A", "noise", "residual"):
        assert_allclose(getattr(b, name), getattr(a, name), atol=1e-9)


def test_certain_rows_have_no_noise_under_dtc():
    prior = small_prior()
    assert_array_equal(prior.noise[:2], 0.0)  # these are certain
    assert np.all(prior.noise[2:] > 0.0)


@each
@pytest.mark.parametrize("uncertain", [False, True], ids=["certain", "uncertain"])
@pytest.mark.every_nth("approximation", 2)
def test_gradients(approximation, uncertain, rng):
    n, m = 6, 3
    inputs = small_inputs(n, uncertain=uncertain)
    Z = rng.standard_normal((m, 2))
    d_A, d_noise, d_residual = rng.standard_normal((n, m)), *rng.standard_normal((2, n))

    def value(theta=KERNEL.theta, Z=Z, mean=inputs.mean, s=None):
        variance = inputs.variance.copy()
        if s is not None:
            variance[2:] = s
        inducing = InducingOutputs(KERNEL.with_theta(theta), Z)
        prior = SparsePrior(inducing, Inputs(mean, variance), approximation)
        return np.sum(d_A * prior.A) + d_noise @ prior.noise + d_residual @ prior.residual

    prior = SparsePrior(InducingOutputs(KERNEL, Z), inputs, approximation)
    g = prior.vjp(lambda rows: d_A[rows], d_noise, d_residual)
    # the jitter follows the kernel's diagonal, which the gradient in its variance leaves out
    assert_allclose(g.theta, numerical_gradient(lambda x: value(theta=x), KERNEL.theta), atol=1e-6)
    assert_allclose(g.Z, numerical_gradient(lambda x: value(Z=x), Z), atol=1e-8)
    assert_allclose(g.mean, numerical_gradient(lambda x: value(mean=x), inputs.mean), atol=1e-8)
    if uncertain:
        expected = numerical_gradient(lambda x: value(s=x), inputs.variance[2:])
        assert_allclose(g.variance[2:], expected, atol=1e-8)


@each
@pytest.mark.parametrize("kernel", [Constant(2.0) * Matern([1.0, 2.0]), Linear([1.0, 2.0]) + 1.0])
def test_gradients_for_other_kernels(approximation, kernel, rng):
    n, m = 6, 2
    inputs, Z = small_inputs(n, uncertain=False), rng.standard_normal((m, 2))
    d_A, d_noise, d_residual = rng.standard_normal((n, m)), *rng.standard_normal((2, n))

    def value(theta):
        prior = SparsePrior(InducingOutputs(kernel.with_theta(theta), Z), inputs, approximation)
        return np.sum(d_A * prior.A) + d_noise @ prior.noise + d_residual @ prior.residual

    prior = SparsePrior(InducingOutputs(kernel, Z), inputs, approximation)
    g = prior.vjp(lambda rows: d_A[rows], d_noise, d_residual)
    assert_allclose(g.theta, numerical_gradient(value, kernel.theta), atol=1e-6)


@pytest.mark.parametrize("n", [1, TILE_ROWS, TILE_ROWS + 1, 1257, 5 * TILE_ROWS - 3])
def test_tiles_are_every_row_once_in_about_equal_parts(n):
    parts = cut_tiles(n)
    assert_array_equal(np.concatenate([np.arange(n)[part] for part in parts]), np.arange(n))
    sizes = [part.stop - part.start for part in parts]
    assert len(parts) == -(-n // TILE_ROWS)
    assert max(sizes) <= TILE_ROWS and max(sizes) - min(sizes) <= 1


def test_tiles_change_nothing(monkeypatch, rng):
    whole = small_prior()
    d_A, d_noise = rng.standard_normal(whole.A.shape), rng.standard_normal(8)
    expected = whole.vjp(lambda rows: d_A[rows], d_noise, d_noise)
    monkeypatch.setattr(_features, "TILE_ROWS", 3)
    tiled = small_prior()
    assert_allclose(tiled.A, whole.A)
    actual = tiled.vjp(lambda rows: d_A[rows], d_noise, d_noise)
    for a, b in zip(actual, expected, strict=True):
        assert_allclose(a, b, atol=1e-12)


def test_predictive_moments_average_over_the_input(rng):
    """Mean and variance of f for uncertain rows, by Gauss-Hermite sums of certain ones."""
    inducing = InducingOutputs(KERNEL, rng.standard_normal((4, 2)))
    root = rng.standard_normal((4, 4)) / 3.0
    predictor = LatentPosterior(inducing, rng.standard_normal((1, 4)), (root @ root.T)[None])
    inputs = small_inputs()
    mean, variance = (values[:, 0] for values in predictor.moments(inputs))

    def certain_moments(x):
        first, spread = predictor.moments(Inputs(x, np.zeros_like(x)))
        return np.hstack([first, spread + first**2])

    for i in range(len(inputs)):
        first, second = oracles.expectation(certain_moments, inputs.mean[i], inputs.variance[i])
        assert_allclose(mean[i], first, atol=1e-8)
        assert_allclose(variance[i], second - first**2, atol=1e-7)


def test_uncertain_rows_need_a_squared_exponential():
    with pytest.raises(ValueError, match="squared-exponential"):
        small_prior(kernel=Matern())
    assert small_prior(kernel=RBF([1.0, 2.0])).A.shape == (8, 4)
