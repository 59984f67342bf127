"""Rows that stay on the workers of a Dask cluster, and what is near to a place among them.

Every shard finds its own nearest rows of a place; the nearest of all are among them. A shard is not
asked if all of its rows are farther than those that others have found. So groups of near rows, from
which hyperparameters are learned, and neighbours, from which places are predicted, are those of
rows in memory, however the rows are divided. They alone are fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, draw_first
from skvbgp._core.scaling import Coordinates, RunningScale, Target
from skvbgp._core.shards import Shard, ShardedColumns, ShardedRows
from skvbgp.base import Places
from skvbgp.gp._gaps import Gaps
from skvbgp.gp._near import NearRows
from skvbgp.gp._neighbours import Rows
from skvbgp.gp._posterior import LocalMoments, NeighbourPosterior
from skvbgp.gp._search import Search

#: Places whose neighbours are in memory at a time.
_TILE_ROWS = 512
#: Distances may be wrong by this share.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class SpreadRows(Rows):
    """All rows of a model, of which only the workers have X and y.

    None has gaps, a weight or a known variance, and equal ones are not merged.
    """

    sharded: ShardedRows | None = None

    @classmethod
    def at(cls, sharded: ShardedRows) -> Self:
        """Rows that are there."""
        return cls(n_seen=sharded.n, sharded=sharded)

    @property
    def workers(self) -> ShardedRows:
        """Those who have them."""
        assert self.sharded is not None
        return self.sharded

    @cached_property
    def _joined(self) -> Any:
        return ShardedColumns(self.workers, "X"), ShardedColumns(self.workers, "y"), None

    def __len__(self) -> int:
        return self.workers.n

    def head(self, n: int) -> Array:
        return self.X[:n]

    def learn_gaps(self, n_outputs: int) -> Gaps:
        return Gaps.of_whole(self.workers.inputs, self._joined[0])

    def bring_gaps(self, gaps: Gaps) -> bool:
        return False

    def filled(self, gaps: Gaps) -> Self:
        return self

    def merged(self) -> Self:
        return self

    def summarise(self) -> tuple[RunningScale, RunningScale]:
        return self.workers.inputs, self.workers.scale

    def scaled(self, coordinates: Coordinates, target: Target) -> tuple[Any, Any]:
        self.workers.call(_check_near, (coordinates, target))
        return _ScaledColumns(self._joined[0], coordinates), _ScaledColumns(self._joined[1], target)

    def joined(self, others: Rows) -> Self:
        assert isinstance(others, SpreadRows)
        return self.at(self.workers.joined(others.workers))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "sharded": self.sharded}


def refuse_spread(rows: Rows, purpose: str) -> None:
    """Raise TypeError if rows are on workers."""
    if isinstance(rows, SpreadRows):
        raise TypeError(f"{purpose} needs a model of rows in memory, not of a Dask collection.")


class _ScaledColumns:
    """X or y in a frame, of which some rows may be asked for."""

    def __init__(self, columns: ShardedColumns, frame: Coordinates | Target) -> None:
        self.columns, self.frame = columns, frame
        self.shape = columns.shape

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, index: Index) -> Array:
        return self.frame.scaled(self.columns[index])


@dataclass
class SpreadSearch(Search):
    """A search whose groups, and whose rows that are left out, come from the workers."""

    X: Any
    y: Any

    def _draw_order(self, size: int) -> Index:
        n = len(self.y)
        return draw_first(n, min(size, n), self.rng).astype(np.intp)

    def _find_groups(self, n_groups: int, size: int) -> list[Index]:
        columns, n = self.X.columns, len(self.y)
        centres = columns[self._draw_order(n_groups)]
        equal = np.ones(columns.shape[1])
        return list(find_near(columns.rows, self.X.frame, equal, centres, min(size, n)))


class SpreadPosterior(NeighbourPosterior):
    """A posterior of `SpreadRows`: neighbours come when a place is predicted."""

    rows: SpreadRows

    def find(self, X: Array, k: int | None = None) -> Index:
        return find_near(self.rows.workers, self.coordinates, self.weights, X, k or self.k)

    def bring(self, near: Index) -> tuple[NeighbourPosterior, Index]:
        index, places = np.unique(near, return_inverse=True)
        rows = Rows().plus(*self.rows.workers.fetch(index))
        here = NeighbourPosterior(**{**NearRows.__getstate__(self), "rows": rows})
        return here, places.reshape(near.shape)

    def _measure_near(self, X: Array, near: Index) -> LocalMoments:
        def measure(rows: slice) -> LocalMoments:
            here, places = self.bring(near[rows])
            return here._measure_near(X[rows], places)

        tiles = [measure(slice(i, i + _TILE_ROWS)) for i in range(0, len(X), _TILE_ROWS)]
        return LocalMoments(*(np.concatenate(parts) for parts in zip(*tiles, strict=True)))


def find_near(
    rows: ShardedRows, coordinates: Coordinates, weights: Array, X: Array, k: int
) -> Index:
    """Numbers (n, k) of the rows that are nearest to each of X, nearest first.

    Distances are those of scaled coordinates times weights; of equally near rows, the first.
    """
    tiles = [X[i : i + _TILE_ROWS] for i in range(0, len(X), _TILE_ROWS)]
    return np.concatenate([_Finding(rows, coordinates, weights, tile, k).run() for tile in tiles])


class _Finding:
    """What has been found of the rows that are near to some places."""

    def __init__(
        self, rows: ShardedRows, coordinates: Coordinates, weights: Array, X: Array, k: int
    ) -> None:
        self.rows, self.frame, self.X, self.k = rows, (coordinates, weights), X, k
        self.distance = np.full((len(X), k), np.inf)
        self.index = np.full((len(X), k), rows.n, dtype=np.intp)  # no row

    def run(self) -> Index:
        """Ask the shards around a place, and then those that may have a nearer row."""
        gaps = self._measure_gaps()
        first = gaps <= gaps.min(axis=1, keepdims=True)
        self._ask(first)
        farthest = self.distance[:, -1:] * (1.0 + _ROUNDING)
        self._ask(~first & (gaps <= farthest))
        return self.index

    def _measure_gaps(self) -> Array:
        """Distances (n, n_shards) of places from the boxes that have the rows of each shard."""
        x = _locate(*self.frame, self.X)
        gaps = []
        for box in self.rows.boxes:
            low, high = _locate(*self.frame, box)
            gaps.append(np.linalg.norm(np.maximum(np.maximum(low - x, x - high), 0.0), axis=1))
        return np.column_stack(gaps)

    def _ask(self, chosen: NDArray[np.bool_]) -> None:
        """Take the nearest rows of shards into account, for places chosen by (n, n_shards)."""
        places = {s: np.flatnonzero(mine) for s, mine in enumerate(chosen.T) if mine.any()}
        tasks = {s: (*self.frame, self.X[own], self.k) for s, own in places.items()}
        parts = self.rows.call_some(_find_in_shard, tasks)
        for (s, own), (distance, local) in zip(places.items(), parts, strict=True):
            distance = np.hstack([self.distance[own], distance])
            index = np.hstack([self.index[own], self.rows.number(s, local)])
            nearest = np.lexsort((index, distance), axis=1)[:, : self.k]
            self.distance[own] = np.take_along_axis(distance, nearest, axis=1)
            self.index[own] = np.take_along_axis(index, nearest, axis=1)


# -- what runs on the workers --------------------------------------------------------------------


def _check_near(coordinates: Coordinates, target: Target, shard: Shard) -> None:
    for block in shard.blocks:
        coordinates.scaled(block.X)
        target.scaled(block.y)


def _locate(coordinates: Coordinates, weights: Array, X: Array) -> Array:
    return coordinates.scaled(X) * weights


def _find_in_shard(
    coordinates: Coordinates, weights: Array, X: Array, k: int, shard: Shard
) -> tuple[Array, Index]:
    """Distances and places in the shard (n, k), or less of them, of its rows nearest to X."""

    def index_places() -> Places:
        parts = [_locate(coordinates, weights, block.X) for block in shard.blocks]
        return Places(np.concatenate(parts))

    key = tuple(part.tobytes() for part in (coordinates.offset, coordinates.scale, weights))
    size = sum(len(block.y) for block in shard.blocks)
    places: Places = shard.keep(key, index_places)
    return places.nearest(_locate(coordinates, weights, X), min(k, size))
