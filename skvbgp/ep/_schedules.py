"""Orders in which expectation propagation visits its sites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.ep._factored import FactoredPosterior
from skvbgp.ep._sites import Fixpoint, Posterior, Sites, matched_sites

#: Factor of the step where the sites oscillate.
_BACK_OFF = 0.7


class Prior(Protocol):
    """f = A v + e with v ~ N(0, I), like `SparsePrior`."""

    A: Array  # (n, m)
    noise: Array  # (n,) variances of e


@dataclass(frozen=True)
class Schedule:
    """How EP comes to its fixed point.

    Attributes
    ----------
    name : {"parallel", "sequential"}
    max_iter : int
        Largest number of passes over the sites.
    damping : float
        Share of a site's old parameters in its new ones.
    """

    name: str
    max_iter: int
    damping: float

    def run(self, t: Array, prior: Prior, sites: Sites, tol: float) -> Fixpoint:
        """Update the sites until matching moves none of them by more than ``tol``.

        The measure is `Sites.distance`, which knows no scale of f.

        A pass that would move the sites further than the one before is a sign of
        oscillation: the damping then increases.
        """
        advance = _SCHEDULES[self.name]
        step, last = 1.0 - self.damping, np.inf
        for n_iter in range(1, self.max_iter + 1):
            posterior = Posterior(prior.A, sites)
            matched, moments = matched_sites(t, *posterior.cavity, prior.noise)
            distance = sites.distance(matched, posterior.marginal_variance)
            if distance < tol or n_iter == self.max_iter:
                break
            if distance > last:
                step *= _BACK_OFF
            sites, last = advance(t, prior, sites, matched, step), distance
        return Fixpoint(posterior, moments, n_iter, distance < tol)


def _parallel(t: Array, prior: Prior, sites: Sites, matched: Sites, step: float) -> Sites:
    """All sites at once, from the same posterior."""
    return sites.towards(matched, step)


def _sequential(t: Array, prior: Prior, sites: Sites, matched: Sites, step: float) -> Sites:
    """One site after the other, each from the posterior with those before it."""
    q = FactoredPosterior(prior.A, prior.noise, sites.without_noise(prior.noise))
    none = np.zeros(1)
    for i in range(len(t)):
        mean, variance = q.marginal(i)
        rest = 1.0 - q.tau[i] * variance
        cavity = np.array([(mean - variance * q.nu[i]) / rest]), np.array([variance / rest])
        new, _ = matched_sites(t[i : i + 1], *cavity, none)
        tau, nu = q.tau[i], q.nu[i]
        q.update(i, tau + step * (new.tau[0] - tau), nu + step * (new.nu[0] - nu))
    return q.sites.with_noise(prior.noise)


_SCHEDULES: dict[str, Callable[[Array, Prior, Sites, Sites, float], Sites]] = {
    "parallel": _parallel,
    "sequential": _sequential,
}
