"""Solvers of the variational problem."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp._core.parallel import concurrently
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp._optim.convergence import has_converged
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp._optim.natural_gradient import natural_gradient_step
from skvbgp._optim.schedule import cosine_annealing
from skvbgp.sgpr._bound import Evaluation, Model
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._draws import DrawRule
from skvbgp.sgpr._exact import ExactPosterior
from skvbgp.sgpr._parameters import Parameters

#: A bound and its gradient, of the scaled target.
Bound = Callable[[Parameters], tuple[float, Parameters]]

#: Called after each pass with the parameters and the bound; True asks to stop.
Monitor = Callable[[Parameters, float], bool]

#: Step sizes of Adam relative to the learning rate, where they are not 1: the noise has to
#: find its level first.
_RELATIVE_STEPS = {"noise_variance": 1.5}

#: Step of the natural gradient at the end of training.
_LAST_NATURAL_RATE = 0.01


class Trained(NamedTuple):
    """End of a solver."""

    parameters: Parameters
    lower_bounds: list[float]  # one per pass, scaled target
    converged: bool


def collapsed_bound(model: Model, data: Data, draw_rule: DrawRule) -> Bound:
    """Eq. (11), the bound at the optimal q(u), as a function of everything else."""
    batch = [data.rows(index) for index in data.groups()]
    rng = np.random.RandomState(0)  # the rule is deterministic: closed form or common draws
    draws = [draw_rule(rows, rng) for rows in batch]

    def bound(parameters: Parameters) -> tuple[float, Parameters]:
        evaluation = Evaluation(model, parameters, batch, draws)
        value, gradient = evaluation.gradient(evaluation.optimal_q())
        if value > evaluation.ceiling:
            raise NotPositiveDefiniteError("The bound has drowned in rounding errors.")
        return value, gradient

    return bound


def exact_bound(posterior: ExactPosterior) -> Bound:
    """The bound of :mod:`skvbgp.sgpr._exact` as a function of q(theta) and the noise."""

    def bound(parameters: Parameters) -> tuple[float, Parameters]:
        current = posterior.at(parameters)
        return current.lower_bound, current.gradient()

    return bound


def solve_full(
    bound: Bound,
    model: Model,
    parameters: Parameters,
    *,
    free: Array,
    max_iter: int,
    tol: float,
    monitor: Monitor,
) -> Trained:
    """L-BFGS on a bound over all the data.

    Parameters
    ----------
    free : ndarray of shape (p,) of bool
        Which entries of the flat vector are optimised.
    """
    start = parameters.pack()
    lower_bounds: list[float] = []

    def full(x: Array) -> Array:
        vector = start.copy()
        vector[free] = x
        return vector

    def objective(x: Array) -> tuple[float, Array]:
        current = parameters.unpack(full(x))
        value, gradient = bound(current)
        return value, current.pack_gradient(gradient)[free]

    def after_iteration(x: Array, value: float) -> bool:
        lower_bounds.append(value)
        return monitor(parameters.unpack(full(x)), value)

    result = lbfgs_ascent(
        objective,
        start[free],
        max_iter=max_iter,
        tol=tol,
        bounds=model.bounds(parameters)[free],
        monitor=after_iteration,
    )
    return Trained(parameters.unpack(full(result.x)), lower_bounds, result.converged)


def solve_stochastic(
    model: Model,
    parameters: Parameters,
    data: Data,
    draw_rule: DrawRule,
    *,
    free: Array,
    max_iter: int,
    batch_size: int,
    learning_rate: float,
    natural_rate: float,
    tol: float,
    rng: np.random.RandomState,
    monitor: Monitor,
) -> Trained:
    """Theorem 2: natural gradients on q(u), Adam on everything else.

    The step sizes fall along a cosine, Adam's to zero at the last pass and the natural
    gradient's to a hundredth, so that q(u) averages over ever more batches. A pass' bound
    is the average of its mini-batches' estimates; the passes end early when the running
    average over passes rises by less than ``tol`` of its size.
    """
    x = parameters.pack()
    state = AdamState.zeros(len(x))
    q = WhitenedGaussian.standard(len(parameters.U))
    bounds = model.bounds(parameters)
    relative = free * parameters.spread(_RELATIVE_STEPS)
    n_steps = max_iter * data.n_batches(batch_size)
    step = 0
    lower_bounds: list[float] = []
    converged = False
    for _ in range(max_iter):
        values = []
        for batch, weight in data.minibatches(batch_size, rng):
            draws = [draw_rule(rows, rng) for rows in batch]
            evaluation, _ = concurrently(
                partial(Evaluation, model, parameters, batch, draws),
                lambda q=q: q.excess_moment,  # kept by q for the gradient
            )
            if step == 0:
                q = _first_q(q, evaluation, weight)
            value, gradient = evaluation.gradient(q, weight)
            annealing = cosine_annealing(step, n_steps)
            rate = max(natural_rate * annealing, _LAST_NATURAL_RATE, 1.0 / (step + 2.0))
            q = natural_gradient_step(
                q, weight * evaluation.information, weight * evaluation.shift, rate
            )
            size = learning_rate * annealing * relative
            x, state = adam_ascent(x, parameters.pack_gradient(gradient), state, size)
            x = np.clip(x, *bounds.T)
            parameters = parameters.unpack(x)
            values.append(value)
            step += 1
        lower_bounds.append(float(np.mean(values)))
        if monitor(parameters, lower_bounds[-1]):
            break
        converged = has_converged(lower_bounds, tol, len(values))
        if converged:
            break
    return Trained(parameters, lower_bounds, converged)


def _first_q(q: WhitenedGaussian, evaluation: Evaluation, weight: float) -> WhitenedGaussian:
    return natural_gradient_step(q, weight * evaluation.information, weight * evaluation.shift, 1.0)
