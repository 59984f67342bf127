"""Draws of processes a priori, from random features."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp.gp._coregion import Coregion
from skvbgp.gp._process import Process
from skvbgp.kernels._features import (
    FREQUENCIES,
    SHARING,
    Features,
    PriorPaths,
    draw_features,
    multiply_columns,
)

#: The least frequencies of each term of a kernel, and those of all processes.
_LEAST_FREQUENCIES, _ALL_FREQUENCIES = 128, 4096


@dataclass(frozen=True)
class JointFeatures:
    """Features of several outputs: every feature of the inputs times each of B^1/2 z."""

    features: Features
    coregion: Coregion

    def __call__(self, X: Array) -> Array:
        inputs, outputs = self.coregion.split(X)
        parts = outputs @ self.coregion.root
        return multiply_columns(self.features(inputs), parts)

    def times(self, X: Array, weights: Array) -> Array:
        """Functions (n, s) that have weights (F, s)."""
        inputs, outputs = self.coregion.split(X)
        parts, s = outputs @ self.coregion.root, weights.shape[1]
        by_part = self.features.times(inputs, weights.reshape(-1, parts.shape[1] * s))
        return np.einsum("nt,nts->ns", parts, by_part.reshape(*parts.shape, s))

    def gradient(self, x: Array) -> Array:
        """Derivatives (F, d + t) of the features at one row x, zero in its indicator."""
        inputs, output = self.coregion.split(x)
        slopes = self.features.gradient(inputs)[:, None, :] * (output @ self.coregion.root)[:, None]
        slopes = slopes.reshape(-1, len(inputs))
        return np.hstack([slopes, np.zeros((len(slopes), len(output)))])


def draw_process_features(
    process: Process, d: int, m: int, rng: np.random.RandomState
) -> Features | JointFeatures:
    """Features of a process of d columns, with m random frequencies for each of its terms."""
    coregion = process.coregion
    if coregion is None:
        return draw_features(process.kernel, d, m, rng)
    return JointFeatures(draw_features(process.kernel, d - coregion.t, m, rng), coregion)


@dataclass(frozen=True)
class PriorDraws:
    """Functions from a process a priori, in sets that have random features in common.

    Every set has other frequencies, so that averages over functions are those over frequencies,
    too.
    """

    d: int
    sets: tuple[PriorPaths, ...]

    @classmethod
    def draw(
        cls, process: Process, d: int, n: int, rng: np.random.RandomState, among: int = 1
    ) -> Self:
        """Functions n of d columns, where this process is one among others."""
        m = int(np.clip(_ALL_FREQUENCIES // among, _LEAST_FREQUENCIES, FREQUENCIES))
        sets = []
        for start in range(0, n, SHARING):
            features = draw_process_features(process, d, m, rng)
            size = features(np.zeros((1, d))).shape[1]
            weights = rng.standard_normal((size, min(SHARING, n - start)))
            sets.append(PriorPaths(features, weights))
        return cls(d, tuple(sets))

    def __call__(self, X: Array) -> Array:
        """Values (n, S) at scaled rows."""
        return np.hstack([np.empty((len(X), 0)), *(functions(X) for functions in self.sets)])

    @property
    def columns(self) -> list[slice]:
        """Which functions each set has."""
        ends = np.cumsum([0, *(one.weights.shape[1] for one in self.sets)]).tolist()
        return [slice(*both) for both in itertools.pairwise(ends)]

    def visit(self, wanted: NDArray[np.bool_]) -> Iterator[tuple[int, slice, Index]]:
        """Sets of which functions are wanted (n, S): which functions they have, and at which rows.

        A set takes no time at rows where none of its values is.
        """
        for i, own in enumerate(self.columns):
            yield i, own, np.flatnonzero(wanted[:, own].any(axis=1))

    def evaluate(self, X: Array, wanted: NDArray[np.bool_]) -> Array:
        """The same as a call where wanted (n, S)."""
        values = np.zeros(wanted.shape)
        for i, own, rows in self.visit(wanted):
            values[rows, own] = self.sets[i](X[rows])
        return values

    def gradient(self, x: Array) -> Array:
        """Derivatives (d, S) at one scaled row."""
        return np.hstack([np.empty((self.d, 0)), *(one.gradient(x) for one in self.sets)])
