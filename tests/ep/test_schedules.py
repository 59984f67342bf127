"""(S.22) to (S.32): the factored posterior against matrices inverted by brute force."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.ep._schedules import FactoredPosterior
from skvbgp.ep._sites import Sites


@pytest.mark.parametrize("with_noise", [False, True], ids=["dtc", "with Lambda"])
def test_updates_are_those_of_the_inverse(rng, with_noise):
    n, m = 6, 3
    A = rng.standard_normal((n, m))
    noise = rng.uniform(0.1, 1.0, n) * with_noise
    tau, nu = rng.uniform(0.0, 1.0, n), rng.standard_normal(n)
    prior = A @ A.T + np.diag(noise)
    q = FactoredPosterior(A, noise, Sites(tau, nu))
    for i in [2, 0, 5, 2]:  # one of them twice; changes of both signs
        tau[i], nu[i] = rng.uniform(0.0, 1.0), rng.standard_normal()
        q.update(i, tau[i], nu[i])
        # (S.10): the prior of rank m < n has no inverse without the noise
        Sigma = np.linalg.inv(np.eye(n) + prior * tau) @ prior
        assert_allclose(q.Psi @ q.R.T @ q.R @ q.Psi.T + np.diag(q.lambda_), Sigma, atol=1e-12)
        assert_allclose(q.omega + q.Psi @ q.gamma, Sigma @ nu, atol=1e-12)
        assert_allclose(q.marginal(4), ((Sigma @ nu)[4], Sigma[4, 4]), atol=1e-12)
    assert_allclose(q.tau, tau)
    assert_allclose(q.nu, nu)
