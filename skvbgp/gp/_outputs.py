"""Several outputs that are models each: by themselves, or with the same hyperparameters.

Shared ones are chosen by the sum of what all outputs say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut
from skvbgp._optim.ascent import EndPass, report_as
from skvbgp.base import (
    Observations,
    OutputsDistribution,
    OutputsLearner,
    OutputsPosterior,
    OutputsState,
    Relevance,
)
from skvbgp.gp._learner import GPLearner, Start
from skvbgp.gp._mixture import LocalMoments
from skvbgp.gp._posterior import NeighbourPosterior, TwinPosterior, measure_twins
from skvbgp.gp._rows import Rows
from skvbgp.gp._state import State

#: Rows of which all that the processes say of all outputs is in memory.
_TILE_ROWS = 2**12


@dataclass(frozen=True)
class GPOutputsState(OutputsState):
    """The models of all outputs, and which rows each of them knows."""

    outputs: tuple[State, ...]
    index: tuple[NDArray[np.intp], ...]  # of those seen that are followed: their numbers

    @property
    def n_kernels(self) -> int:
        """Kernels of the output that has most of them."""
        return max(output.n_kernels for output in self.outputs)

    @property
    def covariance(self) -> Array:
        """Prior covariance (t, t) of the functions at a place: they know nothing of one another."""
        return np.diag([output.covariance.item() for output in self.outputs])

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance (n, t) of the observations, NaN for what was none."""
        result = np.full((2, self.n, len(self.outputs)), np.nan)
        for j, (output, index) in enumerate(zip(self.outputs, self.index, strict=True)):
            result[:, index, j] = [
                told[len(told) - len(index) :] for told in output.leave_out_all()
            ]
        return result[0], result[1]


@dataclass(frozen=True)
class GPOutputsLearner(OutputsLearner):
    """The settings of every output, which learn again and forget together."""

    single: GPLearner

    def rows_to_restart(
        self, state: OutputsState, X: Observations, y: list[Any]
    ) -> tuple[Observations, list[Any]] | None:
        """All outputs learn again as soon as one of them does."""
        return None if super().rows_to_restart(state, X, y) is None else self.join(state, X)

    def join(self, state: Any, X: Observations) -> tuple[Observations, list[Any]]:
        """Known rows and new ones, to train with."""
        rows = tuple(
            self.single.join(known, rows, X.n, self._count_kept(state, X, j))
            for j, (known, rows) in enumerate(zip(state.outputs, X.rows, strict=True))
        )
        index, n, unknown = _follow_all(state, X), state.n + X.n, (None,) * len(rows)
        return Observations(rows, index, n, known=unknown), [some.y for some in rows]

    def begin(self, start: Start, X: Rows, y: Array) -> State:
        return self.single.keep(start)

    def learn_more(self, X: Observations, y: list[Any], j: int, end_pass: EndPass) -> State:
        kept = self._count_kept(X.before, X, j)
        if X.rows[j] is None:
            return self.single.fade(X.known[j], X.n, kept=kept)
        return self.single.update(X.known[j], X.rows[j], y[j], end_pass, X.n, kept)

    def _count_kept(self, state: Any, X: Observations, j: int) -> int | None:
        """How many of an output's rows are among the newest of all, if a number is known.

        One at least: an output that is not observed any more does not end the stream of the others.
        """
        window = self.single.forgetting.window
        if window is None:
            return None
        oldest = state.n + X.n - window
        return max(1, int(np.count_nonzero(_follow(state, X, j) >= oldest)))

    def gather(self, outputs: tuple[State, ...], X: Observations) -> GPOutputsState:
        known = super().gather(outputs, X)
        index = X.index if X.before is None else _follow_all(X.before, X)
        followed = [one.rows.n_seen - one.rows.n_forgotten for one in known.outputs]
        pairs = zip(index, followed, strict=True)  # a stream has no end: the last ones
        index = tuple(own[len(own) - n :] for own, n in pairs)
        return GPOutputsState(known.outputs, known.n, index)


def _follow(state: Any, X: Observations, j: int) -> NDArray[np.intp]:
    """Which of all rows an output knows, with the new ones."""
    return np.append(state.index[j], state.n + X.index[j])


def _follow_all(state: Any, X: Observations) -> tuple[NDArray[np.intp], ...]:
    """The same of every output."""
    return tuple(_follow(state, X, j) for j in range(len(X.index)))


