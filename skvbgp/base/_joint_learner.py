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
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.copies import find_equal
from skvbgp._core.linalg import Array
from skvbgp._optim.ascent import EndPass, Watch, go_on, report_as
from skvbgp.base._apart import Known, compare_alone, may_stay_apart, start_alone, train_alone
from skvbgp.base._estimator import VariationalRegressor
from skvbgp.base._joint_outputs import JointPosterior, Units
from skvbgp.base._learner import RegressionLearner, predict_distribution
from skvbgp.base._outputs import Observations
from skvbgp.base._parted import PartedModel, find_joining, tell_output
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

    def take(self, t: int, j: int) -> tuple[Array, Targets]:
        """Rows (m, d) and targets of output j of t, as it would have them alone."""
        mine = tell_output(self.X, t) == j
        X = np.ascontiguousarray(self.X[mine, :-t])
        return X, replace(self.y[mine], remains=self.y.remains)


@dataclass(frozen=True)
class JointStart:
    """State before training."""

    model: Any
    values: Values  # scaled
    #: By output: the start of a model of its own, if that may be better.
    alone: tuple[Any, ...]
    is_chosen: bool  # whether these stay apart, as they have before


@dataclass(frozen=True)
class JointState:
    """The model of all outputs, in their units, and those of outputs that stay apart from it.

    A stream that begins again scales what it has scaled before, so that a value that comes twice is
    the same to the last digit: the units are those of all frames, one in another.
    """

    model: Any
    frames: tuple[Units, ...]
    counts: Array  # (t,) how often values of each output count
    n: int  # rows that were seen
    apart: tuple[Any, ...]  # by output, in its unit; None if the model of all predicts it
    n_alone: int = 0  # passes of models that were tried alone

    @property
    def joins(self) -> NDArray[np.bool_]:
        """Which outputs learn from the others, (t,)."""
        return find_joining(self.apart)

    @property
    def units(self) -> Units:
        """From the model's targets to the user's."""
        return reduce(Units.around, self.frames)


