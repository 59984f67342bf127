"""Outputs that learn from each other, in any family: a learner of rows that say which they are of.

A value that was observed is a row, see `_joint_outputs`. What was not observed is none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._optim.ascent import EndPass, report_as
from skvbgp.base._joint_outputs import JointPosterior, Units
from skvbgp.base._learner import RegressionLearner
from skvbgp.base._outputs import Observations
from skvbgp.base._signs import find_signs
from skvbgp.base._weights import Targets


@dataclass(frozen=True)
class Values:
    """Rows (N, d + t), a value each, and how many rows of the user's they have been made of."""

    X: Array
    y: Targets
    n: int
    frames: tuple[Units, ...] = ()  # that the targets have been scaled by, one after the other

    @classmethod
    def of(cls, X: Observations, y: list[Any]) -> Values | None:
        """What was observed, output by output; None if nothing was."""
        parts = [
            (np.hstack([rows, np.tile(one, (len(rows), 1))]), targets)
            for rows, targets, one in zip(X.rows, y, np.eye(len(y)), strict=True)
            if rows is not None
        ]
        if not parts:
            return None
        rows, each = zip(*parts, strict=True)
        targets = replace(reduce(Targets.joined, each), remains=X.remains)
        return cls(np.concatenate(rows), targets, X.n)

    def scaled(self, units: Units) -> Values:
        """The same with targets in other units."""
        y = units.scale_targets(self.X, self.y)
        return replace(self, y=y, frames=(*self.frames, units))


@dataclass(frozen=True)
class JointStart:
    """State before training."""

    model: Any
    values: Values  # scaled


@dataclass(frozen=True)
class JointState:
    """The model of all outputs, in their units.

    A stream that begins again scales what it has scaled before, so that a value that comes twice is
    the same to the last digit: the units are those of all frames, one in another.
    """

    model: Any
    frames: tuple[Units, ...]
    counts: Array  # (t,) how often values of each output count
    n: int  # rows that were seen

    @property
    def units(self) -> Units:
        """From the model's targets to the user's."""
        return reduce(Units.around, self.frames)


@dataclass(frozen=True)
class StackingLearner(RegressionLearner):
    """The settings of every output, for one model of all; targets are those of `OutputsLearner`.

    A family implements ``model``, its learner of rows that say which output they are of, and
    ``attributes``.
    """

    single: Any  # RegressionLearner
    t: int
    joins_outputs: ClassVar[bool] = True

    @property
    @abstractmethod
    def model(self) -> Any:
        """The learner of rows (N, d + t), whose last columns are indicators of the output."""

    def max_passes(self, y: list[Any]) -> int:
        return int(self.model.max_passes(range(sum(len(one) for one in y if one is not None))))

    def start(
        self, X: Any, y: list[Any], rng: np.random.RandomState, before: JointState | None
    ) -> JointStart:
        values: Any = X
        if not isinstance(X, Values):  # which are those of a training that begins again
            for j in range(self.t):
                X.refuse_unobserved(j)
            values = Values.of(X, y)
        units = Units.of(values.X, values.y.y, values.y.weight, self.t)
        if not self.single.normalize_y:
            units = replace(units, mean=np.zeros(self.t))
        if before is None:
            signs = find_signs(values.scaled(units), self.t)
        else:
            signs = np.sign(before.units.unit)
        values = values.scaled(replace(units, unit=signs * units.unit))
        known = None if before is None else before.model
        return JointStart(self.model.start(values.X, values.y, rng, known), values)

    def train(self, state: JointStart, X: Any, y: list[Any], end_pass: EndPass) -> JointState:
        values = state.values
        conclude = self._conclude(values.frames, self._count(values), values.n)
        report = report_as(conclude, end_pass)
        return conclude(self.model.train(state.model, values.X, values.y, report))

    def rows_to_restart(
        self, state: JointState, X: Observations, y: list[Any]
    ) -> tuple[Values, list[Targets]] | None:
        values = self._scale(state, X, y)
        found = values and self.model.rows_to_restart(state.model, values.X, values.y)
        if not found:
            return None
        rows, targets = found
        return Values(rows, targets, state.n + X.n, state.frames), [targets]

    def update(
        self, state: JointState, X: Observations, y: list[Any], end_pass: EndPass
    ) -> JointState:
        values, counts, n = self._scale(state, X, y), X.remains * state.counts, state.n + X.n
        if values is None:
            faded = self.model.let_fade(state.model, X.remains)
            conclude = self._conclude(state.frames, counts, n)
            end_pass(lambda: conclude(faded))
            return conclude(faded)
        conclude = self._conclude(state.frames, counts + self._count(values), n)
        report = report_as(conclude, end_pass)
        return conclude(self.model.update(state.model, values.X, values.y, report))

    def posterior(self, state: JointState) -> JointPosterior:
        return JointPosterior(self.model.posterior(state.model), state.units, state.frames)

    def _scale(self, state: JointState, X: Observations, y: list[Any]) -> Values | None:
        """New values in the units of known ones."""
        values = Values.of(X, y)
        return values and reduce(Values.scaled, state.frames, values)

    def _count(self, values: Values) -> Array:
        """How often values of each output count, (t,)."""
        return np.asarray(values.y.counts @ values.X[:, -self.t :])

    def _conclude(
        self, frames: tuple[Units, ...], counts: Array, n: int
    ) -> Callable[[Any], JointState]:
        return partial(JointState, frames=frames, counts=counts, n=n)


class JoinsOutputs:
    """Adds the parameter ``output_covariance`` to a `VariationalRegressor`.

    Its outputs learn from each other by ``_joint_learner``, a `StackingLearner`.
    """

    output_covariance: Any
    n_outputs_: int
    _joint_learner: ClassVar[Any]
    #: Whether outputs learn from each other, which streams and warm starts do not change.
    _joins: bool

    def _bind_outputs(self, t: int, said: str, *, reset: bool) -> None:
        super()._bind_outputs(t, said, reset=reset)  # type: ignore[misc]
        joins = t > 1 and self.output_covariance is not None
        goes_on = not reset or getattr(self, "warm_start", False)
        if goes_on and joins != getattr(self, "_joins", joins):
            raise ValueError("output_covariance has changed since the outputs were learned.")
        self._joins = joins

    def _check_collections(self) -> None:
        if self.output_covariance is not None:
            raise TypeError("output_covariance needs rows in memory, not Dask collections.")
        super()._check_collections()  # type: ignore[misc]

    def _full_learner(self) -> Any:
        if not self._joins:
            return super()._full_learner()  # type: ignore[misc]
        return self._joint_learner(self._learner(), self.n_outputs_)  # type: ignore[attr-defined]
