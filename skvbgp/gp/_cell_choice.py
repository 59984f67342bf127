"""Whether cells of places that are predicted from the same rows are better than neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skvbgp._core.partition import balanced_partition, group_rows
from skvbgp.gp._belief import judge_state
from skvbgp.gp._cells import Cells
from skvbgp.gp._spread import SpreadRows
from skvbgp.gp._state import State

if TYPE_CHECKING:
    from skvbgp.gp._learner import GPLearner

#: Rows that predict the places of a cell.
_CELL_ROWS = 1_600
#: Rows of a cell, the most cells, and for how many rows they are tried: of fewer, all compete as
#: neighbours, and of more, a prediction of places everywhere would take long.
_SIZE, _MOST_CELLS = 128, 200
_LEAST_ROWS, _MOST_ROWS = 3_000, 50_000
#: Cells that are judged, and rows of each that are left out.
_JUDGED_CELLS, _JUDGED_ROWS = 24, 42
#: What cells have to gain, in nats a row.
_LEAST_GAIN = 0.01


def try_cells(learner: GPLearner, state: State, rng: np.random.RandomState) -> State:
    """The state with cells, if these predict rows that are left out better than neighbours do."""
    rows, n = state.rows, len(state.rows)
    if not (_LEAST_ROWS < n <= _MOST_ROWS and _may_pay(learner, state)):
        return state
    n_cells = min(_MOST_CELLS, -(-n // _SIZE))
    located = state.frames.coordinates.scaled(rows.X) * state.weights
    partition, labels = balanced_partition(located, n_cells)
    members = group_rows(labels, n_cells)
    some = rng.choice(n_cells, min(_JUDGED_CELLS, n_cells), replace=False)
    judged = np.concatenate([rng.permutation(members[c])[:_JUDGED_ROWS] for c in some])
    with_cells = replace(state, cells=Cells(partition, _CELL_ROWS))
    # both with the calibration that random rows have: those of a few cells may be nothing like them
    after, before = (np.array(judge_state(one, rows, judged)) for one in (with_cells, state))
    gains = after - before
    if gains[0] < _LEAST_GAIN:
        return state
    rank, score = gains + (state.rank, state.score)
    return replace(with_cells, rank=float(rank), score=float(score))


def _may_pay(learner: GPLearner, state: State) -> bool:
    """Whether more rows may predict places than the most neighbours that compete, which won."""
    is_free = len(learner.counts) > 1 and learner.learn_hyperparameters and not learner.n_outputs
    is_local = state.shared is None and not isinstance(state.rows, SpreadRows)
    return is_free and is_local and state.k == learner.few
