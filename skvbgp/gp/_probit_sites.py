r"""What votes say of a function with a probit likelihood, by expectation propagation.

Each vote of class k at place i has a site, exp(nu f - tau f^2 / 2), which stands for its
likelihood; equal votes have equal ones. With the sites of all votes, f is normal. Without one,

    v = Sigma_ii / (1 - tau Sigma_ii),   c = (f_i - nu Sigma_ii) / (1 - tau Sigma_ii)

are the variance and the mean of its cavity, and the vote has Z = Phi(+-c / (t + v)^1/2). The site
gives f the moments that the vote itself gives it there: with the derivatives s and -w of log Z in
c,

    tau = w / (1 - w v),   nu = (s + w c) / (1 - w v).

Laplace's approximation is where this starts: its sites are expansions of the votes at f^.

See :doc:`/theory/gp_classes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from skvbgp._core.linalg import Array, cholesky, tril_inverse
from skvbgp._core.sites import match_moments, measure_curvature, measure_ratio

#: Of the classes' votes: f is for the second.
SIGNS = np.array([-1.0, 1.0])
#: Sites are matched until no vote's score changes by more than this.
_TOL = 1e-3
_MAX_PASSES = 50
#: Share of a move that is made: where functions are smooth, whole moves go too far together.
_STEP = 0.7
#: Least share of a precision that a place has from the others.
_LEAST = 1e-12


@dataclass(frozen=True)
class Sites:
    """Those of votes (n, 2), and the normal distribution of f that these make."""

    K: Array  # (n, n)
    m: Array  # (n,)
    t: Array  # (n,)
    counts: Array
    tau: Array  # (n, 2) of a single vote of each class
    nu: Array  # (n, 2) of a single vote of each class

    @classmethod
    def expand(cls, K: Array, m: Array, t: Array, counts: Array, f: Array) -> Self:
        """Those of Laplace's approximation at a mode f (n,)."""
        slope, curvature = _differentiate(f[:, None], t[:, None])
        return cls(K, m, t, counts, curvature, slope + curvature * f[:, None])

    def match(self) -> Self:
        """Those whose moments are the votes', or these if no such are found."""
        sites, score = self, np.full_like(self.tau, np.inf)
        for _ in range(_MAX_PASSES):
            c, v = sites.remove(np.arange(len(self.m))[:, None], sites.tau, sites.nu)
            total = self.t[:, None] + v
            before, score = score, c / np.sqrt(total)
            if np.max(np.abs(score - before)) < _TOL:
                return sites
            slope, curvature = _differentiate(c, total)
            tau, nu = match_moments(slope, curvature, c, v)
            tau, nu = sites.tau + _STEP * (tau - sites.tau), sites.nu + _STEP * (nu - sites.nu)
            sites = replace(sites, tau=tau, nu=nu)
        return self

    def remove(self, owner: NDArray[np.intp], tau: Array, nu: Array) -> tuple[Array, Array]:
        """Means and variances of f at places, without sites there."""
        f, own = self.f[owner], self.variance[owner]
        left = np.maximum(1.0 - tau * own, _LEAST)
        variance = np.minimum(own / left, np.diagonal(self.K)[owner])
        return f - variance * (nu - tau * f), variance

    def leave_out(self, owner: NDArray[np.intp], rest: Array) -> tuple[Array, Array]:
        """Means and variances (M,) of f at places that have these votes (M, 2) left."""
        out = self.counts[owner] - rest
        tau, nu = self.tau[owner], self.nu[owner]
        return self.remove(owner, np.sum(out * tau, axis=1), np.sum(out * nu, axis=1))

    @cached_property
    def precision(self) -> Array:
        """Of all sites of each place, (n,)."""
        return np.sum(self.counts * self.tau, axis=1)

    @cached_property
    def _L(self) -> Array:
        """Lower Cholesky factor of I + T^1/2 K T^1/2, T the diagonal of `precision`."""
        return cholesky(add_information(self.K, self.precision), "posterior precision of rows")

    @cached_property
    def _V(self) -> Array:
        """L^-1 T^1/2 K, (n, n)."""
        root = np.sqrt(self.precision)
        return np.asarray(
            solve_triangular(self._L, root[:, None] * self.K, lower=True, check_finite=False)
        )

    @cached_property
    def L_inv(self) -> Array:
        """L^-1 T^1/2, (n, n)."""
        return tril_inverse(self._L) * np.sqrt(self.precision)

    @cached_property
    def variance(self) -> Array:
        """Diagonal of Sigma, (n,)."""
        own = np.diagonal(self.K)
        return np.asarray(np.maximum(own - np.sum(self._V**2, axis=0), 0.0))

    @cached_property
    def g(self) -> Array:
        """K^-1 (f - m), (n,)."""
        b = np.sum(self.counts * self.nu, axis=1) - self.precision * self.m
        root = np.sqrt(self.precision)
        less = solve_triangular(self._L, self._V @ b, lower=True, trans="T", check_finite=False)
        return np.asarray(b - root * less)

    @cached_property
    def f(self) -> Array:
        """Mean of f, (n,)."""
        return np.asarray(self.m + self.K @ self.g)


def add_information(K: Array, T: Array) -> Array:
    """I + T^1/2 K T^1/2 (n, n) for the diagonal T (n,) of a precision."""
    root = np.sqrt(T)
    B = root[:, None] * K * root
    B.flat[:: len(B) + 1] += 1.0
    return B


def _differentiate(c: Array, total: Array) -> tuple[Array, Array]:
    """First and minus second derivatives (n, 2) in c of log Phi(+-c / total^1/2)."""
    a = SIGNS / np.sqrt(total)
    ratio = measure_ratio(a * c)
    return a * ratio, measure_curvature(a * c, ratio) / total
