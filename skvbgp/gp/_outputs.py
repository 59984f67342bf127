"""Several outputs: a model for each, learned from the rows in which it was observed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._optim.ascent import EndPass, go_on
from skvbgp.base import Distribution, RegressionLearner, predict_distribution
from skvbgp.gp._categories import Draws
from skvbgp.gp._gradient import Relevance
from skvbgp.gp._learner import GPLearner, Start
from skvbgp.gp._neighbours import Rows
from skvbgp.gp._posterior import NeighbourPosterior
from skvbgp.gp._state import State


@dataclass(frozen=True)
class Observations:
    """Rows of several outputs.

    Attributes
    ----------
    rows : tuple of Rows or None
        By output: those in which it was observed, None if there are none.
    index : tuple of ndarray of int
        By output: which of all rows these are.
    n : int
        Number of all rows.
    """

    rows: tuple[Rows | None, ...]
    index: tuple[NDArray[np.intp], ...]
    n: int


@dataclass(frozen=True)
class OutputsState:
    """The models of all outputs, and which rows each of them knows."""

    outputs: tuple[State, ...]
    index: tuple[NDArray[np.intp], ...]
    n: int

    @property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs in the variation of predictions, averaged over outputs."""
        means, stds = np.array([output.relevance for output in self.outputs]).swapaxes(0, 1)
        return Relevance(means.mean(axis=0), np.sqrt(np.sum(stds**2, axis=0)) / len(stds))

    @property
    def covariance(self) -> Array:
        """Prior covariance (t, t) of the functions at a place: they know nothing of one another."""
        return np.diag([output.covariance.item() for output in self.outputs])

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, t, d) of the functions' derivatives."""
        return _stack((output.measure_gradient(X) for output in self.outputs), axis=1)

    def draw_functions(self, n: int, rng: np.random.RandomState) -> OutputsDraws:
        """Functions n of each output."""
        return OutputsDraws(tuple(output.draw_functions(n, rng) for output in self.outputs))

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance (n, t) of the observations, NaN for what was none."""
        result = np.full((2, self.n, len(self.outputs)), np.nan)
        for j, (output, index) in enumerate(zip(self.outputs, self.index, strict=True)):
            result[:, index, j] = output.leave_out_all()
        return result[0], result[1]


@dataclass(frozen=True)
class OutputsDraws:
    """Functions from the posteriors of several outputs.

    Calling it with rows X gives the values (n_samples, t, n) of n functions of each output.
    """

    outputs: tuple[Draws, ...]

    def __call__(self, X: Any) -> Array:
        return np.stack([functions(X) for functions in self.outputs], axis=1)

    def gradient(self, X: Any) -> Array:
        """Derivatives (n_samples, t, n_features, n)."""
        return np.stack([functions.gradient(X) for functions in self.outputs], axis=1)


@dataclass(frozen=True)
class OutputsLearner(RegressionLearner):
    """The settings of every output; targets are those that were observed, one (n_j,) for each."""

    single: GPLearner

    def max_passes(self, y: list[Array]) -> int:
        return sum(self.single.max_passes(column) for column in y)

    def start(
        self, X: Observations, y: list[Array], rng: np.random.RandomState, before: Any
    ) -> list[Start]:
        known = [None] * len(y) if before is None else before.outputs
        starts = []
        for j, rows in enumerate(X.rows):
            if rows is None:
                raise ValueError(f"Output {j} of y has no observed value.")
            starts.append(self.single.start(rows, y[j], rng, known[j]))
        return starts

    def train(
        self, state: list[Start], X: Observations, y: list[Array], end_pass: EndPass
    ) -> OutputsState:
        rows = [some for some in X.rows if some is not None]
        outputs = list(map(self.single.keep, state))
        stopped = False
        for j in range(len(y)):

            def report(make: Callable[[], State], j: int = j) -> bool:
                nonlocal stopped
                done = (*outputs[:j], make(), *outputs[j + 1 :])
                stopped = end_pass(lambda: OutputsState(done, X.index, X.n))
                return stopped

            outputs[j] = self.single.train(state[j], rows[j], y[j], report)
            if stopped:  # the others keep what they start with
                break
        return OutputsState(tuple(outputs), X.index, X.n)

    def rows_to_restart(
        self, state: OutputsState, X: Observations, y: list[Array]
    ) -> tuple[Observations, list[Array]] | None:
        """All outputs learn again as soon as one of them does."""
        outputs, new = state.outputs, X.rows
        if all(
            rows is None or self.single.rows_to_restart(known, rows, column) is None
            for known, rows, column in zip(outputs, new, y, strict=True)
        ):
            return None
        rows = tuple(
            self.single.join(known, rows, X.n) for known, rows in zip(outputs, new, strict=True)
        )
        return Observations(rows, _follow(state, X), state.n + X.n), [some.y for some in rows]

    def update(
        self, state: OutputsState, X: Observations, y: list[Array], end_pass: EndPass
    ) -> OutputsState:
        outputs = tuple(
            self.single.fade(known, X.n)
            if rows is None
            else self.single.update(known, rows, column, go_on, X.n)
            for known, rows, column in zip(state.outputs, X.rows, y, strict=True)
        )
        state = OutputsState(outputs, _follow(state, X), state.n + X.n)
        end_pass(lambda: state)
        return state

    def attributes(self, state: OutputsState) -> dict[str, Any]:
        """Those of the outputs, as arrays if they are numbers, and as lists otherwise."""
        each = [self.single.attributes(output) for output in state.outputs]
        values = {name: [one[name] for one in each] for name in each[0]}
        numbers = {name: np.array(v) for name, v in values.items() if np.isscalar(v[0])}
        n_iter = sum(values["n_iter_"])
        return values | numbers | {"n_iter_": n_iter, "n_samples_seen_": state.n}

    def posterior(self, state: OutputsState) -> OutputsPosterior:
        return OutputsPosterior(tuple(output.posterior for output in state.outputs))


def _follow(state: OutputsState, X: Observations) -> tuple[NDArray[np.intp], ...]:
    """Which of all rows the outputs know, with the new ones."""
    return tuple(
        np.append(known, state.n + new) for known, new in zip(state.index, X.index, strict=True)
    )


@dataclass(frozen=True)
class OutputsPosterior:
    """What the models say of new rows; the outputs are the last axis."""

    outputs: tuple[NeighbourPosterior, ...]

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        return _stack(one.moments(X, include_noise) for one in self.outputs)

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        return _stack(one.joint(X, include_noise) for one in self.outputs)

    def distribution(self, X: Array, include_noise: bool) -> OutputsDistribution:
        return OutputsDistribution(
            tuple(predict_distribution(one, X, include_noise) for one in self.outputs)
        )


@dataclass(frozen=True)
class OutputsDistribution:
    """Distributions of n rows, independent for the outputs."""

    outputs: tuple[Distribution, ...]

    def quantile(self, p: float) -> Array:
        """(n, t)."""
        return np.column_stack([one.quantile(p) for one in self.outputs])

    def log_density(self, y: Array) -> Array:
        """Of all outputs together (n,), but for those of y (n, t) that are NaN."""
        parts = [one.log_density(column) for one, column in zip(self.outputs, y.T, strict=True)]
        return np.nansum(parts, axis=0)


def _stack(pairs: Iterable[tuple[Array, Array]], axis: int = -1) -> tuple[Array, Array]:
    first, second = zip(*pairs, strict=True)
    return np.stack(first, axis=axis), np.stack(second, axis=axis)


def observe(
    y: Array, weight: Array, make_rows: Callable[[NDArray[np.intp], int], Rows]
) -> Observations:
    """What was observed of outputs y (n, t): NaN and rows of weight 0 were not.

    ``make_rows(index, j)`` makes rows of output j.
    """
    index = [np.flatnonzero(~np.isnan(column) & (weight > 0.0)) for column in y.T]
    return Observations(
        tuple(make_rows(i, j) if len(i) else None for j, i in enumerate(index)),
        tuple(index),
        len(y),
    )
