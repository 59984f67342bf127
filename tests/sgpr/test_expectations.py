"""Omega, Psi and Upsilon against the literal sums and sampling, their gradients numerically."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.sgpr import _psi, omega, psi, upsilon
from skvbgp.sgpr.expectations import omega_vjp, psi_vjp, upsilon_vjp
from tests.derivatives import numerical_gradient, symmetric_gradient
from tests.oracles import sgpr as oracles

N, M, D = 6, 4, 3
NU, XI = np.array([1.1, 0.6, 0.9]), np.array([0.1, 0.2, 0.05])
ALPHA, BETA = 0.9, 0.15
PRECISIONS = ["scalar", "vector", "dense"]


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, D))


@pytest.fixture
def Z():
    return np.random.default_rng(1).normal(size=(M, D))


def precision(form):
    """C^-1 and the same as a dense matrix."""
    rng = np.random.default_rng(2)
    if form == "scalar":
        return 1.7, 1.7 * np.eye(N)
    if form == "vector":
        c_inv = rng.uniform(0.5, 2.0, size=N)
        return c_inv, np.diag(c_inv)
    root = rng.normal(size=(N, N))
    C_inv = root @ root.T + np.eye(N)
    return C_inv, C_inv


def check(actual, expected):
    """Values are of order one: the stencil's error is below 1e-9 (see derivatives.py)."""
    assert np.shape(actual) == np.shape(expected)
    assert_allclose(actual, expected, rtol=1e-8, atol=1e-8)


# --- values: the same sums in another order, so equal up to rounding --------------------------


def test_omega(X, Z):
    assert_allclose(omega(X, Z, NU, XI, ALPHA), oracles.omega(X, Z, NU, XI, ALPHA), rtol=1e-12)


def test_upsilon(X):
    expected = oracles.upsilon(X, NU, XI, ALPHA, BETA)
    assert_allclose(upsilon(X, NU, XI, ALPHA, BETA), expected, rtol=1e-12)


@pytest.mark.parametrize("form", PRECISIONS)
def test_psi(X, Z, form):
    C_inv, dense = precision(form)
    expected = oracles.psi(X, Z, NU, XI, ALPHA, BETA, dense)
    assert_allclose(psi(X, Z, NU, XI, ALPHA, BETA, C_inv), expected, rtol=1e-11, atol=1e-12)


def test_monte_carlo(X, Z):
    """Entry by entry within 5 standard errors of 20,000 draws."""
    C_inv, _ = precision("dense")
    n_draws = 20_000
    lam, sigma_f = oracles.sample_theta(NU, XI, ALPHA, BETA, np.random.default_rng(3), n_draws)
    rotated = lam[:, None, :] * X  # (t, n, d)
    K = np.exp(-0.5 * ((rotated[:, :, None, :] - Z) ** 2).sum(axis=3)) * sigma_f[:, None, None]
    K_prior = np.exp(-0.5 * ((rotated[:, :, None, :] - rotated[:, None, :, :]) ** 2).sum(axis=3))
    for draws, value in [
        (K, omega(X, Z, NU, XI, ALPHA)),
        (np.swapaxes(K, 1, 2) @ (C_inv @ K), psi(X, Z, NU, XI, ALPHA, BETA, C_inv)),
        (K_prior * sigma_f[:, None, None] ** 2, upsilon(X, NU, XI, ALPHA, BETA)),
    ]:
        standard_error = draws.std(axis=0) / np.sqrt(n_draws)
        assert np.all(np.abs(draws.mean(axis=0) - value) <= 5.0 * standard_error)
        assert np.all(standard_error < 0.05 * np.abs(value).max())


def test_certain_hyperparameters(X, Z):
    """xi = beta = 0: the kernel matrices themselves."""
    zero, (C_inv, _) = np.zeros(D), precision("dense")
    K = oracles.k_xz(X, Z, NU, ALPHA)
    assert_allclose(omega(X, Z, NU, zero, ALPHA), K, rtol=1e-12)
    expected = K.T @ C_inv @ K
    assert_allclose(psi(X, Z, NU, zero, ALPHA, 0.0, C_inv), expected, rtol=1e-11, atol=1e-12)
    expected = oracles.k_xx(X, X, NU, ALPHA)
    assert_allclose(upsilon(X, NU, zero, ALPHA, 0.0), expected, rtol=1e-12)


