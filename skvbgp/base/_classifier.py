"""The fit, partial_fit and predict contract of the classifiers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from skvbgp._core.collections import is_collection, refuse_collection
from skvbgp._core.copies import follow_rows, join_origins
from skvbgp._core.labels import LabelledRows, choose_classes
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread
from skvbgp._core.shards import ShardedColumns
from skvbgp.base._estimator import VariationalEstimator, fit_method
from skvbgp.base._inputs import ReadsInputs
from skvbgp.base._lazy import Names, lazily
from skvbgp.base._start import SUBSAMPLE
from skvbgp.base._validation import as_weights, find_missing, reading
from skvbgp.base._weights import Counted, count_rows, join_weights


@dataclass(frozen=True)
class Labels:
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

    @property
    def counts(self) -> Array:
        """How often each row counts, (n,)."""
        return np.ones(len(self)) if self.weight is None else self.weight

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


def _class_names(estimator: Any, options: dict[str, Any]) -> list[str]:
    return [str(label) for label in estimator.classes_]


def _score_names(estimator: Any, options: dict[str, Any]) -> list[str]:
    return ["score"] if len(estimator.classes_) == 2 else _class_names(estimator, options)


#: Columns of labels, of probabilities and of scores, for `lazily`.
COLUMNS: dict[str, Names] = {
    "predict": lambda estimator, options: ["label"],
    "predict_proba": _class_names,
    "decision_function": _score_names,
}


class PredictsClasses:
    """Labels and probabilities, from scores that ``_decisions(X)`` has, and the state's classes."""

    _decisions: Callable[[Any], Array]
    _state: Any

    @lazily(COLUMNS["predict"])
    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs to predict at, NaN where an entry is missing, if `fit` takes that as well. What
            is said of a Dask array or DataFrame is lazy.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Class labels.
        """
        return self._labels(self._decisions(X))

    @lazily(COLUMNS["predict_proba"])
    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs to predict at, NaN where an entry is missing, if `fit` takes that as well. What
            is said of a Dask array or DataFrame is lazy.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`. Those of more than two classes are one-versus-rest
            probabilities, normalised to a sum of one.
        """
        return class_probabilities(self._decisions(X))

    def _labels(self, decisions: Array) -> NDArray[Any]:
        return self._state.classes[class_codes(decisions)]


class VariationalClassifier(PredictsClasses, ClassifierMixin, ReadsInputs, VariationalEstimator):
    """Template of the classifiers.

    ``_learner()`` is a learner of `Labels`, whose states have `classes`. Its ``posterior(state)``
    has ``decisions(inputs)``: scores (n, 1) of two classes or (n, k), whose normal distribution
    function is the probability of the second class, or of each versus the rest. A subclass may
    override

    - ``_inputs(X, **metadata)``: the learner's inputs, from validated X and whatever its
      own `fit`, `partial_fit` or `predict_proba` hand to ``_fit``, ``_partial_fit`` or
      ``_decisions`` as keywords;
    - ``_count``, if its inputs or its targets are other ones.
    """

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Training inputs. An estimator that takes Dask arrays and DataFrames, as the user
            guide's table says, never gathers their rows.
        y : array-like or Dask collection of shape (n_samples,)
            Class labels, of at least two classes.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts: a weight of 2 is the row twice, 0 leaves it out, though its
            label is still one of the classes. None is 1.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        TypeError
            If weights are given with a Dask collection.
        ValueError
            If a weight is negative or not finite, or if all are zero.
        """
        return self._fit(X, y, sample_weight=sample_weight)

    @fit_method
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add new rows to the data the model knows.

        The first call is :meth:`fit`; each later one adds rows that have not been seen
        before. A call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            New inputs; a single row is enough.
        y : array-like or Dask collection of shape (n_samples,)
            Class labels, maybe of a single class.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever occur. Needed in the first call.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts, as in :meth:`fit`.

        Returns
        -------
        self : object
            The updated estimator.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`fit`.
        """
        return self._partial_fit(X, y, classes=classes, sample_weight=sample_weight)

    @lazily(COLUMNS["decision_function"])
    def decision_function(self, X: Any) -> Array:
        """Compute the scores of the classes.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs to predict at. What is said of a Dask array or DataFrame is lazy.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Their normal distribution function is the probability of the second class, or
            of each class versus the rest if there are more than two.
        """
        return self._scores(self._decisions(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        refuse_collection(X, "score")
        return super().score(X, y, sample_weight)

    # -- what a subclass's own predict, predict_proba and decision_function are made of ----------

    @lazily(_class_names)
    def _decisions(self, X: Any, **metadata: Any) -> Array:
        """Scores of all problems, (n, 1) or (n, k)."""
        check_is_fitted(self)
        with reading(X):
            X = self._read(X, reset=False)
        inputs, learner = self._inputs(X, **metadata), self._learner()
        with single_blas_thread:
            return learner.posterior(self._state).decisions(inputs)

    @staticmethod
    def _scores(decisions: Array) -> Array:
        return decisions[:, 0] if decisions.shape[1] == 1 else decisions

    # -- training --------------------------------------------------------------------------------

    def _inputs(self, X: Array) -> Any:
        return X

    def _prepare(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any = None, **metadata: Any
    ) -> tuple[Any, Any]:
        """Inputs and labels, without copies and rows of weight zero; of collections as given."""
        if sample_weight is not None:
            for values in (X, y, sample_weight):
                refuse_collection(values, "fit with sample_weight")
        inputs, labels = self._read_rows(X, y, reset=reset, **metadata)
        if isinstance(labels, LabelledRows):
            return inputs, labels
        return self._count(inputs, labels, sample_weight)

    def _count(self, inputs: Any, labels: Labels, sample_weight: Any) -> tuple[Any, Any]:
        """The rows that training works with, and how often each one counts."""
        counted = count_rows(inputs, labels.codes, sample_weight)
        return inputs[counted.rows], labels.counted(counted)

    def _read_rows(self, X: Any, y: Any, *, reset: bool, **metadata: Any) -> tuple[Any, Any]:
        """Inputs and labels; the key ``classes``, maybe None, is there for `partial_fit` alone."""
        is_spread = is_collection(X) or is_collection(y)
        if is_spread:
            self._read_example(X, reset=reset)
        else:
            X = self._read(X, reset=reset)
            X, y = check_X_y(X, y, estimator=self, **self._check_options)
        classes = None
        if "classes" in metadata:
            known = self._state.classes if hasattr(self, "_state") else None
            classes = declared_classes(metadata.pop("classes"), known)
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


def declared_classes(classes: Any, known: NDArray[Any] | None) -> NDArray[Any]:
    """The classes that `partial_fit` works with; ``known`` are those of an earlier call."""
    if classes is None:
        if known is None:
            raise ValueError("classes must be given in the first call of partial_fit.")
        return known
    classes = np.unique(column_or_1d(classes))
    if known is not None and not np.array_equal(classes, known):
        raise ValueError(f"classes are {known.tolist()} since the first call of partial_fit.")
    return classes


def class_codes(decisions: Array) -> NDArray[np.intp]:
    """Index (n,) of the most probable class, from the scores of all problems, (n, 1) or (n, k)."""
    if decisions.shape[1] == 1:
        return (decisions[:, 0] > 0.0).astype(np.intp)
    return np.argmax(decisions, axis=1)


def class_probabilities(decisions: Array) -> Array:
    """Probabilities (n, k) of the classes; those of more than two are normalised."""
    if decisions.shape[1] == 1:
        decisions = np.hstack([-decisions, decisions])
    logs = log_ndtr(decisions)  # a normalisation that survives underflow
    return np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
