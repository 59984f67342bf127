"""The neighbours of places, and what they say of these: one small matrix for each place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import pick
from skvbgp.gp._conditional import measure_matrices, predict_from_matrices
from skvbgp.gp._coregion import Covariance
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._stack import count_sets


@dataclass(frozen=True)
class KnownRows:
    """Rows in the user's units, and the frames of the processes that know them."""

    coordinates: Coordinates
    target: Target
    X: Array  # (n, d)
    y: Array  # (n,)
    noise: RowNoise | None  # of the scaled targets

    def visit(
        self, processes: tuple[Process, ...], X: Array, near: Index
    ) -> Iterator[tuple[Index, dict[Covariance, Array], Array, RowNoise | None]]:
        """What is needed to predict each of other rows X from its neighbours (n, k), nearest first.

        Indices of these, the nearest last, by kernel the matrix (k + 1, k + 1) of them and the row,
        their scaled targets and what is known of their noise.
        """
        near = near[:, ::-1]
        step = count_sets(near.shape[1] + 1)
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            both = np.concatenate([self.X[near[rows]], X[rows, None]], axis=1)
            matrices = measure_matrices(processes, self.coordinates.scaled(both))
            targets = self.target.scaled(self.y[near[rows]])
            for index, K, y in zip(near[rows], matrices, targets, strict=True):
                yield index, K, y, pick(self.noise, index)


def predict_rows(processes: tuple[Process, ...], known: KnownRows, X: Array, near: Index) -> Array:
    """Mean, variance, noise and evidence of rows by each process, (n, C, 4)."""
    result = np.empty((len(X), len(processes), 4))
    for i, (_, K, y, noise) in enumerate(known.visit(processes, X, near)):
        result[i] = predict_from_matrices(processes, K, y, noise)
    return result


def predict_known(
    processes: tuple[Process, ...],
    matrices: dict[Covariance, Array],
    y: Array,
    noise: RowNoise | None,
    own: Index,
    near: Index,
) -> Array:
    """The same as `predict_rows`, of known rows and from the matrices (n, n) of all of them."""
    result = np.empty((len(own), len(processes), 4))
    for i, nearest_first in enumerate(near):
        index = nearest_first[::-1]
        rows = np.append(index, own[i])
        both = rows[:, None] * len(y) + rows  # of the matrix as one line, which is read faster
        parts = {kernel: K.reshape(-1).take(both) for kernel, K in matrices.items()}
        near_noise = pick(noise, index)
        result[i] = predict_from_matrices(processes, parts, y[index], near_noise)
    return result
