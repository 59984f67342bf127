"""How rows of a stream are forgotten, and which ones a change of the function may explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp.base import (
    LARGEST_WEIGHT,
    count_remembered,
    find_change,
    keep_newest,
    share_by_age,
    suspect,
)
from skvbgp.gp._rows import Rows

#: Odds of a change until which hyperparameters are learned as usual: there is no second opinion.
_ODDS = 1e4


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
        """The same where each row has become t."""
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
