"""What models of near rows share: which are near, without gaps, and what goes on with more rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Self, TypeVar

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.pickling import PickledByFields
from skvbgp._core.scaling import Coordinates
from skvbgp.base import Gaps, Neighbourhoods, RowSearch
from skvbgp.gp._rows import Rows

P = TypeVar("P")
T = TypeVar("T")

#: What has been made of some rows is extended to all if at most one in so many is new: with more, a
#: new factorisation takes less time.
_EXTENSIONS = 8


class RowsState(PickledByFields):
    """Base of states, frozen dataclasses that know rows and predict by a posterior of these."""

    rows: Rows
    posterior: Any  # which they keep

    def with_rows(self, rows: Rows, **changes: Any) -> Self:
        """The state with other rows, where what predictions have made of these goes on."""
        state = replace(self, rows=rows, **changes)
        if "posterior" in vars(self):
            state.posterior.go_on(self.posterior)
            state.posterior.keep_searches(self.posterior)
        return state


def employ(posterior: P, n_jobs: int | None) -> P:
    """The posterior, which predicts with so many workers from now on: what it says is the same."""
    vars(posterior)["n_jobs"] = n_jobs
    return posterior


class NearRows(PickledByFields):
    """Base of frozen dataclasses that predict every place from the k nearest rows."""

    rows: Rows  # in the user's units
    coordinates: Coordinates  # frame of the processes
    weights: Array  # (d,), by which scaled inputs give the distance that "near" means
    k: int  # neighbours; with no more rows than this, predictions are exact
    n_jobs: int | None
    gaps: Gaps | None  # what missing entries of new rows may be; None is without them

    @property
    def is_exact(self) -> bool:
        """Whether all rows are neighbours of any place."""
        return self.k >= len(self.rows)

    @cached_property
    def _neighbourhoods(self) -> Neighbourhoods:
        known = vars(self).pop("_known_searches", {})
        return Neighbourhoods(
            [known[id(X)] if id(X) in known else self._locate(X) for X, *_ in self.rows.chunks]
        )

    def keep_searches(self, before: NearRows) -> None:
        """Take over the searches of chunks that are the same, if their distance is."""
        if before.coordinates is not self.coordinates or before.weights is not self.weights:
            return
        known: dict[int, RowSearch] = vars(before).get("_known_searches", {})
        if "_neighbourhoods" in vars(before):
            pairs = zip(before.rows.chunks, before._neighbourhoods.searches, strict=True)
            known = {id(X): search for (X, *_), search in pairs}
        if known:
            mine = {id(X) for X, *_ in self.rows.chunks}  # arrays that live as long as this
            vars(self)["_known_searches"] = {i: one for i, one in known.items() if i in mine}

    def _locate(self, X: Array) -> Array:
        located = self.coordinates.scaled(X)
        located *= self.weights  # there may be many
        return located

    def find(self, X: Array, k: int | None = None) -> Index:
        """Indices (n, k) of the neighbours of rows X, nearest first."""
        return self._neighbourhoods.find(self._locate(X), k or self.k)

    def find_others(self, index: Index, k: int | None = None) -> Index:
        """The same for known rows, each without itself."""
        known = self._locate(self.rows.X[index])
        return self._neighbourhoods.find_others(known, index, self.k if k is None else k)

    # -- rows that are added -----------------------------------------------------------------------

    #: What has been made of some of the rows, None if nothing is known.
    _begun: Any = None

    def _go_on_from(self, begun: Any, n: int) -> None:
        """Begin with what has been made of n rows, where all predict and few are new."""
        if self.is_exact and 0 <= _EXTENSIONS * (len(self.rows) - n) <= len(self.rows):
            vars(self)["_begun"] = begun

    def _conclude(self, name: str, made: T) -> T:
        """Keep what has been made of all rows, and then no longer what it began with.

        In this order: another thread that asks for the same meanwhile makes it in the same way.
        """
        vars(self)[name] = made
        vars(self).pop("_begun", None)
        return made

    # -- missing entries ---------------------------------------------------------------------------

    def _fill(self, X: Array) -> tuple[Array, Array | None]:
        """Rows without gaps, and how uncertain their entries are, None if they are not."""
        return (X, None) if self.gaps is None else self.gaps.fill(X)
