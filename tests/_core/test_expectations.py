"""Moments of the kernel under Gaussian inputs: Gauss-Hermite sums, gradients, tiles."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._core import expectations
from skvbgp._core.expectations import SecondMoment, first_moment, first_moment_vjp
from tests.derivatives import numerical_gradient
from tests.oracles import ep as oracles

N, M, D = 5, 4, 2
UNIT = 1.0, np.ones(D)


@pytest.fixture
def arguments(rng):
    """mu, s and Z, in units of the length scales."""
    return rng.normal(size=(N, D)), rng.uniform(0.05, 0.6, (N, D)), rng.normal(size=(M, D))


@pytest.fixture
def weights(rng):
    """Of the rows, (n,), and in the traces, (m, m)."""
    V = rng.normal(size=(M, M))
    return rng.normal(size=N), V + V.T


def test_first_moment(arguments):
    assert_allclose(first_moment(*arguments), oracles.psi1(*arguments, *UNIT), rtol=1e-9)


def test_second_moment(arguments, weights):
    (w, V), expected = weights, oracles.psi2(*arguments, *UNIT)  # (n, m, m)
    moment = SecondMoment(*arguments, n_kept=0)
    assert_allclose(moment.weighted_sum(w), np.tensordot(w, expected, 1), rtol=1e-9)
    assert_allclose(moment.matrices(), expected, rtol=1e-9)
    assert_allclose(moment.quadratic_forms(V), np.einsum("nab,ab->n", expected, V), rtol=1e-9)
    assert_allclose(moment.vjp(w, V).w, np.einsum("nab,ab->n", expected, V), rtol=1e-9)


def check_gradients(value, gradients, arguments):
    """``value(mu, s, Z)`` against the gradients of the same names."""
    for k, name in enumerate(["mu", "s", "Z"]):

        def of_one(x, k=k):
            return value(*arguments[:k], x, *arguments[k + 1 :])

        numerical = numerical_gradient(of_one, arguments[k])
        assert_allclose(getattr(gradients, name), numerical, atol=1e-8)


def test_gradients_of_the_first_moment(arguments, rng):
    cotangent = rng.normal(size=(N, M))
    gradients = first_moment_vjp(*arguments, cotangent * first_moment(*arguments))
    check_gradients(lambda *a: np.sum(cotangent * first_moment(*a)), gradients, arguments)


def test_gradients_of_the_second_moment(arguments, weights):
    w, V = weights
    gradients = SecondMoment(*arguments, n_kept=0).vjp(w, V)
    check_gradients(lambda *a: w @ SecondMoment(*a, 0).quadratic_forms(V), gradients, arguments)


def test_gradients_of_a_mixture(arguments, weights, rng):
    """Row i has sum_p mixture_ip V_p; its weight counts as well."""
    mixture, V = rng.normal(size=(N, 3)), rng.normal(size=(3, M, M))
    V += V.swapaxes(1, 2)
    w, _ = weights

    def forms(*arguments):
        return np.sum(mixture * SecondMoment(*arguments, n_kept=0).quadratic_forms(V), axis=1)

    gradients = SecondMoment(*arguments, n_kept=0).vjp(w, V, mixture)
    check_gradients(lambda *a: w @ forms(*a), gradients, arguments)
    assert_allclose(gradients.w, forms(*arguments))


@pytest.mark.parametrize("n_kept", [0, 1000])
@pytest.mark.parametrize("tile", [1, 25])
def test_tiles_change_nothing(arguments, weights, monkeypatch, tile, n_kept):
    """Tiles of one row, and of two, where the exponentials are kept and where they are not."""
    w, V = weights
    whole = SecondMoment(*arguments, n_kept=n_kept)
    monkeypatch.setattr(expectations, "_TILE", tile)
    tiled = SecondMoment(*arguments, n_kept=n_kept)
    assert_allclose(tiled.weighted_sum(w), whole.weighted_sum(w))
    assert len(tiled._tiles) == len(tiled._tile_values) if n_kept else not tiled._tile_values
    assert len(tiled._tiles) == -(-N // max(1, tile // 10))
    assert_allclose(tiled.quadratic_forms(V), whole.quadratic_forms(V))
    for a, b in zip(tiled.vjp(w, V), whole.vjp(w, V), strict=True):
        assert_allclose(a, b, atol=1e-13)
