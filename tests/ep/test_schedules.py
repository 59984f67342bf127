"""(S.12) to (S.16): the factored posterior against matrices inverted by brute force."""

import numpy as np
from numpy.testing import assert_allclose

from skvbgp.ep._schedules import FactoredPosterior
from skvbgp.ep._sites import SitePosterior, Sites


def test_updates_are_those_of_the_inverse(rng):
    n, m = 6, 3
    A = rng.standard_normal((n, m))
    tau, nu = rng.uniform(0.0, 1.0, n), rng.standard_normal(n)
    prior = A @ A.T
    q = FactoredPosterior(SitePosterior(A, Sites(tau, nu), np.ones(n)))
    for i in [2, 0, 5, 2]:  # one of them twice; changes of both signs
        tau[i], nu[i] = rng.uniform(0.0, 1.0), rng.standard_normal()
        q.update(i, tau[i], nu[i])
        # (S.10): the prior, of rank m < n, has no inverse
        Sigma = np.linalg.inv(np.eye(n) + prior * tau) @ prior
        assert_allclose(A @ q.R.T @ q.R @ A.T, Sigma, atol=1e-12)
        assert_allclose(A @ q.gamma, Sigma @ nu, atol=1e-12)
        assert_allclose(q.marginal(4), ((Sigma @ nu)[4], Sigma[4, 4]), atol=1e-12)
    assert_allclose(q.tau, tau)
    assert_allclose(q.nu, nu)
