"""Predictions: every row from its nearest ones, by the processes that explain these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from skvbgp._core.blockwise import by_task, in_tiles
from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import Gaps, pick
from skvbgp.gp._conditional import Conditional, Moments, measure_matrices, predict_from_matrices
from skvbgp.gp._coregion import Covariance
from skvbgp.gp._gradient import Slopes, measure_slopes
from skvbgp.gp._near import NearRows
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._rows import Rows
from skvbgp.gp._stack import count_sets

#: Most rows that a joint prediction is conditioned on, if they are not all rows.
_JOINT_ROWS = 2_000
#: Largest matrix of all rows, whose parts serve rows that are left out.
_MATRIX_SIZE = 2_000**2
#: Correlations of the latent function are taken of at least this share of its prior variance.
_LEAST_SHARE = 1e-10


@dataclass(frozen=True)
class Mixture:
    """Processes, and how much the evidence of a neighbourhood tells about them.

    At a place whose neighbours have log evidence E_c under process c, the belief in it is
    proportional to exp(log_weights[c] + temper E_c).
    """

    processes: tuple[Process, ...]
    log_weights: Array  # (C,)
    temper: float
    calibration: float = 1.0  # factor of the mixture's variances

    @classmethod
    def of(cls, process: Process) -> Mixture:
        """A single process."""
        return cls((process,), np.zeros(1), 0.0)

    def weigh(self, evidence: Array) -> Array:
        """The belief (n, C) in the processes, from log evidences (n, C)."""
        return np.asarray(softmax(self.log_weights + self.temper * evidence, axis=1))

    def weigh_place(self, given: Sequence[Conditional]) -> Array:
        """The belief (C,) at one place, from what its neighbours say to each process."""
        return self.weigh(np.array([[one.log_evidence for one in given]]))[0]

    def mix(self, parts: LocalMoments, *, include_noise: bool) -> tuple[Array, Array]:
        """Mean and variance (n,) at every row, from those of the processes."""
        means, variances, belief = self.components(parts, include_noise=include_noise)
        mean = np.sum(belief * means, axis=1)
        return mean, np.sum(belief * (variances + (means - mean[:, None]) ** 2), axis=1)

    def components(self, parts: LocalMoments, *, include_noise: bool) -> tuple[Array, Array, Array]:
        """Means, variances and weights (n, C) of a mixture with the moments of `mix`."""
        belief = self.weigh(parts.evidence)
        mean = np.sum(belief * parts.mean, axis=1)[:, None]
        variances = parts.variance + parts.noise if include_noise else parts.variance
        means = mean + np.sqrt(self.calibration) * (parts.mean - mean)
        return means, self.calibration * variances, belief


class LocalMoments(NamedTuple):
    """What C processes say of some rows, each (n, C); scaled."""

    mean: Array
    variance: Array  # of the latent function
    noise: Array
    evidence: Array  # log evidence of the row's neighbourhood

    def head(self, n: int) -> LocalMoments:
        """Those of the first n rows."""
        return LocalMoments(*(part[:n] for part in self))


@dataclass(frozen=True)
class KnownRows:
    """Rows in the user's units, and the frames of the processes that know them."""

    coordinates: Coordinates
    target: Target
    X: Array  # (n, d)
    y: Array  # (n,)
    noise: RowNoise | None  # of the scaled targets

    def visit(
        self, processes: tuple[Process, ...], X: Array, near: Index
    ) -> Iterator[tuple[Index, dict[Covariance, Array], Array, RowNoise | None]]:
        """What is needed to predict each of other rows X from its neighbours (n, k), nearest first.

        Indices of these, the nearest last, by kernel the matrix (k + 1, k + 1) of them and the row,
        their scaled targets and what is known of their noise.
        """
        near = near[:, ::-1]
        step = count_sets(near.shape[1] + 1)
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            both = np.concatenate([self.X[near[rows]], X[rows, None]], axis=1)
            matrices = measure_matrices(processes, self.coordinates.scaled(both))
            targets = self.target.scaled(self.y[near[rows]])
            for index, K, y in zip(near[rows], matrices, targets, strict=True):
                yield index, K, y, pick(self.noise, index)


