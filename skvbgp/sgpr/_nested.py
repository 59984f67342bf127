"""Correlated noise contains white noise, and must not end below it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skvbgp._optim.convergence import give_up_below
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._noise import White
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._quadrature import CommonDraws, FixedRule
from skvbgp.sgpr._state import State
from skvbgp.sgpr._training import settle, solve_collapsed

#: Amplitude of a noise kernel that says next to nothing, relative to sigma_n^2.
_SMALL_SHARE = 1e-5
#: Nats that are nothing: white noise that is ahead by less has found the same optimum.
_TIE = 0.1


def solve_white(
    state: State,
    start: Parameters,
    data: Data,
    rule: FixedRule,
    learned: State,
    max_iter: int,
    tol: float,
) -> Parameters | None:
    """Where f ends beside white noise, with a noise kernel of next to no amplitude; or None.

    L-BFGS, in closed form or at the mean of Lambda as the rule of independent noise has it, which
    ends as soon as it is not going to get as far as correlated noise has ``learned``: were each of
    the iterations left to rise as the last ones have on average. Then, or where it is ahead by next
    to nothing, the result is None.

    It starts from f and white noise of ``start``. The state is that which correlated noise has been
    trained from; the first entry of its kernel's parameters is the logarithm of an amplitude.
    """
    white, data = replace(state.model, structure=White()), data.undivided()
    p, reached = replace(start, noise_theta=np.empty(0)), learned.lower_bound
    if isinstance(rule, CommonDraws):  # values at the mean are compared with such
        reached = max(learned.lower_bounds, default=-np.inf)
    reached += state.log_unit
    trained = solve_collapsed(
        white,
        p,
        data,
        rule,
        max_iter=max_iter,
        tol=tol,
        end_pass=give_up_below(reached, max_iter),
    )
    if max(trained.values, default=-np.inf) < reached + _TIE:
        return None
    return with_noise_kernel(settle(white, trained.parameters, data, rule), state)


def with_noise_kernel(white: Parameters, state: State) -> Parameters:
    """The parameters of a model of white noise, with a noise kernel of next to no amplitude."""
    theta = state.parameters.noise_theta.copy()
    theta[0] = np.log(_SMALL_SHARE * white.noise_variance)
    return replace(white, noise_theta=np.clip(theta, *state.model.structure.bounds.T))


def without_noise_kernel(state: State) -> State:
    """The state before training of the model of white noise."""
    model = replace(state.model, structure=White())
    parameters = replace(state.parameters, noise_theta=np.empty(0))
    return replace(state, model=model, parameters=parameters, blocks=None)


def has_failed(learned: State, data: Data) -> bool:
    """Whether a bound is lower than that of white noise alone, with an f that is 0."""
    y = learned.target.scaled(data.y)
    variance = np.average(y**2, weights=data.weight)
    if variance == 0.0:  # whatever is learned from a constant
        return False
    noise_alone = -0.5 * learned.summary.n * (np.log(2.0 * np.pi * variance) + 1.0)
    return bool(learned.lower_bound + learned.log_unit < noise_alone)
