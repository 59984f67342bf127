"""Estimators whose streams may forget: rows count less with every row that comes after them."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.collections import refuse_collections
from skvbgp._core.linalg import Array
from skvbgp.base._change import NoticesClasses, NoticesFunctions
from skvbgp.base._estimator import (
    Interval,
    RealNotInt,
    VariationalClassifier,
    VariationalRegressor,
    _num_samples,
)
from skvbgp.base._labels import CountsLabels
from skvbgp.base._validation import LARGEST_WEIGHT, as_weights
from skvbgp.base._weights import FORGOTTEN, keep_newest, share_by_age

#: The constraint of the parameter where rows may only fade, and where there are windows, too.
FORGETTING = {"forgetting": [Interval(Real, 0, 1, closed="right")]}
FORGETTING_OR_WINDOW = {
    "forgetting": [
        Interval(RealNotInt, 0, 1, closed="right"),
        Interval(Integral, 1, None, closed="left"),
    ]
}


class StreamRows(NamedTuple):
    """Rows of a stream: how many others came after each, weights (n,), and what was given."""

    age: Array
    weight: Array
    columns: tuple[NDArray[Any], ...]  # (n, ...) each

    def joined(self, new: StreamRows) -> StreamRows:
        """These and the ones that came after them."""
        columns = map(np.concatenate, zip(self.columns, new.columns, strict=True))
        age = np.append(self.age + len(new.age), new.age)
        return StreamRows(age, np.append(self.weight, new.weight), tuple(columns))

    def take(self, kept: NDArray[np.bool_]) -> StreamRows:
        """Copies of some of them."""
        columns = tuple(values[kept] for values in self.columns)
        return StreamRows(self.age[kept], self.weight[kept], columns)


class _KeepsStream:
    """The part of an estimator with the parameter ``forgetting`` that keeps the rows that count.

    After each call the model is a fit to these, with the weights that are left of them: of older
    rows nothing remains, unless `warm_start` lets training go on from what it has learned. Where
    ``_learns_anew`` says that it is not worth a fit, the learner's ``update`` gets them all.
    """

    forgetting: float
    n_samples_seen_: int
    _prepare: Any
    _stream: StreamRows

    def _learns_anew(self, inputs: Any, targets: Any) -> bool:
        return self.forgetting != 1.0

    def _keeps(self, *data: Any) -> bool:
        """Whether rows are to be kept; then they have to be in memory."""
        if self.forgetting == 1.0:
            self.__dict__.pop("_stream", None)
            return False
        refuse_collections("forgetting", *data)
        return True

    def _remember(
        self, columns: tuple[NDArray[Any], ...], sample_weight: Any, *, reset: bool, streams: bool
    ) -> tuple[tuple[NDArray[Any], ...], Any, int]:
        """What was given of all rows that count, with weights, and how many seen do not count.

        Of a fit these are its rows, though a later call may know fewer of them.
        """
        n = len(columns[0])
        weight, age = as_weights(sample_weight, n), np.arange(n - 1.0, -1.0, -1.0)
        if not streams and self.forgetting < 1.0:
            age = np.zeros(n)  # rows of a fit count alike
        rows, n_seen = StreamRows(age, weight, columns), int(np.count_nonzero(weight))
        if not reset:
            if not hasattr(self, "_stream"):
                raise ValueError(
                    "forgetting was 1 before, so that no rows were kept which could be forgotten: "
                    "set it before fit."
                )
            rows, n_seen = self._stream.joined(rows), n_seen + self.n_samples_seen_
        share = share_by_age(self.forgetting, rows.age)
        share[share < FORGOTTEN] = 0.0
        keep_newest(share, rows.weight)
        self._stream = rows.take(share > 0.0)
        if not streams:
            return columns, sample_weight, 0
        rows, share = self._stream, share[share > 0.0]
        weight = np.maximum(rows.weight * share, 1.0 / LARGEST_WEIGHT) * (rows.weight > 0.0)
        return rows.columns, weight, n_seen - int(np.count_nonzero(weight))

    def _prepare_after(self, n: int, X: Any, y: Any, metadata: dict[str, Any]) -> Any:
        """As `NoticesChange` asks for."""
        none = np.zeros(len(self._stream.age), dtype=bool)
        self._stream, self.n_samples_seen_ = self._stream.take(none), n
        return self._prepare(X, y, reset=False, streams=True, **metadata)


class ForgetfulRegressor(_KeepsStream, NoticesFunctions, VariationalRegressor):
    """Template of a regressor with the parameter ``forgetting``, which is fitted anew."""

    def _prepare(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any, y_var: Any, streams: bool = False
    ) -> tuple[Any, Any]:
        """The rows, in a stream all of them that still count."""
        metadata = {"sample_weight": sample_weight, "y_var": y_var}
        if not self._keeps(X, y):
            return super()._prepare(X, y, reset=reset, **metadata)
        X, y, variance = self._read_all(X, y, reset=reset, **metadata)
        given = X, y, np.zeros(y.shape) if variance is None else variance
        known = self._remember(given, sample_weight, reset=reset, streams=streams)
        (X, y, variance), weight, n_forgotten = known
        counted = self._count(X, y, weight, variance, begins=True)
        return _tell_forgotten(*counted, n_forgotten)


class ForgetsLabels(_KeepsStream, CountsLabels):
    """The part of a classifier with the parameter ``forgetting`` that keeps its rows."""

    def _prepare(
        self,
        X: Any,
        y: Any,
        *,
        reset: bool,
        sample_weight: Any = None,
        streams: bool = False,
        **metadata: Any,
    ) -> tuple[Any, Any]:
        """The rows, in a stream all of them that still count."""
        metadata["streams"] = streams
        if not self._keeps(X, y, sample_weight):
            return super()._prepare(X, y, reset=reset, sample_weight=sample_weight, **metadata)
        inputs, labels = self._read_rows(X, y, reset=reset, **metadata)
        given = (*self._as_columns(inputs), labels.codes)
        known = self._remember(given, sample_weight, reset=reset, streams=streams)
        (*columns, codes), weight, n_forgotten = known
        labels = replace(labels, codes=codes, n_copies=n_forgotten)
        return self._count(self._of_columns(*columns), labels, weight)

    @staticmethod
    def _as_columns(inputs: Any) -> tuple[Array, ...]:
        """The learner's inputs as arrays of rows."""
        return (inputs,)

    @staticmethod
    def _of_columns(*columns: Array) -> Any:
        """The learner's inputs of these arrays."""
        return columns[0]


