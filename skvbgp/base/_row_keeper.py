"""Regressors that keep their rows: in memory, or on the Dask workers that have them."""

from __future__ import annotations

from typing import Any

from skvbgp._core.collections import is_collection
from skvbgp._core.shards import ShardedColumns
from skvbgp.base._regressor import VariationalRegressor


class RowKeeper(VariationalRegressor):
    """Template of a regressor that keeps all rows in memory, or all of them on workers.

    A subclass implements ``_keeps_on_workers``, whether the rows of its state are there.
    """

    _keeps_on_workers: Any

    def _validate(self, X: Any, y: Any, *, reset: bool, **metadata: Any) -> tuple[Any, Any]:
        learns_more = metadata and not reset
        if learns_more and self._keeps_on_workers and not is_collection(X):
            raise TypeError(
                "The model knows rows on Dask's workers, which rows in memory cannot join: give "
                "them as a Dask collection."
            )
        return super()._validate(X, y, reset=reset, **metadata)

    def _spread(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        if not reset and self._keeps_on_workers:  # few rows join the others, too
            rows = self._place_rows(X, y, reset=False)
            return ShardedColumns(rows, "X"), ShardedColumns(rows, "y")
        X, y = super()._spread(X, y, reset=reset)
        if not reset and isinstance(X, ShardedColumns):
            raise TypeError(
                f"The model knows rows in memory, and a Dask collection of {len(X)} rows is too "
                "large to join them: fit a model to a collection of all."
            )
        return X, y
