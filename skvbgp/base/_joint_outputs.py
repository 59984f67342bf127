"""Several outputs in one model: rows that say which output they are of, and what is made of them.

A value of an output is a row: its inputs, the indicator of its output, a unit vector (t,), and the
value in units of its output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from skvbgp._core.linalg import Array, stack_pairs
from skvbgp._core.scaling import RunningScale, check_unit, scale_variance, standardise
from skvbgp.base._distributions import predict_mean
from skvbgp.base._function import Draws, Relevance
from skvbgp.base._learner import predict_distribution
from skvbgp.base._outputs import OutputsDistribution
from skvbgp.base._weights import Targets, pick


def lengthen(X: Array, t: int) -> Array:
    """A row for each of t outputs of rows X (n, d), with its indicator: (n t, d + t)."""
    return np.hstack([np.repeat(X, t, axis=0), np.tile(np.eye(t), (len(X), 1))])


@dataclass(frozen=True)
class Units:
    """Mean and unit (t,) of every output; a negative unit turns an output round."""

    mean: Array
    unit: Array

    @classmethod
    def of(cls, X: Array, y: Array, weight: Array | None, t: int) -> Self:
        """Those of rows X (n, d + t) with targets (n,), which may have positive weights (n,)."""
        mean, unit = np.empty(t), np.empty(t)
        for j in range(t):
            mine = X[:, X.shape[1] - t + j] > 0.0
            if not mine.any():
                raise ValueError(f"Output {j} of y has no observed value.")
            summary = RunningScale.of(y[mine, None], pick(weight, mine))
            mean[j], unit[j] = summary.mean[0], summary.unit[0]
        check_unit(unit, "y")
        return cls(mean, unit)

    def find(self, X: Array) -> tuple[Array, Array]:
        """Mean and unit (n,) of the outputs that rows (n, d + t) are of."""
        outputs = X[:, -len(self.unit) :]
        return outputs @ self.mean, outputs @ self.unit

    def scale(self, X: Array, y: Array) -> Array:
        """Targets (n,) of rows in the units of their outputs."""
        return standardise(y, *self.find(X), "y")

    def scale_targets(self, X: Array, targets: Targets) -> Targets:
        """Targets in units of their outputs, with the known variances of their noise."""
        variance = targets.variance
        if variance is not None:
            variance = scale_variance(variance, self.find(X)[1])
        return replace(targets, y=self.scale(X, targets.y), variance=variance)

    def around(self, inner: Units) -> Units:
        """Those of what has been scaled by these first, and by the inner ones then."""
        return Units(self.mean + self.unit * inner.mean, self.unit * inner.unit)

    def original(self, mean: Array) -> Array:
        """Means (..., t) on the scale of y."""
        return self.mean + self.unit * mean

    def restore(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Means and (co)variances (..., t) on the scale of y."""
        return self.original(mean), self.unit**2 * variance


@dataclass(frozen=True)
class JointDraws:
    """Functions from the posterior of outputs that learn from each other.

    Calling it with rows X gives the values (n_samples, t, n) of n functions of all outputs.
    """

    functions: Draws
    units: Units

    def __call__(self, X: Array) -> Array:
        t = len(self.units.unit)
        values = self.functions(lengthen(X, t)).reshape(len(X), t, -1)
        return self.units.mean[:, None] + self.units.unit[:, None] * values

    def gradient(self, X: Array) -> Array:
        """Derivatives (n_samples, t, n_features, n)."""
        t = len(self.units.unit)
        slopes = self.functions.gradient(lengthen(X, t))[:, :-t]
        return self.units.unit[:, None, None] * slopes.reshape(-1, t, *slopes.shape[1:])


@dataclass(frozen=True)
class JointPosterior:
    """What the model says of new rows; the outputs are the last axis."""

    model: Any  # Posterior of rows (n, d + t), in units of the outputs
    units: Units
    frames: tuple[Units, ...] = ()  # whose product these are, by which known rows have been scaled

    @property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs in the variation of predictions, averaged over the values."""
        relevance: Relevance = self.model.relevance
        return relevance

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, t, d) of the functions' derivatives."""
        unit = self.units.unit[:, None]
        mean, variance = (
            part[:, : X.shape[1]].reshape(len(X), len(unit), -1)
            for part in self.model.measure_gradient(lengthen(X, len(unit)))
        )
        return mean * unit, variance * unit**2

    def draw_functions(self, n: int, rng: np.random.RandomState) -> JointDraws:
        """Functions n of all outputs."""
        return JointDraws(self.model.draw_functions(n, rng), self.units)

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        shape = len(X), len(self.units.unit)
        mean, variance = self.model.moments(lengthen(X, shape[1]), include_noise)
        return self.units.restore(mean.reshape(shape), variance.reshape(shape))

    def predict_mean(self, X: Array, include_noise: bool) -> Array:
        shape = len(X), len(self.units.unit)
        mean = predict_mean(self.model, lengthen(X, shape[1]), include_noise)
        return self.units.original(mean.reshape(shape))

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Of every output by itself, (n, t) and (n, n, t)."""
        pairs = (self.model.joint(rows, include_noise) for rows in self._rows(X))
        return self.units.restore(*stack_pairs(pairs))

    def joint_outputs(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Mean (n t,) and covariance (n t, n t) of all outputs, row by row."""
        n, t = len(X), len(self.units.unit)
        mean, covariance = self.model.joint(lengthen(X, t), include_noise)
        unit = np.tile(self.units.unit, n)
        return np.tile(self.units.mean, n) + unit * mean, unit[:, None] * covariance * unit

    def distribution(self, X: Array, include_noise: bool) -> OutputsDistribution:
        each: list[Any] = [
            predict_distribution(self.model, rows, include_noise) for rows in self._rows(X)
        ]
        units = zip(self.units.mean.tolist(), self.units.unit.tolist(), strict=True)
        return OutputsDistribution(
            tuple(one.rescaled(*frame) for one, frame in zip(each, units, strict=True))
        )

    def leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
        """Mean and variance (n,) of observations at known rows (n, d + t), see `Posterior`."""
        mean, unit = self.units.find(X)
        for frame in self.frames:
            targets = frame.scale_targets(X, targets)
        found, variance = self.model.leave_out(X, targets)
        return mean + unit * found, unit**2 * variance

    def _rows(self, X: Array) -> list[Array]:
        """The rows (n, d + t) of each output."""
        t = len(self.units.unit)
        return list(np.moveaxis(lengthen(X, t).reshape(len(X), t, -1), 1, 0))
