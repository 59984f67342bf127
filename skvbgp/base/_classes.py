"""What the classifiers say of new rows: labels, probabilities and scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.exclusion import log_probabilities
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread
from skvbgp._core.row_methods import Names, lazily
from skvbgp.base._validation import reading


def _class_names(estimator: Any, options: dict[str, Any]) -> list[str]:
    return [str(label) for label in estimator.classes_]


#: Columns of labels, of probabilities and of scores, for `lazily`.
COLUMNS: dict[str, Names] = {
    "predict": lambda estimator, options: ["label"],
    "predict_proba": _class_names,
    "decision_function": lambda estimator, options: (
        ["score"] if len(estimator.classes_) == 2 else _class_names(estimator, options)
    ),
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
            In the order of `classes_`. Where each of more than two classes is told from the rest,
            they are normalised to a sum of one.
        """
        return self._probabilities(self._decisions(X))

    def _labels(self, decisions: Array) -> NDArray[Any]:
        return self._state.classes[class_codes(decisions)]

    def _probabilities(self, decisions: Array) -> Array:
        return class_probabilities(decisions)


class ScoresClasses(PredictsClasses):
    """The part of `VariationalClassifier` that has a posterior decide."""

    _read: Callable[..., Array]
    _inputs: Callable[..., Any]
    _learner: Callable[[], Any]
    _validate_params: Callable[[], None]

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

    def _decisions(self, X: Any, **metadata: Any) -> Array:
        """Scores of all problems, (n, 1) or (n, k)."""
        check_is_fitted(self)
        self._validate_params()  # which may have changed since
        with reading(X):
            X = self._read(X, reset=False)
        inputs, learner = self._inputs(X, **metadata), self._learner()
        with single_blas_thread:
            return learner.posterior(self._state).decisions(inputs)

    @staticmethod
    def _scores(decisions: Array) -> Array:
        return decisions[:, 0] if decisions.shape[1] == 1 else decisions


def class_codes(decisions: Array) -> NDArray[np.intp]:
    """Index (n,) of the most probable class, from the scores of all problems, (n, 1) or (n, k)."""
    if decisions.shape[1] == 1:
        return (decisions[:, 0] > 0.0).astype(np.intp)
    return np.argmax(decisions, axis=1)


def class_probabilities(decisions: Array, exclusion: float = 0.0) -> Array:
    """Probabilities (n, k) of the classes; two, which have one score, exclude each other anyway."""
    if decisions.shape[1] == 1:
        decisions = np.hstack([-decisions, decisions])
    return np.exp(log_probabilities(decisions, exclusion))
