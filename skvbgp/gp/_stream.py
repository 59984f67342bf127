"""Streams: how rows are forgotten, what says of a change, and when a stream learns again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._optim.ascent import go_on
from skvbgp.base import (
    LARGEST_WEIGHT,
    count_remembered,
    find_change,
    keep_newest,
    says_too_little,
    share_by_age,
    suspect,
)
from skvbgp.gp._coregion import hide_outputs
from skvbgp.gp._rows import LOOKED_AT, Rows

if TYPE_CHECKING:
    from skvbgp.gp._learner import GPLearner
    from skvbgp.gp._state import State

#: Odds of a change until which hyperparameters are learned as usual: there is no second opinion.
_ODDS = 1e4
#: How often a stream's scale is looked at until the rows have doubled, and the factor by which it
#: may change until hyperparameters are learned again.
_CHECKS, _LARGEST_CHANGE = 16, 1.5
#: Most rows of a chunk that are compared with predictions.
_COMPARED_ROWS = 50


@dataclass(frozen=True)
class Forgetting:
    """What the parameter says."""

    #: Up to 1, what a row counts, as a share, when one more has come. Beyond, how many of the
    #: newest rows are known.
    value: float = 1.0

    @property
    def is_used(self) -> bool:
        return self.value != 1.0

    @property
    def fades(self) -> bool:
        """Whether rows count less and less, rather than until they leave a window."""
        return self.value < 1.0

    @property
    def window(self) -> float | None:
        """The number of newest rows, if they are known by number."""
        return self.value if self.value > 1.0 else None

    @property
    def memory(self) -> float:
        """After how many rows of a stream older ones are as good as forgotten."""
        return count_remembered(self.value) if self.fades else self.value

    def by_rows_of(self, t: int) -> Self:
        """Forgetting as fast where each row has become t."""
        return type(self)(self.value ** (1.0 / t) if self.window is None else self.value * t)

    def weigh(self, weight: Array) -> Array:
        """What rows (n,) of a stream count, of which the last is the newest."""
        if not self.is_used:
            return weight
        share = share_by_age(self.value, np.arange(len(weight) - 1.0, -1.0, -1.0))
        keep_newest(share, weight, 1.0 / LARGEST_WEIGHT if self.fades else 1.0)
        return weight * share

    def join(self, known: Rows, X: Rows | None, n: int, kept: int | None, least: int) -> Rows:
        """Known rows, which n later ones let fade, and the new ones among these.

        Of a number of newest rows, some may be of other outputs: ``kept`` are then of this one.
        ``least`` ones that count stay.
        """
        if self.fades:
            known = known.aged(self.value**n)
        rows = known if X is None else known.joined(X)
        if not self.is_used:
            return rows
        if self.fades:
            return rows.newest(None)
        return rows.newest(int(min(self.value, rows.n_seen)) if kept is None else kept, least)


@dataclass(frozen=True)
class Doubts:
    """What rows say, since training, about a change of the function."""

    number: Index | tuple[()] = ()  # (r,), of those that it may explain: how many were seen before
    surprise: Array | tuple[()] = ()  # (r,), their squared errors
    n_seen_changed: int | None = None  # how many had been seen before the change; None: none yet

    def joined(self, number: Index, surprise: Array, memory: float) -> Doubts:
        """With later rows."""
        number, surprise = np.append(self.number, number), np.append(self.surprise, surprise)
        doubt = find_change(surprise, suspect(surprise), memory, _ODDS, restarts=False)
        if doubt.is_change:
            return Doubts(n_seen_changed=int(number[doubt.first]))
        return Doubts(number[doubt.first :], surprise[doubt.first :])


def is_restart_due(learner: GPLearner, state: State, X: Rows) -> bool:
    """Whether new rows are a reason to learn hyperparameters again.

    They are if all rows count twice as much now, or are too many for all to be neighbours, as they
    were, or have another scale (`_has_outgrown`). Where rows are forgotten, they are if as many are
    new as had been seen before or, if that is less, as are remembered. In a window, after a change
    of the function, as many have to be new since then as came before it, or are remembered: rows of
    two functions look like noise.
    """
    n_known, n = _count_known(state, X)
    if says_too_little(hide_outputs(state.rows.head(LOOKED_AT), learner.n_outputs), learns=True):
        return True
    if not learner.forgetting.is_used:
        growth = (state.rows.count + np.array([0.0, X.count])) / state.count_trained
        if growth[1] >= 2.0 or n_known <= state.k < n:
            return True
        before, after = np.floor(_CHECKS * growth)
        may_outgrow = n <= state.k and not state.gathers and bool(after > before)
        return may_outgrow and state.posterior.is_uniform and _has_outgrown(learner, state, X)
    n_due = min(state.n_seen_trained - state.rows.n_before, learner.forgetting.memory)
    n_seen = state.rows.n_seen + X.n_seen
    if n_seen - state.n_seen_trained < n_due:
        return False
    changed = doubt(learner, state, X).n_seen_changed
    if changed is None:
        return True
    return n_seen - changed >= min(changed - state.rows.n_before, learner.forgetting.memory)


def _count_known(state: State, X: Rows) -> tuple[int, int]:
    """How many rows predict, before X and with it; places, where each of these is one row."""
    n_known = len(state.known)
    n = n_known + len(X)
    if state.gathers and n_known <= state.k < n:
        rows = state.rows.joined(X.filled(state.frames.gaps))
        n = len(replace(state, rows=rows).known)
    return n_known, n


def _has_outgrown(learner: GPLearner, state: State, X: Rows) -> bool:
    """Whether all rows, with X, have another scale than those that were learned from.

    If it is the same everywhere, that is: others elsewhere would change intervals at places
    where nothing has been seen since.
    """
    state = learner.update(state, X, X.y, go_on)
    posterior = (state if state.twin is None else replace(state, twin=None)).posterior
    n_trained = int(np.sum(posterior.rows.first_seen < state.n_seen_trained))
    return abs(np.log(posterior.compare_scales(n_trained))) > np.log(_LARGEST_CHANGE)


def doubt(learner: GPLearner, state: State, X: Rows) -> Doubts:
    """What rows say since training, of which X are the last, about a change of the function.

    Nothing where nothing is learned, and where there is no window: rows that fade have a second
    stream for that. The first change counts.
    """
    doubts = state.doubts
    is_used = learner.forgetting.window is not None and learner.learn_hyperparameters
    if not is_used or doubts.n_seen_changed is not None or not len(X):
        return doubts
    number = X.first_seen  # merged rows are in an order of their own
    index = np.argsort(number)[np.unique(np.linspace(0, len(X) - 1, _COMPARED_ROWS, dtype=int))]
    mean, variance = state.posterior.moments(X.X[index], include_noise=True)
    if X.noise is not None:
        variance = variance + X.noise.variance[index]
    with np.errstate(over="ignore"):  # what is so far away is refused, or learned from
        z2 = (X.y[index] - mean) ** 2 / variance
    return doubts.joined(state.rows.n_seen + number[index], z2, learner.forgetting.memory)
