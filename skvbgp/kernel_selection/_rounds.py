"""Which kernels are trained: fewer and fewer, as it turns out which ones may be believed in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from skvbgp._core.linalg import Array

#: Kernels that are left after a round, and the share of all steps that the best have made by
#: then. Nobody is left behind by the last round.
_ROUNDS = ((10, 0.125), (4, 0.375), (0, 1.0))
#: Kernels that are trained on all rows at once before others are compared with them.
N_FIRST = 4
#: Nats below the best at which there is no belief left: e^-20.
REACH = 20.0


class Round(NamedTuple):
    """A round, of so many kernels."""

    n_kernels: int
    n_before: int  # steps that its kernels have made in earlier ones
    n_steps: int


def plan_rounds(
    n_kernels: int, n_steps: int, share_new: float = 1.0, *, at_once: bool
) -> Iterator[Round]:
    """Rounds for some kernels, of which the best are to make all of the steps.

    A round after which all would go on is none: the next one makes its steps. With ``at_once``
    there is only one. Kernels that know most of the rows already, of which only a share is new,
    make that share of the steps in a single round: those that are the best so far.
    """
    if not at_once and share_new < 0.5:
        n_best = min(n_kernels, _ROUNDS[-2][0])
        yield Round(n_best, 0, max(1, round(share_new * n_steps)))
        return
    n_before = 0
    for n_left, share in _ROUNDS:
        if n_left and (at_once or n_kernels <= n_left):
            continue
        n_done = max(round(share * n_steps), n_before + 1)
        yield Round(n_kernels, n_before, n_done - n_before)
        n_kernels, n_before = n_left, n_done


def expect_bound(per_row: float, n: float, share_new: float) -> float:
    """A bound that n rows, of which a share is new, will hardly stay below by chance.

    Log densities of rows that come as expected have a variance of 1/2 each, and their sum is not
    expected to be more than three standard deviations below.
    """
    return per_row * n - REACH - 3.0 * math.sqrt(0.5 * share_new * n)


def find_best(bounds: Array, chosen: Sequence[int], n: int) -> list[int]:
    """At most n of the chosen kernels, by falling bound."""
    return sorted(chosen, key=lambda i: -bounds[i])[:n]


def in_reach(bounds: Array, chosen: Sequence[int]) -> list[int]:
    """Those of the chosen kernels that are near the best of them."""
    lowest = bounds[list(chosen)].max() - REACH
    return [i for i in chosen if bounds[i] > lowest]
