"""How often rows count, and classes; known variances of the noise of rows."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.copies import find_equal
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import RunningScale
from skvbgp._core.shards import ShardedColumns
from skvbgp.base._start import SUBSAMPLE
from skvbgp.base._validation import LARGEST_WEIGHT, as_row_values, as_vector, as_weights

#: A row that fades is left out once its weight is below the first share of the heaviest one's. When
#: hyperparameters are learned again goes by how long it takes a weight to fall to the second one.
FORGOTTEN, _FADED = 0.01, 0.05


def count_remembered(share: float) -> float:
    """Number of later rows after which one is as good as forgotten, if each leaves it a share."""
    return float(np.log(_FADED) / np.log(share))


def share_by_age(forgetting: float, age: Array) -> Array:
    """What rows count after so many others: beyond 1, all or nothing, in or out of a window."""
    if forgetting > 1.0:
        return (age < forgetting).astype(np.float64)
    return forgetting**age


def keep_newest(share: Array, weight: Array, least: float = 1.0 / LARGEST_WEIGHT) -> None:
    """Have the newest of rows (n,) count so much at least; weights are as given."""
    newest = np.flatnonzero(weight)[-1]  # rows of weight zero may be newer, and many
    share[newest] = max(share[newest], least)


class Counted(NamedTuple):
    """Which rows training works with, and what they stand for."""

    rows: slice | Index
    weight: Array | None  # how often each one counts, positive; None is once
    n_copies: int = 0  # rows besides these that are equal to one of them
    origin: NDArray[np.intp] | None = None  # which of them each given row is, -1 for none


def count_rows(X: Array, y: NDArray[Any], sample_weight: Any = None) -> Counted:
    """Rows of positive weight, of which equal ones are one, see `merge_equal`."""
    if sample_weight is None:
        return merge_equal(X, y)
    weight = as_weights(sample_weight, len(y))
    kept = np.flatnonzero(weight)
    if len(kept) == len(weight):
        return merge_equal(X, y, weight)
    merged = merge_equal(X[kept], y[kept], weight[kept])
    origin = np.full(len(weight), -1)
    origin[kept] = np.arange(len(kept)) if merged.origin is None else merged.origin
    return merged._replace(rows=kept[merged.rows], origin=origin)


def merge_equal(X: Array, y: NDArray[Any], weight: Array | None = None) -> Counted:
    """Rows (n, d) and (n,) or (n, k), of which equal ones are one with the sum of their weights.

    So a weight and as many copies are the same to everything that picks rows. What has been merged,
    or has weights, is in an order that does not depend on the given one. Rows of which more than
    SUBSAMPLE are distinct stay as they are.
    """
    if weight is not None and np.all(weight == 1.0):
        weight = None
    n = len(y)
    as_given = Counted(slice(None), weight)
    some = y[: SUBSAMPLE + 1]
    n_targets = len(np.unique(some.reshape(len(some), -1)[:, 0]))  # X need not be read
    if n_targets > SUBSAMPLE or (weight is None and n_targets == n):
        return as_given
    first, owner = find_equal(X, y, limit=SUBSAMPLE)
    if len(first) > SUBSAMPLE or (weight is None and len(first) == n):
        return as_given
    return Counted(first, np.bincount(owner, weight).astype(np.float64), n - len(first), owner)


class Weighted(Sized):
    """Rows that count as often as their weights (n,) say, or (None) once."""

    weight: Array | None
    #: (n,): known variance of each row's noise besides the learned one; None is 0.
    variance: Array | None

    @property
    def counts(self) -> Array:
        """How often each row counts, (n,)."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @property
    def total(self) -> float:
        """Number of rows, each as often as it counts."""
        return float(len(self)) if self.weight is None else float(np.sum(self.weight))

    def add_known(self, noise: float | Array) -> float | Array:
        """Variances (n,) of the learned noise and, where they are known, the rows' own."""
        return noise if self.variance is None else noise + self.variance

    def faded(self, share: float) -> Self:
        """The rows, in memory, which count less by a factor, but not next to nothing."""
        weight = np.maximum(share * self.counts, 1.0 / LARGEST_WEIGHT)
        return replace(self, weight=weight)  # type: ignore[type-var]


