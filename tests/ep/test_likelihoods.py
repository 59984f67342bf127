"""Moments of the probit and of the logistic likelihood."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, log_expit, log_ndtr, ndtr

from skvbgp.ep._likelihoods import Logistic, Probit
from tests.derivatives import numerical_gradient
from tests.oracles import ep

T = np.array([1.0, -1.0, 1.0, -1.0])
C = np.array([0.3, 1.2, -0.7, -0.1])
V = np.array([0.5, 2.0, 0.1, 3.0])
#: Likelihood, its function, its tilted moments, and how exactly these are met.
CASES = [
    pytest.param(Probit(), ndtr, ep.tilted_probit, 1e-9, id="probit"),
    pytest.param(Logistic(), expit, ep.tilted_logistic, 2e-6, id="logistic"),
]
every_likelihood = pytest.mark.parametrize("likelihood", [Probit(), Logistic()])


@pytest.mark.parametrize(("likelihood", "function", "tilted", "rtol"), CASES)
def test_tilted_moments(likelihood, function, tilted, rtol):
    moments = likelihood.moments(T, C, V)
    for i in range(4):
        z, mean, variance = tilted(T[i], C[i], V[i])
        average = ep.expectation(lambda f, i=i: function(T[i] * f[:, 0]), [C[i]], V[i : i + 1], 80)
        assert_allclose(z, average, rtol=1e-9)
        assert_allclose(np.exp(moments.log_z[i]), z, rtol=rtol)
        assert_allclose(C[i] + V[i] * moments.slope[i], mean, rtol=rtol)
        assert_allclose(V[i] - V[i] ** 2 * moments.curvature[i], variance, rtol=rtol)


@every_likelihood
def test_derivatives(likelihood):
    moments = likelihood.moments(T, C, V)

    def log_z(c, v):
        return float(np.sum(likelihood.moments(T, c, v).log_z))

    def slope(c):
        return float(np.sum(likelihood.moments(T, c, V).slope))

    assert_allclose(moments.slope, numerical_gradient(lambda c: log_z(c, V), C), atol=1e-10)
    assert_allclose(moments.curvature, -numerical_gradient(slope, C), atol=1e-10)
    assert_allclose(moments.d_v, numerical_gradient(lambda v: log_z(C, v), V), atol=1e-10)


@every_likelihood
def test_score_stands_for_the_probability(likelihood):
    mean = np.array([[0.0, 0.4, -3.0], [9.0, -90.0, 1e9]])
    variance = np.array([[1.0, 0.0, 2.0], [0.5, 4.0, 1.0]])
    moments = [
        likelihood.moments(np.full(6, t), mean.ravel(), variance.ravel()) for t in (1.0, -1.0)
    ]
    score = likelihood.score(mean, variance).ravel()
    assert_allclose(log_ndtr(score), moments[0].log_z, atol=1e-14, rtol=1e-9)
    assert_allclose(log_ndtr(-score), moments[1].log_z, atol=1e-14, rtol=1e-9)


def test_mixture_of_probits_is_the_logistic_function():
    f = np.linspace(-30.0, 30.0, 1201)
    one, certain = np.ones_like(f), np.zeros_like(f)
    moments = Logistic().moments(one, f, certain)
    assert_allclose(np.exp(moments.log_z), expit(f), atol=1e-7)
    assert_allclose(moments.log_z, log_expit(f), atol=0.01)
    assert_allclose(moments.slope, expit(-f), rtol=0.01)
    assert_allclose(moments.curvature, expit(f) * expit(-f), atol=3e-3)
    near = np.abs(f) <= 10.0
    assert_allclose(moments.curvature[near], (expit(f) * expit(-f))[near], atol=2e-4)


@every_likelihood
def test_extreme_margins(likelihood):
    """Finite and within bounds, from certainly wrong to certainly right."""
    z = np.concatenate([-np.logspace(12, -3, 300), np.logspace(-3, 12, 300)])
    with np.errstate(all="raise", under="ignore"):
        moments = likelihood.moments(np.ones_like(z), z, np.zeros_like(z))
    assert all(np.isfinite(m).all() for m in moments)
    assert np.all((moments.curvature >= 0.0) & (moments.curvature <= 1.0))
    assert np.all(moments.slope >= 0.0)
    assert_allclose(moments.curvature[z > 500.0], 0.0, atol=1e-300)


def test_extreme_margins_of_the_probit():
    z = np.concatenate([-np.logspace(12, -3, 300), np.logspace(-3, 12, 300)])
    moments = Probit().moments(np.ones_like(z), z, np.zeros_like(z))
    assert_allclose(moments.log_z, log_ndtr(z))
    assert np.all(np.diff(moments.slope) <= 0.0)
    assert np.all(np.diff(moments.curvature) <= 1e-8)
    assert_allclose(moments.curvature[z > 50.0], 0.0, atol=1e-300)
    far = z < -1e4
    assert_allclose(moments.slope[far], -z[far], rtol=1e-7)
    assert_allclose(moments.curvature[far], 1.0, rtol=1e-7)
