"""Several outputs: a model for each, learned from the rows in which it was observed."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array, stack_pairs
from skvbgp._optim.ascent import EndPass, Watch, go_on
from skvbgp.base._distributions import predict_mean
from skvbgp.base._function import OutputsDraws, Relevance
from skvbgp.base._learner import Distribution, RegressionLearner, predict_distribution


@dataclass(frozen=True)
class Observations:
    """Rows of several outputs."""

    #: By output: inputs of the rows in which it was observed, None if there are none.
    rows: tuple[Any, ...]
    index: tuple[NDArray[np.intp], ...]  # by output: which of all rows these are
    n: int  # number of all rows
    before: Any = None  # the state of all outputs that these rows are new to
    remains: float = 1.0  # what rows known before count after these, as a share of what they did
    #: By output: its state there, None if its training begins, with all rows that there are.
    known: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls, y: Array, weight: Array, make: Callable[[NDArray[np.intp], int], tuple[Any, Any]]
    ) -> tuple[Observations, list[Any]]:
        """What was observed of outputs y (n, t): NaN and rows of weight 0 were not.

        ``make(index, j)`` makes inputs and targets of rows of output j.
        """
        index = [np.flatnonzero(~np.isnan(column) & (weight > 0.0)) for column in y.T]
        made = [make(i, j) if len(i) else (None, None) for j, i in enumerate(index)]
        rows, targets = zip(*made, strict=True)
        return cls(rows, tuple(index), len(y), known=(None,) * len(rows)), list(targets)

    def refuse_unobserved(self, j: int) -> None:
        """Raise ValueError if there is no row of output j."""
        if self.rows[j] is None:
            raise ValueError(f"Output {j} of y has no observed value.")


@dataclass(frozen=True)
class OutputsState:
    """The models of all outputs."""

    outputs: tuple[Any, ...]
    n: int  # rows that were seen


@dataclass(frozen=True)
class OutputsLearner(RegressionLearner):
    """The settings of every output; targets are a list, with None for what was not observed.

    Each output learns what it would learn alone, one after the other. In states that are reported
    meanwhile, or left by a stop, those whose turn has not come are what ``begin`` makes of them.
    """

    single: Any  # RegressionLearner

    def max_passes(self, y: list[Any]) -> int:
        return sum(self.single.max_passes(column) for column in y if column is not None)

    def start(
        self, X: Observations, y: list[Any], rng: np.random.RandomState, before: Any
    ) -> list[Any]:
        warm = (None,) * len(y) if before is None else before.outputs
        starts = list(X.known)
        for j, generator in enumerate(_share(rng, len(y))):
            if starts[j] is None:
                X.refuse_unobserved(j)
                starts[j] = self.single.start(X.rows[j], y[j], generator, warm[j])
        return starts

    def train(self, state: list[Any], X: Observations, y: list[Any], end_pass: EndPass) -> Any:
        t = len(y)
        outputs: tuple[Any, ...] = ()

        @cache
        def begin(j: int) -> Any:
            if X.known[j] is not None:
                return self.learn_more(X, y, j, _stop)
            return self.begin(state[j], X.rows[j], y[j])

        def report(make: Callable[[], Any]) -> bool:
            done = outputs
            return end_pass(
                lambda: self.gather((*done, make(), *map(begin, range(len(done) + 1, t))), X)
            )

        watch = Watch(report)
        for j in range(t):
            if watch.stopped:
                learned = begin(j)
            elif X.known[j] is not None:
                learned = self.learn_more(X, y, j, watch)
            else:
                learned = self.single.train(state[j], X.rows[j], y[j], watch)
            outputs = (*outputs, learned)
        return self.gather(outputs, X)

    def rows_to_restart(
        self, state: OutputsState, X: Observations, y: list[Any]
    ) -> tuple[Observations, list[Any]] | None:
        """Those outputs begin again that would do so alone; the others go on."""
        rows, targets, known = list(X.rows), list(y), list(state.outputs)
        for j, output in enumerate(state.outputs):
            found = rows[j] is not None and self.single.rows_to_restart(output, rows[j], y[j])
            if found:
                (rows[j], targets[j]), known[j] = found, None
        if all(one is not None for one in known):
            return None
        return replace(X, rows=tuple(rows), before=state, known=tuple(known)), targets

    def update(self, state: OutputsState, X: Observations, y: list[Any], end_pass: EndPass) -> Any:
        X = replace(X, before=state, known=state.outputs)
        outputs = tuple(self.learn_more(X, y, j, go_on) for j in range(len(y)))
        learned = self.gather(outputs, X)
        end_pass(lambda: learned)
        return learned

    # -- what a family may do in another way -------------------------------------------------------

    def begin(self, start: Any, X: Any, y: Any) -> Any:
        """State of an output whose training has not come to its turn: after a single pass."""
        return self.single.train(start, X, y, _stop)

    def learn_more(self, X: Observations, y: list[Any], j: int, end_pass: EndPass) -> Any:
        """State of an output after new rows, if it was observed in any."""
        if X.rows[j] is None:
            return self.single.let_fade(X.known[j], X.remains)
        return self.single.update(X.known[j], X.rows[j], y[j], end_pass)

    def gather(self, outputs: tuple[Any, ...], X: Observations) -> OutputsState:
        """The state of all outputs."""
        return OutputsState(outputs, X.n if X.before is None else X.before.n + X.n)

    # -- what it says ------------------------------------------------------------------------------

    def attributes(self, state: OutputsState) -> dict[str, Any]:
        """Those of the outputs, as arrays if they are numbers, and as lists otherwise."""
        each = [self.single.attributes(output) for output in state.outputs]
        values = {name: [one[name] for one in each] for name in each[0]}
        numbers = {name: np.array(v) for name, v in values.items() if np.isscalar(v[0])}
        n_iter = sum(values["n_iter_"])
        return values | numbers | {"n_iter_": n_iter, "n_samples_seen_": state.n}

    def posterior(self, state: OutputsState) -> OutputsPosterior:
        return OutputsPosterior(tuple(map(self.single.posterior, state.outputs)))


def _share(rng: np.random.RandomState, t: int) -> list[np.random.RandomState]:
    """Generators of the outputs: each draws what a single one would, the last from rng."""
    return [*(deepcopy(rng) for _ in range(t - 1)), rng]


def _stop(make: Callable[[], Any]) -> bool:
    return True


@dataclass(frozen=True)
class OutputsPosterior:
    """What the models say of new rows; the outputs are the last axis."""

    outputs: tuple[Any, ...]  # Posterior, maybe a KnownFunction

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        return stack_pairs(one.moments(X, include_noise) for one in self.outputs)

    def predict_mean(self, X: Array, include_noise: bool) -> Array:
        return np.column_stack([predict_mean(one, X, include_noise) for one in self.outputs])

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        return stack_pairs(one.joint(X, include_noise) for one in self.outputs)

    def distribution(self, X: Array, include_noise: bool) -> OutputsDistribution:
        return OutputsDistribution(
            tuple(predict_distribution(one, X, include_noise) for one in self.outputs)
        )

    # -- the function, if they know it -------------------------------------------------------------

    @property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs in the variation of predictions, averaged over outputs."""
        each = [one.relevance for one in self.outputs]
        return Relevance.average(each, np.ones(len(each)))

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, t, d) of the functions' derivatives."""
        return stack_pairs((one.measure_gradient(X) for one in self.outputs), axis=1)

    def draw_functions(self, n: int, rng: np.random.RandomState) -> OutputsDraws:
        return OutputsDraws(tuple(one.draw_functions(n, rng) for one in self.outputs))


@dataclass(frozen=True)
class OutputsDistribution:
    """Distributions of n rows, independent for the outputs."""

    outputs: tuple[Distribution, ...]

    def with_noise(self, variance: Array) -> OutputsDistribution:
        """Those of outputs with independent normal noise of these variances (n, t), too."""
        pairs: Any = zip(self.outputs, variance.T, strict=True)
        return OutputsDistribution(tuple(one.with_noise(column) for one, column in pairs))

    def quantile(self, p: float) -> Array:
        """(n, t)."""
        return np.column_stack([one.quantile(p) for one in self.outputs])

    def log_density(self, y: Array) -> Array:
        """Of all outputs together (n,), but for those of y (n, t) that are NaN."""
        parts = [one.log_density(column) for one, column in zip(self.outputs, y.T, strict=True)]
        return np.nansum(parts, axis=0)
