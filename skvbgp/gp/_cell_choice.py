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
    is_free = len(learner.counts) > 1 and learner.learn_hyperparameters and not learner.n_outputs
    is_plain = state.known is state.rows and not isinstance(state.rows, SpreadRows)
    return is_free and state.shared is None and is_plain
