"""Several outputs that learn from each other: one model of rows that say which output they are of.

A value that was observed is a row: its inputs, the indicator of its output (see `_coregion`) and
the value in units of its output. What was not observed is a row of weight zero, so that the values
of n rows of t outputs are always n t rows, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import RunningScale, check_near, check_unit
from skvbgp._optim.ascent import EndPass, report_as
from skvbgp.base import OutputsDistribution, RegressionLearner, Relevance, pick
from skvbgp.gp._learner import GPLearner, Start
from skvbgp.gp._paths import FunctionDraws
from skvbgp.gp._posterior import NeighbourPosterior
from skvbgp.gp._rows import Chunk, Rows
from skvbgp.gp._state import State


def lengthen(X: Array, t: int) -> Array:
    """A row for each of t outputs of rows X (n, d), with its indicator: (n t, d + t)."""
    return np.hstack([np.repeat(X, t, axis=0), np.tile(np.eye(t), (len(X), 1))])


@dataclass(frozen=True)
class Units:
    """Mean and unit (t,) of every output."""

    mean: Array
    unit: Array

    @classmethod
    def of(cls, rows: Rows, t: int) -> Units:
        """Those of rows in the user's units."""
        outputs, mean, unit = rows.X[:, -t:], np.empty(t), np.empty(t)
        for j in range(t):
            mine = outputs[:, j] > 0.0
            if not mine.any():
                raise ValueError(f"Output {j} of y has no observed value.")
            weight = pick(rows.weight, mine)
            summary = RunningScale.of(rows.y[mine, None], weight)
            mean[j], unit[j] = summary.mean[0], summary.unit[0]
        check_unit(unit, "y")
        return cls(mean, unit)

    def scaled(self, rows: Rows) -> Rows:
        """The rows' targets and known variances in these units."""
        chunks: list[Chunk] = []
        for X, y, noise in rows.chunks:
            mean, unit = self._at(X)
            with np.errstate(over="ignore"):
                scaled = check_near((y - mean) / unit, "y")
            chunks.append((X, scaled, None if noise is None else noise.scaled(unit)))
        return replace(rows, chunks=tuple(chunks))

    def original(self, rows: Rows) -> Rows:
        """What has been `scaled` in the user's units."""
        chunks: list[Chunk] = []
        for X, y, noise in rows.chunks:
            mean, unit = self._at(X)
            if noise is not None:
                noise = replace(noise, variance=noise.variance * unit**2)
            chunks.append((X, mean + unit * y, noise))
        return replace(rows, chunks=tuple(chunks))

    def _at(self, X: Array) -> tuple[Array, Array]:
        """Mean and unit (n,) of the outputs that rows (n, d + t) are of."""
        outputs = X[:, -len(self.unit) :]
        return outputs @ self.mean, outputs @ self.unit


@dataclass(frozen=True)
class JointStart:
    """State before training."""

    model: Start
    units: Units


