"""Several outputs that learn from each other: one model of rows that say which output they are of.

A value that was observed is a row: its inputs, the indicator of its output (see `_coregion`) and
the value in units of its output. What was not observed is a row of weight zero, so that the values
of n rows of t outputs are always n t rows, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.pickling import PickledByFields
from skvbgp._optim.ascent import EndPass, Watch, report_as
from skvbgp.base import (
    JointPosterior,
    PartedModel,
    RegressionLearner,
    Units,
    find_joining,
    start_alone,
    tell_output,
    train_alone,
)
from skvbgp.gp._apart import choose_apart, count_values, score_parted, take_output
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
    #: By output: its own model, if that may be better.
    alone: tuple[Start | None, ...]
    is_chosen: bool  # whether these stay apart, as they have before


@dataclass(frozen=True)
class JointState(PickledByFields):
    """The model of all outputs, in their units, and those of outputs that stay apart from it."""

    model: State
    units: RowUnits
    apart: tuple[State | None, ...]  # by output

    @property
    def n_kernels(self) -> int:
        """Kernels that a warm start goes on from, of the model that has most of them."""
        known = (self.model, *self.apart)
        return max(one.n_kernels for one in known if one is not None)

    @property
    def joins(self) -> NDArray[np.bool_]:
        """Which outputs learn from the others, (t,)."""
        return find_joining(self.apart)

    @cached_property
    def posterior(self) -> JointPosterior:
        apart = tuple(None if one is None else one.posterior for one in self.apart)
        counts = count_values(self.model.rows, len(apart))
        return JointPosterior(PartedModel(self.model.posterior, apart, counts), self.units)

    @property
    def covariance(self) -> Array:
        """Prior covariance (t, t) of the outputs' functions at a place, in the model of all."""
        return self.model.covariance * np.outer(self.units.unit, self.units.unit)

    @property
    def noises(self) -> Array:
        """Variances (t,) of the outputs' noise, scaled."""
        mixture = self.model.mixture
        each = np.array([process.noises for process in mixture.processes])
        noises = np.array(self.model.shares @ each) + mixture.extra_noise
        for j, one in enumerate(self.apart):
            if one is not None:
                noises[j] = one.noise * one.frames.target.unit**2
        return noises

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance (n, t) of the observations, NaN for what was none."""
        rows, t = self.model.rows, len(self.apart)
        mean, variance = self.model.posterior.leave_out_all()
        output = tell_output(rows.X, t)
        for j, one in enumerate(self.apart):
            if one is not None:
                mean[output == j], variance[output == j] = one.posterior.leave_out_all()
        mean, variance = (rows.tell_all(part).reshape(-1, t) for part in (mean, variance))
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
        n_passes = self.model.max_passes(y)
        if not self.single.learn_hyperparameters:
            return n_passes
        lengths = len(y), min(len(y), self.single.few)  # few rows have a search of their own
        return n_passes + self.t * max(self.single.max_passes(y[:n]) for n in lengths)

    def start(
        self, X: Rows, y: Array, rng: np.random.RandomState, before: JointState | None
    ) -> JointStart:
        units = RowUnits.of(X.X, X.y, X.weight, self.t)
        if not self.single.normalize_y:
            units = replace(units, mean=np.zeros(self.t))
        rows = units.scaled(X)
        each = (take_output(rows, self.t, j) for j in range(self.t))
        alone = tuple(
            start_alone(self.single, (own, own.y), rng, before, j) for j, own in enumerate(each)
        )
        known = None if before is None else before.model
        model = self.model.start(rows, rows.y, rng, known)
        return JointStart(model, units, alone, before is not None)

    def train(self, state: JointStart, X: Rows, y: Array, end_pass: EndPass) -> JointState:
        """The model of all first, then those of outputs that may be better apart."""
        together = partial(JointState, units=state.units, apart=(None,) * self.t)
        rows, watch = state.model.rows, Watch(end_pass)
        model = self.model.train(state.model, rows, rows.y, report_as(together, watch))
        starts = [None if one is None else (one, one.rows, one.rows.y) for one in state.alone]
        alone = train_alone(self.single, starts, watch, lambda: together(model))
        if watch.stopped:
            return together(model)
        return self._settle(state, model, alone)

    def _settle(
        self, start: JointStart, model: State, alone: tuple[State | None, ...]
    ) -> JointState:
        """The state of those who predict best, which knows what all of them have cost."""
        rng = np.random.RandomState([start.model.seed, 4])
        apart = alone
        if not start.is_chosen and any(one is not None for one in alone):
            apart = choose_apart(model, alone, rng)
        n_iter = model.n_iter + sum(one.n_iter for one in alone if one is not None)
        score = score_parted(model, apart, rng)
        return JointState(replace(model, n_iter=n_iter, score=score), start.units, apart)

    # -- partial_fit -------------------------------------------------------------------------------

    def rows_to_restart(self, state: JointState, X: Rows, y: Array) -> tuple[Rows, Array] | None:
        """As for a single output; hyperparameters that are not learned follow every row."""
        rows, is_due = state.units.scaled(X), not self.single.learn_hyperparameters
        found = None if is_due else self.model.rows_to_restart(state.model, rows, rows.y)
        if found is not None:
            rows, _ = found
        elif is_due or self._is_apart_due(state, rows):
            rows = self.model.join(state.model, rows, X.n_seen)
        else:
            return None
        rows = state.units.original(rows)
        return rows, rows.y

    def _is_apart_due(self, state: JointState, X: Rows) -> bool:
        """Whether an output that stays apart would learn again by itself.

        Where rows are forgotten, the model of all says when, but for gaps that are new.
        """
        for j, one in enumerate(state.apart):
            rows = take_output(X, self.t, j)
            if one is None or not len(rows):
                continue
            if rows.bring_gaps(one.frames.gaps):
                return True
            if self.single.forgetting.is_used:
                continue
            if self.single.rows_to_restart(one, rows, rows.y) is not None:
                return True
        return False

    def update(self, state: JointState, X: Rows, y: Array, end_pass: EndPass) -> JointState:
        rows = state.units.scaled(X)

        def conclude(model: State) -> JointState:
            return JointState(model, state.units, self._follow(state.apart, model))

        if len(rows):
            return conclude(
                self.model.update(state.model, rows, rows.y, report_as(conclude, end_pass))
            )
        model = self.model.fade(state.model, X.n_seen, rows)
        if not len(model.rows):
            raise ValueError("All values of y that are not forgotten are missing (NaN).")
        updated = conclude(model)
        end_pass(lambda: updated)
        return updated

    def _follow(self, apart: tuple[State | None, ...], model: State) -> tuple[State | None, ...]:
        """Outputs that stay apart, with those of the rows of all that are theirs.

        One of whose rows none counts any more is predicted by the others.
        """
        rows, followed = model.rows.emptied(model.frames.gaps), list[State | None]()
        for j, one in enumerate(apart):
            own = take_output(rows, self.t, j)
            if one is None or not len(own):
                followed.append(None)
                continue
            own = own.filled(one.frames.gaps)
            if one.shared is not None:  # it stays as it is
                own = one.shared.subtract(own)
            followed.append(one.with_rows(own, k=self.single.count_neighbours(one, len(own))))
        return tuple(followed)

    # -- what it says ------------------------------------------------------------------------------

    def attributes(self, state: JointState) -> dict[str, Any]:
        """Those of the model of all, and what there is for each output as an array."""
        model, units = state.model, state.units
        values = self.model.attributes(model)
        rows = model.rows
        log_units = np.average(rows.X[:, -self.t :] @ np.log(units.unit), weights=rows.weight)
        return values | {
            "noise_variance_": state.noises * units.unit**2,
            "log_predictive_density_": values["log_predictive_density_"] - float(log_units),
            "n_samples_seen_": values["n_samples_seen_"] // self.t,
        }

    def posterior(self, state: JointState) -> JointPosterior:
        return state.posterior