@dataclass(frozen=True)
class Targets(Weighted):
    """y of some rows, here or on Dask's workers, how often each counts, and its known noise."""

    y: Any  # (n,) or (n, k) in the user's units, of each function
    weight: Array | None = None  # (n,) how often each row counts, positive; None is once
    #: Rows of the user's besides these n, that are equal to one of them, or count next to nothing.
    n_copies: int = 0
    #: (n,): known variance of each row's noise besides the learned one, in the user's units
    #: squared; None is 0.
    variance: Array | None = None
    remains: float = 1.0  # what rows known before count after these, as a share of what they did

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_rows(self) -> int:
        """Rows of the user's."""
        return len(self) + self.n_copies

    @property
    def scale(self) -> RunningScale:
        """How often all rows count, mean and spread."""
        if isinstance(self.y, ShardedColumns):
            return self.y.rows.scale
        return RunningScale.of(self.y.reshape(len(self), -1), self.weight)

    def __getitem__(self, rows: Any) -> Targets:
        """Those of some rows, in memory."""
        weight, variance = pick(self.weight, rows), pick(self.variance, rows)
        return Targets(self.y[rows], weight, variance=variance)

    def joined(self, other: Targets) -> Targets:
        """Those of both sets of rows, in memory."""
        y = np.concatenate([self.y, other.y])
        n_copies = self.n_copies + other.n_copies
        return Targets(y, join_weights(self, other), n_copies, join_variances(self, other))

    @property
    def keys(self) -> Array:
        """What rows of one place have to agree in to be equal, (n,) or (n, k)."""
        return self.y if self.variance is None else np.column_stack([self.y, self.variance])

    def counted(self, counted: Counted) -> Targets:
        """The rows that training works with."""
        n_copies = self.n_copies + counted.n_copies
        variance = pick(self.variance, counted.rows)
        return Targets(self.y[counted.rows], counted.weight, n_copies, variance)


def pick(values: Any, rows: Any) -> Any:
    """The values of some rows, None if rows have none."""
    return None if values is None else values[rows]


def join_weights(*parts: Any) -> Array | None:
    """How often the rows of several `Targets` or `Labels` count, one after the other."""
    if all(part.weight is None for part in parts):
        return None
    return np.concatenate([part.counts for part in parts])


def join_variances(*parts: Any) -> Array | None:
    """The same of known variances of their noise."""
    if all(part.variance is None for part in parts):
        return None
    return np.concatenate([np.zeros(len(p)) if p.variance is None else p.variance for p in parts])


def count_targets(
    X: Any, y: Any, sample_weight: Any = None, variance: Array | None = None
) -> tuple[Any, Targets]:
    """The rows that training works with, see `count_rows`; those on Dask's workers as given.

    Rows are equal if their known variances (n,) are, too.
    """
    if isinstance(X, ShardedColumns):
        return X, Targets(y)
    targets = Targets(y, variance=variance)
    counted = count_rows(X, targets.keys, sample_weight)
    return X[counted.rows], targets.counted(counted)


def join_rows(known: tuple[Array, Targets], new: tuple[Array, Targets]) -> tuple[Array, Targets]:
    """Both sets of rows, in memory.

    Where known ones have faded, those that count next to nothing beside the others are left out:
    beside a single one, however often equal ones have come.
    """
    X, y = np.concatenate([known[0], new[0]]), known[1].joined(new[1])
    if new[1].remains == 1.0:
        return X, y
    kept = y.counts >= FORGOTTEN * min(1.0, y.counts.max())
    return X[kept], replace(y[kept], n_copies=y.n_copies + int(np.count_nonzero(~kept)))


def merge_targets(X: Array, targets: Targets) -> tuple[Array, Targets]:
    """The same rows in memory, of which equal ones are one, see `merge_equal`."""
    counted = merge_equal(X, targets.keys, targets.weight)
    return X[counted.rows], targets.counted(counted)


def weigh_classes(class_weight: Any, classes: NDArray[Any], totals: Array) -> Array:
    """The weights (K,) of the classes that the user asks for, given their numbers of votes (K,)."""
    K = len(classes)
    if class_weight is None:
        return np.ones(K)
    if isinstance(class_weight, str):  # "balanced"
        return np.where(totals > 0.0, totals.sum() / (K * np.where(totals > 0.0, totals, 1.0)), 1.0)
    unknown = sorted(set(class_weight) - set(classes.tolist()), key=str)
    if unknown:
        raise ValueError(f"class_weight has labels {unknown}, which are not among the classes.")
    weights = [class_weight.get(label, 1.0) for label in classes.tolist()]
    return as_vector(weights, K, "class_weight", positive=True)


def as_noise(y_var: Any, shape: tuple[int, ...]) -> Array:
    """Known variances of observations (n,) or (n, t); a vector is that of all outputs."""
    if len(shape) == 1:
        if np.shape(y_var) == (shape[0], 1):
            y_var = np.ravel(y_var)
        return as_row_values(y_var, shape[0], "y_var", 0.0)
    columns = np.asarray(y_var).T if np.ndim(y_var) == 2 else [y_var] * shape[1]
    if len(columns) != shape[1]:
        raise ValueError(f"y_var has {len(columns)} columns, but y has {shape[1]}.")
    return np.column_stack([as_row_values(one, shape[0], "y_var", 0.0) for one in columns])


def unless_zero(variance: Array | None) -> Array | None:
    """Known variances of noise, None if all are zero."""
    return variance if variance is not None and np.any(variance) else None
