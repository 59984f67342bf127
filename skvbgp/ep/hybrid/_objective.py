r"""The joint bound as a function of everything continuous, for fixed sites.

The objective is the weighted bound and a prior of the recognition map,

    sum_labels F_k + prior_weight (sum_columns F_j - KL(q(X) || p(X))) + log p(C / l),

the corrected (S.35) for a weight of 1; see :ref:`hybrid-objective`. A row that counts w times is w
copies, whose terms are equal: see :ref:`hybrid-weights`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import InducingOutputs, kl_terms
from skvbgp._core.linalg import LOG_2PI, Array
from skvbgp.base import pick
from skvbgp.ep._likelihoods import Likelihood
from skvbgp.ep._schedules import Schedule
from skvbgp.ep._sites import Fixpoint, Sites, log_site_scales
from skvbgp.ep.hybrid._bound import CollapsedBound, LatentFeatures
from skvbgp.ep.hybrid._columns import CompletedRows
from skvbgp.ep.hybrid._recognition import Recognition, RowLatents
from skvbgp.kernels import RBF

#: Largest number of passes of EP over its sites.
_MAX_EP_ITER = 500
#: Variance by which the inducing outputs differ from the process of unit variance: the gradient
#: in Z loses its digits where Z are much closer to each other than a length scale.
_NUGGET = 1e-4
#: Ranges of length scales, precisions of the noise and amplitudes.
_LENGTH_SCALE_RANGE = (1e-2, 1e3)
_PRECISION_RANGE = (1e-1, 1e2)
_AMPLITUDE_RANGE = (1e-2, 5.0)


@dataclass(frozen=True)
class HybridData:
    """Training data, d_c continuous and d_b discrete columns (labels last)."""

    rows: CompletedRows  # what the recognition map sees
    Y: Array  # (n, d_c) scaled continuous entries, 0 where missing
    seen: NDArray[np.bool_]  # (n, d_c)
    t: Array  # (n, d_b) -1 and 1, 0 where missing
    weight: Array  # (d_c + d_b,) weight of each column in the objective
    prior_weight: float  # weight of the KL
    likelihood: Likelihood  # of binary columns and labels
    counts: Array | None = None  # (n,) how often each row counts, positive; None is once

    @property
    def n_continuous(self) -> int:
        return self.Y.shape[1]

    def repeat(self, values: NDArray[Any]) -> NDArray[Any]:
        """What all copies of a row have together, of values (n, k) that each copy has."""
        return values if self.counts is None else self.counts[:, None] * values


@dataclass(frozen=True)
class HybridParameters:
    """What the objective is maximised over."""

    kernel: RBF
    Z: Array  # (m, Q)
    recognition: Recognition | RowLatents
    log_precision: Array  # (d_c,) of the noise of scaled columns
    log_amplitude: Array  # (d_c + d_b,) log s_j

    def features(self, rows: CompletedRows) -> LatentFeatures:
        """Those of the latents of training rows."""
        inducing = InducingOutputs(self.kernel, self.Z, _NUGGET)
        return LatentFeatures(inducing, self.recognition.latents(rows))


@dataclass(frozen=True)
class ColumnSites:
    """EP sites of f for all discrete columns, of one copy each; 0 where an entry is missing."""

    tau: Array  # (n, d_b)
    nu: Array  # (n, d_b)
    log_scale: Array  # (d_b,) sum of the logarithms of all sites' factors
    projected: tuple[Sites, ...]  # of g, over the rows seen: where EP goes on
    converged: bool

    @classmethod
    def vague(cls, t: Array) -> ColumnSites:
        """Sites that carry no information."""
        zero = np.zeros(t.shape)
        projected = tuple(Sites.vague(int(np.sum(column != 0.0))) for column in t.T)
        return cls(zero, zero, np.zeros(t.shape[1]), projected, True)

    def refresh(
        self,
        t: Array,
        features: LatentFeatures,
        amplitude: Array,
        schedule: Schedule,
        tol: float,
        counts: Array | None = None,
    ) -> ColumnSites:
        """Converged sites, from the ones at hand, for amplitudes (d_b,)."""
        tau, nu, log_scale = np.zeros(t.shape), np.zeros(t.shape), np.zeros(t.shape[1])
        projected, converged = [], True
        for j, s in enumerate(amplitude):
            seen = t[:, j] != 0.0
            if not seen.any():
                projected.append(self.projected[j])
                continue
            A, noise = s * features.A[seen], s**2 * features.noise[seen]
            weight = pick(counts, seen)
            fixpoint = schedule.run(t[seen, j], A, noise, self.projected[j], tol, weight)
            sites, scales = split_copies(fixpoint, noise, weight)
            tau[seen, j], nu[seen, j], log_scale[j] = sites.tau, sites.nu, scales.sum()
            projected.append(fixpoint.posterior.sites)
            converged &= fixpoint.converged
        return ColumnSites(tau, nu, log_scale, tuple(projected), converged)


def split_copies(fixpoint: Fixpoint, noise: Array, weight: Array | None) -> tuple[Sites, Array]:
    """Sites of f of one copy of each row, and the logarithms of the factors of all copies.

    The noise (n,) is the variance of f given g. A row of weight below 1 has one site of g for the
    power of its likelihood, which is that power of a copy's.
    """
    of_g, (mean, variance) = fixpoint.posterior.sites, fixpoint.posterior.cavity
    if weight is None:
        sites = of_g.without_noise(noise)
        return sites, log_site_scales(mean, variance + noise, sites, fixpoint.moments)
    power = np.minimum(weight, 1.0)
    sites = of_g.times(1.0 / power).without_noise(noise)
    scales = log_site_scales(mean, variance, of_g, fixpoint.moments) / power
    spread = 1.0 + noise * sites.tau
    scales += 0.5 * (np.log(spread) - noise * sites.nu**2 / spread)  # of g, made one of f
    return sites, weight * scales


class HybridSolution:
    """The bound at some parameters and sites, with the features of the training rows."""

    def __init__(
        self, data: HybridData, p: HybridParameters, sites: ColumnSites, features: LatentFeatures
    ) -> None:
        self._data, self._p, self.sites, self.features = data, p, sites, features
        precision, amplitude = np.exp(p.log_precision), np.exp(p.log_amplitude)
        w = np.hstack([data.seen * precision, sites.tau]) * amplitude**2
        r = np.hstack([data.Y * precision, sites.nu]) * amplitude
        self.bound = CollapsedBound(features, data.repeat(w), data.repeat(r))

    @cached_property
    def _noise(self) -> tuple[Array, Array]:
        """Log normaliser of the continuous columns' noise and its derivative in log precision."""
        data, p = self._data, self._p
        n_seen = data.repeat(data.seen).sum(axis=0)
        squares = data.repeat(data.Y**2).sum(axis=0)
        quadratic = 0.5 * np.exp(p.log_precision) * squares
        value = 0.5 * n_seen * (p.log_precision - LOG_2PI) - quadratic
        return value, 0.5 * n_seen - quadratic

    def _kl(self) -> tuple[float, Array, Array]:
        """KL(q(X) || p(X)) and its gradients (n, Q)."""
        latents = self.features.latents
        parts = kl_terms(latents.mean, latents.variance, 0.0, 1.0)
        terms, d_mean, d_variance = map(self._data.repeat, parts)
        return float(np.sum(terms)), d_mean, d_variance

    def _log_prior(self) -> tuple[float, Array | float, Array | float]:
        """That of the recognition map, with its gradients."""
        return self._p.recognition.log_prior(np.asarray(self._p.kernel.length_scale))

    @property
    def lower_bound(self) -> float:
        """The weighted bound."""
        data = self._data
        columns = self.bound.value + np.concatenate([self._noise[0], self.sites.log_scale])
        return float(data.weight @ columns) - data.prior_weight * self._kl()[0]

    @property
    def objective(self) -> float:
        """The weighted bound with the prior of the recognition map."""
        return self.lower_bound + self._log_prior()[0]

    def gradient(self) -> list[Array]:
        """Of the objective, in the order of `HybridObjective`."""
        data, p = self._data, self._p
        g, (_, kl_mean, kl_variance) = self.bound.vjp(data.weight), self._kl()
        _, prior_x, prior_l = self._log_prior()
        recognition = p.recognition.gradient(
            data.rows,
            g.mean - data.prior_weight * kl_mean,
            g.variance - data.prior_weight * kl_variance,
        )
        d_w, d_r = self.bound.d_log_scale
        k = data.n_continuous
        return [
            g.theta + prior_l,
            g.Z.ravel(),
            recognition + prior_x,
            data.weight[:k] * (self._noise[1] + d_w[:k] + d_r[:k]),
            data.weight * (2.0 * d_w + d_r),
        ]


