"""The nearest rows of any place, where only Dask's workers have the rows.

Every shard finds its own nearest rows of a place; the nearest of all are among them. A shard is not
asked if all of its rows are farther than those that others have found, nor for more rows than its
share of them at first.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, cut
from skvbgp._core.scaling import Coordinates
from skvbgp._core.shard import Block, Shard
from skvbgp._core.shards import ShardedRows
from skvbgp.base._neighbours import RowSearch, keep_nearest, pays_tree

#: Places that are searched at a time.
_TILE_ROWS = 512
#: Rows of a leaf of a worker's tree: with half of them it takes half as much memory again.
_LEAF_ROWS = 32
#: A worker looks for so many places without a tree.
_LISTED_PLACES = 64
#: A shard is asked for more than its share of the nearest rows, by so many standard deviations of
#: the number of them that it would have if the rows were divided at random.
_MARGIN = 3.0
#: Distances may be wrong by this share.
_ROUNDING = 1e-6


def find_near(
    rows: ShardedRows, coordinates: Coordinates, weights: Array, X: Array, k: int
) -> Index:
    """Numbers (n, k) of the rows that are nearest to each of X (scaled), nearest first.

    Distances are those of scaled coordinates times weights; of equally near rows, the first.
    """
    tiles = [X[some] * weights for some in cut(len(X), _TILE_ROWS)]
    return np.concatenate([_Finding(rows, coordinates, weights, tile, k).run() for tile in tiles])


class _Finding:
    """A search for the rows near to places x, in coordinates whose distance is the weighted one."""

    def __init__(
        self, rows: ShardedRows, coordinates: Coordinates, weights: Array, x: Array, k: int
    ) -> None:
        self.rows, self.frame, self.x, self.k = rows, (coordinates, weights), x, k
        self.distance = np.full((len(x), k), np.inf)
        self.index = np.full((len(x), k), rows.n, dtype=np.intp)  # no row

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
        gaps = []
        for box in self.rows.boxes:
            low, high = _locate(*self.frame, box)
            outside = np.maximum(np.maximum(low - self.x, self.x - high), 0.0)
            gaps.append(np.linalg.norm(outside, axis=1))
        return np.column_stack(gaps)

    def _ask(self, chosen: NDArray[np.bool_]) -> None:
        """Take the nearest rows of shards into account, for places chosen by (n, n_shards).

        Of several shards, each is asked for little more than its share of k rows, and again for all
        k if it may have more of the nearest.
        """
        share = self.k / np.maximum(chosen.sum(axis=1), 1)
        some = np.minimum(np.ceil(share + _MARGIN * np.sqrt(share)), self.k).astype(np.intp)
        farthest_told = self._ask_for(chosen, some)
        may_have_more = farthest_told <= self.distance[:, -1:] * (1.0 + _ROUNDING)
        self._ask_for(chosen & may_have_more, np.full(len(self.x), self.k))

    def _ask_for(self, chosen: NDArray[np.bool_], most: NDArray[np.intp]) -> Array:
        """The same for no more than so many rows (n,) of a shard.

        Returns the distances (n, n_shards) of the last rows that the shards have told of, NaN where
        one has no other row.
        """
        places = {s: np.flatnonzero(mine) for s, mine in enumerate(chosen.T) if mine.any()}
        tasks = {s: (*self.frame, self.x[own], int(most[own].max())) for s, own in places.items()}
        parts = self.rows.call_some(_find_in_shard, tasks)
        farthest_told = np.full(chosen.shape, np.nan)
        for (s, own), (distance, local) in zip(places.items(), parts, strict=True):
            self._merge(own, distance, self.rows.number(s, local))
            if distance.shape[1] == tasks[s][-1] < self.k:
                farthest_told[own, s] = distance[:, -1]
        return farthest_told

    def _merge(self, own: NDArray[np.intp], distance: Array, index: Index) -> None:
        """Keep the nearest rows of some places (n*,), of these and those that are known."""
        known = self.index[own]
        is_known = (index[:, :, None] == known[:, None, :]).any(axis=2)  # when asked again
        distance = np.hstack([self.distance[own], np.where(is_known, np.inf, distance)])
        index = np.hstack([known, np.where(is_known, self.rows.n, index)])
        self.distance[own], self.index[own] = keep_nearest(distance, index, self.k)


# -- what runs on the workers --------------------------------------------------------------------


def _locate(coordinates: Coordinates, weights: Array, X: Array) -> Array:
    return coordinates.scaled(X) * weights


class _ShardPlaces:
    """Where the rows of a shard are in one distance: a list, and once it pays a tree.

    A tree takes the time of many searches without one, and as much memory again as the rows: the
    few places of a fit do without.
    """

    def __init__(self, coordinates: Coordinates, weights: Array, blocks: list[Block]) -> None:
        self._frame, self._blocks = (coordinates, weights), blocks
        self.size = sum(len(block.y) for block in blocks)
        self._n_listed = 0  # places that were looked for without a tree

    def nearest(self, x: Array, k: int) -> tuple[Array, Index]:
        """Distances and indices (n, k) of the k nearest rows of places x."""
        self._n_listed += len(x)
        if self._n_listed > _LISTED_PLACES or not pays_tree(x.shape[1]):
            return self._tree.nearest(x, k)
        distance, index, first = np.empty((len(x), 0)), np.empty((len(x), 0), dtype=np.intp), 0
        for block in self._blocks:
            n = len(block.y)  # one leaf: distances are rounded as in a tree of all rows
            told, local = RowSearch(_locate(*self._frame, block.X), n).nearest(x, min(k, n))
            distance, index = np.hstack([distance, told]), np.hstack([index, first + local])
            distance, index = keep_nearest(distance, index, k)
            first += n
        return distance, index

    @cached_property
    def _tree(self) -> RowSearch:
        located, n = np.empty((self.size, len(self._frame[1]))), 0
        for block in self._blocks:  # one at a time: all rows at once are half of the memory
            located[n : n + len(block.y)] = _locate(*self._frame, block.X)
            n += len(block.y)
        return RowSearch(located, _LEAF_ROWS)


def _find_in_shard(
    coordinates: Coordinates, weights: Array, x: Array, k: int, shard: Shard
) -> tuple[Array, Index]:
    """Distances and places in the shard (n, k), or less of them, of its rows nearest to x."""
    key = tuple(part.tobytes() for part in (*coordinates.parts, weights))
    places: _ShardPlaces = shard.keep(
        "places", key, lambda: _ShardPlaces(coordinates, weights, shard.blocks)
    )
    return places.nearest(x, min(k, places.size))
