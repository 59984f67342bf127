"""Methods of rows that return lazy results for Dask collections."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags

from skvbgp._core.collections import is_collection, is_frame, make_example, map_rows

P = ParamSpec("P")

#: ``(estimator, arguments of the method) -> names`` of the columns of the result.
Names = Callable[[Any, dict[str, Any]], list[str]]


def lazily(names: Names, *, rows: tuple[str, ...] = ()) -> Callable[[Callable[P, Any]], Any]:
    """Decorator of a method whose first argument X and result have a row for each sample.

    With a Dask collection as X, it returns what it returns otherwise, as lazy collections of the
    same kind. The method is tried on one row at once, so that whatever it refuses is refused
    before any work.

    Parameters
    ----------
    names : callable
        Columns of the result where X is a data frame. There may be more of them than needed:
        the last ones are then left out.
    rows : tuple of str
        Further arguments that have a row for each sample.
    """

    def decorate(method: Callable[P, Any]) -> Any:
        parameters = signature(method)

        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            bound = parameters.bind(*args, **kwargs).arguments
            given = {name: bound[name] for name in ("X", *rows) if bound.get(name) is not None}
            if not any(is_collection(value) for value in given.values()):
                return method(*args, **kwargs)
            if not all(is_collection(value) for value in given.values()):
                raise TypeError(f"{' and '.join(given)} must all be Dask collections, or none.")
            if bound.get("return_cov"):
                raise ValueError(
                    "The joint covariance of the rows of a Dask collection is not available: "
                    "return_cov=True and sample_y need X in memory."
                )
            estimator = bound.pop("self")
            options = {k: v for k, v in bound.items() if k not in given}
            return _map_method(estimator, method.__name__, given, options, names)

        return call

    return decorate


@dataclass(frozen=True)
class _Call:
    """A method of a fitted estimator, which blocks of rows are to be the arguments of."""

    estimator: Any
    method: str
    rows: tuple[str, ...]
    options: dict[str, Any]
    n_columns: int = 0
    dtype: Any = None

    def __call__(self, *blocks: Any) -> Any:
        given = dict(zip(self.rows, blocks, strict=True))
        return getattr(self.estimator, self.method)(**given, **self.options)


def _evaluate(call: _Call, *blocks: Any) -> NDArray[Any]:
    """The results of a block, side by side."""
    if not len(blocks[0]):
        return np.empty((0, call.n_columns), call.dtype)
    return _stack(call(*blocks))


def _stack(result: Any) -> NDArray[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    return np.column_stack(parts)


def _map_method(
    estimator: Any, method: str, given: dict[str, Any], options: dict[str, Any], names: Names
) -> Any:
    """Lazy results of a method, in the form in which it returns those of one row."""
    example = {name: make_example(value, 0.0) for name, value in given.items()}
    if get_tags(estimator).input_tags.allow_nan:  # it may refuse a number that it has not seen
        example["X"] = make_example(given["X"], np.nan)
    result = getattr(estimator, method)(**example, **options)
    columns = _stack(result)
    k = columns.shape[1]
    still = copy.copy(estimator).set_callbacks()  # later fits do not change what is computed
    _rename_features(still, given["X"])
    call = _Call(still, method, tuple(given), options, k, columns.dtype)
    labels = names(estimator, options)[:k]
    table = map_rows(_evaluate, call, list(given.values()), names=labels, dtype=columns.dtype)
    if isinstance(result, tuple):
        return tuple(_column(table, j) for j in range(k))
    return _column(table, 0) if result.ndim == 1 else table


def _rename_features(estimator: Any, X: Any) -> None:
    """Give the features the names that X has: warnings have come of the example already."""
    vars(estimator).pop("feature_names_in_", None)
    if is_frame(X) and all(isinstance(name, str) for name in X.columns):
        estimator.feature_names_in_ = np.array(X.columns, dtype=object)


def _column(table: Any, j: int) -> Any:
    return table[table.columns[j]] if is_frame(table) else table[:, j]
