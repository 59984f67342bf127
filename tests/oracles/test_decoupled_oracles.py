"""The oracles of the decoupled model against one another."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.oracles.decoupled import generalized_se, kl_dense, kl_theorem_1


@pytest.mark.parametrize("normal_prior", [True, False])
def test_theorem_1_in_finite_dimension(rng, normal_prior):
    """The weights of seven features: N(Psi a, (I + Psi B Psi')^-1)."""
    d = 7
    Psi = {name: rng.standard_normal((d, m)) for name, m in zip("abAB", (4, 3, 2, 3), strict=True)}

    def positive(m):
        root = rng.standard_normal((m, m))
        return root @ root.T + 0.1 * np.eye(m)

    a, a_bar, B, B_bar = rng.standard_normal(4), rng.standard_normal(2), positive(3), positive(3)
    if normal_prior:
        a_bar, B_bar = 0.0 * a_bar, 0.0 * B_bar

    def weights(mean_basis, coefficients, cov_basis, B):
        precision = np.eye(d) + Psi[cov_basis] @ B @ Psi[cov_basis].T
        return Psi[mean_basis] @ coefficients, np.linalg.inv(precision)

    expected = kl_dense(*weights("a", a, "b", B), *weights("A", a_bar, "B", B_bar))
    found = kl_theorem_1(lambda s, t: Psi[s].T @ Psi[t], a, B, a_bar, B_bar)
    assert_allclose(found, expected, rtol=1e-10)


def test_generalized_kernel_is_the_prior_kernel_for_equal_multipliers(rng):
    X, Z = rng.standard_normal((4, 2)), rng.standard_normal((3, 2))
    s = np.array([0.7, 1.6])
    K = generalized_se(X, np.ones(4), Z, np.ones(3), 1.3, s)
    r2 = np.sum(((X[:, None] - Z) / s) ** 2, axis=2)
    assert_allclose(K, 1.3 * np.exp(-0.5 * r2), rtol=1e-12)


@pytest.mark.parametrize("shape", [(12,), (12, 2)], ids=["per point", "per input"])
def test_generalized_kernel_is_positive_semi_definite(rng, shape):
    Z, c = rng.standard_normal((12, 2)), np.exp(rng.uniform(-1.5, 1.5, shape))
    K = generalized_se(Z, c, Z, c, 1.0, np.ones(2))
    assert np.linalg.eigvalsh(K)[0] > -1e-12
