"""When an ascent ends, at rest or behind another one, and the values that a stream keeps of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

#: Steps over which the stochastic objective is averaged.
_AVERAGED_STEPS = 100
#: Iterations whose average rise says how far the others may get.
_RECENT = 5
#: Most values of its objective that a stream keeps.
_KEPT_VALUES = 10_000


def has_converged(values: list[float], tol: float, steps_per_value: int) -> bool:
    """Whether the mean of the last values no longer exceeds that of the ones before.

    Each value is an average of the objective over so many steps. A rise counts from ``tol`` on,
    relative to the mean.
    """
    window = -(-_AVERAGED_STEPS // steps_per_value)
    if len(values) < 2 * window:
        return False
    recent, before = np.mean(values[-window:]), np.mean(values[-2 * window : -window])
    return bool(recent - before < tol * (1.0 + abs(recent)))


def has_settled(value: float, before: float, tol: float) -> bool:
    """Whether a round of a search has changed its objective by less than a share of itself.

    A round has constants that are brought up to date between two, so that the objective may fall:
    that is a change like another, and the search goes on.
    """
    return abs(value - before) < tol * abs(value)


def warn_of_fall(value: float, before: float, tol: float) -> None:
    """Tell that a search has ended with a round in which its objective fell."""
    if value < before and not has_settled(value, before, tol):
        warnings.warn(
            f"The objective fell from {before:.6g} to {value:.6g} in the last round: "
            "increase max_iter.",
            ConvergenceWarning,
            stacklevel=2,
        )


def give_up_below(target: float, max_iter: int) -> Callable[[Callable[[], Any]], bool]:
    """End a search, whose results have ``values`` of all iterations, that would stay below target.

    As it would if each of the iterations that are left, of ``max_iter``, were to rise as the last
    few have on average.
    """

    def end_pass(make: Callable[[], Any]) -> bool:
        values: tuple[float, ...] = make().values
        if len(values) <= _RECENT:
            return False
        rise = (values[-1] - values[-1 - _RECENT]) / _RECENT
        return values[-1] + rise * (max_iter - len(values)) < target

    return end_pass


def note_call(values: tuple[float, ...], value: float) -> tuple[float, ...]:
    """Values of passes and of calls, and that of one more call; of a long stream, the last ones."""
    return (*values[1 - _KEPT_VALUES :], value)
