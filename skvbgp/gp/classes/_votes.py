"""Labels as votes: how often every place has every class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.pickling import PickledByFields

#: Share of the rows at places of several that have to be beside a row of another class.
_LEAST_MIXED = 0.5
#: Relative rounding of votes.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Labelled:
    """The targets of a learner of classes."""

    classes: NDArray[Any]  # (K,)
    counts: Array  # (n, K) the weight of a row, in the column of its label
    n_rows: int  # rows of the user's that these are, some of which may have become one

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True)
class LeftOut:
    """Votes that are left out, M times one of a place or all of it; the others there remain."""

    owner: NDArray[np.intp]  # (M,) index of the place, ascending; none is missing
    counts: Array  # (M, K) how often this happens, in the column of the class that is left out
    sizes: Array  # (M,) number of votes that remain at the place
    targets: Array  # (M, K) their shares less the classes' frequencies; zero where none remain
    shift: Array  # (M, K) by how much these are larger with what is left out than without

    def count_rest(self, log_frequencies: Array) -> Array:
        """Votes (M, K) that remain."""
        return self.sizes[:, None] * np.maximum(self.targets + np.exp(log_frequencies), 0.0)

    def give_back(
        self, mean: Array, variance: Array, noise: Array, constant: Array | None = None
    ) -> tuple[Array, Array]:
        """Means (M, K) and variances (M,) of the functions, told what remains.

        From those given the other places, (n, K) and (n,), and the noise of a vote, (n,). With what
        the other places say of a function that is one everywhere, (n,), all is relative to
        frequencies without what is left out: they would tell it.
        """
        gain = self._gain(variance, noise)
        mean, targets = mean[self.owner], self.targets
        if constant is not None:
            mean = mean + constant[self.owner, None] * self.shift
            targets = targets + self.shift
        return mean + gain[:, None] * (targets - mean), (1.0 - gain) * variance[self.owner]

    def give_back_vjp(
        self, mean: Array, variance: Array, noise: Array, d_mean: Array, d_variance: Array
    ) -> tuple[Array, Array, Array]:
        """Pull cotangents (M, K) and (M,) back to the moments and the noise; without a constant."""
        gain = self._gain(variance, noise)
        mean, variance, noise = mean[self.owner], variance[self.owner], noise[self.owner]
        d_gain = np.sum(d_mean * (self.targets - mean), axis=1) - d_variance * variance
        # gain = v N / (v N + noise)
        total = variance * self.sizes + noise
        d_noise = -d_gain * gain / total
        d_variance = (1.0 - gain) * d_variance + d_gain * self.sizes * noise / total**2
        return (
            self.sum_places((1.0 - gain)[:, None] * d_mean),
            self.sum_places(d_variance),
            self.sum_places(d_noise),
        )

    def sum_places(self, values: Array) -> Array:
        """Sums (n, ...) over what is left out of every place, from (M, ...)."""
        starts = np.flatnonzero(np.diff(self.owner, prepend=-1))
        return np.asarray(np.add.reduceat(values, starts, axis=0))

    def _gain(self, variance: Array, noise: Array) -> Array:
        """Weight (M,) of what remains against what the other places say."""
        signal = variance[self.owner] * self.sizes
        return np.asarray(signal / (signal + noise[self.owner]))


@dataclass(frozen=True)
class Votes(PickledByFields):
    """Places and the votes that they give to the classes, which are regressed on the places.

    The target of a place is the vector of its shares, less the classes' frequencies. It is the
    average of N labels, which has an N-th of the noise of one.
    """

    #: (n, d) or (n, 2 d): the inputs, and behind them their variances where some have been missing.
    X: Array
    counts: Array  # (n, K) votes; they need not be whole numbers
    log_frequencies: Array  # (K,) logarithms of the classes' frequencies, in all rows of the model
    #: (K,): the votes of a single row of each class, see `find_units`. None if rows cannot be told
    #: apart.
    units: Array | None = None
    total: float = np.inf  # votes that the frequencies are of; infinitely many if they are known

    @classmethod
    def of(cls, X: Array, counts: Array) -> Self:
        """Votes whose frequencies are their own, with one more vote shared by the classes."""
        log_frequencies = find_log_frequencies(counts.sum(axis=0))
        return cls(X, counts, log_frequencies, find_units(counts), float(counts.sum()))

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def sizes(self) -> Array:
        """Number of votes N of each place, (n,)."""
        return np.asarray(self.counts.sum(axis=1))

    @cached_property
    def pairs(self) -> list[Votes]:
        """The same votes as of two classes, the rest and each one; rows are not told apart."""
        log_pi = self.log_frequencies
        log_rest = np.log1p(-np.exp(log_pi))
        return [
            Votes(self.X, pair_votes(self.counts, c), np.array([log_rest[c], log_pi[c]]))
            for c in range(len(log_pi))
        ]

    @property
    def are_whole(self) -> bool:
        """Whether all are whole numbers: a power of a vote has no moments in closed form."""
        return bool(np.all(self.counts == np.rint(self.counts)))

    @property
    def are_rows(self) -> bool:
        """Whether each may be a row: whole, and without a common divisor in any class."""
        counts = np.rint(self.counts).astype(np.int64)
        return self.are_whole and bool(np.all(np.gcd.reduce(counts, axis=0) <= 1))

    @property
    def single(self) -> Votes:
        """The votes where a row counts once, as far as rows can be told apart."""
        if self.units is None or np.all(self.units == 1.0):
            return self
        return Votes.of(self.X, np.rint(self.counts / self.units))

    @cached_property
    def targets(self) -> Array:
        """(n, K); they sum to zero over the classes."""
        return self.counts / self.sizes[:, None] - np.exp(self.log_frequencies)

    @cached_property
    def left_out(self) -> LeftOut:
        """Every vote left out in turn, or all of a place if rows cannot be told apart."""
        n, K = self.counts.shape
        if self.units is None:
            none, shift = np.zeros(n), self._shift(self.counts)
            return LeftOut(np.arange(n), self.counts, none, np.zeros((n, K)), shift)
        owner, label = np.nonzero(self.counts)
        own = np.zeros((len(owner), K))
        own[np.arange(len(owner)), label] = self.units[label]
        rest = np.maximum(self.counts[owner] - own, 0.0)
        rest[rest < _ROUNDING * own.sum(axis=1, keepdims=True)] = 0.0  # of rounding
        sizes = rest.sum(axis=1)
        targets = rest / np.where(sizes > 0.0, sizes, 1.0)[:, None]
        targets[sizes > 0.0] -= np.exp(self.log_frequencies)
        counts = np.where(own > 0.0, self.counts[owner], 0.0)
        return LeftOut(owner, counts, sizes, targets, self._shift(own))

    def _shift(self, own: Array) -> Array:
        """By how much the frequencies are larger with some votes (M, K) than without these."""
        left = own.sum(axis=1, keepdims=True)
        return np.asarray((own - left * np.exp(self.log_frequencies)) / (self.total + 1.0 - left))

    def begin_with(self, first: Votes) -> bool:
        """Whether the first places are these, with these votes."""
        n = len(first)
        return np.array_equal(self.X[:n], first.X) and np.array_equal(self.counts[:n], first.counts)

    def part(self, index: Any) -> Self:
        """Some of the places, of the same frequencies."""
        return replace(self, X=self.X[index], counts=self.counts[index])


def pair_votes(counts: Array, c: int) -> Array:
    """Votes (n, 2) for the rest and for class c, from those (n, K) for the classes."""
    return np.column_stack([np.delete(counts, c, axis=1).sum(axis=1), counts[:, c]])


def find_log_frequencies(totals: Array) -> Array:
    """Logarithms (K,) of the classes' frequencies, from their numbers of votes."""
    totals = totals + 1.0 / len(totals)
    return np.asarray(np.log(totals / totals.sum()))


