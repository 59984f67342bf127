"""Rows that stay on the workers of a Dask cluster, and what is near to a place among them.

Groups of near rows, from which hyperparameters are learned, and neighbours, from which places are
predicted, are those of rows in memory, however the rows are divided (`base._spread_neighbours`).
Groups are fetched. A place goes to the shard that has most of its neighbours, together with the
others, and is predicted there.

Once the distance is known, each worker gets the rows of a box, so that most places ask few of them.
Rows have two numbers then: `ShardedColumns` have those of the collections, by which rows are drawn;
what is found near to a place, and fetched, has the later ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from skvbgp._core.blockwise import join_in_order
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, draw_first
from skvbgp._core.regions import move_to_boxes
from skvbgp._core.scaling import Coordinates, RunningScale, Target
from skvbgp._core.shard import Block, Shard, join_blocks
from skvbgp._core.shards import ShardedColumns, ShardedRows
from skvbgp.base import Draws, Gaps, find_near
from skvbgp.gp._conditional import Conditional
from skvbgp.gp._mixture import LocalMoments
from skvbgp.gp._neighbours import KnownRows, predict_rows
from skvbgp.gp._posterior import NeighbourPosterior
from skvbgp.gp._process import Process
from skvbgp.gp._rows import Rows
from skvbgp.gp.search._sample import Sample

#: Places that are predicted at a time.
_TILE_ROWS = 512


@dataclass(frozen=True)
class SpreadRows(Rows):
    """All rows of a model, of which only the workers have X and y.

    None has gaps, a weight or a known variance, and equal ones are not merged.
    """

    workers: ShardedRows = field(kw_only=True)  # those who have them

    @classmethod
    def at(cls, workers: ShardedRows) -> Self:
        """Rows that are there."""
        return cls(n_seen=workers.n, workers=workers)

    @cached_property
    def _joined(self) -> Any:
        return ShardedColumns(self.workers, "X"), ShardedColumns(self.workers, "y"), None

    def __len__(self) -> int:
        return self.workers.n

    @property
    def count(self) -> float:
        return float(len(self))

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

    @property
    def gathered(self) -> None:
        return None

    def summarise(self) -> tuple[RunningScale, RunningScale]:
        return self.workers.inputs, self.workers.scale

    def scaled(self, coordinates: Coordinates, target: Target) -> tuple[Any, Any]:
        self.workers.call(_check_near, (coordinates, target))
        X, y, _ = self._joined
        return _ScaledColumns(X, "X", coordinates), _ScaledColumns(y, "y", target)

    def joined(self, others: Rows) -> Self:
        assert isinstance(others, SpreadRows)
        return self.at(self.workers.joined(others.workers))


def settle(rows: Rows, coordinates: Coordinates, weights: Array) -> None:
    """Move rows on workers to where places will look for them, by this distance."""
    if isinstance(rows, SpreadRows):
        move_to_boxes(rows.workers, coordinates, weights)


class _ScaledColumns:
    """X or y in a frame, of which some rows may be asked for, by the numbers that they have now."""

    def __init__(self, columns: ShardedColumns, name: str, frame: Coordinates | Target) -> None:
        self.rows, self.name, self.frame = columns.rows, name, frame
        self.shape = columns.shape

    def __len__(self) -> int:
        return self.rows.n

    def __getitem__(self, index: Index) -> Array:
        return self.frame.scaled(getattr(self.rows.fetch(index), self.name))


class SpreadSample(Sample):
    """Groups, and rows that are left out, that come from the workers."""

    may_all_predict = False

    def _draw_order(self, size: int) -> Index:
        n = len(self.y)
        return self.X.rows.renumbered(draw_first(n, min(size, n), self.rng))

    def _find_groups(self, n_groups: int, size: int, weights: Array | None) -> list[Index]:
        rows, n = self.X.rows, len(self.y)
        weights = np.ones(self.d) if weights is None else weights
        centres = self.X.frame.scaled(rows.fetch(self._draw_order(n_groups)).X)
        return list(find_near(rows, self.X.frame, weights, centres, min(size, n)))


class SpreadPosterior(NeighbourPosterior):
    """A posterior of `SpreadRows`: neighbours come when a place is predicted."""

    rows: SpreadRows

    def find(self, X: Array, k: int | None = None) -> Index:
        scaled, k = self.coordinates.scaled(X), k or self.k
        return find_near(self.rows.workers, self.coordinates, self.weights, scaled, k)

    def bring(self, near: Index) -> tuple[NeighbourPosterior, Index]:
        index, places = np.unique(near, return_inverse=True)
        rows = Rows().plus(*self.rows.workers.fetch(index))
        here = NeighbourPosterior(**{**self.__getstate__(), "rows": rows})
        return here, places.reshape(near.shape)

    def draw_functions(self, n: int, rng: np.random.RandomState) -> Draws:
        raise TypeError(
            "sample_function needs a model of rows in memory, not of a Dask collection."
        )

    def leave_out_all(self) -> tuple[Array, Array]:
        raise TypeError("loo_predict needs a model of rows in memory, not of a Dask collection.")

    def condition(self, index: Any, *, in_blocks: bool = False) -> tuple[Conditional, ...]:
        here, places = self.bring(index)
        return here.condition(places, in_blocks=in_blocks)

    def _measure(self, X: Array, *, with_variance: bool = True) -> LocalMoments:
        """In turns, each of which has places from all of X: all workers have something to do."""
        measure = partial(super()._measure, with_variance=with_variance)
        n = -(-len(X) // _TILE_ROWS)
        rows = [np.arange(i, len(X), n) for i in range(n)]
        return LocalMoments(*join_in_order([measure(X[some]) for some in rows], rows))

    def _measure_near(self, X: Array, near: Index) -> LocalMoments:
        workers = self.rows.workers
        sizes, (shard, local) = workers.shard_sizes, workers.locate(near)
        by_shard = [np.sum(shard == s, axis=1) for s in range(workers.n_shards)]
        home = np.argmax(by_shard, axis=0)
        is_far, places, tasks = shard != home[:, None], {}, {}
        far = np.unique(near[is_far])
        fetched = workers.fetch(far)
        for s in np.unique(home).tolist():
            places[s] = own = np.flatnonzero(home == s)
            used, at = np.unique(near[own][is_far[own]], return_inverse=True)
            index = local[own]
            index[is_far[own]] = sizes[s] + at
            sent = Block(*(values[np.searchsorted(far, used)] for values in fetched))
            tasks[s] = (self.mixture.processes, self.coordinates, self.target, X[own], index, sent)
        parts = workers.call_some(_predict_in_shard, tasks)
        tiles = [LocalMoments.of_lines(part) for part in parts]
        return LocalMoments(*join_in_order(tiles, list(places.values())))


# -- what runs on the workers --------------------------------------------------------------------


def _check_near(coordinates: Coordinates, target: Target, shard: Shard) -> None:
    for block in shard.blocks:
        coordinates.scaled(block.X)
        target.scaled(block.y)


def _predict_in_shard(
    processes: tuple[Process, ...],
    coordinates: Coordinates,
    target: Target,
    X: Array,
    near: Index,
    others: Block,
    shard: Shard,
) -> Array:
    """What processes say of rows X, (n, C, 4), from rows of the shard and others behind them."""
    used, places = np.unique(near, return_inverse=True)
    own = shard.rows(used[: len(used) - len(others.y)])
    known = KnownRows(coordinates, target, *join_blocks([own, others]), None)
    return predict_rows(processes, known, X, places.reshape(near.shape))
