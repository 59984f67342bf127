"""Several outputs: which rows are known of each, and how streams of them forget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._optim.ascent import EndPass
from skvbgp.base import Observations, OutputsLearner, OutputsState
from skvbgp.gp._learner import GPLearner, Start
from skvbgp.gp._rows import Rows
from skvbgp.gp._state import State


@dataclass(frozen=True)
class GPOutputsState(OutputsState):
    """The models of all outputs, and which rows each of them knows."""

    outputs: tuple[State, ...]
    index: tuple[NDArray[np.intp], ...]  # of those seen that are followed: their numbers

    @property
    def n_kernels(self) -> int:
        """Kernels of the output that has most of them."""
        return max(output.n_kernels for output in self.outputs)

    @property
    def covariance(self) -> Array:
        """Prior covariance (t, t) of the functions at a place: they know nothing of one another."""
        return np.diag([output.covariance.item() for output in self.outputs])

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance (n, t) of the observations, NaN for what was none."""
        result = np.full((2, self.n, len(self.outputs)), np.nan)
        for j, (output, index) in enumerate(zip(self.outputs, self.index, strict=True)):
            result[:, index, j] = [
                told[len(told) - len(index) :] for told in output.leave_out_all()
            ]
        return result[0], result[1]


@dataclass(frozen=True)
class GPOutputsLearner(OutputsLearner):
    """The settings of every output, which learn again and forget together."""

    single: GPLearner

    def rows_to_restart(
        self, state: OutputsState, X: Observations, y: list[Any]
    ) -> tuple[Observations, list[Any]] | None:
        """All outputs learn again as soon as one of them does."""
        return None if super().rows_to_restart(state, X, y) is None else self.join(state, X)

    def join(self, state: Any, X: Observations) -> tuple[Observations, list[Any]]:
        """Known rows and new ones, to train with."""
        rows = tuple(
            self.single.join(known, rows, X.n, self._count_kept(state, X, j))
            for j, (known, rows) in enumerate(zip(state.outputs, X.rows, strict=True))
        )
        index, n, unknown = _follow_all(state, X), state.n + X.n, (None,) * len(rows)
        return Observations(rows, index, n, known=unknown), [some.y for some in rows]

    def begin(self, start: Start, X: Rows, y: Array) -> State:
        return self.single.keep(start)

    def learn_more(self, X: Observations, y: list[Any], j: int, end_pass: EndPass) -> State:
        kept = self._count_kept(X.before, X, j)
        if X.rows[j] is None:
            return self.single.fade(X.known[j], X.n, kept=kept)
        return self.single.update(X.known[j], X.rows[j], y[j], end_pass, X.n, kept)

    def _count_kept(self, state: Any, X: Observations, j: int) -> int | None:
        """How many of an output's rows are among the newest of all, if a number is known.

        One at least: an output that is not observed any more does not end the stream of the others.
        """
        window = self.single.forgetting.window
        if window is None:
            return None
        oldest = state.n + X.n - window
        return max(1, int(np.count_nonzero(_follow(state, X, j) >= oldest)))

    def gather(self, outputs: tuple[State, ...], X: Observations) -> GPOutputsState:
        known = super().gather(outputs, X)
        index = X.index if X.before is None else _follow_all(X.before, X)
        pairs = zip(index, known.outputs, strict=True)
        index = tuple(_take_followed(own, output.rows) for own, output in pairs)
        return GPOutputsState(known.outputs, known.n, index)


def _follow(state: Any, X: Observations, j: int) -> NDArray[np.intp]:
    """Which of all rows an output knows, with the new ones."""
    return np.append(state.index[j], state.n + X.index[j])


def _take_followed(index: NDArray[np.intp], rows: Rows) -> NDArray[np.intp]:
    """Those of rows that are not forgotten: a stream has no end."""
    return index[len(index) - (rows.n_seen - rows.n_forgotten) :]


def _follow_all(state: Any, X: Observations) -> tuple[NDArray[np.intp], ...]:
    """The same of every output."""
    return tuple(_follow(state, X, j) for j in range(len(X.index)))
