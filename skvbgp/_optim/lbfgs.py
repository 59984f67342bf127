"""Driver of SciPy's L-BFGS-B for objectives that may fail at some points."""

from collections.abc import Callable
from dataclasses import dataclass
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
    best_x, best_value, best_gradient = x, *objective(x)
    floor = 1e3 * (1.0 + abs(best_value))

    def negated(z: Array) -> tuple[float, Array]:
        nonlocal best_x, best_value, best_gradient
        if np.array_equal(z, best_x):
            return -best_value, -best_gradient
        try:
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                value, gradient = objective(z)
        except NotPositiveDefiniteError:
            value = np.nan
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return floor, np.zeros_like(z)
        if value > best_value:
            best_x, best_value, best_gradient = z.copy(), value, gradient
        return -value, -gradient

    values: list[float] = []
    stopped = False

    def reached() -> LbfgsResult:
        return LbfgsResult(best_x, best_value, max(len(values), 1), tuple(values), stopped)

    def callback(_: Array) -> None:
        nonlocal stopped
        values.append(best_value)
        stopped = end_pass(reached)
        if stopped:
            raise StopIteration

    if not len(x):  # nothing is free
        return reached()
    minimize(
        negated,
        x,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=callback,
        options={"maxiter": max_iter, "maxfun": 2 * max_iter + 10, "ftol": tol, "gtol": 1e-6},
    )
    return reached()


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
