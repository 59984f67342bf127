"""Cells of the input space, whose places are predicted from the same rows: those around the cell.

A factor of many rows takes longer than one of a few neighbours, but it serves all places of a cell.
Rows that are left out say whether cells are better than neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skvbgp._core.block_cache import BlockCache
from skvbgp._core.blockwise import join_in_order
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import thread_map
from skvbgp._core.partition import Partition, balanced_partition, cut_by_block, group_rows
from skvbgp.base import SmallSearch, pick
from skvbgp.gp._belief import judge_state
from skvbgp.gp._gradient import Slopes
from skvbgp.gp._mixture import LocalMoments
from skvbgp.gp._posterior import NeighbourPosterior
from skvbgp.gp._row_noise import have_same_noise
from skvbgp.gp._rows import Rows
from skvbgp.gp._spread import SpreadRows

if TYPE_CHECKING:
    from skvbgp.gp._learner import GPLearner
    from skvbgp.gp._state import State

#: The label of places that are predicted from their neighbours.
_OUTSIDE = -1
#: Rows that predict the places of a cell: so many times the neighbours, or more.
_NEIGHBOURS, _LEAST_SIZE = 4, 512
#: Rows of a cell, more if factors of all cells took more multiplications than these.
_OWN_ROWS, _MOST_WORK = 128, 200 * 1_600**3
#: For how many rows they are tried: of fewer, all compete as neighbours, and of more, a prediction
#: of places everywhere would take long.
_LEAST_ROWS, _MOST_ROWS = 3_000, 50_000
#: Cells that are judged. The rows of each that are left out have so many neighbours.
_JUDGED_CELLS, _JUDGED_NEIGHBOURS = 24, 128 * 128
#: What cells have to gain, in nats a row, where they take the most work for each process.
_LEAST_GAIN = 0.01


class Cells(NamedTuple):
    """Of rows in the coordinates of the distance, and how many of these predict each."""

    partition: Partition
    size: int


class Cell(NamedTuple):
    """What predicts the places of a cell, and which of all rows it knows."""

    posterior: NeighbourPosterior
    known: Index  # ascending

    @property
    def n_bytes(self) -> int:
        """What a matrix of its rows for each process takes."""
        return 8 * len(self.posterior.mixture.processes) * len(self.known) ** 2


@dataclass(frozen=True)
class CellPosterior(NeighbourPosterior):
    """A mixture given the rows; every place is predicted from the rows nearest to its cell's mean.

    If the row that is nearest to a place is not one of these, its own k nearest rows predict it.
    """

    cells: Cells = field(kw_only=True)

    @cached_property
    def neighbours(self) -> NeighbourPosterior:
        """The posterior without cells."""
        fields = {name: value for name, value in self.__getstate__().items() if name != "cells"}
        posterior = NeighbourPosterior(**fields)
        vars(posterior)["_neighbourhoods"] = self._neighbourhoods
        return posterior

    def go_on(self, before: NeighbourPosterior) -> None:
        """Take over the cells whose rows have stayed the same."""
        frame = self.coordinates, self.target, self.mixture.processes
        known = before.coordinates, before.target, before.mixture.processes
        if isinstance(before, CellPosterior) and all(map(is_, frame, known)):
            vars(self)["_recent"] = before._recent

    def by_part(
        self,
        function: Callable[[NeighbourPosterior, Index, Array], tuple[Array, ...]],
        X: Array,
    ) -> tuple[Array, ...]:
        labels = self._label(X, self.find(X, 1)[:, 0])
        return self._map_cells(lambda cell, places: function(*cell, X[places]), labels)

    def _measure(self, X: Array, *, with_variance: bool = True) -> LocalMoments:
        def measure(part: NeighbourPosterior, _: Any, X: Array) -> LocalMoments:
            part.factorise_in_blocks()
            return part._measure(X, with_variance=with_variance)

        return LocalMoments(*self.by_part(measure, X))

    def measure_slopes(self, X: Array) -> Slopes:
        def measure(part: NeighbourPosterior, _: Any, X: Array) -> Slopes:
            part.factorise_in_blocks()
            return part.measure_slopes(X)

        return Slopes(*self.by_part(measure, X))

    def _leave_out(self, index: Index) -> LocalMoments:
        def leave_out(cell: Cell, places: Index) -> LocalMoments:
            cell.posterior.factorise_in_blocks()
            return cell.posterior._leave_out(np.searchsorted(cell.known, index[places]))

        return LocalMoments(*self._map_cells(leave_out, self._label(self.rows.X[index], index)))

    def _label(self, X: Array, nearest: Index) -> Index:
        """The cell of each of rows X whose nearest known row (n,) is one of its own."""
        labels = self.cells.partition.lookup(self._locate(X))
        pieces = cut_by_block(labels, len(X))
        thread_map(self._find_rows, [(c,) for c, _ in pieces])  # which are kept
        for c, places in pieces:
            labels[places[~np.isin(nearest[places], self._find_rows(c))]] = _OUTSIDE
        return labels

    def _map_cells(
        self,
        function: Callable[[Cell, Index], tuple[Array, ...]],
        labels: Index,
    ) -> tuple[Array, ...]:
        """What a function says of places (n,), cell by cell on several threads."""
        pieces = cut_by_block(labels, len(labels))
        parts = []
        if pieces[0][0] == _OUTSIDE:  # joblib's workers may predict these
            parts.append(function(Cell(self.neighbours, np.arange(len(self.rows))), pieces[0][1]))
        tasks = pieces[len(parts) :]
        parts += thread_map(lambda c, places: function(self._recall(c), places), tasks)
        return join_in_order(parts, [places for _, places in pieces])

    def _find_rows(self, c: int) -> Index:
        """Which rows (m,) predict the places of a cell, ascending."""
        if c not in self._rows_of:
            mean, size = self.cells.partition.centers[c : c + 1], self.cells.size
            self._rows_of[c] = np.sort(self._neighbourhoods.find(mean, size)[0])
        return self._rows_of[c]

    @cached_property
    def _rows_of(self) -> dict[int, Index]:
        """By cell, of those that have been asked for."""
        return {}

    def _recall(self, c: int) -> Cell:
        """A cell, with what has been made of it by predictions before if its rows are the same."""
        index = self._find_rows(c)
        rows = Rows.around(self.rows.X[index], self.rows.y[index], pick(self.rows.noise, index))
        cell = self._recent.get(c)
        if cell is None or not _are_same(rows, cell.posterior.rows):
            posterior = replace(self.neighbours, rows=rows, k=len(index))
            # not by asking for it: Python 3.11 makes a cached property of one object at a time
            vars(posterior)["_neighbourhoods"] = SmallSearch(posterior._locate(rows.X))
            cell = Cell(posterior, index)
        cell = cell._replace(known=index)
        self._recent.put(c, cell)
        return cell

    @cached_property
    def _recent(self) -> BlockCache[Cell]:
        return BlockCache()


def _are_same(a: Rows, b: Rows) -> bool:
    is_equal = np.array_equal(a.X, b.X) and np.array_equal(a.y, b.y)
    return is_equal and have_same_noise(a.noise, b.noise)


def try_cells(learner: GPLearner, state: State, rng: np.random.RandomState) -> State:
    """The state with cells, if these predict rows that are left out better than neighbours do."""
    rows, n = state.rows, len(state.rows)
    if not (_LEAST_ROWS < n <= _MOST_ROWS and _may_pay(learner, state)):
        return state
    size = max(_NEIGHBOURS * state.k, _LEAST_SIZE)
    n_cells = min(-(-n // _OWN_ROWS), max(1, _MOST_WORK // size**3))
    located = state.frames.coordinates.scaled(rows.X) * state.weights
    partition, labels = balanced_partition(located, n_cells)
    members = group_rows(labels, n_cells)
    some = rng.choice(n_cells, min(_JUDGED_CELLS, n_cells), replace=False)
    n_left = _JUDGED_NEIGHBOURS // state.k
    judged = np.concatenate([rng.permutation(members[c])[:n_left] for c in some])
    with_cells = replace(state, cells=Cells(partition, size))
    # both with the calibration that random rows have: those of a few cells may be nothing like them
    after, before = (np.array(judge_state(one, rows, judged)) for one in (with_cells, state))
    gains = after - before
    price = len(state.mixture.processes) * n_cells * size**3 / _MOST_WORK
    if gains[0] < _LEAST_GAIN * price:
        return state
    rank, score = gains + (state.rank, state.score)
    return replace(with_cells, rank=float(rank), score=float(score))


def _may_pay(learner: GPLearner, state: State) -> bool:
    """Whether the number of neighbours was free, and all rows of one output are near and here.

    None of them stands for others.
    """
    is_free = len(learner.rival_k) > 1 and learner.learn_hyperparameters and not learner.n_outputs
    is_plain = state.known is state.rows and not isinstance(state.rows, SpreadRows)
    return is_free and state.shared is None and is_plain