@dataclass(frozen=True)
class StackingLearner(RegressionLearner):
    """The settings of every output, for one model of all; targets are those of `OutputsLearner`.

    A family implements ``model``, its learner of rows that say which output they are of, and
    ``attributes``. Its learners have ``knowing(state, X, y)``, the state that knows some of its
    rows alone, at its hyperparameters. States of single outputs have `n_iter` and `seed`, from
    which training begins again in a stream. Posteriors are what `PartedModel` asks for.
    """

    single: Any  # RegressionLearner
    t: int
    joins_outputs: ClassVar[bool] = True

    @property
    @abstractmethod
    def model(self) -> Any:
        """The learner of rows (N, d + t), whose last columns are indicators of the output."""

    def max_passes(self, y: list[Any]) -> int:
        lengths = [len(one) for one in y if one is not None]
        n_passes = int(self.model.max_passes(range(sum(lengths))))
        tried = (range(n) for j, n in enumerate(lengths) if may_stay_apart(self.single, n, None, j))
        return n_passes + sum(map(self.single.max_passes, tried))

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
        alone = tuple(
            start_alone(self.single, values.take(self.t, j), rng, before, j) for j in range(self.t)
        )
        model = self.model.start(values.X, values.y, rng, known)
        return JointStart(model, values, alone, before is not None)

    def train(self, state: JointStart, X: Any, y: list[Any], end_pass: EndPass) -> JointState:
        """The model of all first, then those of outputs that may be better apart."""
        values, watch = state.values, Watch(end_pass)
        none = (None,) * self.t
        together = self._conclude(values.frames, self._count(values), values.n, none)
        report = report_as(together, watch)
        model = self.model.train(state.model, values.X, values.y, report)
        starts = [
            None if one is None else (one, *values.take(self.t, j))
            for j, one in enumerate(state.alone)
        ]
        alone = train_alone(self.single, starts, watch, lambda: together(model))
        if watch.stopped:
            return together(model)
        n_alone = sum(one.n_iter for one in alone if one is not None)
        if not state.is_chosen and n_alone:
            alone = self._choose_apart(model, alone, values)
        return replace(together(model), apart=alone, n_alone=n_alone)

    def _choose_apart(self, model: Any, alone: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
        """Those of the outputs' own models that predict values which are left out better.

        Values at one place are of one row.
        """
        own = [
            None if one is None else Known((self.single, one), values.take(self.t, j))
            for j, one in enumerate(alone)
        ]
        common = Known((self.model, model), (values.X, values.y))
        _, row = find_equal(values.X[:, : -self.t])
        rng = np.random.RandomState(model.seed)
        output = tell_output(values.X, self.t)
        is_better = compare_alone(common, own, output, row, judge, rng)
        return tuple(one if better else None for one, better in zip(alone, is_better, strict=True))

    def rows_to_restart(
        self, state: JointState, X: Observations, y: list[Any]
    ) -> tuple[Values, list[Targets]] | None:
        values = self._scale(state, X, y)
        found = values and self.model.rows_to_restart(state.model, values.X, values.y)
        if not found:
            return None
        rows, targets = found
        values = Values(rows, targets, state.n + X.n, state.frames)
        return values, [values.take(self.t, j)[1] for j in range(self.t)]

    def update(
        self, state: JointState, X: Observations, y: list[Any], end_pass: EndPass
    ) -> JointState:
        values, counts, n = self._scale(state, X, y), X.remains * state.counts, state.n + X.n
        apart = tuple(
            None if one is None else self._follow(one, values, X.remains, j)
            for j, one in enumerate(state.apart)
        )
        if values is not None:
            counts = counts + self._count(values)
        conclude = self._conclude(state.frames, counts, n, apart, state.n_alone)
        if values is None:
            faded = self.model.let_fade(state.model, X.remains)
            end_pass(lambda: conclude(faded))
            return conclude(faded)
        report = report_as(conclude, end_pass)
        return conclude(self.model.update(state.model, values.X, values.y, report))

    def _follow(self, state: Any, values: Values | None, remains: float, j: int) -> Any:
        """The state of an output that stays apart after new values, some of which may be its own.

        It begins again when it would do so alone.
        """
        X, y = (None, ()) if values is None else values.take(self.t, j)
        if not len(y):
            return self.single.let_fade(state, remains)
        found = self.single.rows_to_restart(state, X, y)
        if found is None:
            return self.single.update(state, X, y, go_on)
        start = self.single.start(*found, np.random.RandomState(state.seed), None)
        return self.single.train(start, *found, go_on)

    def posterior(self, state: JointState) -> JointPosterior:
        common = self.model.posterior(state.model)
        apart = (None if one is None else self.single.posterior(one) for one in state.apart)
        parted = PartedModel(common, tuple(apart), state.counts)
        return JointPosterior(parted, state.units, state.frames)

    def _scale(self, state: JointState, X: Observations, y: list[Any]) -> Values | None:
        """New values in the units of known ones."""
        values = Values.of(X, y)
        return values and reduce(Values.scaled, state.frames, values)

    def _count(self, values: Values) -> Array:
        """How often values of each output count, (t,)."""
        return np.asarray(values.y.counts @ values.X[:, -self.t :])

    def _conclude(
        self,
        frames: tuple[Units, ...],
        counts: Array,
        n: int,
        apart: tuple[Any, ...],
        n_alone: int = 0,
    ) -> Callable[[Any], JointState]:
        return partial(JointState, frames=frames, counts=counts, n=n, apart=apart, n_alone=n_alone)


def judge(model: tuple[Any, Any], rows: tuple[Array, Targets], hidden: NDArray[np.bool_]) -> Array:
    """Log densities of hidden values given the others, by a learner and its state."""
    (learner, state), (X, y) = model, rows
    posterior = learner.posterior(learner.knowing(state, X[~hidden], y[~hidden]))
    distribution: Any = predict_distribution(posterior, X[hidden], include_noise=True)
    if y.variance is not None:
        distribution = distribution.with_noise(y.variance[hidden])
    return np.asarray(y.counts[hidden] * distribution.log_density(y.y[hidden]))


class JoinsOutputs(VariationalRegressor):
    """A regressor with the parameter ``output_covariance``.

    Its outputs learn from each other by ``_joint_learner``, a `StackingLearner`.
    """

    output_covariance: Any
    _joint_learner: ClassVar[Any]
    #: Whether outputs learn from each other, which streams and warm starts do not change.
    _joins: bool

    def _bind_outputs(self, t: int, said: str, *, reset: bool) -> None:
        super()._bind_outputs(t, said, reset=reset)
        joins = t > 1 and self.output_covariance is not None
        goes_on = not reset or getattr(self, "warm_start", False)
        if goes_on and joins != getattr(self, "_joins", joins):
            raise ValueError("output_covariance has changed since the outputs were learned.")
        self._joins = joins

    @property
    def learns_from_others_(self) -> NDArray[np.bool_]:
        """Which outputs are predicted by the model of all of them, (n_outputs,)."""
        check_is_fitted(self)
        joins: NDArray[np.bool_] = (
            self._state.joins if self._joins else np.zeros(self.n_outputs_, dtype=bool)
        )
        return joins

    def _check_collections(self) -> None:
        if self.output_covariance is not None:
            raise TypeError("output_covariance needs rows in memory, not Dask collections.")
        super()._check_collections()

    def _full_learner(self) -> Any:
        if not self._joins:
            return super()._full_learner()
        return self._joint_learner(self._learner(), self.n_outputs_)
