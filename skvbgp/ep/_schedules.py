"""Orders in which expectation propagation visits its sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.ep._factored import FactoredPosterior
from skvbgp.ep._likelihoods import Likelihood, Probit
from skvbgp.ep._sites import Fixpoint, Posterior, Sites, match_sites

#: The sites oscillate where a pass would take back more than this share of the one before.
_TAKEN_BACK = 0.5
#: Factor of the step where they do.
_BACK_OFF = 0.7


class Prior(Protocol):
    """f = A v + e with v ~ N(0, I), like `SparsePrior`."""

    @property
    def A(self) -> Array:
        """(n, m)."""

    @property
    def noise(self) -> Array:
        """Variances (n,) of e."""


@dataclass(frozen=True)
class Schedule:
    """Expectation propagation: of which likelihood, and how it comes to its fixed point.

    Attributes
    ----------
    name : {"parallel", "sequential"}
    max_iter : int
        Largest number of passes over the sites.
    damping : float
        Share of a site's old parameters in its new ones.
    likelihood : Likelihood
        Whose moments the sites match.
    """

    name: str
    max_iter: int
    damping: float
    likelihood: Likelihood = Probit()

    def run(self, t: Array, prior: Prior, sites: Sites, tol: float) -> Fixpoint:
        """Update the sites until matching moves none of them by more than ``tol``.

        The measure is the largest entry of `Sites.move_to`, which knows no scale of f. Where
        the sites oscillate, the damping increases.
        """
        advance = self._sequential if self.name == "sequential" else self._parallel
        step, last = 1.0 - self.damping, np.zeros(2 * len(t))
        for n_iter in range(1, self.max_iter + 1):
            posterior = Posterior(prior.A, sites)
            matched, moments = match_sites(self.likelihood, t, *posterior.cavity, prior.noise)
            move = sites.move_to(matched, posterior.marginal_variance)
            distance = np.max(np.abs(move))
            if distance < tol or n_iter == self.max_iter:
                break
            if move @ last < -_TAKEN_BACK * (last @ last):
                step *= _BACK_OFF
            sites, last = advance(t, prior, sites, matched, step), move
        return Fixpoint(posterior, moments, n_iter, bool(distance < tol))

    def _parallel(self, t: Array, prior: Prior, sites: Sites, matched: Sites, step: float) -> Sites:
        """All sites at once, from the same posterior."""
        return sites.towards(matched, step)

    def _sequential(
        self, t: Array, prior: Prior, sites: Sites, matched: Sites, step: float
    ) -> Sites:
        """One site after the other, each from the posterior with those before it."""
        q = FactoredPosterior(prior.A, prior.noise, sites.without_noise(prior.noise))
        none = np.zeros(1)
        for i in range(len(t)):
            mean, variance = q.marginal(i)
            rest = 1.0 - q.tau[i] * variance
            cavity = np.array([(mean - variance * q.nu[i]) / rest]), np.array([variance / rest])
            new, _ = match_sites(self.likelihood, t[i : i + 1], *cavity, none)
            tau, nu = q.tau[i], q.nu[i]
            q.update(i, tau + step * (new.tau[0] - tau), nu + step * (new.nu[0] - nu))
        return q.sites.with_noise(prior.noise)
