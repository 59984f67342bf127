r"""Predictive moments (Appendix F of [Yu2019]_) given inducing inputs or all rows.

Given a draw of theta = (Lambda, sigma_f), a new row's value is linear in u plus an
independent Gaussian remainder:

    f* = offset + b' u + r,   u ~ q(u),   r ~ N(0, variance),

where b and the remainder come from the test conditional: p(f*|s, theta) for DTC, FITC
and PITC, and p(y*|y_B, s, theta) of the row's own block B for PIC.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.blockwise import by_tile, in_tiles
from skvbgp._core.draws import quasi_normal
from skvbgp._core.expectations import SecondMoment, first_moment, first_moment_vjp
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array, eigh, triu_congruence
from skvbgp._core.mixture import NormalMixture
from skvbgp._core.order import Index
from skvbgp._core.parallel import single_blas_thread
from skvbgp.base import Relevance, Targets, find_known
from skvbgp.kernels._features import SHARING
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._blocks import Division
from skvbgp.sgpr._bound import Prior
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._paths import FunctionDraws, Paths, draw_unit_functions, share_points
from skvbgp.sgpr._places import Places
from skvbgp.sgpr._psi import rotate
from skvbgp.sgpr._quadrature import CommonDraws, FixedRule
from skvbgp.sgpr._settings import N_DRAWS
from skvbgp.sgpr._slopes import se_slopes, square_slopes
from skvbgp.sgpr._state import State

#: Draws of Lambda that functions go by, if these are not fewer, where moments are closed forms.
_LEAST_POINTS = 8
#: Rounding of a variance in closed form may be so much of the noise; beyond, draws take its place.
_ROUNDING_SHARE = 0.01


class GlobalPosterior:
    """Predictions in the user's units, with noise that is independent from row to row.

    ``latent`` is the distribution of f in scaled units; the mixture is that of an exact fit.
    """

    def __init__(self, state: State, latent: SparseLatent | Mixture) -> None:
        self._state, self._coordinates, self._target = state, state.model.coordinates, state.target
        self._latent = latent

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        X, own = self._fill(X, include_noise)
        mean, variance = in_tiles(self._latent.moments, self._coordinates.scaled(X))
        return self._target.unscaled(mean, variance + own)

    def predict_mean(self, X: Array, include_noise: bool) -> Array:
        X, _ = self._state.fill(X)
        return self._target.original(self._measure_mean(X))

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        X, own = self._fill(X, include_noise)
        mean, covariance = self._latent.joint(self._coordinates.scaled(X))
        covariance.flat[:: len(X) + 1] += own
        return self._target.unscaled(mean, covariance)

    def _fill(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Rows without gaps, and the variance (n,) that each has of its own, in scaled units.

        That is of its noise, and of what f may differ by from that at the means of missing entries.
        """
        X, gaps = self._state.fill(X)
        own = by_tile(self._state.noise.marginal_variance, X) if include_noise else np.zeros(len(X))
        if gaps is not None:
            if include_noise:
                lacks = gaps.any(axis=1)
                own[lacks] = self._state.noise.far_variance(X[lacks])
            own = own + gaps @ self._find_slopes(gaps)
        return X, own

    def _find_slopes(self, gaps: Array) -> Array:
        """Mean squared slopes (d,) along inputs: learned, or measured where rows have gaps."""
        learned, known = list(self._state.model.structure.gap_columns), self._state.gaps
        slopes = np.zeros(gaps.shape[1])
        assert known is not None
        if learned:
            noise: Any = self._state.noise
            slopes[learned] = noise.slopes
        for j in np.setdiff1d(np.flatnonzero(gaps.any(axis=0)), learned):
            slopes[j] = known.measure_slope(j, self._state.places.X, self._measure_mean)
        return slopes

    def _measure_mean(self, X: Array) -> Array:
        """The scaled mean of f at rows without gaps."""
        return by_tile(self._latent.mean, self._coordinates.scaled(X))

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        mean, variance = in_tiles(self._latent.slope_moments, self._coordinates.scaled(X))
        return self._target.unscaled_slopes(mean, variance, self._coordinates.scale)

    @property
    def relevance(self) -> Relevance:
        return self._share_out(self._state.places)

    def measure_relevance(self, among: NDArray[np.bool_]) -> Relevance:
        """The same at rows of some outputs (t,)."""
        return self._share_out(self._state.places.of_outputs(among))

    def _share_out(self, places: Places) -> Relevance:
        p = self._state.parameters
        return places.share_out(self._coordinates, self._latent, p.owners, p.n_outputs)

    def draw_functions(self, n: int, rng: np.random.RandomState) -> FunctionDraws:
        with single_blas_thread:
            sets = tuple(self._latent.draw(n, rng))
        return FunctionDraws(self._coordinates, self._target, sets)

    def leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
        mean, variance = self._leave_out(X, targets)
        _, own = self._fill(X, include_noise=True)
        return self._target.unscaled(mean, variance + own)

    def _leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
        """The same of f, in scaled units."""
        assert isinstance(self._latent, SparseLatent)
        state, blocks = self._state, None
        if state.model.structure.correlated:
            if not isinstance(state.blocks, Division):
                raise ValueError(
                    "The noise of rows is correlated in blocks, which are known of a single fit to "
                    "rows in memory: fit the model to all rows at once."
                )
            blocks = state.blocks.group(self._coordinates.scaled(X))
        return state.remembered.predict(self._latent.rule, state.gather(X, targets), blocks)


