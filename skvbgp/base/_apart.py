"""Outputs that stay apart: rows left out are predicted better by a model of their own.

The model of all outputs has one kernel. An output whose function is of another kind loses more by
that than it learns from the others; it has a model that knows its own rows alone, and the others go
on learning from it. See :doc:`/theory/gp_outputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array

#: Parts of the rows that are left out in turn, until so many have been.
_PARTS, _JUDGED_ROWS = 5, 500

#: Which of the rows that a model knows are left out.
Hidden = NDArray[np.bool_]


class Known(NamedTuple):
    """A model, and the rows that it knows."""

    model: Any
    rows: Any


#: Log densities of hidden ones of the rows that a model knows, given the others, at the
#: hyperparameters of all. Each density counts as often as its row.
Judge = Callable[[Any, Any, Hidden], Array]


def compare_alone(
    common: Known,
    alone: Sequence[Known | None],
    output: NDArray[np.intp],
    row: NDArray[np.intp],
    judge: Judge,
    rng: np.random.RandomState,
) -> NDArray[np.bool_]:
    """Which outputs' own models predict values that are left out better, (t,).

    Where every row has all outputs, rows are left out, and the model of all has to be better on
    the whole: there is little to learn from others. Where some values are missing, half of the rows
    lose a single value, as such values are predicted as well as new rows, and an output's own model
    has to gain more than a standard error: outputs that cannot be told to lose by it learn from
    each other, as was asked for. Of the values (n,) that the model of all knows it is given which
    output and row they are of; an output's own model has its values in the same order.
    """
    t = len(alone)
    total, squares = np.zeros((2, t))
    is_complete = len(np.unique(t * row + output)) == t * len(np.unique(row))
    for hidden in hide_values(row, output, is_complete, rng):
        together = judge(*common, hidden)
        for j, one in enumerate(alone):
            mine = hidden[output == j]
            if one is not None and mine.any():
                gains = judge(*one, mine) - together[output[hidden] == j]
                total[j] += gains.sum()
                squares[j] += gains @ gains
    least = 0.0 if is_complete else np.sqrt(squares)
    return total > least


def hide_values(
    row: NDArray[np.intp], output: NDArray[np.intp], is_complete: bool, rng: np.random.RandomState
) -> Iterator[Hidden]:
    """Values (n,) that are left out together: whole rows, where all rows have all outputs."""
    _, row = np.unique(row, return_inverse=True)
    n, u = int(row.max()) + 1, rng.random(len(row))
    last, single = np.zeros(n), np.empty(n, dtype=np.intp)
    np.maximum.at(last, row, u)
    chosen = u == last[row]
    single[row[chosen]] = output[chosen]  # a value, and what else there is of its output
    whole = np.ones(n, dtype=bool) if is_complete else rng.random(n) < 0.5
    is_hidden = whole[row] | (output == single[row])
    order, size = rng.permutation(n), min(-(-n // _PARTS), _JUDGED_ROWS)
    for start in range(0, min(n, _PARTS * size, _JUDGED_ROWS), size):
        chosen = np.zeros(n, dtype=bool)
        chosen[order[start : start + size]] = True
        yield chosen[row] & is_hidden
