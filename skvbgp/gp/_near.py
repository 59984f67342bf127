"""What posteriors of near rows share: which rows are near, and predictions by tile of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import LazyTasks, spread_each
from skvbgp._core.pickling import PickledByFields
from skvbgp._core.scaling import Coordinates
from skvbgp.base import Gaps, Neighbourhoods
from skvbgp.gp._neighbours import Rows

#: Rows of one task.
_TASK_ROWS = 64


class NearRows(PickledByFields):
    """Base of frozen dataclasses that predict every place from the k nearest rows.

    Attributes
    ----------
    rows : Rows
        X in the user's units.
    coordinates : Coordinates
        Frame of the processes.
    weights : ndarray of shape (d,)
        Scaled inputs times these give the distance that "near" means.
    k : int
        Number of neighbours; with no more rows than this, predictions are exact.
    gaps : Gaps or None
        What missing entries of new rows may be; None is without them.
    """

    rows: Rows
    coordinates: Coordinates
    weights: Array
    k: int
    n_jobs: int | None
    gaps: Gaps | None

    @property
    def is_exact(self) -> bool:
        """Whether all rows are neighbours of any place."""
        return self.k >= len(self.rows)

    @cached_property
    def _neighbourhoods(self) -> Neighbourhoods:
        return Neighbourhoods([self._locate(X) for X, *_ in self.rows.chunks])

    def _locate(self, X: Array) -> Array:
        located = self.coordinates.scaled(X)
        located *= self.weights  # there may be many
        return located

    def find(self, X: Array, k: int | None = None) -> Index:
        """Indices (n, k) of the neighbours of rows X, nearest first."""
        return self._neighbourhoods.find(self._locate(X), k or self.k)

    def find_others(self, index: Index) -> Index:
        """The same for known rows, each without itself."""
        return self._neighbourhoods.find_others(self._locate(self.rows.X[index]), index, self.k)

    # -- missing entries ---------------------------------------------------------------------------

    def _fill(self, X: Array) -> tuple[Array, Array | None]:
        """Rows without gaps, and how uncertain their entries are, None if they are not."""
        return (X, None) if self.gaps is None else self.gaps.fill(X)

    # -- predictions -------------------------------------------------------------------------------

    def predict_near(
        self,
        function: Callable[..., Array],
        shared: tuple[Any, ...],
        X: NDArray[Any],
        near: Index,
    ) -> Array:
        """Results (n, ...) of ``function(*shared, X, near)``, which is called by tile of rows.

        X may be anything with n entries that says which rows they are.
        """

        def task(i: int) -> tuple[NDArray[Any], Index]:
            rows = slice(i * _TASK_ROWS, (i + 1) * _TASK_ROWS)
            return X[rows], near[rows]

        tasks, parts = LazyTasks(-(-len(X) // _TASK_ROWS), task), list[Array]()
        spread_each(function, tasks, parts.append, n_jobs=self.n_jobs, shared=shared)
        return np.concatenate(parts)