@dataclass(frozen=True)
class NeighbourPosterior(NearRows):
    """A mixture given the rows; every place is predicted from the k nearest of them.

    Its processes are in the frames `coordinates` and `target`.
    """

    mixture: Mixture
    rows: Rows
    coordinates: Coordinates
    target: Target
    weights: Array
    k: int
    n_jobs: int | None = None
    gaps: Gaps | None = None

    @cached_property
    def conditionals(self) -> tuple[Conditional, ...]:
        """What all rows say to each process."""
        return self.condition(slice(None))

    def condition(self, index: Any) -> tuple[Conditional, ...]:
        """What some rows say to each process."""
        X = self.coordinates.scaled(self.rows.X[index])
        y, noise = self.target.scaled(self.rows.y[index]), self.noise
        known = pick(noise, index)
        return tuple(process.factorise(X, y, known) for process in self.mixture.processes)

    def condition_near(self, nearest: Index) -> tuple[Conditional, ...]:
        """What the neighbours (k,) of a place, nearest first, say to each process."""
        return tuple(
            replace(given, share=given.process.count_nearest(len(nearest)))
            for given in self.condition(nearest[::-1])
        )

    def compare_scales(self, n: int) -> float:
        """Scale of all rows as a multiple of that of the first n, where all are neighbours."""
        ratios = np.array([given.compare_scales(n) for given in self.conditionals])
        return float(self.mixture.weigh_place(self.conditionals) @ ratios)

    @cached_property
    def noise(self) -> RowNoise | None:
        """What is known of the noise of the scaled targets."""
        known = None if self.rows.noise is None else self.rows.noise.scaled(self.target.unit)
        return self.mixture.processes[0].tell_outputs(self.rows.X, known)

    @property
    def known(self) -> KnownRows:
        """The rows as those see them who predict others from them."""
        rows = self.rows
        return KnownRows(self.coordinates, self.target, rows.X, rows.y, self.noise)

    # -- the contract of base.Posterior ------------------------------------------------------------

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        parts = self.measure(X)
        mean, variance = self.mixture.mix(parts, include_noise=include_noise)
        return self.target.unscaled(mean, variance)

    def distribution(self, X: Array, include_noise: bool) -> NormalMixture:
        """One component for each process."""
        parts = self.measure(X)
        mean, variance, belief = self.mixture.components(parts, include_noise=include_noise)
        return NormalMixture.of_moments(*self.target.unscaled(mean, variance), belief)

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Means and variances are those of `moments`.

        The correlations are those of the mixture of the processes, given rows that are near to any
        row of X and believed in as much as on average.
        """
        filled, inputs = self._fill(X)
        parts = self._measure(filled)
        mean, variance = self.mixture.mix(parts, include_noise=False)
        std = np.sqrt(variance)
        covariance = self._correlate(filled, parts) * np.outer(std, std)
        parts = self._widen(parts, inputs)  # by what is not known of each row alone
        parts = self._tell_outputs(X, parts)
        covariance.flat[:: len(X) + 1] = self.mixture.mix(parts, include_noise=include_noise)[1]
        return self.target.unscaled(mean, covariance)

    # -- what the processes say --------------------------------------------------------------------

    def measure(self, X: Array) -> LocalMoments:
        """What each process says of rows X, in the user's units."""
        filled, inputs = self._fill(X)
        return self._tell_outputs(X, self._widen(self._measure(filled), inputs))

    def _widen(self, parts: LocalMoments, inputs: Array | None) -> LocalMoments:
        """The same of rows whose inputs have variances (n, d), in squared units of their spread.

        Mean squared slopes are hyperparameters where training rows had gaps, and measured
        elsewhere.
        """
        gaps = self.gaps
        if inputs is None or gaps is None:
            return parts
        shift = np.zeros(len(inputs))
        for j in np.flatnonzero(inputs.any(axis=0) & ~gaps.columns).tolist():
            if j not in self._slopes:
                self._slopes[j] = gaps.measure_slope(j, self.rows.X, self._predict_mean)
            shift += inputs[:, j] * self._slopes[j]
        parts = parts._replace(variance=parts.variance + shift[:, None])
        return self._widen_known(parts, inputs[:, gaps.columns])

    def _widen_known(self, parts: LocalMoments, inputs: Array) -> LocalMoments:
        """The same by the slopes (g,) that processes have learned."""
        spread = parts.noise / [process.noise for process in self.mixture.processes]
        slopes = np.array([process.slopes for process in self.mixture.processes])  # (C, g)
        return parts._replace(variance=parts.variance + spread * (inputs @ slopes.T))

    def _tell_outputs(self, X: Array, parts: LocalMoments) -> LocalMoments:
        """The same with the noise of the outputs that rows X are of."""
        coregions = [process.coregion for process in self.mixture.processes]
        factors = [one.split(X)[1] @ one.factors for one in coregions if one is not None]
        return parts._replace(noise=parts.noise * np.column_stack(factors)) if factors else parts

    @cached_property
    def _slopes(self) -> dict[int, float]:
        """Mean squared slopes that have been measured, by input."""
        return {}

    def _predict_mean(self, X: Array) -> Array:
        """The scaled mean at rows X without gaps."""
        return self.mixture.mix(self._measure(X), include_noise=False)[0]

    def _measure(self, X: Array) -> LocalMoments:
        """What each process says of rows X without gaps."""
        if not self.is_exact:
            return self._measure_near(X, self.find(X))
        _ = self.conditionals  # once, not in each thread
        return LocalMoments(*in_tiles(self._measure_exactly, self.coordinates.scaled(X)))

    def _measure_exactly(self, X: Array) -> LocalMoments:
        """The same of scaled rows, from all known ones."""
        return _join([given.moments(X) for given in self.conditionals], len(X))

    def leave_out(self, index: Index) -> LocalMoments:
        """What each process says of known rows, each without itself.

        The noise of a row includes what is known of it.
        """
        parts = self._leave_out(index)
        if self.noise is None:
            return parts
        if self.rows.inputs is not None:
            parts = self._widen_known(parts, self.rows.inputs[index])
        parts = self._tell_outputs(self.rows.X[index], parts)
        return parts._replace(noise=parts.noise + self.noise.variance[index, None])

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance of the known observations, each left out, in the user's units."""
        parts = self.leave_out(np.arange(len(self.rows)))
        mean, variance = self.mixture.mix(parts, include_noise=True)
        return self.target.unscaled(mean, variance)

    def _leave_out(self, index: Index) -> LocalMoments:
        if self.is_exact:
            moments = [given.leave_out(index) for given in self.conditionals]
            return _join(moments, len(index))
        near = self.find_others(index)
        if len(self.rows) ** 2 > min(_MATRIX_SIZE, near.size * self.k):
            return self._measure_near(self.rows.X[index], near)
        processes, y = self.mixture.processes, self.target.scaled(self.rows.y)
        (K,) = measure_matrices(processes, self.coordinates.scaled(self.rows.X)[None])
        shared = (processes, K, y, self.noise)
        parts = by_task(_predict_known, (index, near), shared=shared, n_jobs=self.n_jobs)
        return LocalMoments(*np.moveaxis(parts, 2, 0))

    def _measure_near(self, X: Array, near: Index) -> LocalMoments:
        """What each process says of rows X given their neighbours (n, k)."""
        shared = (self.mixture.processes, self.known)
        parts = by_task(predict_rows, (X, near), shared=shared, n_jobs=self.n_jobs)
        return LocalMoments(*np.moveaxis(parts, 2, 0))

    def bring(self, near: Index) -> tuple[NeighbourPosterior, Index]:
        """A posterior that has these neighbours in memory, and their indices there."""
        return self, near

    def _correlate(self, X: Array, parts: LocalMoments) -> Array:
        """Correlations (n, n) of the latent function at rows X, of which each process says `parts`.

        Covariances within the processes and between their means add up, as variances do.
        """
        conditionals = self.conditionals if self.is_exact else self._condition_on_any(X)
        scaled, total = self.coordinates.scaled(X), np.zeros((len(X), len(X)))
        belief = self.mixture.weigh(parts.evidence)
        errors = parts.mean - np.sum(belief * parts.mean, axis=1)[:, None]
        for c, (share, given) in enumerate(zip(belief.mean(axis=0), conditionals, strict=True)):
            covariance = self._add_covariance(X, given.covariance(scaled))
            least = _LEAST_SHARE * given.process.covariance.diag(scaled)
            variance = np.maximum(np.diagonal(covariance), least)
            covariance.flat[:: len(X) + 1] = variance
            ratio = np.sqrt(np.maximum(parts.variance[:, c], least) / variance)
            covariance *= np.outer(ratio, ratio)
            total += share * (covariance + np.outer(errors[:, c], errors[:, c]))
        std = np.sqrt(np.diagonal(total))
        return np.asarray(total / std[:, None] / std)

    def _add_covariance(self, X: Array, covariance: Array) -> Array:
        """Covariance (n, n) of the latent function at rows X, from that given near rows."""
        return covariance

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d) of the function's derivatives, in the user's units."""
        return self.measure_slopes(X).mix(self.mixture.calibration)

    def measure_slopes(self, X: Array) -> Slopes:
        """What each process says of these derivatives."""
        return measure_slopes(self, X)

    def _condition_on_any(self, X: Array) -> tuple[Conditional, ...]:
        """Each process given the rows that are nearest to any of X."""
        k = max(1, min(self.k, _JOINT_ROWS // len(X)))
        return self.condition(np.unique(self.find(X, k)))


@dataclass(frozen=True)
class TwinPosterior(NeighbourPosterior):
    """The posterior of an output that was observed in all rows of another one, and in no others.

    With the same processes, all rows have one factor for both.
    """

    first: NeighbourPosterior = field(kw_only=True)

    @cached_property
    def conditionals(self) -> tuple[Conditional, ...]:
        y = self.target.scaled(self.rows.y)
        return tuple(given.given_targets(y) for given in self.first.conditionals)


def _join(moments: list[Moments], n: int) -> LocalMoments:
    """Moments of the processes, whose noise and evidence are the same for all n rows."""
    mean, variance, noise, evidence = zip(*moments, strict=True)
    every = np.ones((n, 1))
    return LocalMoments(
        np.column_stack(mean), np.column_stack(variance), every * noise, every * evidence
    )


def _predict_known(
    processes: tuple[Process, ...],
    matrices: dict[Covariance, Array],
    y: Array,
    noise: RowNoise | None,
    own: Index,
    near: Index,
) -> Array:
    """The same as `predict_rows`, of known rows and from the matrices (n, n) of all of them."""
    result = np.empty((len(own), len(processes), 4))
    for i, nearest_first in enumerate(near):
        index = nearest_first[::-1]
        rows = np.append(index, own[i])
        both = rows[:, None] * len(y) + rows  # of the matrix as one line, which is read faster
        parts = {kernel: K.reshape(-1).take(both) for kernel, K in matrices.items()}
        near_noise = pick(noise, index)
        result[i] = predict_from_matrices(processes, parts, y[index], near_noise)
    return result


def predict_rows(processes: tuple[Process, ...], known: KnownRows, X: Array, near: Index) -> Array:
    """Mean, variance, noise and evidence of rows by each process, (n, C, 4)."""
    result = np.empty((len(X), len(processes), 4))
    for i, (_, K, y, noise) in enumerate(known.visit(processes, X, near)):
        result[i] = predict_from_matrices(processes, K, y, noise)
    return result
