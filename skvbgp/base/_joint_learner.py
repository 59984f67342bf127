"""Outputs that learn from each other, in any family: a learner of rows that say which they are of.

How a family has the values of all outputs is its own. In most, a value that was observed is a row,
see `_joint_outputs`, and what was not observed is none: `StackingLearner`.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.copies import find_equal
from skvbgp._core.linalg import Array
from skvbgp._optim.ascent import EndPass, Watch, go_on, report_as
from skvbgp.base._apart import Hidden, Known, compare_alone
from skvbgp.base._estimator import VariationalRegressor
from skvbgp.base._joint_outputs import JointPosterior, Units
from skvbgp.base._learner import RegressionLearner, predict_distribution
from skvbgp.base._outputs import Observations
from skvbgp.base._parted import PartedModel, find_joining, find_output
from skvbgp.base._signs import find_signs
from skvbgp.base._weights import Targets

#: Values of an output that say what it is worth alone.
_LEAST_VALUES = 10


@dataclass(frozen=True)
class JointStart:
    """State before training."""

    model: Any
    values: Any  # scaled
    #: By output: the start of a model of its own, if that may be better.
    alone: tuple[Any, ...]
    is_chosen: bool  # whether these stay apart, as they have before


@dataclass(frozen=True)
class JointLearner(RegressionLearner):
    """The settings of every output, for one model of all.

    A family implements what is abstract here. Its values of all outputs have ``given``, rows and
    targets as the model takes them, ``take(t, j)``, those of output j of t as it would have them
    alone, and ``locate(t)``, which output and row of the user's each is of, (N,) both. Its states
    have ``model``, and by output ``apart``: a state of its own, None where the model of all
    predicts it. Posteriors are what `PartedModel` asks for.
    """

    single: Any  # RegressionLearner
    t: int

    @property
    @abstractmethod
    def model(self) -> Any:
        """The learner of rows (N, d + t), whose last columns are indicators of the output."""

    @abstractmethod
    def read(self, X: Any, y: Any, before: Any) -> Any:
        """The values of all outputs in their units; ``before`` is as in `start`."""

    @abstractmethod
    def conclude(self, start: JointStart, model: Any, alone: tuple[Any, ...]) -> Any:
        """The state of whoever predicts best (`choose_apart`), which knows what all have cost.

        By output, ``alone`` is its own model, None where none has been trained.
        """

    @abstractmethod
    def judge(self, known: tuple[Any, Any], rows: tuple[Any, Any], hidden: Hidden) -> Array:
        """Log densities of hidden values given the others, by a learner and its state."""

    def may_stay_apart(self, n: int, before: Any, j: int) -> bool:
        """Whether an output of n values is to be trained alone, too.

        A warm start keeps who is ``apart`` in the state before.
        """
        has_joined = before is not None and before.apart[j] is None
        return bool(self.single.learn_hyperparameters) and n >= _LEAST_VALUES and not has_joined

    def find_units(self, X: Array, y: Array, weight: Array | None) -> Units:
        """Those of rows (N, d + t), as the user wants them."""
        units = Units.of(X, y, weight, self.t)
        return units if self.single.normalize_y else replace(units, mean=np.zeros(self.t))

    def start(self, X: Any, y: Any, rng: np.random.RandomState, before: Any) -> JointStart:
        values, none = self.read(X, y, before), (None,) * self.t
        known, apart = (None, none) if before is None else (before.model, before.apart)
        alone = list[Any](none)
        for j in range(self.t):
            rows, targets = values.take(self.t, j)
            if self.may_stay_apart(len(targets), before, j):
                alone[j] = self.single.start(rows, targets, deepcopy(rng), apart[j])
        model = self.model.start(*values.given, rng, known)
        return JointStart(model, values, tuple(alone), before is not None)

    def train(self, state: JointStart, X: Any, y: Any, end_pass: EndPass) -> Any:
        """The model of all first, then those of outputs that may be better apart.

        What is reported meanwhile is what the model of all says.
        """
        values, watch, none = state.values, Watch(end_pass), (None,) * self.t

        def conclude(model: Any) -> Any:
            return self.conclude(state, model, none)

        model = self.model.train(state.model, *values.given, report_as(conclude, watch))
        report, alone = report_as(lambda _: conclude(model), watch), list[Any](none)
        for j, start in enumerate(state.alone):
            if start is not None and not watch.stopped:
                alone[j] = self.single.train(start, *values.take(self.t, j), report)
        return self.conclude(state, model, none if watch.stopped else tuple(alone))

    def choose_apart(
        self, start: JointStart, model: Any, alone: tuple[Any, ...], rng: np.random.RandomState
    ) -> tuple[Any, ...]:
        """Those of the outputs' own models that predict values which are left out better."""
        if start.is_chosen or all(one is None for one in alone):
            return alone
        values, t = start.values, self.t
        own = [
            None if one is None else Known((self.single, one), values.take(t, j))
            for j, one in enumerate(alone)
        ]
        common = Known((self.model, model), values.given)
        output, row = values.locate(t)
        is_better = compare_alone(common, own, output, row, self.judge, rng)
        return tuple(one if better else None for one, better in zip(alone, is_better, strict=True))


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
        """The values with targets in other units."""
        y = units.scale_targets(self.X, self.y)
        return replace(self, y=y, frames=(*self.frames, units))

    @property
    def given(self) -> tuple[Array, Targets]:
        return self.X, self.y

    def locate(self, t: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Values at one place are of one row."""
        return find_output(self.X, t), find_equal(self.X[:, :-t])[1]

    def take(self, t: int, j: int) -> tuple[Array, Targets]:
        """Rows (m, d) and targets of output j of t, as it would have them alone."""
        mine = find_output(self.X, t) == j
        X = np.ascontiguousarray(self.X[mine, :-t])
        return X, replace(self.y[mine], remains=self.y.remains)


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
    def units(self) -> Units:
        """From the model's targets to the user's."""
        return reduce(Units.around, self.frames)


@dataclass(frozen=True)
class StackingLearner(JointLearner):
    """The settings of every output; targets are those of `OutputsLearner`.

    A family implements ``model`` and ``attributes``. Its learners have ``knowing(state, X, y)``,
    the state that knows some of its rows alone, at its hyperparameters. States of single outputs
    have `n_iter` and `seed`, from which training begins again in a stream.
    """

    def max_passes(self, y: list[Any]) -> int:
        lengths = [len(one) for one in y if one is not None]
        n_passes = int(self.model.max_passes(range(sum(lengths))))
        tried = (range(n) for j, n in enumerate(lengths) if self.may_stay_apart(n, None, j))
        return n_passes + sum(map(self.single.max_passes, tried))

    def read(self, X: Any, y: list[Any], before: JointState | None) -> Values:
        values: Any = X
        if not isinstance(X, Values):  # which are those of a training that begins again
            for j in range(self.t):
                X.refuse_unobserved(j)
            values = Values.of(X, y)
        units = self.find_units(values.X, values.y.y, values.y.weight)
        if before is None:
            signs = find_signs(values.scaled(units), self.t)
        else:
            signs = np.sign(before.units.unit)
        return values.scaled(replace(units, unit=signs * units.unit))

    def conclude(self, start: JointStart, model: Any, alone: tuple[Any, ...]) -> JointState:
        values, n_alone = start.values, sum(one.n_iter for one in alone if one is not None)
        apart = self.choose_apart(start, model, alone, np.random.RandomState(model.seed))
        return JointState(model, values.frames, self._count(values), values.n, apart, n_alone)

    def judge(self, known: tuple[Any, Any], rows: tuple[Any, Any], hidden: Hidden) -> Array:
        (learner, state), (X, y) = known, rows
        posterior = learner.posterior(learner.knowing(state, X[~hidden], y[~hidden]))
        distribution: Any = predict_distribution(posterior, X[hidden], include_noise=True)
        if y.variance is not None:
            distribution = distribution.with_noise(y.variance[hidden])
        return y.counts[hidden] * distribution.log_density(y.y[hidden])

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
        values, counts = self._scale(state, X, y), X.remains * state.counts
        apart = tuple(
            None if one is None else self._follow(one, values, X.remains, j)
            for j, one in enumerate(state.apart)
        )
        if values is not None:
            counts = counts + self._count(values)

        def conclude(model: Any) -> JointState:
            return replace(state, model=model, counts=counts, n=state.n + X.n, apart=apart)

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
        return values.y.counts @ values.X[:, -self.t :]


class JoinsOutputs(VariationalRegressor):
    """A regressor with the parameter ``output_covariance``.

    Its outputs learn from each other by ``_joint_learner``, a `JointLearner`, if `_joins` says so.
    """

    _joint_learner: ClassVar[Any]

    @property
    def learns_from_others_(self) -> NDArray[np.bool_]:
        """Which outputs are predicted by the model of all of them, (n_outputs,)."""
        check_is_fitted(self)
        if self._joins:
            return find_joining(self._state.apart)
        return np.zeros(self.n_outputs_, dtype=bool)

    def _full_learner(self) -> Any:
        if not self._joins:
            return super()._full_learner()
        return self._joint_learner(self._learner(), self.n_outputs_)
