"""Correlated noise contains white noise, and must not end below it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skvbgp._optim.race import give_up_below
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._noise import White
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws, DrawRule
from skvbgp.sgpr._start import narrow
from skvbgp.sgpr._state import State
from skvbgp.sgpr._training import collapse_bound, settle, solve_full

#: Amplitude of a noise kernel that says next to nothing, relative to sigma_n^2.
_SMALL_SHARE = 1e-5


def solve_white(
    state: State,
    start: Parameters,
    data: Data,
    rule: DrawRule,
    learned: State,
    max_iter: int,
    tol: float,
) -> Parameters | None:
    """Where f ends beside white noise, with a noise kernel of next to no amplitude.

    L-BFGS, in closed form or at the mean of Lambda, which ends as soon as it is not going to get as
    far as correlated noise has: were each of the iterations left to rise as the last ones
    have on average.

    Parameters
    ----------
    state : State
        That correlated noise has been trained from; the first entry of its kernel's parameters is
        the logarithm of an amplitude.
    start : Parameters
        Of f, and of white noise.
    rule : ClosedForm or CommonDraws
        The expectations of independent noise.
    learned : State
        Where correlated noise has ended.

    Returns
    -------
    Parameters or None
        None if white noise stays below.
    """
    white, data = replace(state.model, structure=White()), replace(data, blocks=None)
    p, reached = replace(start, noise_theta=np.empty(0)), learned.lower_bound
    held: dict[str, float] = {"U": 0.0} if len(p.U) >= len(data) else {}
    at_mean = not isinstance(rule, ClosedForm)
    if at_mean:  # values at the mean are compared with such
        p, rule = narrow(p), CommonDraws(np.zeros((1, len(p.nu))))
        held |= {"xi": 0.0, "beta": 0.0}
        reached = max(learned.lower_bounds, default=-np.inf)
    reached += state.log_unit
    trained = solve_full(
        collapse_bound(white, data, rule),
        white,
        p,
        free=p.spread(held) > 0.0,
        max_iter=max_iter,
        tol=tol,
        end_pass=give_up_below(reached, max_iter),
    )
    if max(trained.values, default=-np.inf) < reached:
        return None
    p = trained.parameters
    if at_mean:
        p = settle(white, p, data)
    theta = state.parameters.noise_theta.copy()
    theta[0] = np.log(_SMALL_SHARE * p.noise_variance)
    return replace(p, noise_theta=np.clip(theta, *state.model.structure.bounds.T))
