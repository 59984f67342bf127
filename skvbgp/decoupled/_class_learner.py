"""Classes: the probit models of each one versus the rest, as the functions of one model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.exclusion import learn_exclusion
from skvbgp._core.labels import LabelledRows
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, draw_distinct
from skvbgp._core.scaling import RunningScale
from skvbgp._core.shards import ShardedColumns
from skvbgp._optim.ascent import EndPass, report_as
from skvbgp.base import Labels, Learner, Targets, as_weights, class_codes, weigh_classes
from skvbgp.decoupled._learner import DecoupledLearner, scale_rows
from skvbgp.decoupled._left_out import leave_out
from skvbgp.decoupled._posterior import Posterior
from skvbgp.decoupled._state import State

#: Rows whose labels say at most how scores become probabilities.
_LINK_ROWS = 512


@dataclass(frozen=True)
class ClassState:
    """Classes, how often they are there and count, and the state of all their functions."""

    classes: NDArray[Any]  # (k,)
    totals: Array  # (k,) rows of each class, each as often as it counts
    class_weights: Array  # (k,)
    functions: State
    exclusion: float = 0.0  # of the other classes, see `_core.exclusion`; 0 for two classes


@dataclass(frozen=True)
class ClassLearner(Learner):
    """Learns one function for two classes, and else one for each class, from signs (n, k)."""

    learner: DecoupledLearner
    class_weight: Any

    def max_passes(self, y: Labels) -> int:
        return self.learner.max_passes(make_signs(y))

    def start(
        self, X: Array, y: Labels, rng: np.random.RandomState, before: ClassState | None
    ) -> ClassState:
        known = None if before is None else before.functions
        totals = y.count_classes()
        class_weights = weigh_classes(self.class_weight, y.classes, totals)
        functions = self.learner.start(X, make_signs(y, class_weights), rng, known)
        exclusion = 0.0 if before is None else before.exclusion
        return ClassState(y.classes, totals, class_weights, functions, exclusion)

    def train(self, state: ClassState, X: Array, y: Labels, end_pass: EndPass) -> ClassState:
        signs = make_signs(y, state.class_weights)

        def conclude(functions: State) -> ClassState:
            return _learn_exclusion(replace(state, functions=functions), X, signs)

        wrapped = report_as(conclude, end_pass)
        return conclude(self.learner.train(state.functions, X, signs, wrapped))

    def update(self, state: ClassState, X: Array, y: Labels, end_pass: EndPass) -> ClassState:
        totals = state.totals + y.count_classes()
        class_weights = weigh_classes(self.class_weight, state.classes, totals)
        functions = _reweigh(state.functions, class_weights, state.class_weights)
        signs = make_signs(y, class_weights)

        def conclude(functions: State) -> ClassState:
            known = functions.replay
            learned = ClassState(state.classes, totals, class_weights, functions, state.exclusion)
            if not known.has_all and len(known) < _LINK_ROWS:
                return learned
            return _learn_exclusion(learned, known.X, known.targets)

        return conclude(self.learner.update(functions, X, signs, report_as(conclude, end_pass)))

    def rows_to_restart(
        self, state: ClassState, X: Array, y: Labels
    ) -> tuple[Array, Labels] | None:
        known = _reweigh(state.functions, np.ones(len(state.classes)), state.class_weights)
        everything = self.learner.rows_to_restart(known, X, make_signs(y))
        if everything is None:
            return None
        X, targets = everything
        codes = class_codes(targets.y)
        return X, Labels(state.classes, codes, targets.weight, targets.n_copies)

    def attributes(self, state: ClassState) -> dict[str, Any]:
        return {
            "classes_": state.classes,
            "exclusion_": state.exclusion,
            **self.learner.attributes(state.functions),
        }

    def posterior(self, state: ClassState) -> Posterior:
        return state.functions.posterior


def _reweigh(functions: State, new: Array, old: Array) -> State:
    """The state whose rows have new weights (k,) of their classes in the place of old ones."""
    if np.array_equal(new, old):
        return functions
    targets = functions.replay.targets
    codes = class_codes(targets.y)
    weight = targets.counts / old[codes] * new[codes]  # a row that counts once does so exactly
    replay = replace(functions.replay, targets=replace(targets, weight=weight))
    return replace(functions, replay=replay)


def _learn_exclusion(state: ClassState, X: Array, signs: Targets) -> ClassState:
    """The state with the exclusion by rows that it knows, or by some of them."""
    if len(state.classes) == 2:
        return state
    functions, n = state.functions, len(signs)
    some = draw_distinct(n, min(n, _LINK_ROWS), np.random.RandomState(functions.seed))
    targets = signs[some]
    rows = scale_rows(functions, X[some], targets)
    q = functions.posterior
    total = float(state.totals @ state.class_weights)  # the summary counts old rows as of old
    scores = leave_out(q.process, q.model.likelihood, rows, total)
    codes = class_codes(targets.y)
    return replace(state, exclusion=learn_exclusion(scores, codes, targets.weight))


def make_signs(y: Labels | LabelledRows, class_weights: Array | None = None) -> Targets:
    """Signs (n, k), of rows that count as often as their weights and those of their classes say."""
    if isinstance(y, LabelledRows):
        return SpreadSigns.of(y, class_weights)
    weight = y.weight if class_weights is None else y.weigh(class_weights)
    return Targets(np.column_stack(y.problems()), weight, y.n_copies)


@dataclass(frozen=True)
class SpreadSigns(Targets):
    """The same of rows on Dask's workers: those of some rows are made when they are asked for."""

    summary: RunningScale | None = None

    @classmethod
    def of(cls, labels: LabelledRows, class_weights: Array | None) -> Targets:
        """Targets of all rows, none of which has a weight of its own."""
        own = np.ones(len(labels.classes)) if class_weights is None else class_weights
        present = labels.totals > 0.0
        as_weights(own[present], int(present.sum()), "class_weight")  # refuses extreme ones
        weight: Any = None if np.all(own == 1.0) else _ClassWeights(labels, own)
        counts = own * labels.totals
        n = counts.sum()
        share = (counts[1:2] if len(counts) == 2 else counts) / n  # of the sign 1, (k,)
        spread = 2.0 * np.sqrt(share * (1.0 - share))
        summary = RunningScale(n, 2.0 * share - 1.0, spread)
        return cls(_SignColumns(labels), weight, summary=summary)

    @property
    def scale(self) -> RunningScale:
        """How often all rows count, mean and spread."""
        assert self.summary is not None
        return self.summary


class _SignColumns(ShardedColumns):
    """Signs (n, k) of labels."""

    rows: LabelledRows

    def __init__(self, rows: LabelledRows) -> None:
        super().__init__(rows, "y")

    @property
    def shape(self) -> tuple[int, ...]:
        K = len(self.rows.classes)
        return self.rows.n, 1 if K == 2 else K

    def __getitem__(self, index: Index | slice) -> Array:
        codes = super().__getitem__(index).astype(np.intp)
        return np.column_stack(Labels(self.rows.classes, codes).problems())


class _ClassWeights(ShardedColumns):
    """Weights (n,) of rows, which are those of their classes."""

    def __init__(self, rows: LabelledRows, class_weights: Array) -> None:
        super().__init__(rows, "y")
        self._class_weights = class_weights

    def __getitem__(self, index: Any) -> Array:
        return self._class_weights[super().__getitem__(index).astype(np.intp)]