class ExactPosterior(GlobalPosterior):
    """The same where the latent function is a mixture over draws of theta."""

    _latent: Mixture

    def distribution(self, X: Array, include_noise: bool) -> NormalMixture:
        """One component for each draw."""
        X, own = self._fill(X, include_noise)
        means, variances = in_tiles(self._latent.components, self._coordinates.scaled(X))
        return NormalMixture.of_moments(*self._target.unscaled(means, variances + own[:, None]))

    def _leave_out(
        self, X: Array, targets: Targets, *, include_noise: bool = False
    ) -> tuple[Array, Array]:
        assert self._state.kept_rows is not None
        index = find_known(X, targets, *self._state.kept_rows)
        mean, variance = self._latent.leave_out(include_noise=include_noise)
        return mean[index], variance[index]


class SparseLatent:
    """Moments of f* for models whose test rows are independent of the data given s.

    The rule is how the expectation over Lambda is taken. With closed forms there are draws (S, d)
    for the correlations of rows, which have none here, and where rounding leaves nothing of them.
    """

    def __init__(
        self,
        parameters: Parameters,
        prior: Prior,
        q: WhitenedGaussian,
        rule: FixedRule,
        draws: Array,
    ) -> None:
        self._parameters, self._prior, self._q, self.rule = parameters, prior, q, rule
        self._draws = rule.draws if isinstance(rule, CommonDraws) else draws

    @classmethod
    def of(cls, state: State, rule: FixedRule) -> SparseLatent:
        """That which has served last, or a new one; what it is made of depends on the state."""
        last = _LAST.get(state)
        if last is None or type(last.rule) is not type(rule):
            p = state.parameters
            draws = quasi_normal(N_DRAWS, p.U.shape[1], state.seed)
            last = _LAST[state] = cls(p, state.prior, state.q, rule, draws)
        return last

    @cached_property
    def _v(self) -> Array:
        """L^-T E[u], (m,)."""
        return np.asarray(self._prior.L_inv.T @ self._q.mean)

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of f at scaled rows X, each (n,)."""
        p = self._parameters
        if not self._has_closed_form:
            return self._average(X)
        arguments = (*rotate(X, p.nu, p.xi), self._prior.Z)
        mean, second = self.mean(X), SecondMoment(*arguments, n_kept=0).quadratic_forms(self._V)
        variance = p.second_moment * (1.0 + second) - mean**2
        return mean, np.maximum(variance, 1e-10 * p.second_moment)

    def mean(self, X: Array) -> Array:
        """That of `moments`, which takes less time by a factor of the order of m."""
        p = self._parameters
        if not self._has_closed_form:
            return p.alpha * self._unit_means(X).mean(axis=0)
        return p.alpha * (first_moment(*rotate(X, p.nu, p.xi), self._prior.Z) @ self._v)

    def _unit_means(self, X: Array) -> Array:
        """That given each draw of Lambda, (S, n), where sigma_f is one."""
        rotated = (X * self._parameters.draw_Lambda(e) for e in self._draws)
        return np.array([unit_se(x, self._prior.Z) @ self._v for x in rotated])

    def _average(self, X: Array) -> tuple[Array, Array]:
        """The moments over draws of Lambda, from terms none of which is a difference of large ones.

        Those of L^-T E[u u'] L^-1, which closed forms take, are as large as the covariance of s is
        ill-conditioned.
        """
        p, n = self._parameters, len(self._draws)
        means, explained = np.empty((n, len(X))), np.zeros(len(X))
        for mean, e in zip(means, self._draws, strict=True):
            K = unit_se(X * p.draw_Lambda(e), self._prior.Z)
            mean[:] = K @ self._v
            explained += np.sum((K @ self._root) ** 2, axis=1) / n
        variance = p.second_moment * (1.0 - explained) + p.beta * np.mean(means**2, axis=0)
        variance += p.alpha**2 * means.var(axis=0)
        return p.alpha * means.mean(axis=0), np.maximum(variance, 1e-10 * p.second_moment)

    @cached_property
    def _V(self) -> Array:
        """Sigma^-1 (E[s s'] - Sigma) Sigma^-1, (m, m)."""
        return triu_congruence(self._prior.L_inv, self._q.excess_moment)

    @cached_property
    def _has_closed_form(self) -> bool:
        """Whether moments are wanted in closed form, and rounding leaves something of it."""
        if isinstance(self.rule, CommonDraws):
            return False
        rounding = np.finfo(float).eps * float(np.abs(self._V).sum())
        p = self._parameters
        return bool(p.second_moment * rounding <= _ROUNDING_SHARE * np.min(p.noise_variance))

    @cached_property
    def _root(self) -> Array:
        """A root of L^-T (I - S) L^-1, for q's covariance S, (m, m)."""
        values, vectors = eigh(np.eye(len(self._v)) - self._q.covariance)
        return np.asarray(self._prior.L_inv.T @ (vectors * np.sqrt(np.maximum(values, 0.0))))

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) and covariance (n, n).

        The correlations are averages over draws, the variances those of `moments`.
        """
        p = self._parameters
        means, covariance = [], np.zeros((len(X), len(X)))
        for e in self._draws:
            x = X * p.draw_Lambda(e)
            A = self._prior.whiten(x)  # (n, m)
            means.append(A @ self._q.mean)
            explained = A @ (self._q.covariance - np.eye(A.shape[1])) @ A.T
            covariance += p.second_moment * (unit_se(x, x) + explained) / len(self._draws)
        spread = np.array(means)  # (S, n)
        covariance += p.second_moment * spread.T @ spread / len(self._draws)
        first = p.alpha * spread.mean(axis=0)
        covariance -= np.outer(first, first)
        mean, variance = self.moments(X)
        correction = np.sqrt(variance / np.maximum(np.diagonal(covariance), 1e-300))
        return mean, covariance * np.outer(correction, correction)

    def means(self, X: Array) -> Array:
        """The mean, and that given each draw of theta, (1 + S, n)."""
        return np.vstack([self.mean(X), self._parameters.alpha * self._unit_means(X)])

    def slopes(self, X: Array) -> tuple[Array, Array]:
        """Derivatives of the mean, (n, d), and given each draw of theta, (S, n, d)."""
        p = self._parameters
        each = np.array(
            [
                p.alpha * Lambda * np.column_stack([dK @ self._v for dK in slopes])
                for Lambda, slopes in self._rotate(X)
            ]
        )
        if not self._has_closed_form:
            return each.mean(axis=0), each
        arguments = (*rotate(X, p.nu, p.xi), self._prior.Z)
        d = first_moment_vjp(*arguments, first_moment(*arguments) * self._v)
        return p.alpha * (d.mu * p.nu + 2.0 * d.s * p.xi * X), each

    def slope_moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d) of the derivatives."""
        p = self._parameters
        mean, each = self.slopes(X)
        prior = p.nu**2 + p.xi
        if self._has_closed_form:
            excess = square_slopes(X, p.nu, p.xi, self._prior.Z, self._V)
        else:
            prior, excess = np.zeros_like(p.nu), np.zeros_like(mean)
            for Lambda, slopes in self._rotate(X):
                forms = [
                    (dK @ self._v) ** 2 - np.sum((dK @ self._root) ** 2, axis=1) for dK in slopes
                ]
                prior += Lambda**2 / len(each)
                excess += Lambda**2 * np.column_stack(forms) / len(each)
        variance = p.second_moment * (prior + excess) - mean**2
        return mean, np.maximum(variance, 1e-10 * p.second_moment * prior)

    def _rotate(self, X: Array) -> Iterator[tuple[Array, Iterator[Array]]]:
        """Each draw of Lambda, with the derivatives of k(Lambda X, Z) in Lambda X."""
        p = self._parameters
        for e in self._draws:
            Lambda = p.draw_Lambda(e)
            yield Lambda, se_slopes(X * Lambda, self._prior.Z)

    def draw(self, n: int, rng: np.random.RandomState) -> Iterator[tuple[Index, Paths]]:
        """Functions n in sets, and which of all they are.

        Lambda is one of the draws that moments are averages over, or of as many as needed.
        """
        p, L_inv = self._parameters, self._prior.L_inv
        d = len(p.nu)
        points = self._draws
        if not isinstance(self.rule, CommonDraws):
            n_points = min(n, max(_LEAST_POINTS, -(-n // SHARING)))
            points = quasi_normal(n_points, d, rng.randint(2**31))
        for i, members in share_points(n, len(points), rng):
            Lambda, s = p.draw_Lambda(points[i]), len(members)
            sigma_f = p.draw_sigma_f(rng.standard_normal(s))
            prior = draw_unit_functions(d, s, rng)
            corrections = L_inv.T @ (self._q.draw(s, rng) - L_inv @ prior(self._prior.Z))
            yield members, Paths(Lambda, sigma_f, prior, self._prior.Z, corrections)


#: The last of each state, as long as the state lives; it must not refer to the state.
_LAST: WeakKeyDictionary[State, SparseLatent] = WeakKeyDictionary()
