"""The maximum of the log evidence of groups plus a log prior, and how sure one can be of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from skvbgp._core.draws import quasi_normal
from skvbgp._core.linalg import Array, NotPositiveDefiniteError
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
#: Least curvature, that of the widest posterior that is believed.
_LEAST_CURVATURE = 0.25


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


def draw_processes(
    trained: Trained[P], groups: Sequence[tuple[Any, ...]], n: int, seed: int
) -> list[tuple[P, float]]:
    """Processes n from the Gaussian of the curvature at a maximum, with their log importance.

    It is the logarithm of the posterior density, up to the evidence of all, over the Gaussian's.
    """
    center = trained.process.vector
    values, V = np.linalg.eigh(_measure_curvature(trained.process, groups))
    values = np.maximum(values, _LEAST_CURVATURE)
    log_det = float(np.sum(np.log(values / (2.0 * np.pi))))
    bounds = trained.process.bounds

    def draw(e: Array) -> tuple[P, float]:
        x = np.clip(center + V @ (e / np.sqrt(values)), *bounds.T)
        process = trained.process.with_vector(x)
        try:
            parts = thread_map(process.log_evidence, groups)
            value = sum(parts, process.log_prior()[0])
        except NotPositiveDefiniteError:
            value = -np.inf
        return process, value - 0.5 * (log_det - float(e @ e))

    return [draw(e) for e in quasi_normal(n, len(center), seed)]


def _measure_curvature(process: Trainable, groups: Sequence[tuple[Any, ...]]) -> Array:
    """Minus the Hessian of the log posterior, by central differences of its gradient."""
    x = process.vector
    rows = []
    for i in range(len(x)):
        step = np.zeros_like(x)
        step[i] = _STEP
        high, low = (
            log_posterior(process.with_vector(point), groups)[1] for point in (x + step, x - step)
        )
        rows.append((low - high) / (2.0 * _STEP))
    H = np.array(rows)
    return 0.5 * (H + H.T)