def find_units(counts: Array) -> Array | None:
    """Votes (K,) of a single row of each class, from those of places (n, K); None if unknown.

    A row of weight w is w equal ones. The rows of a class have the weight of the lightest place if
    that of every other one is a multiple of it, and else one if all are whole numbers.

    They are not told apart either if most of those that share a place agree there: they may be
    copies, of which one would tell the label of the other.
    """
    units = np.ones(counts.shape[1])
    for c, column in enumerate(counts.T):
        votes = column[column > 0.0]
        if not len(votes):
            continue
        least = float(votes.min())
        if _are_whole(votes / least):
            units[c] = least
        elif not _are_whole(votes):
            return None
    n_rows = counts / units
    shared, mixed = n_rows.sum(axis=1) > 1.5, np.sum(counts > 0.0, axis=1) > 1
    return units if n_rows[mixed].sum() >= _LEAST_MIXED * n_rows[shared].sum() else None


def _are_whole(values: Array) -> bool:
    return bool(np.all(np.abs(values - np.rint(values)) <= _ROUNDING * values))


def merge_places(X: Array, counts: Array) -> tuple[Array, Array]:
    """Distinct places (m, d) in ascending order, and the sums of their votes (m, K)."""
    missing, d = np.isnan(X), X.shape[1]
    table = X + 0.0  # -0.0 is 0.0
    if missing.any():  # NaN would differ from itself
        table = np.hstack([np.where(missing, 0.0, table), missing])
    order = np.lexsort(table.T[::-1])
    table = table[order]
    is_first = np.append(True, np.any(table[1:] != table[:-1], axis=1))
    if is_first.all():
        merged = counts[order]
    else:
        owner, table = np.empty(len(X), dtype=np.intp), table[is_first]
        owner[order] = np.cumsum(is_first) - 1
        merged = np.zeros((len(table), counts.shape[1]))
        np.add.at(merged, owner, counts)
    return np.where(table[:, d:], np.nan, table[:, :d]) if missing.any() else table, merged


def count_votes(codes: NDArray[np.intp], K: int, weights: Array) -> Array:
    """One-hot labels (n, K) times the rows' weights (n,)."""
    counts = np.zeros((len(codes), K))
    counts[np.arange(len(codes)), codes] = weights
    return counts
