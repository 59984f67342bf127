"""The maximum of the log evidence of groups plus a log prior, and how sure one can be of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from skvbgp._core.draws import quasi_normal
from skvbgp._core.linalg import Array, NotPositiveDefiniteError, eigh, find_extremes
from skvbgp._core.parallel import thread_map
from skvbgp._optim.lbfgs import lbfgs_ascent


class Trainable(Protocol):
    """Hyperparameters, and how well they explain groups of rows."""

    @property
    def vector(self) -> Array:
        """Logarithms of all that is free, (p,)."""

    @property
    def bounds(self) -> Array:
        """Limits of `vector`, (p, 2)."""

    def with_vector(self, vector: Array) -> Self:
        """Return the same model with other hyperparameters."""

    def log_prior(self) -> tuple[float, Array]:
        """Logarithm of the prior density, and its gradient in `vector`."""

    def log_evidence(self, *group: Any) -> float:
        """Logarithm of what a group speaks for the model."""

    def evidence(self, *group: Any, **_: Any) -> tuple[float, Array]:
        """The same, and its gradient in `vector`."""


P = TypeVar("P", bound=Trainable)

#: Step of the differences of gradients, in logarithms of hyperparameters.
_STEP = 1e-3
#: Least curvature, that of the widest posterior that is believed; of many hyperparameters also in
#: units of the prior's.
_LEAST_CURVATURE = 0.25
#: Most hyperparameters whose curvature is measured along each, and along how many directions that
#: of more is.
_MOST_MEASURED, _N_DIRECTIONS = 128, 24


class Trained(NamedTuple, Generic[P]):
    """A process at a maximum of its log evidence plus log prior."""

    process: P
    value: float


def train(
    process: P, groups: Sequence[tuple[Any, ...]], *, max_iter: int, tol: float
) -> Trained[P]:
    """Maximise the groups' log evidence plus the log prior."""
    result = lbfgs_ascent(
        lambda x: log_posterior(process.with_vector(x), groups),
        np.clip(process.vector, *process.bounds.T),
        max_iter=max_iter,
        tol=tol,
        bounds=process.bounds,
    )
    return Trained(process.with_vector(result.x), result.value)


def log_posterior(process: Trainable, groups: Sequence[tuple[Any, ...]]) -> tuple[float, Array]:
    """Log evidence of groups plus log prior, and its gradient in the process' vector."""
    value, gradient = process.log_prior()
    for part, slope in thread_map(process.evidence, groups):
        value, gradient = value + part, gradient + slope
    return value, gradient


def measure_posterior(process: Trainable, groups: Sequence[tuple[Any, ...]]) -> float:
    """The same without a gradient; minus infinity where a matrix cannot be factorised."""
    try:
        return float(sum(thread_map(process.log_evidence, groups), process.log_prior()[0]))
    except NotPositiveDefiniteError:
        return -np.inf


class Spread(NamedTuple):
    """A Gaussian around a maximum."""

    log_det: float  # of its precision over 2 pi
    stretch: Callable[[Array], Array]  # from a standard normal point (p,) to one of its deviations


def draw_processes(
    trained: Trained[P], groups: Sequence[tuple[Any, ...]], n: int, seed: int
) -> tuple[list[tuple[P, float]], float]:
    """Processes n from the Gaussian of the curvature at a maximum, with their log importance.

    It is the logarithm of the posterior density, up to the evidence of all, over the Gaussian's;
    that of the maximum follows.
    """
    center = trained.process.vector
    measure = _measure_spread if len(center) <= _MOST_MEASURED else _measure_prior_and_more
    log_det, stretch = measure(trained.process, groups)
    bounds = trained.process.bounds

    def draw(e: Array) -> tuple[P, float]:
        x = np.clip(center + stretch(e), *bounds.T)
        process = trained.process.with_vector(x)
        density = measure_posterior(process, groups)
        return process, density - 0.5 * (log_det - float(e @ e))

    drawn = [draw(e) for e in quasi_normal(n, len(center), seed)]
    return drawn, trained.value - 0.5 * log_det


def _measure_spread(process: Trainable, groups: Sequence[tuple[Any, ...]]) -> Spread:
    values, V = eigh(_measure_curvature(process, groups))
    values = np.maximum(values, _LEAST_CURVATURE)
    return Spread(_log_det(values), lambda e: V @ (e / np.sqrt(values)))


def _measure_prior_and_more(process: Trainable, groups: Sequence[tuple[Any, ...]]) -> Spread:
    """The same of many hyperparameters, of which rows say little but in few directions.

    In units of the prior, whose hyperparameters are independent, the curvature is one elsewhere.
    What this misses is in the importance of draws.
    """
    x = process.vector
    high, low = (process.with_vector(x + step).log_prior()[1] for step in (_STEP, -_STEP))
    prior = np.maximum((low - high) / (2.0 * _STEP), _LEAST_CURVATURE)
    unit = 1.0 / np.sqrt(prior)

    def multiply(v: Array) -> Array:
        direction = unit * v
        length = float(np.linalg.norm(direction))
        slope = _differentiate(process, groups, direction / length)
        return unit * slope * length

    start = np.random.RandomState(0).standard_normal(len(x))  # any direction that is no special one
    values, V = find_extremes(multiply, start, _N_DIRECTIONS)
    values = np.maximum(values, _LEAST_CURVATURE)
    narrowed = values**-0.5 - 1.0
    log_det = _log_det(prior) + float(np.sum(np.log(values)))
    return Spread(log_det, lambda e: unit * (e + V @ (narrowed * (e @ V))))


def _log_det(values: Array) -> float:
    return float(np.sum(np.log(values / (2.0 * np.pi))))


def _measure_curvature(process: Trainable, groups: Sequence[tuple[Any, ...]]) -> Array:
    """Minus the Hessian of the log posterior, by central differences of its gradient."""
    H = np.array([_differentiate(process, groups, e) for e in np.eye(len(process.vector))])
    return 0.5 * (H + H.T)


def _differentiate(
    process: Trainable, groups: Sequence[tuple[Any, ...]], direction: Array
) -> Array:
    """Minus the slope of the gradient (p,) of the log posterior along a direction (p,)."""
    x, step = process.vector, _STEP * direction
    high, low = (
        log_posterior(process.with_vector(point), groups)[1] for point in (x + step, x - step)
    )
    return (low - high) / (2.0 * _STEP)
