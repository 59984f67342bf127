"""The online procedure: steps of stochastic ascent, with bases that grow on the way.

Algorithm 1 of [Cheng2017]_: every batch brings new points for the bases until they have their
sizes, then everything is updated, in `fit` as in `partial_fit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.owners import average_shared
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp._optim.ascent import Clock
from skvbgp.decoupled import _coupled, _direct
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._bound import Evaluation, Model, Past
from skvbgp.decoupled._new_rows import Sample, choose_points
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._state import State
from skvbgp.decoupled._variational_process import Gaussians, Rows

#: Most points of the mean basis that stand for all of them in the KL divergence of one step.
_RESIDUAL_SAMPLE = 128
#: Steps of the natural gradient on q(u): the first, and the last.
_NATURAL_RATES = (0.1, 0.01)
#: Step sizes of Adam relative to the learning rate.
_RELATIVE_STEPS = {"alpha_log_c": 0.5, "beta_log_c": 0.5, "noise": 1.5}
#: That of a basis point in length scales of the kernel, and at most in scaled coordinates.
_LOCATION_STEP, _MAX_LOCATION_STEP = 0.5, 2.0
#: What the past is expressed in, and all that learn_hyperparameters=False keeps.
_FRAME = ("theta", "alpha", "alpha_log_c", "beta", "beta_log_c")
_HYPERPARAMETERS = ("noise", *_FRAME)
#: Diagonal of L0 at a new point.
_START_L0 = 1.0
#: Limits of the log multipliers.
_MAX_LOG_C = 2.0


class Batch(NamedTuple):
    """Rows, and what to do with them."""

    rows: Rows
    n_rows: int  # that they stand for
    total: float  # how often all of those count
    new_points: Array  # (k, d) that join each basis before the step, as far as it has room

    @property
    def weight(self) -> float:
        """How many rows each of these stands for."""
        return self.n_rows / len(self.rows)


@dataclass(frozen=True)
class Ascent:
    """The steps of a run."""

    sizes: tuple[int, int]  # of the mean and of the covariance basis in the end
    learning_rate: float
    learn_hyperparameters: bool
    first_turn: int  # of the mean basis' points; a random one, as a run may be a single step
    sample: Sample | None = None  # of a stream's rows, if the noise is not left to steps
    past: Past | None = None  # what is known from rows that the batches do not stand for

    def after(self, state: State, points: Array, n_rows: float) -> tuple[Ascent, State]:
        """The ascent on new rows alone whose prior is what a state says, and where it starts.

        Points (k, d), scaled rows, join both bases, as far as these have room, without a change of
        q(f). From then on kernel and bases stay, as the past is expressed in them. So many rows,
        each as often as it counts, have told the state of the noise.
        """
        state, evaluation = self.join(state, points)
        adam = AdamState.zeros(len(state.parameters.pack()))
        return replace(self, past=evaluation.as_past(n_rows)), replace(state, adam=adam)

    def make_room(self, state: State, points: Array) -> tuple[State, Array]:
        """The state without points of the covariance basis that new ones are worth more than.

        q(f) stays as it is at the other points. The new points are returned with those first that
        the basis is to have.
        """
        assert self.sample is not None
        p, rows = state.parameters, self.sample.rows
        kernel, basis = state.model.kernel.with_theta(p.theta), p.cov_basis
        told = rows.X, rows.counts, self.sizes[1]
        stays, joins = choose_points(kernel, basis, Basis(points), *told)
        points = np.concatenate([points[joins], points[~joins]])
        if stays.all():
            return state, points
        kept, K = np.flatnonzero(stays), kernel(basis, basis)
        parameters, q = p.keep_points(kept), state.q
        if q is None:
            diag = np.diagonal(K)[:, None]
            L0 = diag[kept] * _direct.keep_points(K, np.tril(p.L0) / diag, kept)
            parameters = replace(parameters, L0=L0)
        else:
            q = _coupled.keep_points(K, q, kept)
        adam = _change_moments(state, lambda moment: moment.keep_points(kept))
        return replace(state, parameters=parameters, q=q, adam=adam), points

    def meet(self, state: State, batch: Batch) -> State:
        """The state with new points, and q(u) after a natural step on new rows alone.

        What it has said so far is their prior. Without it, the first steps would take what is
        there of new places for noise.
        """
        state, evaluation = self.join(state, batch.new_points)
        model, p, q = state.model, state.parameters, state.q
        if q is None:
            return state
        likelihood = model.likelihood.stand_in or model.likelihood
        after = Evaluation(replace(model, likelihood=likelihood), p, q, evaluation.as_past(0.0))
        _, _, cotangents = after.evaluate(batch.rows, batch.weight, np.arange(0))
        return replace(state, q=after.natural_step(cotangents, 1.0))

    def join(self, state: State, points: Array) -> tuple[State, Evaluation]:
        """The state with new points in both bases, and q(f) as it was before a direct L0 grew."""
        m = len(state.parameters.beta)
        state = self._grow(state, points, 0.0)
        model, p = state.model, state.parameters
        evaluation = Evaluation(model, p, state.q)
        if model.parametrization == "orthogonal" and state.q is not None:
            # what the mean's basis has said about the new points is now theirs to say
            v = evaluation.covariance.v.copy()
            v[:m] = 0.0
            q = tuple(one.moved(own) for one, own in zip(state.q, v.T, strict=True))
            state, evaluation = replace(state, q=q), Evaluation(model, p, q)
        if model.is_direct:  # at 0 its gradient is 0
            new = np.arange(len(p.beta)) >= m
            state = replace(state, parameters=replace(p, L0=p.L0 + _START_L0 * np.diag(new)))
        return state, evaluation

    def take_turns(self, m: int, step: int) -> NDArray[np.intp]:
        """Which of m points of the mean basis stand for all of them in a step.

        All of them in turn: what some say too much of, the next ones say too little of. Twice as
        many that each step drew anew would say less.
        """
        n_turns = max(1, -(-m // _RESIDUAL_SAMPLE))
        return np.arange((self.first_turn + step) % n_turns, m, n_turns)

    def step(self, state: State, batch: Batch, clock: Clock) -> tuple[State, float]:
        """One step on everything; the estimate of the bound before it, on y's own scale."""
        if len(batch.new_points):
            state = self._grow(state, batch.new_points, _START_L0)
        model, p = state.model, state.parameters
        told = batch.rows, batch.weight, self.take_turns(len(p.alpha), clock.step)
        evaluation = Evaluation(model, p, state.q, self.past)
        solves = self._solves(state, batch)
        if solves:  # or gradients would pull back to what q(u) was the best for
            evaluation = evaluation.solved(batch.rows)
        value, gradient, cotangents = evaluation.evaluate(*told)
        if not solves and _is_prior(state.q) and model.likelihood.stand_in is not None:
            # Adam would remember the gradients at the prior's q(u), which are huge
            stand_in = replace(model, likelihood=model.likelihood.stand_in)
            first = Evaluation(stand_in, p, state.q, self.past)
            q = first.natural_step(first.evaluate(*told)[2], 1.0)
            evaluation = Evaluation(model, p, q, self.past)
            _, gradient, cotangents = evaluation.evaluate(*told)
        d_theta = gradient.theta + model.log_prior(p.theta)[1]
        gradient.theta[:] = average_shared(d_theta, model.own_theta)
        rate = max(_NATURAL_RATES[0] * clock.annealing, _NATURAL_RATES[1])
        if model.likelihood.conjugate:  # averages the first batches, then one pass
            rate = max(rate, 1.0 / (state.adam.n_steps + 2.0), 1.0 / batch.weight)
        step_sizes = self.learning_rate * clock.annealing * p.spread(self._relative_steps(state))
        x, adam = adam_ascent(p.pack(), gradient.pack(), state.adam, step_sizes)
        moved = _clip(model, p.unpack(x))
        if solves and self._learns_noise:  # by EM, in the place of Adam
            slopes = gradient.noise / np.sum(batch.rows.counts)
            moved = replace(moved, noise=model.likelihood.refit(p.noise, slopes))
        after = replace(
            state,
            parameters=moved,
            q=evaluation.q if solves else evaluation.natural_step(cotangents, rate),
            adam=adam,
        )
        return after, value - batch.total * float(np.log(state.target.unit))

    def solve(self, state: State, batch: Batch) -> State:
        """The state with the q(u) that is best at its parameters, if steps have such ones."""
        if not self._solves(state, batch):
            return state
        evaluation = Evaluation(state.model, state.parameters, state.q)
        return replace(state, q=evaluation.solved(batch.rows).q)

    @property
    def _learns_noise(self) -> bool:
        """Whether steps move the noise."""
        return self.learn_hyperparameters and self.learning_rate > 0.0 and self.sample is None

    def _solves(self, state: State, batch: Batch) -> bool:
        """Whether steps have the best q(u), as the noise is Gaussian and a batch has all rows."""
        coupled = state.q is not None and self.past is None
        return coupled and state.model.likelihood.conjugate and batch.n_rows == len(batch.rows)

    def measure_gaps(self, p: Parameters) -> list[int]:
        """Points that the mean's basis and the covariance's still have room for."""
        present = len(p.alpha), len(p.beta)
        return [max(0, size - now) for size, now in zip(self.sizes, present, strict=True)]

    def _grow(self, state: State, points: Array, new_L0: float) -> State:
        """The state with the first of some points in each basis, as many as it lacks."""
        p, is_direct = state.parameters, state.model.is_direct
        new = [points[:gap] for gap in self.measure_gaps(p)]
        nothing = [np.zeros_like(points) for points in new]

        def add_points(parameters: Parameters, points: list[Array], L0: float) -> Parameters:
            return parameters.add_points(
                *points, generalized=state.model.generalized, new_L0=L0 if is_direct else None
            )

        return replace(
            state,
            parameters=add_points(p, new, new_L0),
            q=state.q and tuple(_add_prior(q, len(new[1])) for q in state.q),
            adam=_change_moments(state, lambda moment: add_points(moment, nothing, 0.0)),
        )

    def _relative_steps(self, state: State) -> dict[str, float | Array]:
        """Step sizes of Adam relative to the learning rate, by field."""
        unit = state.model.kernel.with_theta(state.parameters.theta).length_unit
        location = np.minimum(_LOCATION_STEP * unit, _MAX_LOCATION_STEP)
        kept = _FRAME if self.past is not None else ()
        kept = kept if self.sample is None else ("noise", *kept)
        frozen = dict.fromkeys(kept if self.learn_hyperparameters else _HYPERPARAMETERS, 0.0)
        theta = 1.0 if self.sample is None else self.sample.mean_familiarity
        # without natural steps, those of a0 have to bring the mean all of its way
        unit_a0 = 1.0 if state.model.is_direct else state.model.likelihood.step_unit
        free = {"theta": theta, "a0": unit_a0, "alpha": location, "beta": location}
        return {**_RELATIVE_STEPS, **free, **frozen}


def _clip(model: Model, p: Parameters) -> Parameters:
    """Put fresh parameters within their bounds, in place."""
    np.clip(p.theta, *model.kernel.bounds.T, out=p.theta)
    if len(p.noise):
        np.clip(p.noise, *np.array(model.likelihood.bounds).T, out=p.noise)
    for log_c in (p.alpha_log_c, p.beta_log_c):
        np.clip(log_c, -_MAX_LOG_C, _MAX_LOG_C, out=log_c)
    return p


def _change_moments(state: State, change: Callable[[Parameters], Parameters]) -> AdamState:
    """Adam's moments after a change of the parameters that they are of."""
    moments = state.adam.first, state.adam.second
    first, second = (change(state.parameters.unpack(x)).pack() for x in moments)
    return AdamState(first, second, state.adam.n_steps)


def _is_prior(q: Gaussians | None) -> bool:
    return q is not None and not any(one.shift.any() for one in q)


def _add_prior(q: WhitenedGaussian, k: int) -> WhitenedGaussian:
    """q(u) with k more variables, which are as their prior says."""
    return WhitenedGaussian(block_diag(q.precision, np.eye(k)), np.append(q.shift, np.zeros(k)))
