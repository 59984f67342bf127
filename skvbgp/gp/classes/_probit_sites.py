r"""What votes say of a function with a probit likelihood, by expectation propagation.

Each vote of class k at place i has a site, exp(nu f - tau f^2 / 2), which stands for its
likelihood; equal votes have equal ones. With the sites of all votes f is normal, f_i with the
precision P_i = 1 / Sigma_ii, and Q_i is the product of that with the mean. Without one of them,

    v = 1 / (P_i - tau),   c = v (Q_i - nu)

are the variance and the mean of its cavity, and the vote has Z = Phi(+-c / (t + v)^1/2). The site
gives f the moments that the vote itself gives it there: with the derivatives s and -w of log Z in
c,

    tau = w / (1 - w v),   nu = (s + w c) / (1 - w v).

P and Q ask for a factorisation at all sites. Those that are near to these have theirs to first
order, see `Around`, by which they are matched; there, the next factorisation is made, as in
Newton's method. Laplace's approximation is where this starts, whose sites are expansions of the
votes at f^, or what fewer votes have been matched by.

See :doc:`/theory/gp_class_overlap`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array, cholesky, tril_inverse, tril_times
from skvbgp._core.sites import match_moments, measure_curvature, measure_ratio

#: Of the classes' votes: f is for the second.
SIGNS = np.array([-1.0, 1.0])
#: Sites are matched if no vote's score has moved by more than this since the last factorisation:
#: what the first order leaves of it is some hundredths of the square.
_TOL = 2e-4
_MAX_FACTORISED = 20
#: A score that is larger moves by a share of itself: rounding moves those of hundreds by more.
_LARGE = 10.0
#: Matching by one factorisation ends where no score moves by more than this, or by more than this
#: share of what the first order leaves.
_LEAST_MOVE, _LEAST_SHARE, _MAX_MOVES = 1e-11, 1e-3, 200
#: Share of a move that is made: where functions are smooth, whole moves go too far together.
_STEP = 0.7
#: Least share of a prior variance that is left, as far as rounding can tell.
_LEAST = 1e-15


@dataclass(frozen=True)
class Around:
    """The normal distribution of f with some sites, and to first order with others.

    With D and e what the sums over each place's sites have gained, and W_ij = Sigma_ij / Sigma_ii,

        P_i = 1 / Sigma_ii + D_i + sum_j W_ij^2 D_j,
        Q_i = f_i / Sigma_ii + e_i + sum_j W_ij (e_j - f_j D_j) + f_i sum_j W_ij^2 D_j,

    the sums without j = i: a place's own sites are exact.
    """

    m: Array  # (n,)
    prior: Array  # (n,) variances
    Sigma: Array  # (n, n)
    tau: Array  # (n,) sums over the sites of a place
    nu: Array

    def plus(self, K: Array, m: Array) -> Self:
        """With more places, which have no sites yet: K (n, n) and m (n,) are those of all."""
        k = len(self.m)
        both = K[:k, k:] - self.Sigma @ (self.tau[:, None] * K[:k, k:])
        Sigma = np.empty_like(K)
        Sigma[:k, :k], Sigma[:k, k:], Sigma[k:, :k] = self.Sigma, both, both.T
        Sigma[k:, k:] = K[k:, k:] - (self.tau[:, None] * K[:k, k:]).T @ both
        none = np.zeros(len(m) - k)
        tau, nu = np.append(self.tau, none), np.append(self.nu, none)
        return replace(self, m=m, prior=np.diagonal(K), Sigma=Sigma, tau=tau, nu=nu)

    def measure(self, tau: Array, nu: Array) -> tuple[Array, Array]:
        """P and Q (n,) with sites of these sums."""
        more, moved = tau - self.tau, nu - self.nu
        own, f = self._own, self._f
        others = (self._squares @ more - own**2 * more) / own**2
        push = moved - f * more
        shift = (self.Sigma @ push - own * push) / own
        return 1.0 / own + more + others, f / own + moved + shift + f * others

    @cached_property
    def _own(self) -> Array:
        return np.asarray(np.maximum(np.diagonal(self.Sigma), _LEAST * self.prior))

    @cached_property
    def _f(self) -> Array:
        return np.asarray(self.m + self.Sigma @ (self.nu - self.tau * self.m))

    @cached_property
    def _squares(self) -> Array:
        return np.asarray(self.Sigma**2)


@dataclass(frozen=True)
class Sites:
    """Those of votes (n, 2), and the normal distribution of f that these make."""

    K: Array  # (n, n)
    m: Array  # (n,)
    t: Array  # (n,)
    counts: Array
    tau: Array  # (n, 2) of a single vote of each class
    nu: Array  # (n, 2) of a single vote of each class
    #: Of sites that are as near to these as `_TOL` says.
    given: Around | None = None

    @classmethod
    def expand(cls, K: Array, m: Array, t: Array, counts: Array, f: Array) -> Self:
        """Those of Laplace's approximation at a mode f (n,)."""
        slope, curvature = _differentiate(f[:, None], t[:, None])
        return cls(K, m, t, counts, curvature, slope + curvature * f[:, None])

    def plus(self, K: Array, m: Array, t: Array, counts: Array) -> Self:
        """With votes at more places, whose sites say nothing yet, as a start."""
        none = np.zeros((len(m) - len(self.m), 2))
        tau, nu = np.vstack([self.tau, none]), np.vstack([self.nu, none])
        return replace(
            self, K=K, m=m, t=t, counts=counts, tau=tau, nu=nu, given=self.around.plus(K, m)
        )

    def match(self) -> Self | None:
        """Those whose moments are the votes', None if no such are found."""
        sites = self
        for _ in range(_MAX_FACTORISED):
            before, sites = sites, sites._follow()
            moved = sites._measure_move(before)
            if moved < _TOL:
                return sites
            if not np.isfinite(moved):
                break
            sites = replace(sites, given=None)
        return None

    def _follow(self) -> Self:
        """Those that are matched as far as is known around these."""
        sites = replace(self, given=self.around)
        for _ in range(_MAX_MOVES):
            c, v = sites._cavities
            tau, nu = match_votes(c, v, self.t)
            tau, nu = sites.tau + _STEP * (tau - sites.tau), sites.nu + _STEP * (nu - sites.nu)
            before, sites = sites, replace(sites, tau=tau, nu=nu)
            move, moved = (sites._measure_move(other) for other in (before, self))
            if not move > max(_LEAST_MOVE, _LEAST_SHARE * moved**2):
                break
        return sites

    def leave_out(self, owner: NDArray[np.intp], rest: Array) -> tuple[Array, Array]:
        """Means and variances (M,) of f at places that have these votes (M, 2) left."""
        out = self.counts[owner] - rest
        tau, nu = self.tau[owner], self.nu[owner]
        return self._remove(owner, np.sum(out * tau, axis=1), np.sum(out * nu, axis=1))

    def _remove(self, owner: NDArray[np.intp], tau: Array, nu: Array) -> tuple[Array, Array]:
        """Means and variances of f at places, without sites there."""
        P, Q = self._natural
        variance = 1.0 / np.maximum(P[owner] - tau, 1.0 / np.diagonal(self.K)[owner])
        return variance * (Q[owner] - nu), variance

    @cached_property
    def _cavities(self) -> tuple[Array, Array]:
        """Means and variances (n, 2) of f without a vote of each class."""
        return self._remove(np.arange(len(self.m))[:, None], self.tau, self.nu)

    @cached_property
    def _scores(self) -> Array:
        """Of which the normal probability is what all others say of a vote, (n, 2)."""
        c, v = self._cavities
        return np.asarray(c / np.sqrt(self.t[:, None] + v))

    def _measure_move(self, before: Sites) -> float:
        return float(np.max(measure_moves(before._scores, self._scores)))

    @cached_property
    def _natural(self) -> tuple[Array, Array]:
        """P and Q, each (n,)."""
        return self.around.measure(self.precision, self._shift)

    @cached_property
    def around(self) -> Around:
        """What P and Q are made from."""
        if self.given is not None:
            return self.given
        V = tril_times(self.L_inv, self.K)
        Sigma = self.K - V.T @ V
        return Around(self.m, np.diagonal(self.K), Sigma, self.precision, self._shift)

    @cached_property
    def precision(self) -> Array:
        """Of all sites of each place, (n,)."""
        return np.sum(self.counts * self.tau, axis=1)

    @cached_property
    def _shift(self) -> Array:
        """Their product with the means, (n,)."""
        return np.sum(self.counts * self.nu, axis=1)

    @cached_property
    def L_inv(self) -> Array:
        """L^-1 T^1/2 (n, n), L L' = I + T^1/2 K T^1/2, T the diagonal of `precision`."""
        L = cholesky(add_information(self.K, self.precision), "posterior precision of rows")
        return tril_inverse(L) * np.sqrt(self.precision)

    @cached_property
    def g(self) -> Array:
        """K^-1 (f - m), (n,)."""
        b = self._shift - self.precision * self.m
        return np.asarray(b - self.L_inv.T @ (self.L_inv @ (self.K @ b)))

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


def match_votes(c: Array, v: Array, t: Array) -> tuple[Array, Array]:
    """tau and nu (n, 2) of votes' sites, from means and variances of cavities and noise (n,)."""
    return match_moments(*_differentiate(c, t[:, None] + v), c, v)


def measure_moves(scores: Array, others: Array) -> Array:
    """How far scores are from others; of large ones it is a share of themselves."""
    return np.asarray(np.abs(scores - others) / np.maximum(np.abs(scores) / _LARGE, 1.0))


def _differentiate(c: Array, total: Array) -> tuple[Array, Array]:
    """First and minus second derivatives (n, 2) in c of log Phi(+-c / total^1/2)."""
    a = SIGNS / np.sqrt(total)
    ratio = measure_ratio(a * c)
    return a * ratio, measure_curvature(a * c, ratio) / total
