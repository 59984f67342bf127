"""The rows that a model knows, the distance by which some are near, and groups of such."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from skvbgp._core.copies import follow_rows, join_origins
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.pickling import PickledByFields
from skvbgp._core.scaling import Coordinates, RunningScale, Target
from skvbgp.base import FORGOTTEN, LARGEST_WEIGHT, Gaps, RowSearch
from skvbgp.gp._coregion import Covariance, JointCovariance, hide_outputs
from skvbgp.gp._places import Gathered, gather_rows
from skvbgp.gp._row_noise import RowNoise, discount_copies, merge_rows
from skvbgp.kernels._compose import leaves

Chunk = tuple[Array, Array, RowNoise | None]

#: Rows by which a stream judges whether the known ones are at one place.
LOOKED_AT = 1_000
#: Rows of a group: in neighbourhoods, at least, at most.
_GROUP_SIZE, _LEAST_GROUP, _MOST_GROUP = 1.2, 50, 300
#: Rows of groups of random ones, for each input, and most such groups.
_ROWS_OF_INPUT, _MOST_GROUPS = 80, 8


def weigh_inputs(kernel: Covariance, d: int) -> Array:
    """Weights (d,) of the inputs in the distance that a kernel goes by.

    The inverse squared length scales of its parts add up; a kernel without any weighs all inputs
    equally. Indicators of outputs are as far apart as these are.
    """
    if isinstance(kernel, JointCovariance):
        coregion = kernel.coregion
        return np.append(weigh_inputs(kernel.kernel, d - coregion.t), coregion.distances)
    scales = [leaf.length_scale for leaf in leaves(kernel) if hasattr(leaf, "length_scale")]
    if not scales:
        return np.ones(d)
    return np.sqrt(sum(np.broadcast_to(np.asarray(scale), (d,)) ** -2.0 for scale in scales))


def average_weights(kernels: Sequence[Covariance], d: int) -> Array:
    """Weights (d,) of a distance in between those that the kernels go by."""
    weights = np.array([weigh_inputs(kernel, d) for kernel in kernels])
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    return np.sqrt(np.mean(weights**2, axis=0))


@dataclass(frozen=True)
class Rows(PickledByFields):
    """All rows of a model, in chunks whose sizes fall at least by half.

    A chunk has a search structure of its own, so that neither adding a row nor searching depends
    much on how many there are; chunks of similar size are merged.
    """

    #: X, y and what is known of the noise, in the user's units.
    chunks: tuple[Chunk, ...] = field(default=())
    n_seen: int = 0  # rows that these have been made of
    #: (n_followed,): for each of the last n_followed of those, which row it has become, -1 for
    #: none; the ones before them are forgotten. None is one after the other, from the first.
    origin: Index | None = None
    #: (n_followed,): how much each of these counts, of which the rows' weights are the sums. None
    #: if there is no `origin`.
    counts: Array | None = None
    n_before: int = 0  # of those seen, the ones before the stream began that these belong to

    @classmethod
    def of(cls, X: Array, y: Array, weight: Array, variance: Array, *, merges: bool = True) -> Self:
        """Rows with weights and known variances (n,); equal ones are merged, if they may be."""
        X, y_kept, noise, origin = merge_rows(X, y, weight, variance, merges=merges)
        counts = None if origin is None else np.array(weight)
        return replace(cls().plus(X, y_kept, noise), n_seen=len(y), origin=origin, counts=counts)

    @classmethod
    def around(cls, X: Array, y: Array, noise: RowNoise | None = None) -> Self:
        """Rows that keep these very arrays: nobody else may write to them."""
        return cls(((X, y, noise),), len(y))

    def merged(self) -> Self:
        """The same rows, of which equal ones count as one."""
        noise = RowNoise.of(self.noise, len(self))
        rows = type(self).of(self.X, self.y, noise.weight, noise.variance)
        origin = follow_rows(self.origin, rows.origin)
        counts = None if origin is None else self._followed[1]
        rows = replace(rows, n_seen=self.n_seen, n_before=self.n_before)
        return replace(rows, origin=origin, counts=counts)

    def beginning_after(self, n: int) -> Self:
        """The rows of a stream that begins with them, after n others."""
        origin, counts = self._followed
        return replace(self, n_seen=self.n_seen + n, n_before=n, origin=origin, counts=counts)

    def aged(self, factor: float) -> Self:
        """The same rows, which count less by a factor, but not next to nothing."""
        noise, least = RowNoise.of(self.noise, len(self)), 1.0 / LARGEST_WEIGHT
        noise = replace(noise, weight=np.maximum(factor * noise.weight, least))
        counts = None if self.counts is None else np.maximum(factor * self.counts, least)
        return replace(self, chunks=((self.X, self.y, noise),), counts=counts)

    def newest(self, n: int | None, least: int = 0) -> Self:
        """What the last n seen have become, or ``least`` ones that count, and as often as these.

        None are those that do not count next to nothing beside the others.
        """
        origin, counts = self._followed
        kept = origin >= 0
        known = np.flatnonzero(kept)
        if n is None:
            kept &= counts >= FORGOTTEN * min(1.0, counts[known].max(initial=0.0))
        else:
            kept[: max(len(kept) - n, 0)] = False
            kept[known[len(known) - least :]] = True
        if kept.all() or not len(self):
            return self
        weight = np.bincount(origin[kept], counts[kept], len(self)).astype(np.float64)
        rows = weight > 0.0
        origin = np.where(kept, np.cumsum(rows)[origin] - 1, -1)
        X, y, noise = self._joined
        noise = None if noise is None else replace(noise[rows], weight=weight[rows])
        first = int(np.argmax(kept))  # a stream has no end: those before it are not followed
        chunks = ((X[rows], y[rows], noise),)
        return replace(self, chunks=chunks, origin=origin[first:], counts=counts[first:])

    def filled(self, gaps: Gaps) -> Self:
        """The same rows with the means of their missing entries, whose variances they note."""
        X, variance = gaps.fill(self.X)
        if variance is None:
            return self
        noise = RowNoise.of(self.noise, len(self))
        noise = replace(noise, inputs=variance[:, gaps.columns])
        return replace(self, chunks=((X, self.y, noise),))

    def emptied(self, gaps: Gaps) -> Self:
        """What has been `filled` is missing again."""
        if self.noise is None or self.inputs is None:
            return self
        X = self.X.copy()
        X[:, gaps.columns] = np.where(self.inputs > 0.0, np.nan, X[:, gaps.columns])
        noise = replace(self.noise, inputs=None)
        return replace(self, chunks=((X, self.y, noise),))

    def learn_gaps(self, n_outputs: int) -> Gaps:
        """What missing entries may be; the last columns, indicators of outputs, say nothing."""
        return Gaps.of(hide_outputs(self.X, n_outputs))

    def bring_gaps(self, gaps: Gaps) -> bool:
        """Whether a column that had no gaps has one here."""
        return gaps.precede(self.X)

    def summarise(self) -> tuple[RunningScale, RunningScale]:
        """Location and scale of X and of y."""
        weight = self.weight
        return RunningScale.of(self.X, weight), RunningScale.of(self.y[:, None], weight)

    def scaled(self, coordinates: Coordinates, target: Target) -> tuple[Any, Any]:
        """X and y in a frame, in which none of them is too far away."""
        return coordinates.scaled(self.X), target.scaled(self.y)

    def plus(self, X: Array, y: Array, noise: RowNoise | None = None) -> Self:
        """The rows followed by others."""
        return self.joined(Rows.around(X, y, noise))

    def joined(self, others: Rows) -> Self:
        """The rows followed by copies of others."""
        chunks = list(self.chunks)
        if len(others) or not chunks:
            X, y, noise = others._joined
            chunks.append((np.array(X), np.array(y), noise))
        while len(chunks) > 1 and len(chunks[-2][1]) < 2 * len(chunks[-1][1]):
            last, before = chunks.pop(), chunks.pop()
            chunks.append(_join_chunks([before, last]))
        rows = replace(self, chunks=tuple(chunks), n_seen=self.n_seen + others.n_seen)
        if self.origin is None and others.origin is None:
            return rows
        gone, (new, own) = others.n_forgotten, others._followed
        new, own = np.append(np.full(gone, -1), new), np.append(np.zeros(gone), own)
        origin = join_origins(self.origin, len(self), new, len(others))
        counts = np.append(self._followed[1], own)
        return replace(rows, origin=origin, counts=counts)

    @property
    def _followed(self) -> tuple[Index, Array]:
        """Which row each of those seen and not forgotten has become, and how much it counts."""
        if self.origin is not None:
            assert self.counts is not None
            return self.origin, self.counts
        weights = [
            np.ones(len(y)) if noise is None else noise.weight for _, y, noise in self.chunks
        ]
        return np.arange(len(self)), np.concatenate([np.empty(0), *weights])

    def list_seen(self) -> tuple[Index, Index, Array]:
        """Those seen that count: their numbers, the rows that they have become, and how often."""
        origin, counts = self._followed
        known = np.flatnonzero(origin >= 0)
        return self.n_forgotten + known, origin[known], counts[known]

    @property
    def n_forgotten(self) -> int:
        """Rows seen before the first one that is followed."""
        return 0 if self.origin is None else self.n_seen - len(self.origin)

    def __len__(self) -> int:
        return sum(len(y) for _, y, _ in self.chunks)

    @property
    def X(self) -> Array:
        """(n, d), the chunks one after the other."""
        return self._joined[0]

    @property
    def y(self) -> Array:
        """(n,)."""
        return self._joined[1]

    @property
    def noise(self) -> RowNoise | None:
        """What is known of the noise, if anything is."""
        return self._joined[2]

    def head(self, n: int) -> Array:
        """X of the first n rows; the chunks are not joined."""
        return np.concatenate([X[:n] for X, *_ in self.chunks])[:n]

    @property
    def inputs(self) -> Array | None:
        """Variances (n, g) of entries that had been missing, None if none had."""
        return None if self.noise is None else self.noise.inputs

    @property
    def weight(self) -> Array | None:
        """(n,), None if all are one."""
        return None if self.noise is None else self.noise.weight

    @property
    def count(self) -> float:
        """Number of rows, each as often as it counts; the chunks are not joined."""
        parts = [len(y) if noise is None else noise.weight.sum() for _, y, noise in self.chunks]
        return float(sum(parts))

    @property
    def first_seen(self) -> Index:
        """For each row, which of those seen was the first that has become it, (n,)."""
        if self.origin is None:
            return np.arange(len(self))
        rows, first = np.unique(self.origin, return_index=True)
        return self.n_forgotten + first[rows >= 0]

    def give_to_seen(self, values: Array) -> Array:
        """Values (n,) of the rows for all those seen, as they were given, NaN for the others."""
        if self.origin is None:
            return values
        known = np.where(self.origin >= 0, values[self.origin], np.nan)
        return np.append(np.full(self.n_forgotten, np.nan), known)

    @cached_property
    def discounted(self) -> RowNoise | None:
        """The noise of rows of which copies count once, see `discount_copies`."""
        return discount_copies(*self._joined)

    @cached_property
    def gathered(self) -> Gathered | None:
        """What says the same, one row for each place; None if there are too many of these."""
        return gather_rows(*self._joined)

    @cached_property
    def at_places(self) -> Rows:
        """The rows that do, or all as they are."""
        found = self.gathered
        if found is None:
            return self
        return Rows.around(self.X[found.first], found.y, found.noise)

    @cached_property
    def _joined(self) -> Chunk:
        return self.chunks[0] if len(self.chunks) == 1 else _join_chunks(self.chunks)


def _join_chunks(chunks: Sequence[Chunk]) -> Chunk:
    X, y, noise = zip(*chunks, strict=True)
    sizes = [len(part) for part in y]
    joined = RowNoise.joined(list(zip(noise, sizes, strict=True)))
    return np.concatenate(X), np.concatenate(y), joined


def size_groups(k: int) -> int:
    """Rows of each group that processes learn from which predict from k neighbours."""
    return int(np.clip(_GROUP_SIZE * k, _LEAST_GROUP, _MOST_GROUP))


def draw_groups(X: Array, n_groups: int, size: int, rng: np.random.RandomState) -> list[Index]:
    """Groups of rows: each the nearest ones of a random row, in the distance of X's coordinates."""
    size = min(size, len(X))
    if size == len(X):
        return [np.arange(len(X))]
    centres = rng.choice(len(X), min(n_groups, len(X)), replace=False)
    _, index = RowSearch(X, few_places=True).nearest(X[centres], size)
    return list(index)


def cut_groups(order: Index, size: int, n_inputs: int) -> list[Index]:
    """Groups of the first rows in a random order: the more inputs, the more hyperparameters."""
    n_groups = int(np.clip(math.ceil(_ROWS_OF_INPUT * n_inputs / size), 1, _MOST_GROUPS))
    return np.array_split(order[: n_groups * size], n_groups)
