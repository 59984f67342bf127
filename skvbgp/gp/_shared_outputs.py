"""Several outputs with the same hyperparameters, chosen by the sum of what all of them say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut
from skvbgp._optim.ascent import EndPass, report_as
from skvbgp.base import (
    Observations,
    OutputsDistribution,
    OutputsPosterior,
    OutputsState,
    Relevance,
)
from skvbgp.gp._learner import Start
from skvbgp.gp._mixture import LocalMoments
from skvbgp.gp._outputs import GPOutputsLearner, GPOutputsState
from skvbgp.gp._posterior import NeighbourPosterior, TwinPosterior, measure_twins
from skvbgp.gp._state import State

#: Rows of which all that the processes say of all outputs is in memory.
_TILE_ROWS = 2**12


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
