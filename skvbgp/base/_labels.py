"""Class labels as the classifiers take them, here or on workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from skvbgp._core.collections import is_collection, refuse_collections
from skvbgp._core.copies import follow_rows, join_origins
from skvbgp._core.labels import LabelledRows, choose_classes
from skvbgp._core.linalg import Array
from skvbgp._core.shards import ShardedColumns
from skvbgp.base._inputs import ReadsInputs
from skvbgp.base._start import SUBSAMPLE
from skvbgp.base._validation import as_weights, find_missing
from skvbgp.base._weights import Counted, Weighted, count_rows, join_weights


@dataclass(frozen=True)
class Labels(Weighted):
    """Targets as indices into the sorted classes; -1 is a label that is not known."""

    classes: NDArray[Any]  # (k,)
    codes: NDArray[np.intp]  # (n,)
    weight: Array | None = None  # (n,), how often each row counts, positive; None is once
    n_copies: int = 0  # rows besides these that are equal to one of them
    origin: NDArray[np.intp] | None = None  # as that of `Counted`

    @classmethod
    def of(cls, y: Any, classes: NDArray[Any] | None = None) -> Labels:
        """Check targets (n,); ``classes`` holds all labels that will ever occur, if known."""
        y = column_or_1d(y)
        check_classification_targets(y)
        classes = choose_classes(np.unique(y), classes)
        return cls(classes, np.searchsorted(classes, y))

    @classmethod
    def of_some(cls, y: Any, missing: Any, classes: NDArray[Any] | None = None) -> Labels:
        """The same of targets some of which are ``missing``: a value or, if it is NaN, any such."""
        if np.ndim(missing) > 0:
            raise ValueError(f"missing_label must be one value; got {missing!r}.")
        y = column_or_1d(y)
        values = np.asarray(y, dtype=object)  # strings and numbers may be compared
        if find_missing(np.array([missing], dtype=object)).item():
            known = ~find_missing(values)
        else:
            known = (values != missing).astype(bool)
        if classes is None or known.any():
            labels = cls.of(y[known], classes)
        else:
            labels = cls(classes, np.empty(0, dtype=np.intp))
        codes = np.full(len(y), -1)
        codes[known] = labels.codes
        return cls(labels.classes, codes)

    def __len__(self) -> int:
        return len(self.codes)

    def counted(self, counted: Counted) -> Labels:
        """The rows that training works with, of the same classes."""
        rows, weight, n_copies, origin = counted
        origin = follow_rows(self.origin, origin)
        return Labels(self.classes, self.codes[rows], weight, self.n_copies + n_copies, origin)

    def joined(self, other: Labels) -> Labels:
        """These rows, and then others of the same classes."""
        origin = join_origins(self.origin, len(self), other.origin, len(other))
        codes, n_copies = np.append(self.codes, other.codes), self.n_copies + other.n_copies
        return Labels(self.classes, codes, join_weights(self, other), n_copies, origin)

    def weigh(self, class_weights: Array) -> Array | None:
        """Weights of the rows times those (k,) of their classes, or None if all are 1."""
        if np.all(class_weights == 1.0):
            return self.weight
        weight = self.counts * class_weights[self.codes]
        return as_weights(weight, len(self), "sample_weight times class_weight")

    def count_classes(self) -> Array:
        """How often every class is there, (k,)."""
        return np.bincount(self.codes, self.weight, len(self.classes)).astype(np.float64)

    def problems(self) -> list[Array]:
        """Targets t (n,) of the second class, or of each one versus the rest if there are more.

        They are 1 or -1, and 0 where the label is not known.
        """
        k = len(self.classes)
        positives = [1] if k == 2 else range(k)
        size = np.where(self.codes < 0, 0.0, 1.0)
        return [np.where(self.codes == code, 1.0, -1.0) * size for code in positives]


class CountsLabels:
    """The part of a classifier that counts the rows which its ``_read_rows`` reads."""

    _read_rows: Callable[..., tuple[Any, Any]]

    def _prepare(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any = None, **metadata: Any
    ) -> tuple[Any, Any]:
        """Inputs and labels, without copies and rows of weight zero; of collections as given."""
        if sample_weight is not None:
            refuse_collections("fit with sample_weight", X, y, sample_weight)
        inputs, labels = self._read_rows(X, y, reset=reset, **metadata)
        if isinstance(labels, LabelledRows):
            return inputs, labels
        return self._count(inputs, labels, sample_weight)

    def _count(self, inputs: Any, labels: Labels, sample_weight: Any) -> tuple[Any, Any]:
        """The rows that training works with, and how often each one counts."""
        counted = count_rows(inputs, labels.codes, sample_weight)
        return inputs[counted.rows], labels.counted(counted)


class ReadsLabels(CountsLabels, ReadsInputs):
    """The part of `VariationalClassifier` that makes of the user's data what its learner takes.

    A subclass may override

    - ``_inputs(X, **metadata)``: the learner's inputs, from validated X and whatever its
      own `fit`, `partial_fit` or `predict_proba` hand to ``_fit``, ``_partial_fit`` or
      ``_decisions`` as keywords;
    - ``_count``, if its inputs or its targets are other ones.
    """

    _state: Any

    def _inputs(self, X: Array) -> Any:
        return X

    def _read_rows(
        self,
        X: Any,
        y: Any,
        *,
        reset: bool,
        streams: bool = False,
        classes: Any = None,
        **metadata: Any,
    ) -> tuple[Any, Any]:
        """Inputs and labels, in a stream of these ``classes``."""
        is_spread = is_collection(X) or is_collection(y)
        if is_spread:
            self._read_example(X, reset=reset)
        else:
            X = self._read(X, reset=reset)
            X, y = check_X_y(X, y, estimator=self, **self._check_options)
        if streams:
            known = self._state.classes if hasattr(self, "_state") else None
            classes = read_classes(classes, known)
        if is_spread:
            return _spread(X, y, classes)
        return self._inputs(X, **metadata), Labels.of(y, classes)


def _spread(X: Any, y: Any, classes: NDArray[Any] | None) -> tuple[Any, Any]:
    """Rows of Dask collections and their labels on their workers, or here if they are few."""
    rows = LabelledRows(X, y, classes)
    if rows.n <= SUBSAMPLE:
        X, codes = rows.fetch(np.arange(rows.n))
        return X, Labels(rows.classes, codes.astype(np.intp))
    if rows.at_one_place:
        raise ValueError("All rows of X are equal: they say nothing of a function.")
    return ShardedColumns(rows, "X"), rows


def read_classes(classes: Any, known: NDArray[Any] | None) -> NDArray[Any]:
    """The classes that `partial_fit` works with; ``known`` are those of an earlier call."""
    if classes is None:
        if known is None:
            raise ValueError("classes must be given in the first call of partial_fit.")
        return known
    if np.ndim(classes) != 1:
        raise ValueError(f"classes must be a list of labels; got {classes!r}.")
    listed = np.asarray(classes, dtype=object)
    if find_missing(listed).any() or len({isinstance(label, str) for label in listed}) > 1:
        raise ValueError(
            f"classes must be known labels, all strings or all numbers; got {classes!r}."
        )
    classes = np.unique(classes)
    if known is not None and not np.array_equal(classes, known):
        raise ValueError(f"classes are {known.tolist()} since the first call of partial_fit.")
    return classes
