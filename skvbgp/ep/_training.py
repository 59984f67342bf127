"""Rounds of L-BFGS on the log evidence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.ep._objective import Objective, Parameters, Problem, Solution, solve
from skvbgp.ep._sites import Sites

#: Iterations until the weights of the trace correction are brought up to date.
_ROUND = 20
#: Largest change of a site, during training and at its end.
_EP_TOL = 1e-4
FINAL_EP_TOL = 1e-9


def maximise(
    problem: Problem,
    start: Parameters,
    *,
    max_iter: int,
    tol: float,
    learn_inducing: bool,
    end_pass: Callable[[Parameters, Sites], bool],
) -> tuple[Solution, float, int]:
    """Maximise the log evidence from a start.

    The first round leaves the inducing inputs where they are, which is cheap and gives
    length scales that their optimum is worth looking for with.

    Returns
    -------
    solution : Solution
    value : float
        Log evidence plus log prior, less the KL of the missing entries.
    n_iter : int
    """
    solution = solve(problem, start, Sites.vague(len(problem.t)), _EP_TOL)
    n_iter, stopped, value = 0, False, -np.inf
    for joint in [False, *[True] * max_iter]:
        objective = Objective(
            problem,
            solution.parameters,
            solution.latent_precision,
            solution.fixpoint.posterior.sites,
            learn_inducing=learn_inducing and joint,
            tol=_EP_TOL,
        )

        def monitor(x: np.ndarray, _: float) -> bool:
            nonlocal n_iter, stopped
            n_iter += 1
            stopped = end_pass(objective.parameters(x), objective.sites) or n_iter == max_iter
            return stopped

        before = value
        result = lbfgs_ascent(
            objective,
            objective.x,
            max_iter=min(_ROUND, max_iter - n_iter),
            tol=tol,
            bounds=objective.bounds,
            monitor=monitor,
        )
        value = result.value
        solution = solve(problem, objective.parameters(result.x), objective.sites, _EP_TOL)
        if stopped or (joint and result.converged and value - before < 10.0 * tol * abs(value)):
            break
    return solution, value, n_iter
