"""Several outputs that learn from each other: one model of rows that say which output they are of.

A value that was observed is a row: its inputs, the indicator of its output (see `_coregion`) and
the value in units of its output. What was not observed is a row of weight zero, so that the values
of n rows of t outputs are always n t rows, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._optim.ascent import EndPass, report_as
from skvbgp.base import JointFunction, JointPosterior, RegressionLearner, Relevance, Units
from skvbgp.gp._learner import GPLearner, Start
from skvbgp.gp._rows import Chunk, Rows
from skvbgp.gp._state import State


class RowUnits(Units):
    """Mean and unit of every output, for the rows of a model."""

    def scaled(self, rows: Rows) -> Rows:
        """The rows' targets and known variances in these units."""
        chunks: list[Chunk] = []
        for X, y, noise in rows.chunks:
            _, unit = self.find(X)
            chunks.append((X, self.scale(X, y), None if noise is None else noise.scaled(unit)))
        return replace(rows, chunks=tuple(chunks))

    def original(self, rows: Rows) -> Rows:
        """What has been `scaled` in the user's units."""
        chunks: list[Chunk] = []
        for X, y, noise in rows.chunks:
            mean, unit = self.find(X)
            if noise is not None:
                noise = replace(noise, variance=noise.variance * unit**2)
            chunks.append((X, mean + unit * y, noise))
        return replace(rows, chunks=tuple(chunks))


@dataclass(frozen=True)
class JointStart:
    """State before training."""

    model: Start
    units: RowUnits


@dataclass(frozen=True)
class JointState(JointFunction):
    """The model of all outputs, in their units."""

    model: State
    units: RowUnits

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

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance (n, t) of the observations, NaN for what was none."""
        mean, variance = (part.reshape(-1, self.t) for part in self.model.leave_out_all())
        return self.units.restore(mean, variance)


@dataclass(frozen=True)
class JointLearner(RegressionLearner):
    """The settings of the model of all outputs, whose rows and targets are in the user's units."""

    single: GPLearner
    t: int
    joins_outputs: ClassVar[bool] = True

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
        units = RowUnits.of(X.X, X.y, X.weight, self.t)
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
