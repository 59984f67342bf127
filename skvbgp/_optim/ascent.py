"""The one loop of stochastic ascent: passes over mini-batches, whatever a step does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from skvbgp._core.journal import Resumable, begin_log, use_journal
from skvbgp._optim.convergence import has_converged

#: Reports the end of a pass, with a function that makes what has been learned by then; True
#: asks to stop. Everything that trains takes one of these, and nothing else, from its caller, who
#: says by `report_as` what has been learned in its own terms.
EndPass = Callable[[Callable[[], Any]], bool]

#: ``(step, n_steps) -> share`` of the first step size.
Annealing = Callable[[int, int], float]

S = TypeVar("S")
B = TypeVar("B")


def go_on(make: Callable[[], Any]) -> bool:
    """Do nothing at the end of a pass."""
    return False


def report_as(conclude: Callable[[Any], Any], end_pass: EndPass) -> EndPass:
    """An `EndPass` for what is called, which hands on what ``conclude`` makes of its results."""
    return lambda make: end_pass(lambda: conclude(make()))


class Watch:
    """An `EndPass` that counts the passes, and remembers whether it has asked to stop."""

    def __init__(self, end_pass: EndPass) -> None:
        self._end_pass = end_pass
        self.n_passes, self.stopped = 0, False

    def __call__(self, make: Callable[[], Any]) -> bool:
        self.n_passes += 1
        self.stopped = self._end_pass(make)
        return self.stopped


def cosine_annealing(step: int, n_steps: int) -> float:
    """Share of the first step size, from 1 at step 0 to 0 at ``n_steps``, along a cosine."""
    return float(0.5 * (1.0 + np.cos(np.pi * step / n_steps)))


def no_annealing(step: int, n_steps: int) -> float:
    """All of the first step size, always."""
    return 1.0


class Clock(NamedTuple):
    """What a step knows about the run that it belongs to."""

    step: int  # steps before this one
    annealing: float  # share of the first step size


class Ascended(NamedTuple):
    """Where a run has ended, or stands at the end of a pass."""

    state: Any
    values: tuple[float, ...]  # one per pass: the average of what its steps say of the objective


def ascend(
    step: Callable[[S, B, Clock], tuple[S, float]],
    start: S,
    batches: Callable[[], Iterable[B]],
    *,
    n_passes: int,
    n_batches: int,
    rng: Resumable,
    end_pass: EndPass = go_on,
    annealing: Annealing = cosine_annealing,
    tol: float | None = None,
) -> Ascended:
    """Go uphill from the state ``start``, for at most so many passes.

    ``step`` gives the state after a step on a mini-batch, and an estimate of the objective before
    it. A state is replaced, not modified, so that one which was reported stays as it was.
    ``batches`` is called at the beginning of each pass for its mini-batches, ``n_batches`` of them,
    which the annealing goes by. Whatever these two draw from is ``rng``.

    ``end_pass`` gets a function that returns the `Ascended` of this moment. With ``tol``, the run
    ends when the average of the last passes' values rises by less than this share of itself.
    """
    state, values, n_done = start, [], 0
    log = begin_log("ascent")
    if log is not None and log.entries:
        reached, n_done = log.entries[0]
        state, values = reached.state, list(reached.values)
        rng.set_state(log.memory)
    n_known = len(values)
    for n in range(1, n_passes + 1):
        if n > n_known:
            in_pass = []
            with use_journal(None):
                for batch in batches():
                    clock = Clock(n_done, annealing(n_done, n_passes * n_batches))
                    state, value = step(state, batch, clock)
                    in_pass.append(value)
                    n_done += 1
            values.append(float(np.mean(in_pass)))
        reached = Ascended(state, tuple(values))
        if log is not None:
            log.entries[:] = [(reached, n_done)]
            log.memory = rng.get_state()
        if end_pass(lambda reached=reached: reached):  # type: ignore[misc]
            break
        if n >= n_known and tol is not None and has_converged(values, tol, n_done // n):
            break
    return Ascended(state, tuple(values))
