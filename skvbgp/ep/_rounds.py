"""Rounds of L-BFGS, between which what an objective takes as constant is brought up to date."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvbgp._optim.ascent import EndPass, report_as
from skvbgp._optim.convergence import has_settled, warn_of_fall
from skvbgp._optim.lbfgs import LbfgsResult, lbfgs_ascent

#: Most iterations of a round.
ROUND = 20


class Reached(NamedTuple):
    """Where a search stands, or has ended."""

    parameters: Any
    sites: Any
    value: float = -np.inf  # of the objective; that before the first round
    values: tuple[float, ...] = ()  # after each iteration
    stopped: bool = False  # by a callback


def maximise_in_rounds(
    pose: Callable[[Reached], Any],
    start: Reached,
    *,
    max_iter: int,
    tol: float,
    round_tol: float,
    end_pass: EndPass,
) -> Reached:
    """Maximise until a round changes the value by less than ``round_tol`` of it.

    ``pose`` makes the objective of the next round: what `lbfgs_ascent` takes, with its start ``x``
    and its ``bounds``, ``parameters(x)``, the ``sites`` to go on from, and its ``memory``. What
    `end_pass` gets makes a `Reached`.
    """
    reached = start
    while True:
        objective, before = pose(reached), reached
        result = lbfgs_ascent(
            objective,
            objective.x,
            max_iter=min(ROUND, max_iter - len(before.values)),
            tol=tol,
            bounds=objective.bounds,
            memory=objective.memory,
            end_pass=report_as(partial(_reach, objective, before.values), end_pass),
        )
        reached = _reach(objective, before.values, result)
        settled = has_settled(reached.value, before.value, round_tol)
        if reached.stopped or len(reached.values) >= max_iter or settled:
            warn_of_fall(reached.value, before.value, round_tol)
            return reached


def _reach(objective: Any, before: tuple[float, ...], result: LbfgsResult) -> Reached:
    """Where a search stands after an iteration of a round."""
    values = before + result.values
    return Reached(
        objective.parameters(result.x), objective.sites, result.value, values, result.stopped
    )