# -- the same hyperparameters ---------------------------------------------------------------------


@dataclass(frozen=True)
class SharedPosterior(OutputsPosterior):
    """That of outputs which have their processes in common.

    Those that were observed in the same rows are predicted together.
    """

    outputs: tuple[NeighbourPosterior, ...]

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        means, variances = np.empty((2, len(X), len(self.outputs)))
        for rows in cut(len(X), _TILE_ROWS):
            for j, (one, parts) in enumerate(self._measure(X[rows])):
                means[rows, j], variances[rows, j] = one.mix(parts, include_noise=include_noise)
        return means, variances

    def predict_mean(self, X: Array, include_noise: bool) -> Array:
        means = np.empty((len(X), len(self.outputs)))
        for rows in cut(len(X), _TILE_ROWS):
            for j, (one, parts) in enumerate(self._measure(X[rows], with_variance=False)):
                means[rows, j] = one.average(parts)
        return means

    def distribution(self, X: Array, include_noise: bool) -> OutputsDistribution:
        told = self._measure(X)
        return OutputsDistribution(
            tuple(one.distribute(parts, include_noise=include_noise) for one, parts in told)
        )

    def _measure(
        self, X: Array, *, with_variance: bool = True
    ) -> list[tuple[NeighbourPosterior, LocalMoments]]:
        """The outputs, and what the processes say of each."""
        groups: dict[int, list[NeighbourPosterior]] = {}
        for one in self.outputs:
            first = one.first if isinstance(one, TwinPosterior) else one
            groups.setdefault(id(first), []).append(one)
        told: dict[int, LocalMoments] = {}
        for twins in groups.values():
            each = measure_twins(twins, X, with_variance=with_variance)
            told |= zip(map(id, twins), each, strict=True)
        return [(one, told[id(one)]) for one in self.outputs]

    @property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs, averaged over outputs, which are not sure of the same."""
        return Relevance(*np.mean([output.relevance for output in self.outputs], axis=0))


@dataclass(frozen=True)
class SharedLearner(GPOutputsLearner):
    """The settings of outputs that have kernels, belief and noise in common.

    Each is in units of its own, and is predicted from its own rows; the inputs' units are the same.
    """

    def max_passes(self, y: list[Any]) -> int:
        longest = max((column for column in y if column is not None), key=len)
        return replace(self.single, n_inducing=None).max_passes(longest)

    def start(
        self, X: Observations, y: list[Any], rng: np.random.RandomState, before: Any
    ) -> list[Start]:
        for j in range(len(y)):
            X.refuse_unobserved(j)
        return self.single.start_outputs(X.rows, rng, None if before is None else before.outputs[0])

    def train(
        self, state: list[Start], X: Observations, y: list[Any], end_pass: EndPass
    ) -> GPOutputsState:
        conclude = partial(self.gather, X=X)
        return conclude(self.single.train_outputs(state, report_as(conclude, end_pass)))

    def rows_to_restart(
        self, state: OutputsState, X: Observations, y: list[Any]
    ) -> tuple[Observations, list[Any]] | None:
        """As for models of their own; units of inputs that are not learned follow every row."""
        if self.single.learn_hyperparameters or self.single.keeps(state.outputs[0]):
            return super().rows_to_restart(state, X, y)
        return self.join(state, X)

    def gather(self, outputs: tuple[State, ...], X: Observations) -> GPOutputsState:
        """The state of all outputs; those that were observed in the same rows share factors."""
        known: list[State] = []
        for output in outputs:
            twin = next((one for one in known if one.twin is None and one.is_twin(output)), None)
            known.append(output if output.twin is twin else replace(output, twin=twin))
        return super().gather(tuple(known), X)

    def posterior(self, state: OutputsState) -> SharedPosterior:
        return SharedPosterior(super().posterior(state).outputs)

    def attributes(self, state: OutputsState) -> dict[str, Any]:
        """Those that all have in common, and the noise of each."""
        each = [self.single.attributes(output) for output in state.outputs]
        scores = [one["log_predictive_density_"] for one in each]
        weights = [output.rows.count for output in state.outputs]
        return each[0] | {
            "n_neighbors_": max(one["n_neighbors_"] for one in each),
            "noise_variance_": np.array([one["noise_variance_"] for one in each]),
            "log_predictive_density_": float(np.average(scores, weights=weights)),
            "n_samples_seen_": state.n,
        }
