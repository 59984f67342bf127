"""The neighbours of places, and what they say of these: a small matrix for each place.

Of many places in one call: a hundred neighbours take longer to be called for than to be computed
with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array, Bordered, factorise_bordered
from skvbgp._core.order import Index, cut
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import pick
from skvbgp.gp._conditional import leave_told
from skvbgp.gp._coregion import Covariance
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._stack import count_sets, measure_stack


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


def measure_matrices(processes: Sequence[Process], X: Array) -> dict[Covariance, Array]:
    """By kernel of processes: the matrices (b, n, n) of some sets of rows (b, n, d)."""
    kernels = {process.covariance for process in processes}
    return {kernel: measure_stack(kernel, X) for kernel in kernels}


def predict_from_matrices(
    processes: Sequence[Process], K: dict[Covariance, Array], y: Array, known: RowNoise | None
) -> Array:
    """What processes say of b places, (b, C, 4), see `predict_places`.

    Those with the same kernel share its matrices.
    """
    lines = [predict_places(one, K[one.covariance], y, known)[0] for one in processes]
    return np.stack(lines, axis=1)


def predict_places(
    process: Process, K: Array, y: Array, known: RowNoise | None
) -> tuple[Array, Bordered]:
    """A line (4,) for each of b places, and what they were made from.

    Mean and variance of the latent function, its noise and the log evidence. K (b, n + 1, n + 1) is
    the kernel's of the neighbours, the nearest one last, and the place. The neighbours have targets
    (b, n), and maybe what is known of their noise.

    The entries of L^-1 y are standardised innovations: how far each row is from what those before
    it say. The nearest rows are the last, and the scale follows their innovations.
    """
    prior, k = K[:, -1, -1], K[:, -1, :-1]
    noise = np.broadcast_to(process.spread_noise(known), y.shape)
    bordered = factorise_bordered(K, y[:, None], noise)
    a, innovations = bordered.place, bordered.targets[:, 0]
    log_diagonal = np.log(np.diagonal(bordered.factor, axis1=1, axis2=2))
    share = process.count_nearest(y.shape[1])
    summary = process.summarise(innovations, log_diagonal, known, share)
    spread, evidence = process.follow(summary)
    least = leave_told(prior, np.sum(k**2 / noise, axis=1))
    variance = np.maximum(prior - np.sum(a**2, axis=1), least)
    lines = np.empty((len(y), 4))
    lines[:, 0], lines[:, 1] = np.sum(innovations * a, axis=1), spread * variance
    lines[:, 2], lines[:, 3] = spread * process.noise, evidence
    return lines, bordered
