"""Labels as votes: how often every place has every class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array

#: Smallest and largest weight of a row, those of its class included.
_WEIGHTS = (1e-9, 1e9)


@dataclass(frozen=True)
class Labelled:
    """The targets of a learner of classes.

    Attributes
    ----------
    classes : ndarray of shape (K,)
    counts : ndarray of shape (n, K)
        The weight of a row, in the column of its label.
    n_rows : int
        Rows of the user's that these are, some of which may have become one.
    """

    classes: NDArray[Any]
    counts: Array
    n_rows: int

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True)
class Votes:
    """Places and the votes that they give to the classes, which are regressed on the places.

    The target of a place is the vector of its shares, less the classes' frequencies. It is the
    average of N labels, which has an N-th of the noise of one.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    counts : ndarray of shape (n, K)
        Votes; they need not be whole numbers.
    log_frequencies : ndarray of shape (K,)
        Logarithms of the classes' frequencies, in all rows of the model.
    inputs : ndarray of shape (n, g) or None
        Variances of the entries of X that may be missing, in units of their columns' spread.
    """

    X: Array
    counts: Array
    log_frequencies: Array
    inputs: Array | None = None

    @classmethod
    def of(cls, X: Array, counts: Array, inputs: Array | None = None) -> Self:
        """Votes whose frequencies are their own, with one more vote shared by the classes."""
        return cls(X, counts, find_log_frequencies(counts.sum(axis=0)), inputs)

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def sizes(self) -> Array:
        """Number of votes N of each place, (n,)."""
        return np.asarray(self.counts.sum(axis=1))

    @cached_property
    def targets(self) -> Array:
        """(n, K); they sum to zero over the classes."""
        return self.counts / self.sizes[:, None] - np.exp(self.log_frequencies)

    @cached_property
    def missing(self) -> Array:
        """What share of each place is missing, (n,)."""
        return find_missing_share(self.inputs, self.X.shape)

    def part(self, index: Any) -> Self:
        """Some of the places, of the same frequencies."""
        inputs = None if self.inputs is None else self.inputs[index]
        return replace(self, X=self.X[index], counts=self.counts[index], inputs=inputs)


def find_missing_share(inputs: Array | None, shape: tuple[int, int]) -> Array:
    """Variances of missing entries (n, g), averaged over all inputs of rows of a shape, (n,)."""
    n, d = shape
    return np.zeros(n) if inputs is None else inputs.sum(axis=1) / d


def find_log_frequencies(totals: Array) -> Array:
    """Logarithms (K,) of the classes' frequencies, from their numbers of votes."""
    totals = totals + 1.0 / len(totals)
    return np.asarray(np.log(totals / totals.sum()))


def merge_equal(X: Array, counts: Array) -> tuple[Array, Array]:
    """Distinct places (m, d) in ascending order, and the sums of their votes (m, K)."""
    missing = np.isnan(X)
    table = np.where(missing, 0.0, X) + 0.0  # -0.0 is 0.0, and NaN would differ from itself
    if missing.any():
        table = np.hstack([table, missing])
    table, owner = np.unique(table, axis=0, return_inverse=True)
    d = X.shape[1]
    places = np.where(table[:, d:], np.nan, table[:, :d]) if missing.any() else table
    if len(places) == len(X):
        merged = np.empty_like(counts)
        merged[owner.ravel()] = counts
        return places, merged
    merged = np.zeros((len(places), counts.shape[1]))
    np.add.at(merged, owner.ravel(), counts)
    return places, merged


def count_votes(codes: NDArray[np.intp], K: int, weights: Array) -> Array:
    """One-hot labels (n, K) times the rows' weights (n,)."""
    counts = np.zeros((len(codes), K))
    counts[np.arange(len(codes)), codes] = weights
    return counts


def check_weights(counts: Array) -> None:
    """Refuse votes (n, K) that are too different from one for double precision."""
    sizes = counts.sum(axis=1)
    low, high = _WEIGHTS
    if np.any(sizes < low) or np.any(sizes > high):
        raise ValueError(
            f"Weights of rows, times those of their classes, must be 0 or from {low:g} to {high:g}."
        )
