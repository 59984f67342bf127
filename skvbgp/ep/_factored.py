r"""The posterior of f in factored form, updated for one site at a time in O(m^2).

    Sigma = Psi R' R Psi' + diag(lambda),    mu = omega + Psi gamma,

(S.25) and (S.30), where R' R is the covariance of the whitened inducing outputs and lambda what
is left of the rows' own noise. Without noise these are (S.12) to (S.16).
"""

from __future__ import annotations

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.ep._sites import Posterior, Sites


class FactoredPosterior:
    """Posterior of f that follows its sites; unlike the package's values it is modified.

    Parameters
    ----------
    A : ndarray of shape (n, m)
        Features of the prior, f = A v + e.
    noise : ndarray of shape (n,)
        Variances of e.
    sites : Sites
        Of f.
    """

    def __init__(self, A: Array, noise: Array, sites: Sites) -> None:
        self.tau, self.nu = sites.tau.copy(), sites.nu.copy()
        rest = 1.0 / (1.0 + noise * sites.tau)
        q = Posterior(A, sites.with_noise(noise))
        self.Psi = rest[:, None] * A  # (n, m)
        self.lambda_ = rest * noise  # (n,)
        self.omega = rest * noise * sites.nu  # (n,)
        self.gamma = q.mean  # (m,)
        self.R = q.factor_inv  # (m, m)

    def marginal(self, i: int) -> tuple[float, float]:
        """Mean and variance of f_i."""
        w = self.R @ self.Psi[i]
        return float(self.omega[i] + self.Psi[i] @ self.gamma), float(w @ w + self.lambda_[i])

    def update(self, i: int, tau: float, nu: float) -> None:
        """Give site i other natural parameters, (S.26) to (S.32)."""
        d_tau, d_nu = tau - self.tau[i], nu - self.nu[i]
        w = self.R @ self.Psi[i]  # (m,)
        mean, variance = self.marginal(i)
        rest = 1.0 + d_tau * self.lambda_[i]

        # R' (I - delta w w') R = R_new' R_new: the factor keeps its size, not its triangle,
        # with the symmetric root I - kappa w w' instead of a loop over columns
        delta = d_tau / (1.0 + d_tau * variance)
        kappa = delta / (1.0 + np.sqrt(1.0 - delta * (w @ w)))
        self.R -= np.outer(kappa * w, w @ self.R)

        self.omega[i] += (d_nu - d_tau * self.omega[i]) * self.lambda_[i] / rest
        self.lambda_[i] /= rest
        self.Psi[i] /= rest
        self.gamma += (d_nu - d_tau * mean) * (self.R.T @ (self.R @ self.Psi[i]))
        self.tau[i], self.nu[i] = tau, nu
