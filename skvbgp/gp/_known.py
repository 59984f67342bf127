"""The neighbours of places, and what they say of these: a small matrix for each place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, cut
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import pick
from skvbgp.gp._coregion import Covariance
from skvbgp.gp._local import measure_matrices, predict_from_matrices
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._stack import count_sets


class NearSets(NamedTuple):
    """The neighbours of b places, the nearest one last."""

    near: Index  # (b, k)
    matrices: dict[Covariance, Array]  # by kernel, (b, k + 1, k + 1), the places are the last
    y: Array  # (b, k), scaled
    noise: RowNoise | None  # what is known of it


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
    ) -> Iterator[tuple[slice, NearSets]]:
        """What is needed to predict some at a time of other rows X, and which these are.

        The neighbours (n, k) are given nearest first.
        """
        near = near[:, ::-1]
        for rows in cut(len(X), count_sets(near.shape[1] + 1)):
            both = np.concatenate([self.X[near[rows]], X[rows, None]], axis=1)
            matrices = measure_matrices(processes, self.coordinates.scaled(both))
            targets = self.target.scaled(self.y[near[rows]])
            yield rows, NearSets(near[rows], matrices, targets, pick(self.noise, near[rows]))


def predict_rows(processes: tuple[Process, ...], known: KnownRows, X: Array, near: Index) -> Array:
    """Mean, variance, noise and evidence of rows by each process, (n, C, 4)."""
    sets = known.visit(processes, X, near)
    parts = [predict_from_matrices(processes, *one[1:]) for _, one in sets]
    return np.concatenate([np.empty((0, len(processes), 4)), *parts])


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
    for places in cut(len(own), count_sets(near.shape[1] + 1)):
        index = near[places, ::-1]
        rows = np.column_stack([index, own[places]])
        # of the matrix as one line, which is read faster
        both = rows[:, :, None] * len(y) + rows[:, None, :]
        parts = {kernel: K.reshape(-1).take(both) for kernel, K in matrices.items()}
        result[places] = predict_from_matrices(processes, parts, y[index], pick(noise, index))
    return result