@pytest.mark.parametrize("form", PRECISIONS)
def test_values_stay_finite_and_silent_far_away(X, Z, form):
    """A kernel of 1e6 length scales is 0: underflow, no warning and no NaN."""
    C_inv, _ = precision(form)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        values = omega(1e6 * X, Z, NU, XI, ALPHA), psi(1e6 * X, Z, NU, XI, ALPHA, BETA, C_inv)
        gradient = psi_vjp(1e6 * X, Z, NU, XI, ALPHA, BETA, C_inv, np.ones((M, M)))
    for value in (*values, gradient.nu, gradient.xi, gradient.Z):
        assert np.isfinite(value).all()


# --- gradients --------------------------------------------------------------------------------


def test_omega_vjp(X, Z, rng):
    d_omega = rng.normal(size=(N, M))
    g = omega_vjp(X, Z, NU, XI, ALPHA, d_omega)

    def total(Z=Z, nu=NU, xi=XI, alpha=ALPHA):
        return np.sum(d_omega * omega(X, Z, nu, xi, alpha))

    check(g.nu, numerical_gradient(lambda x: total(nu=x), NU))
    check(g.xi, numerical_gradient(lambda x: total(xi=x), XI))
    check(g.Z, numerical_gradient(lambda x: total(Z=x), Z))
    check(g.alpha, numerical_gradient(lambda x: total(alpha=float(x)), ALPHA))
    assert g.beta == 0.0
    assert g.C_inv is None


def test_upsilon_vjp(X, rng):
    d_upsilon = rng.normal(size=(N, N))
    g = upsilon_vjp(X, NU, XI, ALPHA, BETA, d_upsilon)

    def total(nu=NU, xi=XI, alpha=ALPHA, beta=BETA):
        return np.sum(d_upsilon * upsilon(X, nu, xi, alpha, beta))

    check(g.nu, numerical_gradient(lambda x: total(nu=x), NU))
    check(g.xi, numerical_gradient(lambda x: total(xi=x), XI))
    check(g.alpha, numerical_gradient(lambda x: total(alpha=float(x)), ALPHA))
    check(g.beta, numerical_gradient(lambda x: total(beta=float(x)), BETA))
    assert g.Z is None
    assert g.C_inv is None


@pytest.mark.parametrize("form", PRECISIONS)
@pytest.mark.every_nth("form", 2)
def test_psi_vjp(X, Z, rng, form):
    C_inv, _ = precision(form)
    d_psi = rng.normal(size=(M, M))
    d_psi += d_psi.T
    g = psi_vjp(X, Z, NU, XI, ALPHA, BETA, C_inv, d_psi)

    def total(Z=Z, nu=NU, xi=XI, alpha=ALPHA, beta=BETA, C_inv=C_inv):
        return np.sum(d_psi * psi(X, Z, nu, xi, alpha, beta, C_inv))

    check(g.nu, numerical_gradient(lambda x: total(nu=x), NU))
    check(g.xi, numerical_gradient(lambda x: total(xi=x), XI))
    check(g.Z, numerical_gradient(lambda x: total(Z=x), Z))
    check(g.alpha, numerical_gradient(lambda x: total(alpha=float(x)), ALPHA))
    check(g.beta, numerical_gradient(lambda x: total(beta=float(x)), BETA))
    derivative = symmetric_gradient if form == "dense" else numerical_gradient
    check(g.C_inv, derivative(lambda x: total(C_inv=x), C_inv))


# --- tiles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tile", [1, 45])
def test_tiling_changes_nothing_in_a_block(X, Z, rng, monkeypatch, tile):
    """Tiles of one pair of rows, and of several that do not divide the number of pairs."""
    C_inv, _ = precision("dense")
    V = rng.normal(size=(M, M))
    V += V.T
    whole = _psi.DensePsi(X, Z, NU, XI, C_inv)
    expected, H = whole.vjp(V), rng.normal(size=(3, len(X)))
    of_combinations = whole.matrices(H)
    assert len(list(whole._tiles())) == 1
    monkeypatch.setattr(_psi, "_TILE", tile)
    tiled = _psi.DensePsi(X, Z, NU, XI, C_inv)
    assert len(list(tiled._tiles())) > 1
    assert_allclose(tiled.value, whole.value, rtol=1e-13)
    assert_allclose(tiled.matrices(H), of_combinations, rtol=1e-11, atol=1e-12)
    for h, matrix in zip(H, of_combinations, strict=True):
        alone = _psi.psi_statistic(X, Z, NU, XI, np.outer(h, h)).value
        assert_allclose(matrix, alone, rtol=1e-11, atol=1e-12)
    for actual, of_whole in zip(tiled.vjp(V), expected, strict=True):
        assert_allclose(actual, of_whole, rtol=1e-11, atol=1e-12)
