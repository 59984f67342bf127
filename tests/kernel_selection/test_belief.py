import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import softmax

from skvbgp._core.draws import draw_antithetic
from skvbgp.kernel_selection._affine_gaussian import AffineGaussian
from skvbgp.kernel_selection._belief import (
    PRIOR_VARIANCE,
    _average_exchanges,
    belief_bound,
    kernel_belief,
)
from tests.derivatives import numerical_gradient
from tests.oracles import kernel_selection as oracle


def gauss_hermite(order, k):
    """Nodes (order^k, k) and weights of a product rule for N(0, I)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    weights = weights / weights.sum()
    return (
        np.array(list(itertools.product(nodes, repeat=k))),
        np.array([np.prod(w) for w in itertools.product(weights, repeat=k)]),
    )


@pytest.fixture
def family():
    return AffineGaussian(np.array([0.2, -0.1, 0.0]), np.array([2.0, 3.0, 1.5]))


def random_vector(family, seed=0):
    k = len(family.prior_mean)
    return np.random.default_rng(seed).normal(size=k + k * (k + 1) // 2) * 0.5


def test_kl_and_its_gradient(family):
    x = random_vector(family)
    m, C = family.unpack(x)
    S, P = C @ C.T, np.diag(1.0 / family.prior_variance)
    shift = m - family.prior_mean
    log_ratio = np.linalg.slogdet(S @ P)[1]
    expected = 0.5 * (np.trace(P @ S) + shift @ P @ shift - 3 - log_ratio)
    assert_allclose(family.kl(x)[0], expected)
    assert_allclose(family.kl(x)[1], numerical_gradient(lambda x: family.kl(x)[0], x), atol=1e-8)


def test_packing_a_diagonal_gaussian(family):
    m, C = family.unpack(family.pack(np.arange(3.0), np.array([0.1, 0.2, 0.3])))
    assert_allclose(m, np.arange(3.0))
    assert_allclose(C, np.diag([0.1, 0.2, 0.3]))


def test_gradient_of_the_bound(family):
    L, x = np.array([0.0, -1.0, -4.0]), random_vector(family)
    draws = draw_antithetic(20, 3, np.random.RandomState(0))
    _, gradient = belief_bound(x, family, L, draws)
    expected = numerical_gradient(lambda x: belief_bound(x, family, L, draws)[0], x)
    assert_allclose(gradient, expected, atol=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "L", [[0.0, -1.0, -3.0], pytest.param([0.0, -6.0, -8.0], marks=pytest.mark.slow)]
)
def test_optimum_agrees_with_brute_force(L, monkeypatch):
    """Nelder-Mead on a Gauss-Hermite rule, which knows neither the draws nor a gradient."""
    monkeypatch.setattr("skvbgp.kernel_selection._belief.PRIOR_VARIANCE", 2.0)
    nodes, weights = gauss_hermite(7, 3)
    L = np.array(L)

    def factor(entries):
        C = np.zeros((3, 3))
        C[np.tril_indices(3)] = entries
        return C

    def loss(x):
        return -oracle.belief_bound(L, x[:3], factor(x[3:]), 2.0, nodes, weights)

    start = np.concatenate([np.zeros(3), [1.4, 0.0, 1.4, 0.0, 0.0, 1.4]])
    brute = minimize(loss, start, method="Powell", options={"ftol": 1e-7, "xtol": 1e-4})
    belief = kernel_belief(L + 100.0, n_samples=20_000, seed=0)
    assert_allclose(belief.lower_bound - 100.0, -brute.fun, atol=0.02)
    expected = weights @ softmax(brute.x[:3] + nodes @ factor(brute.x[3:]).T, axis=1)
    assert_allclose(belief.posterior, expected, atol=0.02)


def test_belief_is_a_distribution_in_the_order_of_the_bounds():
    belief = kernel_belief(np.array([-10.0, -14.0, -12.0, -40.0]), n_samples=2000, seed=0)
    assert_allclose(belief.posterior.sum(), 1.0)
    assert np.all(np.argsort(-belief.posterior) == [0, 2, 1, 3])
    assert np.all(np.linalg.eigvalsh(belief.covariance) > 0.0)
    assert belief.lower_bound < -10.0


def test_belief_does_not_depend_on_the_level_of_the_bounds():
    L = np.array([0.0, -2.0, -5.0])
    here, there = (kernel_belief(L + level, n_samples=500, seed=0) for level in (0.0, -1e6))
    assert_allclose(here.posterior, there.posterior, atol=1e-6)


@pytest.mark.parametrize("others", [[-4.0], [-4.0, -9.0, -300.0], [-20.0] * 20])
@pytest.mark.every_nth("others", 2)
def test_copies_share_the_belief_equally(others):
    belief = kernel_belief(np.array([0.0, *others, 0.0]), n_samples=2000, seed=0)
    assert_allclose(belief.posterior[0], belief.posterior[-1], rtol=1e-12)
    assert_allclose(belief.mean[0], belief.mean[-1], rtol=1e-12)
    assert_allclose(belief.covariance[0, 0], belief.covariance[-1, -1])
    assert belief.posterior[0] > np.max(belief.posterior[1:-1])
    assert_allclose(belief.posterior.sum(), 1.0)


def test_the_covariance_of_copies_is_the_average_over_their_exchanges(rng):
    L, root, m = np.array([0.0, -1.0, 0.0, 0.0]), rng.standard_normal((4, 4)), np.zeros(4)
    C = root @ root.T
    orders = [[a, 1, b, c] for a, b, c in itertools.permutations([0, 2, 3])]
    _, found, _ = _average_exchanges(L, m, C, m)
    assert_allclose(found, np.mean([C[np.ix_(order, order)] for order in orders], axis=0))


def test_failed_kernels_get_no_belief():
    belief = kernel_belief(np.array([-np.inf, -3.0, -np.inf, -4.0]), n_samples=200, seed=0)
    assert belief.posterior[0] == belief.posterior[2] == 0.0
    assert_allclose(belief.posterior.sum(), 1.0)
    assert belief.covariance[0, 0] == PRIOR_VARIANCE


def test_a_single_kernel_has_all_the_belief():
    assert kernel_belief(np.array([-7.0]), n_samples=2, seed=0).posterior == 1.0
