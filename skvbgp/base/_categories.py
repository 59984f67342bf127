"""Inputs that are categories: each becomes numbers that are equally far from one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import check_array

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.pickling import PickledByFields
from skvbgp.base._validation import choose_columns, find_missing, list_types

#: Most categories of an input.
_MOST_CATEGORIES = 255
#: Most entries of a sparse X, which is made dense: 2 GB.
_MOST_ENTRIES = 2**28
#: Any two categories are at a distance of one.
_UNIT = float(np.sqrt(0.5))


@dataclass(frozen=True)
class Categories(PickledByFields):
    """Which inputs are categories, and which these are.

    An encoded row has the other inputs first, then for each category a number that is not zero if
    it is this one, then for each of the columns one for categories that are not known.
    """

    columns: tuple[int, ...]  # the inputs that are categories
    n_features: int  # number d of all inputs
    encoder: Any  # of these columns; missing values are a category as well

    @classmethod
    def of(cls, X: Any, features: Any) -> Self | None:
        """Learn what the parameter `categorical_features` names; None if that is nothing."""
        from sklearn.preprocessing import OneHotEncoder  # a tenth of a second to import

        columns = find_columns(X, features)
        if not columns:
            return None
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        try:
            encoder.fit(_take_categories(X, columns))
        except TypeError as error:
            raise TypeError(
                "The categories of an input must be all strings or all numbers: make strings of "
                "them."
            ) from error
        for j, known in zip(columns, encoder.categories_, strict=True):
            if len(known) > _MOST_CATEGORIES:
                raise ValueError(
                    f"Input {j} has {len(known)} categories, and may have {_MOST_CATEGORIES}."
                )
        return cls(columns, np.shape(X)[1], encoder)

    @cached_property
    def others(self) -> list[int]:
        """The inputs that are numbers."""
        return [j for j in range(self.n_features) if j not in self.columns]

    @cached_property
    def owners(self) -> Index:
        """By encoded column: the input that it belongs to, (D,)."""
        sizes = [len(known) for known in self.encoder.categories_]
        return np.concatenate(
            [np.array(self.others, dtype=np.intp), np.repeat(self.columns, sizes), self.columns]
        ).astype(np.intp)

    def encode(self, X: Any) -> Array:
        """Rows (n, D) of numbers."""
        numbers = _as_numbers(_take(X, self.others))
        values = _take_categories(X, self.columns)
        if _is_number(values) != all(map(_is_number, self.encoder.categories_)):
            values = values.astype(object)  # scikit-learn compares numbers with numbers alone
        known = np.asarray(self.encoder.transform(values))
        starts = np.cumsum([0, *(len(c) for c in self.encoder.categories_[:-1])])
        new = 1.0 - np.add.reduceat(known, starts, axis=1)
        return np.ascontiguousarray(np.hstack([numbers, _UNIT * known, _UNIT * new]))

    def encode_variances(self, variance: Any) -> Array:
        """Variances (n, D) of encoded rows, from those (n, d) of the inputs."""
        variance = np.asarray(variance)
        if np.any(variance[:, list(self.columns)] != 0.0):
            raise ValueError(f"X_var must be 0 for the categories, inputs {list(self.columns)}.")
        return variance[:, self.owners]

    def pick(self, values: Array) -> Array:
        """Values (..., d) of the inputs that are numbers, NaN for the others, from (..., D)."""
        result = np.full((*values.shape[:-1], self.n_features), np.nan)
        result[..., self.others] = values[..., : len(self.others)]
        return result


def find_columns(X: Any, features: Any) -> tuple[int, ...]:
    """Which columns of X are categories: None, "from_dtype", names, indices or a mask."""
    if len(np.shape(X)) != 2:
        check_array(X, dtype=None)  # says what is expected
    columns = getattr(X, "column_names", getattr(X, "columns", None))  # Arrow's are no names
    names = None if columns is None else [str(name) for name in columns]
    d = np.shape(X)[1]
    if isinstance(features, str):  # "from_dtype": no other one has been let through
        known = ("category", "Categorical", "Enum", "dictionary")  # Arrow has the last one
        kinds = [] if names is None else [str(kind) for kind in list_types(X)]
        return tuple(j for j, kind in enumerate(kinds) if kind.startswith(known))
    mask = choose_columns(features, d, names, "categorical_features")
    return tuple(np.flatnonzero(mask).tolist())


def _take(X: Any, columns: Sequence[int]) -> NDArray[Any]:
    """Some columns, whose entries may be anything; the others are not copied."""
    if hasattr(X, "iloc"):
        return np.asarray(X.iloc[:, list(columns)], dtype=object)
    rows = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
    return rows[:, list(columns)]


def _as_numbers(values: NDArray[Any]) -> Array:
    """Entries as numbers, NaN where they are missing."""
    try:
        return values.astype(np.float64)
    except TypeError:  # of pandas' NA
        return np.where(find_missing(values), np.nan, values).astype(np.float64)


def _take_categories(X: Any, columns: Sequence[int]) -> NDArray[Any]:
    """Those columns, in which whatever is missing is the same."""
    values = _take(X, columns)
    return np.where(find_missing(values), np.nan, values) if values.dtype.kind == "O" else values


def _is_number(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "biuf"


def is_sparse(X: Any) -> bool:
    """Whether X is of SciPy's sparse types, or a frame all of whose columns are of pandas' one."""
    return issparse(X) or hasattr(X, "sparse")


def make_dense(X: Any) -> Any:
    """A sparse table with all its entries, as an array or, with its names, a frame."""
    if len(X.shape) != 2:
        raise ValueError(f"Expected 2D array, got a sparse one of shape {X.shape}.")
    n_entries = X.shape[0] * X.shape[1]
    if n_entries > _MOST_ENTRIES:
        raise ValueError(
            f"X is sparse and of shape {X.shape}: with all its entries it would take "
            f"{8e-9 * n_entries:.1f} GB. Give fewer rows, fewer columns, or categories in one "
            "column (categorical_features)."
        )
    return X.toarray() if issparse(X) else X.sparse.to_dense()
