r"""Expectation propagation over the whitened inducing outputs.

With K_uu = L L' and u = L v, the prior of v is standard normal and a row of the data sees

    g_i = a_i' v,    f_i = g_i + e_i,    e_i ~ N(0, lambda_i),

where a_i is the i-th row of A = K_fu L^-T (n, m). Integrating e_i out leaves a likelihood of g_i,
which sees cavities that are wider by lambda_i; its Gaussian sites exp(nu_i g_i - tau_i g_i^2 / 2)
carry the same information as the sites of f_i, see :ref:`ep-sites`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.blas import dtrmm

from skvbgp._core.linalg import Array, cholesky, log_determinant, tril_inverse
from skvbgp._core.parallel import thread_map
from skvbgp._core.sites import MAX_SHARE, match_moments
from skvbgp.ep._features import cut_tiles
from skvbgp.ep._likelihoods import Likelihood, TiltedMoments, tempered_moments


@dataclass(frozen=True)
class Sites:
    """Natural parameters of sites, each (n,): of g, unless said otherwise."""

    tau: Array
    nu: Array

    @classmethod
    def vague(cls, n: int) -> Sites:
        """Sites that carry no information."""
        return cls(np.zeros(n), np.zeros(n))

    def towards(self, other: Sites, step: float) -> Sites:
        """A convex combination: self for step 0, other for step 1."""
        return Sites(
            self.tau + step * (other.tau - self.tau), self.nu + step * (other.nu - self.nu)
        )

    def times(self, weight: Array) -> Sites:
        """What equal rows say together, with one of these sites each, (n,)."""
        return Sites(weight * self.tau, weight * self.nu)

    def joined(self, other: Sites) -> Sites:
        """Sites of more rows."""
        return Sites(np.append(self.tau, other.tau), np.append(self.nu, other.nu))

    def without_noise(self, noise: Array) -> Sites:
        """Sites of f, from those of g."""
        rest = 1.0 - noise * self.tau
        return Sites(self.tau / rest, self.nu / rest)

    def measure_move(self, other: Sites, variance: Array) -> Array:
        """Changes of all parameters (2 n,) to others, in units of the marginal variances (n,)."""
        d_tau, d_nu = other.tau - self.tau, other.nu - self.nu
        return np.concatenate([d_tau * variance, d_nu * np.sqrt(variance)])


class SitePosterior:
    """q(v) = N(m, V) and its marginals for features A (n, m) and sites, of one row each.

    A row counts as often as its weight (n,) says.
    """

    def __init__(self, A: Array, sites: Sites, weight: Array) -> None:
        self.A, self.sites, self.weight = A, sites, weight
        self.total = sites.times(weight)
        self._tiles = [(rows,) for rows in cut_tiles(len(A))]
        self.shift = A.T @ self.total.nu  # (m,)
        P = sum(thread_map(self._information, self._tiles))  # (m, m)
        P.flat[:: len(P) + 1] += 1.0
        self.factor = cholesky(P, "precision of the inducing outputs")
        self.factor_inv = tril_inverse(self.factor)
        self.mean = self.factor_inv.T @ (self.factor_inv @ self.shift)  # (m,)

    def _information(self, rows: slice) -> Array:
        weighted = np.sqrt(self.total.tau[rows, None]) * self.A[rows]
        return np.asarray(weighted.T @ weighted)

    @cached_property
    def covariance(self) -> Array:
        """V, (m, m)."""
        return np.asarray(self.factor_inv.T @ self.factor_inv)

    @cached_property
    def marginal_mean(self) -> Array:
        """Mean of g, (n,)."""
        return np.asarray(self.A @ self.mean)

    @cached_property
    def marginal_variance(self) -> Array:
        """Variance of g, (n,)."""

        def variance(rows: slice) -> Array:
            # L^-1 A', a triangle times a matrix: half of a product
            root = dtrmm(1.0, self.factor_inv.T, self.A[rows].T, trans_a=True)  # (m, rows)
            return np.einsum("mn,mn->n", root, root)

        return np.concatenate(thread_map(variance, self._tiles))

    @cached_property
    def cavity(self) -> tuple[Array, Array]:
        """Mean and variance of g_i without one site of its own, each (n,)."""
        variance = self.marginal_variance
        rest = 1.0 - np.minimum(self.sites.tau * variance, MAX_SHARE)
        return (self.marginal_mean - variance * self.sites.nu) / rest, variance / rest

    @property
    def log_normaliser(self) -> float:
        """log of the integral of the prior times exp(nu' g - tau' g^2 / 2)."""
        return 0.5 * float(self.shift @ self.mean) - 0.5 * log_determinant(self.factor)


def match_sites(
    likelihood: Likelihood, t: Array, mean: Array, variance: Array, noise: Array, power: Array
) -> tuple[Sites, TiltedMoments]:
    """Sites that give the tilted distributions' first two moments, from cavities (n,).

    Likelihoods have powers (n,), of at most 1.
    """
    moments = likelihood.moments(t, mean, noise + variance)
    if np.any(low := power < 1.0):
        given = (values[low] for values in (t, mean, variance, noise, power))
        for values, tempered in zip(moments, tempered_moments(likelihood, *given), strict=True):
            values[low] = tempered
    sites = match_moments(moments.slope, moments.curvature, mean, variance)
    return Sites(*sites), moments


def log_site_scales(mean: Array, variance: Array, sites: Sites, moments: TiltedMoments) -> Array:
    """Logarithms of the factors (n,) that give the sites the tilted distributions' mass.

    Of sites exp(nu f - tau f^2 / 2), from the cavities' moments (n,); nothing diverges where
    tau or a cavity variance tends to 0.
    """
    tau, nu = sites.tau, sites.nu
    d = 1.0 + tau * variance
    quadratic = mean * (tau * mean - 2.0 * nu) - nu**2 * variance
    return np.asarray(moments.log_z + 0.5 * np.log(d) + quadratic / (2.0 * d))


@dataclass(frozen=True)
class Fixpoint:
    """Where the iteration over the sites has ended."""

    posterior: SitePosterior
    moments: TiltedMoments
    n_iter: int
    converged: bool

    @property
    def log_evidence(self) -> float:
        """EP's approximation of log p(t), without the trace correction, see :eq:`ep-evidence`."""
        q = self.posterior
        scales = log_site_scales(*q.cavity, q.sites, self.moments)
        return q.log_normaliser + float(np.sum(q.weight * scales))

    @property
    def d_noise(self) -> Array:
        """Gradient of the log evidence in lambda, (n,)."""
        return self.posterior.weight * self.moments.d_v


def features_gradient(fixpoints: tuple[Fixpoint, ...], rows: slice) -> Array:
    """Gradient of the sum of the log evidences in some rows of A, which all share.

    The sites are stationary.
    """
    posteriors = [fixpoint.posterior for fixpoint in fixpoints]
    A = posteriors[0].A[rows]
    tau = np.array([p.total.tau[rows] for p in posteriors])  # (k, n)
    slopes = [p.total.nu[rows] - p.total.tau[rows] * p.marginal_mean[rows] for p in posteriors]
    d_A = np.column_stack(slopes) @ np.array([p.mean for p in posteriors])
    products = A @ np.hstack([p.covariance for p in posteriors])  # of all at once, (n, k m)
    d_A -= np.einsum("kn,nkm->nm", tau, products.reshape(len(A), len(tau), -1))
    return np.asarray(d_A)
