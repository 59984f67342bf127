"""Columns that encode one input together, such as those of a category, and what they share.

Owners (D,) say of each column which input it belongs to; none are said where every column is an
input of its own. What columns share has an entry for each of them, all of one value. A value that
depends on the entries has then, in what they share, the sum of their derivatives as its own: steps
that follow the mean in every entry keep them equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index

Owners = tuple[int, ...]


def find_first_columns(d: int, owners: Owners) -> Index:
    """Of d columns, the first one of each input."""
    return np.unique(owners or range(d), return_index=True)[1]


def count_inputs(d: int, owners: Owners) -> int:
    """Number of inputs that d columns encode."""
    return len(set(owners)) if owners else d


def add_inputs(owners: Owners, n: int) -> Owners:
    """Owners of n more columns behind, each of which is an input of its own."""
    first = max(owners, default=-1) + 1
    return (*owners, *range(first, first + n)) if owners else owners


def find_shared(d: int, owners: Owners) -> NDArray[np.bool_]:
    """Which of d columns encode their input together with others."""
    return divide_equally(d, owners) < 1.0


def divide_equally(d: int, owners: Owners) -> Array:
    """What each of d columns has of what its input has, (d,)."""
    if not owners:
        return np.ones(d)
    return 1.0 / np.bincount(owners)[list(owners)]


def average_shared(values: Array, owners: Owners) -> Array:
    """Entries (D,), each of them the mean of those that share a value."""
    if not owners:
        return values
    means = np.bincount(owners, values) / np.maximum(np.bincount(owners), 1)
    return means[list(owners)]


def spread_inputs(values: Array, owners: Owners) -> Array:
    """An entry for each column (D,), from one for each input (d,)."""
    return values[list(owners)] if owners else values