class ForgetfulClassifier(ForgetsLabels, NoticesClasses, VariationalClassifier):
    """Template of a classifier with the parameter ``forgetting``, which is fitted anew."""


def _tell_forgotten(inputs: Any, targets: Any, n: int, remains: float = 1.0) -> tuple[Any, Any]:
    """Rows besides which n were seen that do not count any more.

    What rows known before count after these, as a share of what they did, ``remains``.
    """
    if isinstance(targets, list):
        each = [None if one is None else replace(one, remains=remains) for one in targets]
        return replace(inputs, n=inputs.n + n, remains=remains), each
    return inputs, replace(targets, n_copies=targets.n_copies + n, remains=remains)


class FadingRegressor(NoticesFunctions, VariationalRegressor):
    """Template of a regressor whose learner lets known rows fade.

    It does by ``remains`` of the `Targets` that it gets in a stream, and those of an output that
    was not observed in ``let_fade``.
    """

    forgetting: float

    def _prepare(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any, y_var: Any, streams: bool = False
    ) -> tuple[Any, Any]:
        """The rows, which in a stream count by how many came after them."""
        if not streams or self.forgetting == 1.0:
            return super()._prepare(X, y, reset=reset, sample_weight=sample_weight, y_var=y_var)
        n = _num_samples(X)
        given = as_weights(sample_weight, n)
        weight = given * share_by_age(self.forgetting, np.arange(n - 1.0, -1.0, -1.0))
        weight[weight < 1.0 / LARGEST_WEIGHT] = 0.0
        keep_newest(weight, given)
        prepared = super()._prepare(X, y, reset=reset, sample_weight=weight, y_var=y_var)
        n_forgotten = int(np.count_nonzero(given) - np.count_nonzero(weight))
        return _tell_forgotten(*prepared, n_forgotten, float(self.forgetting**n))

    def _prepare_after(self, n: int, X: Any, y: Any, metadata: dict[str, Any]) -> tuple[Any, Any]:
        return _tell_forgotten(*self._prepare(X, y, reset=False, streams=True, **metadata), n)

    def _check_collections(self) -> None:
        if self.forgetting != 1.0:
            raise TypeError("forgetting needs rows in memory, not Dask collections.")
        super()._check_collections()
