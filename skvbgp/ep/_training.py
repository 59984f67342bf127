"""Rounds of L-BFGS on the log evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.ep._objective import Objective, Parameters, Problem, Solution, solve
from skvbgp.ep._sites import Sites

#: Iterations until the weights of the trace correction are brought up to date.
_ROUND = 20
#: Convergence of EP within the search, whose line searches need no more.
_EP_TOL = 1e-4
#: The search ends with a round that gains less than this many times ``tol``, relatively.
_ROUND_TOL = 10.0


class Optimum(NamedTuple):
    """Where a search has ended."""

    solution: Solution
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
    end_pass: Callable[[Parameters, Sites], bool],
) -> Optimum:
    """Maximise the log evidence from a start.

    The first round leaves the inducing inputs where they are: it is cheap, and their optimum
    depends on the length scales it finds.
    """
    solution = solve(problem, start, Sites.vague(len(problem.t)), _EP_TOL)
    n_iter, value, joint = 0, -np.inf, False
    while True:
        before = value
        solution, value, used, stopped = _one_round(
            problem,
            solution,
            max_iter=min(_ROUND, max_iter - n_iter),
            tol=tol,
            learn_inducing=learn_inducing and joint,
            end_pass=end_pass,
        )
        n_iter += used
        settled = value - before < _ROUND_TOL * tol * abs(value)
        if stopped or n_iter >= max_iter or (joint and settled):
            return Optimum(solution, value, n_iter, stopped)
        joint = True


def _one_round(
    problem: Problem,
    solution: Solution,
    *,
    max_iter: int,
    tol: float,
    learn_inducing: bool,
    end_pass: Callable[[Parameters, Sites], bool],
) -> tuple[Solution, float, int, bool]:
    """L-BFGS with the trace correction's weights of a solution; also whether to stop for good."""
    objective = Objective(
        problem,
        solution.parameters,
        solution.latent_sites.tau,
        solution.fixpoint.posterior.sites,
        learn_inducing=learn_inducing,
        tol=_EP_TOL,
    )
    n_iter, stopped = 0, False

    def monitor(x: np.ndarray, _: float) -> bool:
        nonlocal n_iter, stopped
        n_iter += 1
        stopped = end_pass(objective.parameters(x), objective.sites)
        return stopped

    result = lbfgs_ascent(
        objective,
        objective.x,
        max_iter=max_iter,
        tol=tol,
        bounds=objective.bounds,
        monitor=monitor,
    )
    solution = solve(problem, objective.parameters(result.x), objective.sites, _EP_TOL)
    return solution, result.value, n_iter, stopped