@dataclass(frozen=True)
class JointState:
    """The model of all outputs, in their units."""

    model: State
    units: Units

    @property
    def t(self) -> int:
        """Number of outputs."""
        return len(self.units.unit)

    @property
    def n_kernels(self) -> int:
        """Kernels that a warm start goes on from."""
        return self.model.n_kernels

    @property
    def posterior(self) -> JointPosterior:
        return JointPosterior(self.model.posterior, self.units)

    @property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs in the variation of predictions, averaged over the values."""
        return Relevance(*(part[: -self.t] for part in self.model.relevance))

    @property
    def covariance(self) -> Array:
        """Prior covariance (t, t) of the outputs' functions at a place."""
        return self.model.covariance * np.outer(self.units.unit, self.units.unit)

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, t, d) of the functions' derivatives."""
        mean, variance = (
            part[:, : X.shape[1]].reshape(len(X), self.t, -1)
            for part in self.model.measure_gradient(lengthen(X, self.t))
        )
        unit = self.units.unit[:, None]
        return mean * unit, variance * unit**2

    def draw_functions(self, n: int, rng: np.random.RandomState) -> JointDraws:
        """Functions n of all outputs."""
        return JointDraws(FunctionDraws.draw(self.model.posterior, n, rng), self.units)

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance (n, t) of the observations, NaN for what was none."""
        mean, variance = (part.reshape(-1, self.t) for part in self.model.leave_out_all())
        return self.units.mean + self.units.unit * mean, self.units.unit**2 * variance


@dataclass(frozen=True)
class JointDraws:
    """Functions from the posterior of outputs that learn from each other.

    Calling it with rows X gives the values (n_samples, t, n) of n functions of all outputs.
    """

    functions: FunctionDraws
    units: Units

    def __call__(self, X: Array) -> Array:
        t = len(self.units.unit)
        rows = lengthen(X, t)
        values = self.functions(rows).reshape(len(rows) // t, t, -1)
        return self.units.mean[:, None] + self.units.unit[:, None] * values

    def gradient(self, X: Array) -> Array:
        """Derivatives (n_samples, t, n_features, n)."""
        t = len(self.units.unit)
        slopes = self.functions.gradient(lengthen(X, t))[:, :-t]
        return self.units.unit[:, None, None] * slopes.reshape(-1, t, *slopes.shape[1:])


@dataclass(frozen=True)
class JointLearner(RegressionLearner):
    """The settings of the model of all outputs, whose rows and targets are in the user's units."""

    single: GPLearner
    t: int

    @property
    def model(self) -> GPLearner:
        """Settings for the rows of all outputs, of which t are one row of the user's."""
        forgetting = self.single.forgetting.by_rows_of(self.t)
        return replace(self.single, n_outputs=self.t, forgetting=forgetting)

    def max_passes(self, y: Array) -> int:
        return self.model.max_passes(y)

    def start(
        self, X: Rows, y: Array, rng: np.random.RandomState, before: JointState | None
    ) -> JointStart:
        units = Units.of(X, self.t)
        if not self.single.normalize_y:
            units = replace(units, mean=np.zeros(self.t))
        rows = units.scaled(X)
        known = None if before is None else before.model
        return JointStart(self.model.start(rows, rows.y, rng, known), units)

    def train(self, state: JointStart, X: Rows, y: Array, end_pass: EndPass) -> JointState:
        conclude, rows = partial(JointState, units=state.units), state.model.rows
        return conclude(self.model.train(state.model, rows, rows.y, report_as(conclude, end_pass)))

    def rows_to_restart(self, state: JointState, X: Rows, y: Array) -> tuple[Rows, Array] | None:
        """As for a single output; hyperparameters that are not learned follow every row."""
        rows = state.units.scaled(X)
        if self.single.learn_hyperparameters:
            found = self.model.rows_to_restart(state.model, rows, rows.y)
            if found is None:
                return None
            rows, _ = found
        else:
            rows = self.model.join(state.model, rows, X.n_seen)
        rows = state.units.original(rows)
        return rows, rows.y

    def update(self, state: JointState, X: Rows, y: Array, end_pass: EndPass) -> JointState:
        rows, conclude = state.units.scaled(X), partial(JointState, units=state.units)
        report = report_as(conclude, end_pass)
        if len(rows):
            return conclude(self.model.update(state.model, rows, rows.y, report))
        model = self.model.fade(state.model, X.n_seen, rows)
        if not len(model.rows):
            raise ValueError("All values of y that are not forgotten are missing (NaN).")
        report(lambda: model)
        return conclude(model)

    def attributes(self, state: JointState) -> dict[str, Any]:
        """Those of the model, and what there is for each output as an array."""
        model, units = state.model, state.units
        values = self.model.attributes(model)
        rows = model.rows
        noises = model.shares @ np.array([process.noises for process in model.mixture.processes])
        log_units = np.average(rows.X[:, -self.t :] @ np.log(units.unit), weights=rows.weight)
        return values | {
            "noise_variance_": noises * units.unit**2,
            "log_predictive_density_": values["log_predictive_density_"] - float(log_units),
            "n_samples_seen_": values["n_samples_seen_"] // self.t,
        }

    def posterior(self, state: JointState) -> JointPosterior:
        return state.posterior


@dataclass(frozen=True)
class JointPosterior:
    """What the model says of new rows; the outputs are the last axis."""

    model: NeighbourPosterior
    units: Units

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        shape = len(X), len(self.units.unit)
        mean, variance = (
            part.reshape(shape) for part in self.model.moments(lengthen(X, shape[1]), include_noise)
        )
        return self.units.mean + self.units.unit * mean, self.units.unit**2 * variance

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Of every output by itself, (n, t) and (n, n, t)."""
        pairs = [self.model.joint(rows, include_noise) for rows in self._rows(X)]
        mean, covariance = (np.stack(part, axis=-1) for part in zip(*pairs, strict=True))
        return self.units.mean + self.units.unit * mean, self.units.unit**2 * covariance

    def joint_outputs(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Mean (n t,) and covariance (n t, n t) of all outputs, row by row."""
        n, t = len(X), len(self.units.unit)
        mean, covariance = self.model.joint(lengthen(X, t), include_noise)
        unit = np.tile(self.units.unit, n)
        return np.tile(self.units.mean, n) + unit * mean, unit[:, None] * covariance * unit

    def distribution(self, X: Array, include_noise: bool) -> OutputsDistribution:
        each = [self.model.distribution(rows, include_noise) for rows in self._rows(X)]
        units = zip(self.units.mean.tolist(), self.units.unit.tolist(), strict=True)
        return OutputsDistribution(
            tuple(one.rescaled(*frame) for one, frame in zip(each, units, strict=True))
        )

    def _rows(self, X: Array) -> list[Array]:
        """The rows (n, d + t) of each output."""
        t = len(self.units.unit)
        return list(np.moveaxis(lengthen(X, t).reshape(len(X), t, -1), 1, 0))
