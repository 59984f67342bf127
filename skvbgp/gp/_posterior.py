"""Predictions: every row from its nearest ones, by the processes that explain these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.blockwise import by_task, in_tiles
from skvbgp._core.draws import meet_by_level
from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import Draws, Gaps, Relevance, find_output, pick
from skvbgp.gp._conditional import Conditional, Scale
from skvbgp.gp._gradient import Slopes, measure_relevance, measure_slopes
from skvbgp.gp._mixture import LocalMoments, Mixture
from skvbgp.gp._near import NearRows
from skvbgp.gp._neighbours import KnownRows, measure_matrices, predict_known, predict_rows
from skvbgp.gp._paths import FunctionDraws
from skvbgp.gp._row_noise import RowNoise, have_same_noise
from skvbgp.gp._rows import Rows

#: Most rows that a joint prediction is conditioned on, if they are not all rows.
_JOINT_ROWS = 2_000
#: Largest matrix of all rows, whose parts serve rows that are left out.
_MATRIX_SIZE = 2_000**2
#: Rows that say the scale at a place where all of them predict: others would count less than e^-6.
_SCALE_ROWS = 96
#: A difference of weights below this share of them is rounded.
_LEAST_OTHERS = 1e-9
#: Correlations of the latent function are taken of at least this share of its prior variance.
_LEAST_SHARE = 1e-10


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
        return self._conclude("conditionals", self._condition_on_rows())

    def _condition_on_rows(self) -> tuple[Conditional, ...]:
        begun = self._begun
        if begun is None or not self._begins_with(begun[0]):
            return self.condition(slice(None))
        X, y = self.coordinates.scaled(self.rows.X), self.target.scaled(self.rows.y)
        return tuple(given.process.extend(given, X, y, self.noise) for given in begun)

    def _begins_with(self, given: Conditional) -> bool:
        """Whether these are the first ones of the rows, with the same noise."""
        first = slice(len(given.X))
        X = self.coordinates.scaled(self.rows.X[first])
        return np.array_equal(X, given.X) and have_same_noise(pick(self.noise, first), given.known)

    def go_on(self, before: NeighbourPosterior) -> None:
        """Take over what is known of fewer rows: with few more, that of all is made of it."""
        begun = vars(before).get("conditionals", before._begun)
        if begun is not None and self.mixture.processes is before.mixture.processes:
            self._go_on_from(begun, len(begun[0].X))

    def condition(self, index: Any, *, in_blocks: bool = False) -> tuple[Conditional, ...]:
        """What some rows say to each process."""
        X = self.coordinates.scaled(self.rows.X[index])
        y, noise = self.target.scaled(self.rows.y[index]), self.noise
        known, kernel, given = pick(noise, index), None, list[Conditional]()
        for process in self.mixture.processes:
            if process.covariance != kernel:  # those of one kernel follow one another
                kernel = process.covariance
                K = kernel(X)
            factorise = process.factorise_in_blocks if in_blocks else process.factorise
            given.append(factorise(X, y, known, K))
        return tuple(given)

    def factorise_in_blocks(self) -> None:
        """Condition on all rows, if all predict, and that has not been done.

        In less time than by inverses. (And Python 3.11 makes a cached property of one object at a
        time.)
        """
        if "conditionals" in vars(self) or not self.is_exact:
            return
        vars(self)["conditionals"] = self.condition(slice(None), in_blocks=True)

    def without_factors(self) -> Self:
        """The posterior where only means and scales are asked for, and all rows are neighbours."""
        posterior, has_scales = replace(self), not self.is_uniform
        given = tuple(one.without_factor(has_scales=has_scales) for one in self.conditionals)
        vars(posterior).update(conditionals=given, _neighbourhoods=self._neighbourhoods)
        return posterior

    @property
    def is_uniform(self) -> bool:
        """Whether all rows predict any place, with the same scale and belief."""
        return self.is_exact and all(process.is_uniform for process in self.mixture.processes)

    def find_near(self, X: Array) -> Index | None:
        """The rows that say what is not the same everywhere, for rows X, nearest first.

        The neighbours or, where all rows predict, those that say the scale.
        """
        if self.is_exact:
            return None if self.is_uniform else self.find(X, _SCALE_ROWS)
        return self.find(X)

    def condition_on_near(self, near: Index) -> list[tuple[Conditional, Scale]]:
        """What the neighbours (k,) of a place say to each process, and of the scale there."""
        return [(given, given.scale_of_last) for given in self.condition(near[::-1])]

    def condition_on_all(self, near: Index | None) -> list[tuple[Conditional, Scale]]:
        """The same of all rows, of which near ones (k,), or all, say the scale."""
        given = self.conditionals
        return [(one, one.scale if near is None else one.scale_at(near)) for one in given]

    def compare_scales(self, n: int) -> float:
        """Scale of all rows as a multiple of that of the first n, where all have one."""
        ratios = np.array([given.compare_scales(n) for given in self.conditionals])
        scales = [given.scale for given in self.conditionals]
        return float(self.mixture.weigh_place(scales) @ ratios)

    @cached_property
    def noise(self) -> RowNoise | None:
        """What is known of the noise of the scaled targets."""
        known = None if self.rows.noise is None else self.rows.noise.scaled(self.target.unit)
        return self.mixture.processes[0].add_indicators(self.rows.X, known)

    @property
    def known(self) -> KnownRows:
        """The rows as those see them who predict others from them."""
        rows = self.rows
        return KnownRows(self.coordinates, self.target, rows.X, rows.y, self.noise)

    # -- the contract of base.Posterior ------------------------------------------------------------

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        return self.mix(self.measure(X), include_noise=include_noise)

    def predict_mean(self, X: Array, include_noise: bool) -> Array:
        return self.average(self.measure(X, with_variance=False))

    def distribution(self, X: Array, include_noise: bool) -> NormalMixture:
        """One component for each process and, of observations, each part of the errors' shape."""
        return self.distribute(self.measure(X), include_noise=include_noise)

    def average(self, parts: LocalMoments) -> Array:
        """Mean (n,) of rows of which each process says `parts`."""
        return self.target.original(self.mixture.average(parts))

    def mix(self, parts: LocalMoments, *, include_noise: bool) -> tuple[Array, Array]:
        """Mean and variance (n,) of such rows."""
        mean, variance = self.mixture.mix(parts, include_noise=include_noise)
        return self.target.unscaled(mean, variance)

    def distribute(self, parts: LocalMoments, *, include_noise: bool) -> NormalMixture:
        """Their distributions."""
        mean, variance, belief = self.mixture.components(parts, include_noise=include_noise)
        given = NormalMixture.of_moments(*self.target.unscaled(mean, variance), belief)
        shape = self.mixture.shape if include_noise else None
        return given if shape is None else given.with_errors(shape)

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Means and variances are those of `moments`.

        The correlations are those of the mixture of the processes, given rows that are near to any
        row of X.
        """
        filled, inputs = self._fill(X)
        parts = self._measure(filled)
        mean, variance = self.mixture.mix(parts, include_noise=False)
        std = np.sqrt(variance)
        covariance = self._covary(filled, parts)
        covariance *= np.outer(*2 * [std / np.sqrt(np.diagonal(covariance))])
        parts = self._widen(parts, inputs)  # by what is not known of each row alone
        parts = self._add_output_noise(X, parts)
        covariance.flat[:: len(X) + 1] = self.mixture.mix(parts, include_noise=include_noise)[1]
        return self.target.unscaled(mean, covariance)

    # -- the contract of base.KnownFunction --------------------------------------------------------

    @cached_property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs in the variation of predictions."""
        return measure_relevance(self)

    def measure_relevance(self, among: NDArray[np.bool_]) -> Relevance:
        """Shares of the inputs at rows of some of t outputs (t,), which the last columns tell."""
        t, relevance = len(among), self.relevance if among.all() else None
        if relevance is None:
            rows = np.flatnonzero(among[find_output(self.rows.X, t)])
            relevance = measure_relevance(self, rows)
        return Relevance(*(part[:-t] for part in relevance))

    def draw_functions(self, n: int, rng: np.random.RandomState) -> Draws:
        return FunctionDraws.draw(self, n, rng)

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d) of the function's derivatives, in the user's units."""
        return self.measure_slopes(X).mix(self.mixture.calibration)

    # -- what the processes say --------------------------------------------------------------------

    def measure(self, X: Array, *, with_variance: bool = True) -> LocalMoments:
        """What each process says of rows X; if nobody asks for variances, means and evidence."""
        filled, inputs = self._fill(X)
        parts = self._measure(filled, with_variance=with_variance)
        return self._add_output_noise(X, self._widen(parts, inputs)) if with_variance else parts

    def _widen(self, parts: LocalMoments, inputs: Array | None) -> LocalMoments:
        """`parts` of rows whose inputs have variances (n, d), in squared units of their spread.

        Mean squared slopes are hyperparameters where training rows had gaps, and measured
        elsewhere.
        """
        gaps = self.gaps
        if inputs is None or gaps is None:
            return parts
        shift = np.zeros(len(inputs))
        for j in np.flatnonzero(inputs.any(axis=0) & ~gaps.columns).tolist():
            if j not in self._slopes:
                self._slopes[j] = gaps.measure_slope(j, self.rows.X, self._measure_mean)
            shift += inputs[:, j] * self._slopes[j]
        learned = self._measure_gaps(parts, inputs[:, gaps.columns])
        return parts._replace(variance=parts.variance + shift[:, None] + learned)

    def _measure_gaps(self, parts: LocalMoments, inputs: Array) -> Array:
        """What each process (n, C) adds to variances, by the slopes (g,) that it has learned."""
        spread = parts.noise / [process.noise for process in self.mixture.processes]
        slopes = np.array([process.slopes for process in self.mixture.processes])  # (C, g)
        return np.asarray(spread * (inputs @ slopes.T))

    def _add_output_noise(self, X: Array, parts: LocalMoments) -> LocalMoments:
        """`parts` with the noise of the outputs that rows X are of."""
        coregions = [process.coregion for process in self.mixture.processes]
        factors = [one.split(X)[1] @ one.factors for one in coregions if one is not None]
        if not factors:
            return parts
        parts = parts._replace(noise=parts.noise * np.column_stack(factors))
        return self.mixture.add_output_noise(parts, find_output(X, self.mixture.n_outputs))

    @cached_property
    def _slopes(self) -> dict[int, float]:
        """Mean squared slopes that have been measured, by input."""
        return {}

    def _measure_mean(self, X: Array) -> Array:
        """The scaled mean at rows X without gaps."""
        return self.mixture.average(self._measure(X, with_variance=False))

    def _measure(self, X: Array, *, with_variance: bool = True) -> LocalMoments:
        """What each process says of rows X without gaps.

        Variances that nobody asks for are NaN where all rows predict.
        """
        if not self.is_exact:
            return self._measure_near(X, self.find(X))
        return _measure_together([self], X, with_variance=with_variance)[0]

    def leave_out(
        self,
        index: Index,
        others: Array | None = None,
        unknown: Array | None = None,
        y: Array | None = None,
    ) -> LocalMoments:
        """What each process says of known rows (n,), each without itself.

        The noise of a row includes what is known of it. Equal rows are left out as well, but for
        ``others`` (n,), which count so often: with the same targets, or scaled ones y (n,). Unknown
        variances of the function are added.
        """
        if y is None:
            parts, known = self._leave_out(index), self.noise
        else:  # of rows that stand for several
            rows, again = np.unique(index, return_inverse=True)
            parts, known = self._leave_out(rows).take(again), self.noise
        if unknown is not None:
            parts = parts._replace(variance=parts.variance + unknown[:, None])
        if known is None:
            return parts
        gaps = np.zeros(parts.mean.shape)  # of what is predicted, and noise of each known row
        if self.rows.inputs is not None:
            gaps = self._measure_gaps(parts, self.rows.inputs[index])
        parts = self._add_output_noise(self.rows.X[index], parts)
        told = known.variance[index, None]
        if others is not None:
            y = self._observe(index) if y is None else y
            parts = parts.observe(y, others, parts.noise + told + gaps)
        parts = parts._replace(variance=parts.variance + gaps)
        return parts._replace(noise=parts.noise + self.mixture.share_known(parts, told))

    def _observe(self, index: Index) -> Array:
        """Scaled targets (n,) of known rows."""
        return self.target.scaled(self.rows.y[index])

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance of the known observations, each left out, in the user's units."""
        return self.mix(self.leave_out(np.arange(len(self.rows))), include_noise=True)

    def leave_out_of(self, index: Index, y: Array, weight: Array) -> tuple[Array, Array]:
        """The same of observations y (n,) with weights, for each of which a known row stands."""
        total, mean = self.rows.weight, self.rows.y[index]
        assert total is not None
        others = total[index] - weight
        others[others < _LEAST_OTHERS * weight] = 0.0
        above = np.divide(weight, others, out=np.zeros_like(others), where=others > 0.0)
        rest = self.target.scaled(mean - above * (y - mean))
        return self.mix(self.leave_out(index, others, y=rest), include_noise=True)

    def _leave_out(self, index: Index) -> LocalMoments:
        if self.is_exact:
            return self._leave_out_exactly(index)
        near = self.find_others(index)
        if len(self.rows) ** 2 > min(_MATRIX_SIZE, near.size * self.k):
            return self._measure_near(self.rows.X[index], near)
        processes, y = self.mixture.processes, self.target.scaled(self.rows.y)
        stacks = measure_matrices(processes, self.coordinates.scaled(self.rows.X)[None])
        K = {kernel: stack[0] for kernel, stack in stacks.items()}
        shared = (processes, K, y, self.noise)
        parts = by_task(predict_known, (index, near), shared=shared, n_jobs=self.n_jobs)
        return LocalMoments.of_lines(parts)

    def _leave_out_exactly(self, index: Index) -> LocalMoments:
        """What each process says of known rows, each left out, where all others predict."""
        near = None
        if not self.is_uniform:
            near = self.find_others(index, min(_SCALE_ROWS, len(self.rows) - 1))
        moments = [given.leave_out(index, near) for given in self.conditionals]
        return LocalMoments.join(moments, len(index))

    def _measure_near(self, X: Array, near: Index) -> LocalMoments:
        """What each process says of rows X given their neighbours (n, k)."""
        shared = (self.mixture.processes, self.known)
        parts = by_task(predict_rows, (X, near), shared=shared, n_jobs=self.n_jobs)
        return LocalMoments.of_lines(parts)

    def by_part(
        self,
        function: Callable[[NeighbourPosterior, Any, Array], tuple[Array, ...]],
        X: Array,
    ) -> tuple[Array, ...]:
        """What a function says of rows X, given a posterior and which known rows it is of."""
        return function(self, slice(None), X)

    def bring(self, near: Index) -> tuple[NeighbourPosterior, Index]:
        """A posterior that has these neighbours in memory, and their indices there."""
        return self, near

    def _covary(self, X: Array, parts: LocalMoments) -> Array:
        """Covariance (n, n) of the latent function at rows X, of which each process says `parts`.

        That of `FunctionDraws`, but for the calibration: functions keep to a level, which stands
        for the same process wherever the belief is the same. Covariances within the processes and
        between their means add up, as variances do.
        """
        conditionals = self.conditionals if self.is_exact else self._condition_on_any(X)
        scaled, total = self.coordinates.scaled(X), np.zeros((len(X), len(X)))
        belief = self.mixture.weigh(parts.evidence)
        errors = parts.mean - np.sum(belief * parts.mean, axis=1)[:, None]
        for c, d, share in meet_by_level(belief):
            part = np.outer(errors[:, c], errors[:, d])
            if c == d:
                part += _covary_within(conditionals[c], scaled, parts.variance[:, c])
            part *= share
            total += part if c == d else part + part.T
        return total

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

    def go_on(self, before: NeighbourPosterior) -> None:
        """The first one does."""


