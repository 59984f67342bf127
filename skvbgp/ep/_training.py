"""Rounds of L-BFGS on the log evidence."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from skvbgp._optim.ascent import EndPass, report_as
from skvbgp._optim.convergence import has_settled, warn_of_fall
from skvbgp._optim.lbfgs import LbfgsResult, lbfgs_ascent
from skvbgp.ep._bound import Objective, Parameters, Problem, make_vague, solve
from skvbgp.ep._sites import Sites

#: Iterations until the weights of the trace correction are brought up to date.
_ROUND = 20
#: Convergence of EP within the search, whose line searches need no more: its range, and its ratio
#: to ``tol``.
_EP_TOL_RANGE = (1e-4, 1e-2)
_EP_TOL_RATIO = 1e3
#: The search ends with a round that changes its value by less than this many times ``tol``.
_ROUND_TOL = 10.0


class Reached(NamedTuple):
    """Where a search stands, or has ended."""

    parameters: Parameters
    sites: tuple[Sites, ...]
    value: float  # log evidence plus log prior, less the KL of the missing entries
    n_iter: int
    stopped: bool  # by a callback


def maximise(
    problem: Problem,
    start: Parameters,
    *,
    max_iter: int,
    tol: float,
    learn_inducing: bool,
    end_pass: EndPass,
) -> Reached:
    """Maximise the log evidence from a start; what `end_pass` gets makes a `Reached`.

    The first round leaves the inducing inputs where they are: it is cheap, and their optimum
    depends on the length scales it finds.
    """
    ep_tol = float(np.clip(_EP_TOL_RATIO * tol, *_EP_TOL_RANGE))
    solution = solve(problem, start, make_vague(problem), ep_tol)
    n_iter, value, joint = 0, -np.inf, False
    while True:
        objective = Objective(
            problem,
            solution.parameters,
            solution.correction_weights,
            solution.sites,
            learn_inducing=learn_inducing and joint,
            tol=ep_tol,
        )
        result = lbfgs_ascent(
            objective,
            objective.x,
            max_iter=min(_ROUND, max_iter - n_iter),
            tol=tol,
            bounds=objective.bounds,
            memory=objective,
            end_pass=report_as(partial(_reach, objective, n_iter), end_pass),
        )
        n_iter += len(result.values)
        solution = solve(problem, objective.parameters(result.x), objective.sites, ep_tol)
        before, value = value, result.value
        settled = joint and has_settled(value, before, _ROUND_TOL * tol)
        joint = True
        if result.stopped or n_iter >= max_iter or settled:
            warn_of_fall(value, before, _ROUND_TOL * tol)
            return Reached(solution.parameters, solution.sites, value, n_iter, result.stopped)


def _reach(objective: Objective, n_before: int, result: LbfgsResult) -> Reached:
    """Where a search stands after an iteration of a round."""
    n_iter = n_before + len(result.values)
    p = objective.parameters(result.x)
    return Reached(p, objective.sites, result.value, n_iter, result.stopped)
