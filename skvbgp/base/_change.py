"""Streams that fade: where rows contradict one, a second begins, and follows if it is better.

After an abrupt change, rows of the old function count too much as long as they count at all. The
second stream knows the rows from the change on alone. Which of the two predicts new rows better,
before it has learned from them, decides. See :doc:`/theory/streaming`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.utils import indexable
from sklearn.utils.validation import column_or_1d

from skvbgp._callbacks import CALLBACK_ATTRIBUTES
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import single_blas_thread
from skvbgp.base._estimator import _num_samples, _safe_indexing, restored_on_error
from skvbgp.base._validation import as_weights, reading
from skvbgp.base._weights import count_remembered

#: Probability of errors that say that the function has changed, and bound of that of a second
#: stream that follows though it is not better.
_CHANCE = 1e-4
#: How often the second one is better at a row, after a change.
_SHARE = 2.0 / 3.0
#: Most rows of a call that are compared with predictions.
_COMPARED_ROWS = 500

#: X, y, and what else `partial_fit` is given.
Data = tuple[Any, Any, dict[str, Any]]


class Second(NamedTuple):
    """A stream that began where rows contradicted the first."""

    model: Any
    lead: float = 0.0  # see `follow_lead`
    n_compared: int = 0


def find_contradiction(surprise: Array) -> int | None:
    """The first of n rows after a change; None if they do not contradict predictions.

    Squared errors (n,) are in units of the predicted variance. Those of a few outliers are no
    change: no row counts more than is expected of one in ten thousand.
    """
    n = len(surprise)
    capped = np.minimum(surprise, chi2.isf(_CHANCE, 1))
    if capped.sum() < chi2.isf(_CHANCE, n):
        return None
    after, n_after = np.cumsum(capped[::-1])[::-1], np.arange(n, 0, -1)
    variance = np.maximum(after / n_after, 1.0)  # of the rows from each one on
    return int(np.argmin(capped.sum() - after + n_after * np.log(variance) + after / variance))


def follow_lead(lead: float, is_better: NDArray[np.bool_]) -> Array:
    """Page's statistic after each of n rows (n,): the log likelihood ratio, never below zero.

    It tells being better at two thirds of the rows from being so at half of them.
    """
    steps = np.where(is_better, np.log(2.0 * _SHARE), np.log(2.0 - 2.0 * _SHARE))
    total = lead + np.cumsum(steps)
    return np.asarray(total - np.minimum(np.minimum.accumulate(total), 0.0))


class NoticesChange:
    """The part of an estimator with ``forgetting`` whose streams that fade begin again.

    A subclass says how it judges predictions, and how data begin a stream.
    """

    forgetting: float
    n_samples_seen_: int
    _state: Any
    _published: set[str]
    _second: Second  # while it is open whether there was a change
    _train_anew: Callable[..., Any]
    #: Of `Data`: squared errors in units of what is expected, and log densities, (n,) each.
    _judge: Callable[..., tuple[Array, Array]]
    #: Of ``n``, and `Data`: these as the learner takes them, of a stream that begins with them
    #: after n rows that do not count.
    _prepare_after: Callable[..., tuple[Any, Any]]
    _counts_zeros = False  # whether rows of weight zero are among those that were seen

    def _fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        with restored_on_error(self):
            vars(self).pop("_second", None)
            return self._learn("_fit", X, y, metadata)

    def _partial_fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        with restored_on_error(self):
            second = vars(self).pop("_second", None)
            before = copy.copy(self)
            self._learn("_partial_fit", X, y, metadata)
            if hasattr(before, "_state") and self.forgetting < 1.0:
                X, y = indexable(X, y)
                before._compare(self, second, X, y, metadata)
        return self

    def _learn(self, method: str, X: Any, y: Any, metadata: dict[str, Any]) -> Self:
        """As without a second stream."""
        learned: Self = getattr(super(), method)(X, y, **metadata)
        return learned

    def _compare(
        self, now: Self, second: Second | None, X: Any, y: Any, metadata: dict[str, Any]
    ) -> None:
        """Judge new rows, which this one does not know, and have ``now``, which does, go on.

        It gets a second stream, keeps that, or becomes what it knows.
        """
        rows = np.flatnonzero(as_weights(metadata.get("sample_weight"), _num_samples(X)))
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, _COMPARED_ROWS, dtype=int))]
        some = _take(rows, X, y, metadata)
        surprise, density = self._judge(*some)
        found = None if second else find_contradiction(surprise)
        try:
            if second is not None:
                lead = follow_lead(second.lead, second.model._judge(*some)[1] > density)
                model = copy.copy(second.model)
                vars(model).update(now.get_params(deep=False))  # type: ignore[attr-defined]
                _drop_callbacks(model._learn("_partial_fit", X, y, metadata))
                n_compared = second.n_compared + len(rows)
                if lead.max() >= -np.log(_CHANCE):
                    now._become(model)
                elif n_compared < count_remembered(self.forgetting):
                    now._second = Second(model, float(lead[-1]), n_compared)
            elif found is not None:
                now._second = Second(
                    self._begin_at(int(rows[found]) if found else 0, X, y, metadata)
                )
        except ValueError:
            return  # rows after a change may not be enough, as where an output was not observed yet

    def _begin_at(self, first: int, X: Any, y: Any, metadata: dict[str, Any]) -> Any:
        """What knows the rows from one on alone, and how many had been seen before."""
        model, n = _drop_callbacks(copy.copy(self)), _num_samples(X)
        skipped = as_weights(metadata.get("sample_weight"), n)[:first]
        n_before = first if self._counts_zeros else int(np.count_nonzero(skipped))
        X, y, metadata = _take(np.arange(first, n), X, y, metadata)
        with single_blas_thread:
            with reading(X):
                known = model._prepare_after(self.n_samples_seen_ + n_before, X, y, metadata)
            return _drop_callbacks(model._train_anew(X, y, *known, None))

    def _become(self, model: Self) -> None:
        """Know what another one knows."""
        now = vars(self)
        for name in self._published - model._published:
            now.pop(name, None)
        now.update(vars(model))


class NoticesFunctions(NoticesChange):
    """That of regressors."""

    predict: Callable[..., Any]
    log_predictive_density: Callable[..., Array]

    def _judge(self, X: Any, y: Any, metadata: dict[str, Any]) -> tuple[Array, Array]:
        known = {"y_var": metadata["y_var"]}
        mean, std = self.predict(X, return_std=True, **known)
        y = np.asarray(y, dtype=np.float64).reshape(mean.shape)
        with np.errstate(over="ignore"):  # what is so far away is refused, or learned from
            squared = ((y - mean) / std) ** 2
        if y.ndim == 2:  # of the outputs that were observed
            squared = np.nansum(squared, axis=1) / np.maximum(1, np.sum(~np.isnan(y), axis=1))
        return squared, self.log_predictive_density(X, y, **known)


class NoticesClasses(NoticesChange):
    """That of classifiers."""

    classes_: NDArray[Any]
    predict_proba: Callable[..., Array]

    def _judge(self, X: Any, y: Any, metadata: dict[str, Any]) -> tuple[Array, Array]:
        known = {name: metadata[name] for name in ("X_var",) if name in metadata}
        codes = np.searchsorted(self.classes_, column_or_1d(y))
        p = self.predict_proba(X, **known)[np.arange(len(codes)), codes]
        with np.errstate(divide="ignore"):  # of a label that was thought impossible
            return (1.0 / p - 1.0) / (len(self.classes_) - 1), np.log(p)


def _drop_callbacks(model: Any) -> Any:
    """Those of the user follow the first stream."""
    for name in CALLBACK_ATTRIBUTES:
        vars(model).pop(name, None)
    return model


def _take(rows: Index, X: Any, y: Any, metadata: dict[str, Any]) -> Data:
    """Some rows of all that has one for each."""
    some = {
        name: _safe_indexing(value, rows) if name != "classes" and np.ndim(value) else value
        for name, value in metadata.items()
    }
    return _safe_indexing(X, rows), _safe_indexing(y, rows), some
