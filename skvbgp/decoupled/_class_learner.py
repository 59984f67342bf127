"""Classes: the probit models of each one versus the rest, as the functions of one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._optim.ascent import EndPass
from skvbgp.base import Labels, Learner, class_codes, in_tiles
from skvbgp.decoupled._learner import DecoupledLearner
from skvbgp.decoupled._state import State


@dataclass(frozen=True)
class ClassState:
    """Classes, and the state of all their functions."""

    classes: NDArray[Any]  # (k,)
    functions: State


@dataclass(frozen=True)
class ClassLearner(Learner):
    """Learns one function for two classes, and else one for each class, from signs (n, k)."""

    learner: DecoupledLearner

    def max_passes(self, y: Labels) -> int:
        return self.learner.max_passes(_signs(y))

    def start(
        self, X: Array, y: Labels, rng: np.random.RandomState, before: ClassState | None
    ) -> ClassState:
        if before is not None and not np.array_equal(y.classes, before.classes):
            raise ValueError(f"warm_start: the classes were {before.classes.tolist()}.")
        known = None if before is None else before.functions
        return ClassState(y.classes, self.learner.start(X, _signs(y), rng, known))

    def train(self, state: ClassState, X: Array, y: Labels, end_pass: EndPass) -> ClassState:
        wrapped = _wrap(end_pass, state.classes)
        return ClassState(state.classes, self.learner.train(state.functions, X, _signs(y), wrapped))

    def update(self, state: ClassState, X: Array, y: Labels, end_pass: EndPass) -> ClassState:
        wrapped = _wrap(end_pass, state.classes)
        return ClassState(
            state.classes, self.learner.update(state.functions, X, _signs(y), wrapped)
        )

    def rows_to_restart(
        self, state: ClassState, X: Array, y: Labels
    ) -> tuple[Array, Labels] | None:
        everything = self.learner.rows_to_restart(state.functions, X, _signs(y))
        if everything is None:
            return None
        return everything[0], Labels(state.classes, class_codes(everything[1]))

    def attributes(self, state: ClassState) -> dict[str, Any]:
        return {"classes_": state.classes, **self.learner.attributes(state.functions)}

    def decisions(self, state: ClassState, X: Array) -> Array:
        """Scores (n, k) whose normal distribution function is the probability of each sign 1."""
        functions = state.functions
        process = functions.posterior.process
        mean, variance = in_tiles(lambda X: process.moments(functions.coordinates.scaled(X)), X)
        return np.asarray(mean / np.sqrt(1.0 + variance))


def _signs(y: Labels) -> Array:
    return np.column_stack(y.problems())


def _wrap(end_pass: EndPass, classes: NDArray[Any]) -> EndPass:
    return lambda make: end_pass(lambda: ClassState(classes, make()))
