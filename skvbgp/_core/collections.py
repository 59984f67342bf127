"""Dask's collections: recognised without an import of Dask, mapped and split block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: ``(shared, *blocks) -> (n, k)``; the blocks are arrays or parts of data frames.
BlockFunction = Callable[..., NDArray[Any]]


def is_collection(value: Any) -> bool:
    """Whether it is an object of Dask's."""
    return type(value).__module__.split(".")[0] in ("dask", "dask_expr")


def is_frame(collection: Any) -> bool:
    """Whether a collection is a data frame or a series."""
    return hasattr(collection, "map_partitions")


def refuse_collections(purpose: str, *values: Any) -> None:
    """Raise TypeError if one of them is a collection: NumPy would gather all of its rows."""
    if any(map(is_collection, values)):
        raise TypeError(f"{purpose} needs rows in memory, not a Dask collection.")


def in_memory(method: Callable[..., Any]) -> Any:
    """Decorator of a method of rows X and more, which refuses a collection of them."""

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_collections(method.__name__, X)
        return method(self, X, *args, **kwargs)

    return call


def make_example(X: Any, entry: float) -> Any:
    """One row in memory of the kind of a collection's blocks, with equal entries."""
    if not (is_frame(X) or hasattr(X, "map_blocks")):
        raise TypeError(f"X must be a dask.array or a Dask DataFrame; got {type(X).__name__}.")
    row = np.full((1, *X.shape[1:]), entry)
    return type(X._meta)(row, columns=X.columns) if is_frame(X) and X.ndim == 2 else row


def map_rows(
    function: BlockFunction,
    shared: Any,
    collections: Sequence[Any],
    *,
    names: Sequence[str],
    dtype: Any,
) -> Any:
    """Lazy table (n, k) of what a function makes of rows, by one task for each block.

    The function is one of a module: ``function(shared, *blocks)`` is an array (rows of the blocks,
    k). Blocks may be empty; ``shared`` is in the graph once. The collections have as many rows:
    arrays, or data frames and series with the same partitions, of which the k columns get names.
    """
    from dask.delayed import delayed

    once = delayed(shared, pure=False, traverse=False)
    frames = [is_frame(collection) for collection in collections]
    if all(frames):
        first, *others = collections
        meta = type(first._meta)(np.empty((0, len(names)), dtype), columns=list(names))
        return first.map_partitions(
            _map_frame, *others, function=function, shared=once, names=list(names), meta=meta
        )
    if any(frames):
        raise TypeError("X and y must both be Dask arrays, or a Dask DataFrame and its Series.")
    import dask.array as da

    whole = [array.rechunk({1: -1}) if array.ndim == 2 else array for array in collections]
    axes = [("i", f"j{k}")[: array.ndim] for k, array in enumerate(whole)]
    return da.blockwise(
        _map_array,
        ("i", "j0"),
        *(part for pair in zip(whole, axes, strict=True) for part in pair),
        concatenate=True,
        function=function,
        shared=once,
        adjust_chunks={"j0": len(names)},
        dtype=dtype,
        meta=np.empty((0, 0), dtype),
    )


def _map_array(*blocks: Any, function: BlockFunction, shared: Any) -> NDArray[Any]:
    return function(shared, *blocks)


def _map_frame(*blocks: Any, function: BlockFunction, shared: Any, names: list[str]) -> Any:
    first = blocks[0]
    return type(first)(function(shared, *blocks), index=first.index, columns=names)


def split_rows(X: Any, y: Any, load: Callable[[Any, Any], Any]) -> list[Any]:
    """Delayed blocks of the rows of both collections, as a function of a module loads them."""
    from dask.delayed import delayed

    if not is_collection(X) or not is_collection(y) or is_frame(X) != is_frame(y):
        raise TypeError("X and y must both be Dask arrays, or a Dask DataFrame and its Series.")
    if getattr(X, "ndim", None) != 2 or getattr(y, "ndim", None) != 1:
        raise ValueError("X must have two dimensions, and y one.")
    if is_frame(X):
        if X.npartitions != y.npartitions:
            raise ValueError(
                f"X has {X.npartitions} partitions and y has {y.npartitions}: they must be the "
                "same."
            )
    else:
        if np.isnan(X.shape[0]) or np.isnan(y.shape[0]):
            raise ValueError(
                "The sizes of the chunks are not known: call compute_chunk_sizes of X and y."
            )
        if len(X) != len(y):
            raise ValueError(f"X has {len(X)} rows and y has {len(y)}: they must be as many.")
        X = X.rechunk({1: -1})
        y = y.rechunk({0: X.chunks[0]})
    later = delayed(load, pure=True)
    pairs = zip(_delay_blocks(X), _delay_blocks(y), strict=True)
    return [later(*pair) for pair in pairs]


def _delay_blocks(collection: Any) -> list[Any]:
    blocks = collection.to_delayed()  # of an array they are an array
    return list(blocks.ravel() if isinstance(blocks, np.ndarray) else blocks)
