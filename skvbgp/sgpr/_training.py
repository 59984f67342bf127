"""Solvers of the variational problem, and the steps that they repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp._core.parallel import concurrently
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp._optim.ascent import Ascended, Clock, EndPass, ascend, go_on, no_annealing, report_as
from skvbgp._optim.lbfgs import LbfgsResult, lbfgs_ascent
from skvbgp._optim.natural_gradient import natural_gradient_step
from skvbgp.sgpr._bound import Evaluation
from skvbgp.sgpr._data import Data, Rows
from skvbgp.sgpr._noise import HyperPrior, Model
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws, DrawRule, FixedRule, make_sign_draws
from skvbgp.sgpr._sharded import ShardedBatch, ShardedEvaluation
from skvbgp.sgpr._start import narrow, settle_variances
from skvbgp.sgpr._state import State

#: A bound and its gradient, of the scaled target.
Bound = Callable[[Parameters], tuple[float, Parameters]]

#: Some groups of rows, and the weight that makes them unbiased.
Batch = tuple[list[Rows] | ShardedBatch, float]

#: Step size of the noise's variance relative to the learning rate: it has to find its level first.
_NOISE_STEP = 1.5

#: Step of the natural gradient at the end of training.
_LAST_NATURAL_RATE = 0.01

#: Adam steps on new rows in one call of partial_fit.
_STREAM_STEPS = 10


class Reached(NamedTuple):
    """Where a solver has ended, or stands at the end of a pass."""

    parameters: Parameters
    values: tuple[float, ...]  # of the bound, one per pass, scaled target


def collapse_bound(model: Model, data: Data, draw_rule: FixedRule) -> Bound:
    """Eq. (11), the bound at the optimal q(u), as a function of everything else."""
    evaluate_at = _evaluate_collapsed(model, data, draw_rule)

    def bound(parameters: Parameters) -> tuple[float, Parameters]:
        evaluation = evaluate_at(parameters)
        value, gradient = evaluation.gradient(evaluation.optimal_q)
        _refuse_drowned(value, evaluation)
        return value, gradient

    return bound


def bound_start(model: Model, data: Data, draw_rule: FixedRule, parameters: Parameters) -> float:
    """The value of `collapse_bound` at some parameters, or the error that it raises there."""
    if isinstance(draw_rule, ClosedForm):  # as training takes it: a rounding may decide
        return collapse_bound(model, data, draw_rule)(parameters)[0]
    evaluation = _evaluate_collapsed(model, data, draw_rule)(parameters)
    value = evaluation.value(evaluation.optimal_q)
    _refuse_drowned(value, evaluation)
    return value


def _evaluate_collapsed(
    model: Model, data: Data, draw_rule: FixedRule
) -> Callable[[Parameters], Evaluation]:
    """The evaluation of all rows as a function of the parameters."""
    batch = [data.rows(index) for index in data.groups()]
    if model.structure.correlated:
        batch = [rows.with_pairs(model.coordinates) for rows in batch]
    draws, whitened = [draw_rule.common] * len(batch), draw_rule.common is not None

    def evaluate_at(parameters: Parameters) -> Evaluation:
        evaluation = Evaluation(model, parameters, batch, draws, whitened=whitened)
        if data.blocks is not None:  # f may be where its noise leaves no digits, see `follow_noise`
            evaluation.optimal_q.refuse_jitter()
        return evaluation

    return evaluate_at


def _refuse_drowned(value: float, evaluation: Evaluation) -> None:
    if value > evaluation.ceiling:
        raise NotPositiveDefiniteError("The bound has drowned in rounding errors.")


def solve_full(
    bound: Bound,
    model: Model,
    parameters: Parameters,
    *,
    free: NDArray[np.bool_],
    max_iter: int,
    tol: float,
    end_pass: EndPass = go_on,
) -> Reached:
    """L-BFGS on a bound over all the data, in those entries of the flat vector that are ``free``.

    What `end_pass` gets makes the `Reached` of this moment.
    """
    start = parameters.pack()

    def at(x: Array) -> Parameters:
        vector = start.copy()
        vector[free] = x
        return parameters.unpack(vector)

    def objective(x: Array) -> tuple[float, Array]:
        current = at(x)
        value, gradient = bound(current)
        return value, current.pack_gradient(gradient)[free]

    def finish(result: LbfgsResult) -> Reached:
        return Reached(at(result.x), result.values)

    return finish(
        lbfgs_ascent(
            objective,
            start[free],
            max_iter=max_iter,
            tol=tol,
            bounds=model.bounds(parameters)[free],
            end_pass=report_as(finish, end_pass),
        )
    )


def solve_collapsed(
    model: Model,
    parameters: Parameters,
    data: Data,
    rule: FixedRule,
    *,
    max_iter: int,
    tol: float,
    end_pass: EndPass = go_on,
) -> Reached:
    """L-BFGS on eq. (11), in closed form or, for a rule of draws, with Lambda at its mean.

    Hundreds of rows leave q(theta) so narrow that its variances hardly move the optimum of the
    rest: a bound at one point costs a fraction of one over several draws. `settle` finds them then.
    Inducing inputs stay where every row is one of them.
    """
    held = ["U"] if len(parameters.U) >= len(data) else []
    if isinstance(rule, CommonDraws):
        parameters, rule = narrow(parameters), CommonDraws(np.zeros((1, len(parameters.nu))))
        held += ["xi", "beta"]
    return solve_full(
        collapse_bound(model, data, rule),
        model,
        parameters,
        free=parameters.all_but(*held),
        max_iter=max_iter,
        tol=tol,
        end_pass=end_pass,
    )


def settle(model: Model, parameters: Parameters, data: Data, rule: FixedRule) -> Parameters:
    """What `solve_collapsed` has found, with variances of q(theta) that all rows suggest."""
    if isinstance(rule, ClosedForm):  # which has found them with the rest
        return parameters
    draws = make_sign_draws(len(parameters.nu))[:, None, :]
    batch = [data.rows(index) for index in data.groups()]
    evaluation = Evaluation(model, parameters, batch, [draws] * len(batch), whitened=True)
    slopes = evaluation.variance_slopes(evaluation.optimal_q)
    return settle_variances(model, parameters, slopes)


def evaluate(
    model: Model,
    parameters: Parameters,
    batch: Sequence[Rows] | ShardedBatch,
    draw_rule: DrawRule,
    rng: np.random.RandomState,
    q: WhitenedGaussian | None = None,
) -> Evaluation:
    """The data terms of a mini-batch, wherever its rows are.

    With ``q``, workers go on with the gradient at q while the caller has something else to do.
    """
    if isinstance(batch, ShardedBatch):
        return ShardedEvaluation(model, parameters, batch, batch.draw(draw_rule, rng), q)
    draws = [draw_rule(rows.X.shape, rng) for rows in batch]
    return Evaluation(model, parameters, batch, draws)


class _Climb(NamedTuple):
    """What a stochastic step changes."""

    x: Array  # flat vector of the parameters
    parameters: Parameters
    adam: AdamState
    q: WhitenedGaussian


def solve_stochastic(
    model: Model,
    parameters: Parameters,
    data: Data,
    draw_rule: DrawRule,
    *,
    free: NDArray[np.bool_],
    max_iter: int,
    batch_size: int,
    learning_rate: float,
    natural_rate: float,
    tol: float | None,
    rng: np.random.RandomState,
    end_pass: EndPass = go_on,
) -> Reached:
    """Theorem 2: natural gradients on q(u), Adam on everything else.

    The step sizes fall along a cosine, Adam's to zero at the last pass and the natural
    gradient's to a hundredth, so that q(u) averages over ever more batches. A pass' bound
    is the average of its mini-batches' estimates.
    """
    bounds = model.bounds(parameters)
    relative = free.astype(np.float64)
    parameters.split(relative)["noise_variance"][...] *= _NOISE_STEP

    def step(climb: _Climb, batch: Batch, clock: Clock) -> tuple[_Climb, float]:
        x, parameters, adam, q = climb
        rows, weight = batch
        known = None if clock.step == 0 else q  # at which the gradient is asked for
        evaluation, _ = concurrently(
            partial(evaluate, model, parameters, rows, draw_rule, rng, known),
            lambda: q.excess_moment,  # kept by q for the gradient
        )
        information, shift = weight * evaluation.information, weight * evaluation.shift
        if clock.step == 0:
            q = natural_gradient_step(q, information, shift, 1.0)
        rate = max(natural_rate * clock.annealing, _LAST_NATURAL_RATE, 1.0 / (clock.step + 2.0))
        next_q = natural_gradient_step(q, information, shift, rate)
        if isinstance(rows, ShardedBatch):
            _ = next_q.excess_moment  # while the workers are at the gradient
        value, gradient = evaluation.gradient(q, weight)
        step_size = learning_rate * clock.annealing * relative
        x, adam = adam_ascent(x, parameters.pack_gradient(gradient), adam, step_size)
        x = np.clip(x, *bounds.T)
        return _Climb(x, parameters.unpack(x), adam, next_q), value

    def finish(ascended: Ascended) -> Reached:
        return Reached(ascended.state.parameters, ascended.values)

    x = parameters.pack()
    q = WhitenedGaussian.standard(len(parameters.U))
    return finish(
        ascend(
            step,
            _Climb(x, parameters, AdamState.zeros(len(x)), q),
            lambda: data.minibatches(batch_size, rng),
            n_passes=max_iter,
            n_batches=data.n_batches(batch_size),
            rng=rng,
            end_pass=report_as(finish, end_pass),
            tol=tol,
        )
    )


def refine(
    state: State, data: Data, *, batch_size: int, learning_rate: float, rng: np.random.RandomState
) -> State:
    """A few Adam steps on the hyperparameters: new rows, and the state's memory of the old.

    The belief q(theta) of the past is the prior of the update; the inducing inputs
    stay, because the memory lives on them.
    """
    parameters, memory, target = state.parameters, state.sums, state.target_vector
    mean = np.append(parameters.nu, parameters.alpha)
    variance = np.append(parameters.xi, parameters.beta)
    prior, settled = HyperPrior(mean, variance), state.model.structure.settled()
    model = replace(state.model, hyperprior=prior, structure=settled)
    free = parameters.all_but("U")
    bounds = model.bounds(parameters)[free]
    step_size = learning_rate * np.sqrt(min(1.0, len(data) / batch_size))

    def step(climb: _Climb, batch: Batch, clock: Clock) -> tuple[_Climb, float]:
        x, p, adam, _ = climb
        rows, weight = batch
        evaluation = evaluate(model, p, rows, state.draw_rule, rng)
        carried = memory.carry_to(evaluation.prior)
        q = carried.q(p.alpha, p.second_moment, target).with_information(
            weight * evaluation.information, weight * evaluation.shift
        )
        value, gradient = evaluation.gradient(q, weight, partial(carried.backward, target=target))
        x = x.copy()
        x[free], adam = adam_ascent(x[free], p.pack_gradient(gradient)[free], adam, step_size)
        x[free] = np.clip(x[free], *bounds.T)
        return _Climb(x, p.unpack(x), adam, q), value

    start = state.adam or AdamState.zeros(int(free.sum()))
    end = ascend(
        step,
        _Climb(parameters.pack(), parameters, start, WhitenedGaussian.standard(len(parameters.U))),
        lambda: data.minibatches(batch_size, rng),
        n_passes=_STREAM_STEPS,
        n_batches=data.n_batches(batch_size),
        rng=rng,
        annealing=no_annealing,
    ).state
    return replace(state, parameters=end.parameters, adam=end.adam)
