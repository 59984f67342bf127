"""Driver of SciPy's L-BFGS-B for objectives that may fail at some points."""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy.optimize import minimize

from skvbgp._core.journal import Resumable, begin_log, describe_difference, use_journal
from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp._optim.ascent import EndPass, go_on

#: ``x -> (value, gradient)``.
Objective = Callable[[Array], tuple[float, Array]]


@dataclass(frozen=True)
class LbfgsResult:
    """Where the search ended."""

    x: Array
    value: float
    n_iter: int
    values: tuple[float, ...]  # one per iteration
    stopped: bool  # by `end_pass`


def lbfgs_ascent(
    objective: Objective,
    x: Array,
    *,
    max_iter: int,
    tol: float,
    bounds: Array | None = None,
    memory: Resumable | None = None,
    end_pass: EndPass = go_on,
) -> LbfgsResult:
    """Maximise an objective from x (p,), within bounds (p, 2); the result is the best point met.

    At x the objective has to succeed. Elsewhere a `NotPositiveDefiniteError` or a value that is not
    finite counts as "far too low", and the line search retreats without a warning. The search ends
    when the relative rise of the value falls below ``tol``.

    An iteration is a pass over all rows: ``end_pass`` is called after each, with a function that
    returns the `LbfgsResult` of this moment. ``memory`` is what an evaluation leaves for the next.
    """
    objective = _keep_log(objective, memory)
    climb = _Climb(objective, end_pass, x, *objective(x))
    if not len(x):  # nothing is free
        return climb.sum_up()
    minimize(
        climb.descend,
        x,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=climb.end_iteration,
        options={"maxiter": max_iter, "maxfun": 2 * max_iter + 10, "ftol": tol, "gtol": 1e-6},
    )
    return climb.sum_up()


@dataclass
class _Climb:
    """A search, with the best point that it has met."""

    objective: Objective
    end_pass: EndPass
    x: Array
    value: float
    gradient: Array
    values: list[float] = field(default_factory=list)
    stopped: bool = False

    def __post_init__(self) -> None:
        self.floor = 1e3 * (1.0 + abs(self.value))  # what counts as far too low, negated

    def descend(self, z: Array) -> tuple[float, Array]:
        """The negated objective, and its gradient, which SciPy minimises."""
        if np.array_equal(z, self.x):
            return -self.value, -self.gradient
        try:
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                value, gradient = self.objective(z)
        except NotPositiveDefiniteError:
            value = np.nan
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return self.floor, np.zeros_like(z)
        if value > self.value:
            self.x, self.value, self.gradient = z.copy(), value, gradient
        return -value, -gradient

    def end_iteration(self, _: Array) -> None:
        self.values.append(self.value)
        self.stopped = self.end_pass(self.sum_up)
        if self.stopped:
            raise StopIteration

    def sum_up(self) -> LbfgsResult:
        """Where the search stands."""
        n_iter = max(len(self.values), 1)
        return LbfgsResult(self.x, self.value, n_iter, tuple(self.values), self.stopped)


def _keep_log(objective: Objective, memory: Resumable | None) -> Objective:
    """Have the objective keep a log: it does not compute again what is there.

    SciPy's own account of a search comes from the same values again.
    """
    log = begin_log("L-BFGS")
    if log is None:
        return objective
    entries, n_known, n = log.entries, len(log.entries), 0

    def evaluate(x: Array) -> tuple[float, Array]:
        nonlocal n
        place = blake2b(x.tobytes(), digest_size=16).digest()
        found: Any
        if n < n_known:
            known_place, found = entries[n]
            if place != known_place:
                raise describe_difference()
            if n == n_known - 1 and memory is not None:
                memory.set_state(log.memory)
        else:
            try:
                with use_journal(None):
                    found = objective(x)
            except NotPositiveDefiniteError as error:
                found = str(error)
            entries.append((place, found))
            log.memory = None if memory is None else memory.get_state()
        n += 1
        if isinstance(found, str):
            raise NotPositiveDefiniteError(found)
        return found

    return evaluate