def solve(data: HybridData, p: HybridParameters, sites: ColumnSites, tol: float) -> HybridSolution:
    """The bound with sites that are brought up to date."""
    features = p.features(data.rows)
    amplitude = np.exp(p.log_amplitude[data.n_continuous :])
    schedule = Schedule("parallel", _MAX_EP_ITER, 0.0, data.likelihood)
    sites = sites.refresh(data.t, features, amplitude, schedule, tol, data.counts)
    return HybridSolution(data, p, sites, features)


class HybridObjective:
    """x -> (value, gradient) for L-BFGS, at fixed sites.

    x holds the log length scales, Z, the parameters of the latents, the log precisions and the
    log amplitudes.
    """

    memory = None  # an evaluation leaves nothing for the next one

    def __init__(self, data: HybridData, start: HybridParameters, sites: ColumnSites) -> None:
        self._data, self._start, self.sites = data, start, sites
        m, Q = start.Z.shape
        k, p = len(start.log_precision), len(start.log_amplitude)
        self._cuts = np.cumsum([Q, m * Q, len(start.recognition.x), k])
        self.bounds = np.concatenate(
            [
                np.tile(np.log(_LENGTH_SCALE_RANGE), (Q, 1)),
                np.tile([-np.inf, np.inf], (m * Q, 1)),
                start.recognition.bounds,
                np.tile(np.log(_PRECISION_RANGE), (k, 1)),
                np.tile(np.log(_AMPLITUDE_RANGE), (p, 1)),
            ]
        )  # (len(x), 2)

    @property
    def x(self) -> Array:
        """The start as a flat vector."""
        p = self._start
        return np.concatenate(
            [p.kernel.theta, p.Z.ravel(), p.recognition.x, p.log_precision, p.log_amplitude]
        )

    def parameters(self, x: Array) -> HybridParameters:
        p = self._start
        theta, Z, recognition, log_precision, log_amplitude = np.split(x, self._cuts)
        return HybridParameters(
            p.kernel.with_theta(theta),
            Z.reshape(p.Z.shape),
            p.recognition.with_x(recognition),
            log_precision,
            log_amplitude,
        )

    def __call__(self, x: Array) -> tuple[float, Array]:
        p = self.parameters(x)
        solution = HybridSolution(self._data, p, self.sites, p.features(self._data.rows))
        return solution.objective, np.concatenate(solution.gradient())
