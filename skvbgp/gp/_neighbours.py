"""The neighbours of places, and what they say of these: a small matrix for each place.

Of many places in one call: a kernel takes longer to be called for the matrix of a hundred
neighbours than to compute it, and threads that call it often wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array, Bordered, factorise_bordered
from skvbgp._core.order import Index, cut
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import pick
from skvbgp.gp._conditional import leave_told
from skvbgp.gp._coregion import Covariance, JointCovariance
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.kernels import Constant
from skvbgp.kernels._compose import Composite, Product
from skvbgp.kernels._distance import factors, find_origins, squared_distances
from skvbgp.kernels._stationary import Exponential, Stationary, multiply_at

#: Entries of the matrices of a stack.
_STACK_SIZE = 3 * 2**17
#: Blocks of rows of which matrices are made: what is above them is not computed.
_BLOCKS = 4


class NearSets(NamedTuple):
    """The k neighbours of b places, the nearest one last."""

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
            yield rows, NearSets(matrices, targets, pick(self.noise, near[rows]))


def predict_rows(processes: tuple[Process, ...], known: KnownRows, X: Array, near: Index) -> Array:
    """Mean, variance, noise and evidence of rows by each process, (n, C, 4)."""
    sets = known.visit(processes, X, near)
    parts = [predict_from_matrices(processes, *one) for _, one in sets]
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
        parts = {kernel: _take_lower(K, rows) for kernel, K in matrices.items()}
        result[places] = predict_from_matrices(processes, parts, y[index], pick(noise, index))
    return result


def _take_lower(K: Array, rows: Index) -> Array:
    """The lower triangles of a matrix (m, m) between some sets of rows (b, n), (b, n, n)."""
    line = K.reshape(-1)  # which is read faster

    def take(own: slice) -> Array:
        return line.take(rows[:, own, None] * len(K) + rows[:, None, : own.stop])

    return _fill_lower(take, *rows.shape)


def _fill_lower(measure: Callable[[slice], Array], b: int, n: int) -> Array:
    """Matrices (b, n, n) of which some rows are measured up to the last of these as columns."""
    matrices = np.zeros((b, n, n))
    for start in range(0, n, -(-n // _BLOCKS)):
        rows = slice(start, min(start + -(-n // _BLOCKS), n))
        matrices[:, rows, : rows.stop] = measure(rows)
    return matrices


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


def count_sets(n: int) -> int:
    """How many sets of n rows make a stack; one if there is nothing to be gained."""
    return max(1, _STACK_SIZE // n**2)


def measure_stack(kernel: Covariance, X: Array) -> Array:
    """Matrices (b, n, n) at b sets of rows, (b, n, d), of which the lower triangles are to be read.

    That of a single set is whole.
    """
    b, n, _ = X.shape
    if b == 1:  # a large one; only half of it is computed
        return kernel(X[0])[None]
    return _fill_lower(_prepare(kernel, X), b, n)


def _prepare(kernel: Covariance, X: Array) -> Callable[[slice], Array]:
    """What gives some rows of the matrices, with all columns up to the last of these rows.

    Or what is the same for all entries as (1, 1, 1).
    """
    if isinstance(kernel, JointCovariance):
        inputs, outputs = kernel.coregion.split(X)
        measure = _prepare(kernel.kernel, inputs)
        left, right = outputs @ kernel.coregion.B, np.swapaxes(outputs, 1, 2)
        return lambda rows: measure(rows) * (left[:, rows] @ right[:, :, : rows.stop])
    if isinstance(kernel, Product):
        exponential, constant, others = kernel._groups
        if exponential:
            return _prepare_product(exponential, constant, [_prepare(one, X) for one in others], X)
    if isinstance(kernel, Composite):
        parts = [_prepare(part, X) for part in kernel.kernels]

        def combine(rows: slice) -> Array:
            blocks = sorted((part(rows) for part in parts), key=np.size, reverse=True)
            return kernel._combine(blocks)  # into the largest

        return combine
    if type(kernel) is Constant:
        value = np.full((1, 1, 1), kernel.value)
        return lambda rows: value.copy()
    # not one that inherits and has another covariance
    if isinstance(kernel, Stationary) and type(kernel).__call__ is Stationary.__call__:
        (measure,) = _prepare_distances([kernel], X)
        return lambda rows: kernel._radial(measure(rows))
    whole = np.stack([kernel(rows) for rows in X])
    return lambda rows: whole[:, rows, : rows.stop].copy()


def _prepare_product(
    exponential: Sequence[Exponential],
    constant: float,
    others: Sequence[Callable[[slice], Array]],
    X: Array,
) -> Callable[[slice], Array]:
    """The same of a product, of which some factors share an exponential."""
    distances = _prepare_distances(exponential, X)

    def multiply(rows: slice) -> Array:
        K = multiply_at(exponential, constant, (measure(rows) for measure in distances))
        for measure in others:
            K *= measure(rows)
        return K

    return multiply


def _prepare_distances(kernels: Sequence[Stationary], X: Array) -> list[Callable[[slice], Array]]:
    """What gives the squared distances of each kernel."""
    centred = X - find_origins(X)  # which rounds them less
    scaled = [centred / np.asarray(kernel.length_scale) for kernel in kernels]
    sides = [factors(one, one) for one in scaled]

    def prepare(left: Array, right: Array) -> Callable[[slice], Array]:
        return lambda rows: squared_distances(left[:, rows], right[:, : rows.stop], own=rows.start)

    return [prepare(*pair) for pair in sides]
