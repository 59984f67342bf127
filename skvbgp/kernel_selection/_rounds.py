"""Rounds of training by mini-batches, into which fewer and fewer kernels go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

#: Kernels that are left after a round, and the share of all steps that the best have made by
#: then. Nobody is left behind by the last round.
_ROUNDS = ((10, 0.125), (4, 0.375), (0, 1.0))


class Round(NamedTuple):
    """A round, of so many kernels."""

    n_kernels: int
    n_before: int  # steps that its kernels have made in earlier ones
    n_steps: int


def plan_rounds(n_kernels: int, n_steps: int, *, at_once: bool) -> Iterator[Round]:
    """Rounds for some kernels, of which the best are to make all of the steps.

    A round after which all would go on is none: the next one makes its steps. With ``at_once``
    there is only one.
    """
    n_before = 0
    for n_left, share in _ROUNDS:
        if n_left and (at_once or n_kernels <= n_left):
            continue
        n_done = max(round(share * n_steps), n_before + 1)
        yield Round(n_kernels, n_before, n_done - n_before)
        n_kernels, n_before = n_left, n_done
