r"""Orders in which expectation propagation visits its sites.

One after the other, the posterior of f is in factored form, which a site changes in O(m^2),

    Sigma = Psi R' R Psi' + diag(lambda),    mu = omega + Psi gamma,

(S.25) and (S.30), where R' R is the covariance of the whitened inducing outputs and lambda what
is left of the rows' own noise. Without noise these are (S.12) to (S.16).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.ep._likelihoods import Likelihood, Probit
from skvbgp.ep._sites import Fixpoint, SitePosterior, Sites, match_sites

#: The sites oscillate where a pass would take back more than this share of the one before, and
#: creep where it would repeat more than that.
_REPEATED = 0.5
#: Factor of the step where they do, and its inverse where a pass goes on as the one before.
_BACK_OFF = 0.7


@dataclass(frozen=True)
class Schedule:
    """Expectation propagation: of which likelihood, and how it comes to its fixed point."""

    name: str
    max_iter: int  # largest number of passes over the sites
    damping: float  # share of a site's old parameters in its new ones
    likelihood: Likelihood = Probit()  # whose moments the sites match

    def run(
        self,
        t: Array,
        A: Array,
        noise: Array,
        sites: Sites,
        tol: float,
        weight: Array | None = None,
    ) -> Fixpoint:
        """Update the sites until matching moves none of them by more than ``tol``.

        They are of f = A v + e with v ~ N(0, I), A (n, m), and variances ``noise`` (n,) of e.
        Rows with weights (n,) have as many equal sites, and below 1 a power of the likelihood.
        The measure is the largest entry of `Sites.measure_move`, which knows no scale of f. Where
        the sites oscillate, the damping increases; where they then creep, it decreases again.
        """
        largest = step = 1.0 - self.damping
        last = np.zeros(2 * len(t))
        weight = np.ones(len(t)) if weight is None else weight
        counts, power = np.maximum(weight, 1.0), np.minimum(weight, 1.0)
        for n_iter in range(1, self.max_iter + 1):
            posterior = SitePosterior(A, sites, counts)
            cavity = posterior.cavity
            matched, moments = match_sites(self.likelihood, t, *cavity, noise, power)
            move = sites.measure_move(matched, posterior.marginal_variance)
            distance = np.max(np.abs(move))
            if distance < tol or n_iter == self.max_iter:
                break
            repeated, most = move @ last, _REPEATED * (last @ last)
            if repeated < -most:
                step *= _BACK_OFF
            elif repeated > most:
                step = min(step / _BACK_OFF, largest)
            last = move
            if self.name == "parallel":  # all sites at once, from the same posterior
                sites = sites.towards(matched, step)
            else:
                sites = self._visit_each(t, noise, posterior, step, power)
        return Fixpoint(posterior, moments, n_iter, bool(distance < tol))

    def _visit_each(
        self, t: Array, noise: Array, posterior: SitePosterior, step: float, power: Array
    ) -> Sites:
        """One site after the other, each from the posterior with those before it.

        They are sites of g, as those of f that other hyperparameters have left may not exist. Those
        of equal rows move together.
        """
        sites, counts = posterior.sites, posterior.weight
        q = FactoredPosterior(posterior)
        tau, nu = sites.tau.copy(), sites.nu.copy()
        for i in range(len(t)):
            mean, variance = q.marginal(i)
            rest = 1.0 - tau[i] * variance
            cavity = np.array([(mean - variance * nu[i]) / rest]), np.array([variance / rest])
            own = slice(i, i + 1)
            new, _ = match_sites(self.likelihood, t[own], *cavity, noise[own], power[own])
            tau[i] += step * (new.tau[0] - tau[i])
            nu[i] += step * (new.nu[0] - nu[i])
            q.update(i, counts[i] * tau[i], counts[i] * nu[i])
        return Sites(tau, nu)


class FactoredPosterior:
    """Posterior of g = A v that follows its sites; unlike the package's values it is modified."""

    def __init__(self, start: SitePosterior) -> None:
        self.A = start.A  # (n, m)
        self.tau, self.nu = start.total.tau.copy(), start.total.nu.copy()
        self.gamma = start.mean.copy()  # (m,)
        self.R = np.copy(start.factor_inv)  # (m, m)

    def marginal(self, i: int) -> tuple[float, float]:
        """Mean and variance of g_i."""
        w = self.R @ self.A[i]
        return float(self.A[i] @ self.gamma), float(w @ w)

    def update(self, i: int, tau: float, nu: float) -> None:
        """Give site i other natural parameters, (S.12) to (S.16)."""
        d_tau, d_nu = tau - self.tau[i], nu - self.nu[i]
        w = self.R @ self.A[i]  # (m,)
        mean, variance = self.marginal(i)

        # R' (I - delta w w') R = R_new' R_new: the factor keeps its size, not its triangle,
        # with the symmetric root I - kappa w w' instead of a loop over columns
        delta = d_tau / (1.0 + d_tau * variance)
        kappa = delta / (1.0 + np.sqrt(1.0 - delta * variance))
        self.R -= np.outer(kappa * w, w @ self.R)

        self.gamma += (d_nu - d_tau * mean) * (self.R.T @ (self.R @ self.A[i]))
        self.tau[i], self.nu[i] = tau, nu
