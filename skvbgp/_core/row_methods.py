"""Methods of rows: lazy results for Dask collections, and one block of sparse rows at a time."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import get_tags

from skvbgp._core.collections import (
    is_collection,
    is_frame,
    make_example,
    map_rows,
    refuse_collections,
)
from skvbgp._core.order import cut

P = ParamSpec("P")

#: Entries of the rows of a sparse X that a method makes dense at a time: 134 MB.
_BLOCK_ENTRIES = 2**24

#: ``(estimator, arguments of the method) -> names`` of the columns of the result.
Names = Callable[[Any, dict[str, Any]], list[str]]


def lazily(names: Names, *, rows: tuple[str, ...] = ()) -> Callable[[Callable[P, Any]], Any]:
    """Decorator of a method whose first argument X and result have a row for each sample.

    With a Dask collection as X, it returns what it returns otherwise, as lazy collections of the
    same kind. The method is tried on one row at once, so that whatever it refuses is refused
    before any work. A sparse X is handed on in blocks of rows, unless a joint covariance is asked.

    The names are those of the result's columns where X is a data frame; of more than there are
    columns, the last ones are left out. ``rows`` are further arguments with a row for each sample.
    """

    def decorate(method: Callable[P, Any]) -> Any:
        parameters = signature(method)

        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                bound = parameters.bind(*args, **kwargs).arguments
            except TypeError as error:  # which does not say of what
                raise TypeError(f"{method.__qualname__}(): {error}") from None
            given = {name: bound[name] for name in ("X", *rows) if bound.get(name) is not None}
            if not any(is_collection(value) for value in given.values()):
                is_table = issparse(bound["X"]) and bound["X"].ndim == 2
                if is_table and not bound.get("return_cov"):
                    return _call_by_block(method, bound, (*rows, "y_var"))
                return method(*args, **kwargs)
            if not all(is_collection(value) for value in given.values()):
                raise TypeError(f"{' and '.join(given)} must all be Dask collections, or none.")
            if bound.get("y_var") is not None:
                refuse_collections("predict with y_var", bound["X"])
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


def _call_by_block(method: Callable[..., Any], bound: dict[str, Any], rows: tuple[str, ...]) -> Any:
    """What a method returns for a sparse X, of which blocks of rows are handed on."""
    n, d = bound["X"].shape
    step = max(1, _BLOCK_ENTRIES // max(1, d))
    if n <= step:
        return method(**bound)
    all_given = ((name, bound[name]) for name in rows if name in bound)
    arrays = {k: v.tocsr() if issparse(v) else np.asarray(v) for k, v in all_given}
    given = {name: values for name, values in arrays.items() if values.ndim}
    for name, values in given.items():
        if values.shape[0] != n:  # and may be as long as a block
            raise ValueError(f"{name} has {values.shape[0]} rows, but X has {n}.")
    given["X"] = bound["X"].tocsr()
    blocks = [
        method(**bound | {name: values[some] for name, values in given.items()})
        for some in cut(n, step)
    ]
    if isinstance(blocks[0], tuple):
        return tuple(map(np.concatenate, zip(*blocks, strict=True)))
    return np.concatenate(blocks)


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
    return np.hstack([part.reshape(len(part), -1) for part in _parts(result)])


def _parts(result: Any) -> tuple[NDArray[Any], ...]:
    return result if isinstance(result, tuple) else (result,)


def _map_method(
    estimator: Any, method: str, given: dict[str, Any], options: dict[str, Any], names: Names
) -> Any:
    """Lazy results of a method, in the form in which it returns those of one row."""
    example = {name: make_example(value, 0.0) for name, value in given.items()}
    if get_tags(estimator).input_tags.allow_nan:  # it may refuse a number that it has not seen
        example["X"] = make_example(given["X"], np.nan)
    result = getattr(estimator, method)(**example, **options)
    columns, parts = _stack(result), _parts(result)
    k = columns.shape[1]
    still = copy.copy(estimator).set_callbacks()  # later fits do not change what is computed
    _rename_features(still, given["X"])
    call = _Call(still, method, tuple(given), options, k, columns.dtype)
    labels = _label(names(estimator, options), parts)
    table = map_rows(_evaluate, call, list(given.values()), names=labels, dtype=columns.dtype)
    ends = np.cumsum([part.size for part in parts])
    pieces = tuple(
        _cut(table, end - part.size, part.shape[1:]) for end, part in zip(ends, parts, strict=True)
    )
    return pieces if isinstance(result, tuple) else pieces[0]


def _label(names: list[str], parts: tuple[NDArray[Any], ...]) -> list[str]:
    """Names of the columns of all parts, with the numbers of several outputs."""
    k = sum(part.size for part in parts)
    if k <= len(names):
        return names[:k]
    if parts[0].ndim == 3:
        return [f"{name}_{i}" for i in range(parts[0].shape[1]) for name in names]
    return [f"{names[j]}_{i}" for j, part in enumerate(parts) for i in range(part.size)]


def _cut(table: Any, start: int, shape: tuple[int, ...]) -> Any:
    """Columns of a lazy table, in the shape (n, ...) of the result that they are."""
    stop = start + math.prod(shape)
    if is_frame(table):
        names = list(table.columns[start:stop])
        return table[names] if shape else table[names[0]]
    if not shape:
        return table[:, start]
    columns = table[:, start:stop]
    if len(shape) == 1:
        return columns
    return columns.map_blocks(
        _reshape,
        shape,
        chunks=(table.chunks[0], *((size,) for size in shape)),
        drop_axis=1,
        new_axis=list(range(1, len(shape) + 1)),
        dtype=table.dtype,
    )


def _reshape(columns: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return columns.reshape(len(columns), *shape)


def _rename_features(estimator: Any, X: Any) -> None:
    """Give the features the names that X has; the example has warned of any difference already."""
    vars(estimator).pop("feature_names_in_", None)
    if is_frame(X) and all(isinstance(name, str) for name in X.columns):
        estimator.feature_names_in_ = np.array(X.columns, dtype=object)
