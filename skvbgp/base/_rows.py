"""Rows as all estimators take them, and targets as the regressors do, here or on workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from skvbgp._core.collections import is_collection, refuse_collections
from skvbgp._core.linalg import Array
from skvbgp._core.shards import ShardedColumns, ShardedRows
from skvbgp.base._inputs import ReadsInputs
from skvbgp.base._outputs import Observations
from skvbgp.base._start import SUBSAMPLE
from skvbgp.base._validation import as_weights, refuse_dates
from skvbgp.base._weights import Targets, as_noise, count_targets, unless_zero


class ReadsRows(ReadsInputs):
    """The part of `VariationalRegressor` that makes of the user's data what its learner takes.

    A subclass may override ``_check_targets(y)``, which refuses y that there cannot be, and
    ``_check_known_noise()``, which refuses that any is given.
    """

    n_outputs_: int
    #: Whether the known rows are on Dask's workers; None if an estimator does not keep its rows.
    _keeps_on_workers: Any = None
    #: Whether rows of a Dask collection that are not fetched have to differ.
    _needs_variation = True

    def _prepare(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any, y_var: Any, streams: bool = False
    ) -> tuple[Any, Any]:
        """X and `Targets`, or of several outputs `Observations` and a list of `Targets`.

        They are without copies and rows of weight zero.
        """
        X, y, variance = self._read_all(X, y, reset=reset, sample_weight=sample_weight, y_var=y_var)
        return self._count(X, y, sample_weight, variance, begins=reset)

    def _read_all(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any, y_var: Any
    ) -> tuple[Any, Any, Array | None]:
        """X, y and known variances of its noise, as arrays of numbers or `ShardedColumns`."""
        self._check_places(X, y, reset=reset, sample_weight=sample_weight, y_var=y_var)
        X, y = self._read_rows(X, y, reset=reset)
        if y_var is None:
            return X, y, None
        self._check_known_noise()
        return X, y, as_noise(y_var, y.shape)

    def _count(
        self, X: Any, y: Any, sample_weight: Any, variance: Array | None, *, begins: bool
    ) -> tuple[Any, Any]:
        """What `_prepare` makes of these, which are all rows if training ``begins`` with them."""
        if self.n_outputs_ == 1:
            return count_targets(X, y, sample_weight, unless_zero(variance))
        weight = as_weights(sample_weight, len(y))

        def make(rows: Any, j: int) -> tuple[Any, Targets]:
            known = None if variance is None else unless_zero(variance[rows, j])
            inputs = X if len(rows) == len(X) else X[rows]
            return count_targets(inputs, y[rows, j], weight[rows], known)

        observed, targets = Observations.of(y, weight, make)
        return replace(observed, n=int(np.count_nonzero(weight))), targets

    def _check_places(self, X: Any, y: Any, *, reset: bool, **noise: Any) -> None:
        """Refuse weights and variances of rows on workers, and rows in memory that join those."""
        for name, given in noise.items():
            if given is not None:
                refuse_collections(f"fit with {name}", X, y, given)
        if not reset and self._keeps_on_workers and not is_collection(X):
            raise TypeError(
                "The model knows rows on Dask's workers, which rows in memory cannot join: give "
                "them as a Dask collection."
            )

    def _read_rows(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """X and y of shape (n,), or (n, t) of t > 1 outputs."""
        if is_collection(X) or is_collection(y):
            self._bind_outputs(1, "A Dask collection has one output", reset=reset)
            return self._spread(X, y, reset=reset)
        refuse_dates(y, "y", any)
        if issparse(y):
            raise TypeError("y is sparse: give y.toarray().")
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        columns = np.asarray(y)
        t = columns.shape[1] if columns.ndim == 2 else 1
        if columns.shape[1:] == (1,):
            y = columns[:, 0]
        X = self._read(X, reset=reset)
        y = check_array(
            y if t > 1 else column_or_1d(y),
            dtype=np.float64,
            ensure_2d=False,
            ensure_all_finite="allow-nan" if t > 1 else True,
            input_name="y",
        )
        check_consistent_length(X, y)
        self._check_targets(y[~np.isnan(y)] if t > 1 else y)
        self._bind_outputs(t, f"y has {t} outputs", reset=reset)
        return X, y

    def _read_noise(self, y_var: Any, n: int, *, include_noise: bool) -> Array | None:
        """Known variances (n,), or (n, t) of several outputs, of noise that is to be predicted."""
        if y_var is None:
            return None
        self._check_known_noise()
        if not include_noise:
            raise ValueError("y_var is a variance of noise, which include_noise=False leaves out.")
        return as_noise(y_var, (n,) if self.n_outputs_ == 1 else (n, self.n_outputs_))

    def _spread(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Rows of Dask collections on their workers, or here if they are few."""
        self._read_example(X, reset=reset)
        rows, known = ShardedRows(X, y), None if reset else self._keeps_on_workers
        if not known:  # few rows join others that are there, too
            if rows.n <= self._most_fetched:
                return rows.fetch(np.arange(rows.n))
            if rows.at_one_place and self._needs_variation:
                raise ValueError("All rows of X are equal: they say nothing of a function.")
            if known is not None:
                raise TypeError(
                    f"The model knows rows in memory, and a Dask collection of {rows.n} rows is "
                    "too large to join them: fit a model to a collection of all."
                )
        return ShardedColumns(rows, "X"), ShardedColumns(rows, "y")

    @property
    def _most_fetched(self) -> int:
        """Up to so many rows of a Dask collection are fetched."""
        return SUBSAMPLE

    def _bind_outputs(self, t: int, said: str, *, reset: bool) -> None:
        """Note the number of outputs, which streams and warm starts do not change."""
        known = getattr(self, "n_outputs_", t)
        if t != known and (not reset or getattr(self, "warm_start", False)):
            raise ValueError(f"{said}, but there were {known}.")
        self.n_outputs_ = t

    def _check_targets(self, y: Array) -> None:
        pass

    def _check_known_noise(self) -> None:
        pass