def measure_twins(
    outputs: Sequence[NeighbourPosterior], X: Array, *, with_variance: bool = True
) -> list[LocalMoments]:
    """What each process says of rows X, of each output.

    Twins share what is said whatever their targets are: covariances, and L^-1 times these. Gaps are
    filled by each.
    """
    if len(outputs) == 1 or np.isnan(X).any():
        return [one.measure(X, with_variance=with_variance) for one in outputs]
    return _measure_together(outputs, X, with_variance=with_variance)


def _measure_together(
    outputs: Sequence[NeighbourPosterior], X: Array, *, with_variance: bool
) -> list[LocalMoments]:
    """The same of rows without gaps, where all known rows predict."""
    first, size = outputs[0], len(LocalMoments._fields)
    scaled, near = first.coordinates.scaled(X), first.find_near(X)
    for one in outputs:
        _ = one.conditionals  # once, not in each thread

    def measure(rows: Index) -> tuple[Array, ...]:
        x, close = scaled[rows], pick(near, rows)
        seen = [given.see(x, with_variance=with_variance) for given in first.conditionals]
        told = list[Array]()
        for one in outputs:
            pairs = zip(one.condition_on_all(close), seen, strict=True)
            moments = [given.tell(place, scale) for (given, scale), place in pairs]
            told += LocalMoments.join(moments, len(rows))
        return tuple(told)

    told = in_tiles(measure, np.arange(len(X)))
    return [LocalMoments(*told[i : i + size]) for i in range(0, len(told), size)]


def _covary_within(given: Conditional, X: Array, variance: Array) -> Array:
    """Covariance (n, n) at scaled rows X by one process, with the variances (n,) of the places."""
    covariance, least = given.covariance(X), _LEAST_SHARE * given.process.covariance.diag(X)
    own = np.maximum(np.diagonal(covariance), least)
    covariance.flat[:: len(X) + 1] = own
    ratio = np.sqrt(np.maximum(variance, least) / own)
    covariance *= np.outer(ratio, ratio)
    return covariance
