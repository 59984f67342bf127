"""Regressors whose streams may forget: rows count less with every row that comes after them."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.collections import refuse_collection
from skvbgp._core.linalg import Array
from skvbgp.base._estimator import Interval, RealNotInt, VariationalRegressor, _num_samples
from skvbgp.base._validation import LARGEST_WEIGHT, as_weights
from skvbgp.base._weights import FORGOTTEN

#: The constraint of the parameter where rows may only fade, and where there are windows, too.
FORGETTING = {"forgetting": [Interval(Real, 0, 1, closed="right")]}
FORGETTING_OR_WINDOW = {
    "forgetting": [
        Interval(RealNotInt, 0, 1, closed="right"),
        Interval(Integral, 1, None, closed="left"),
    ]
}


class StreamRows(NamedTuple):
    """Rows (n, d) of a stream with targets (n,) or (n, t), as they were given.

    And how many others came after each, (n,), weights (n,), known variances of noise as y.
    """

    X: Array
    y: Array
    age: Array
    weight: Array
    variance: Array

    def joined(self, new: StreamRows) -> StreamRows:
        """These and the ones that came after them."""
        older = self._replace(age=self.age + len(new.y))
        return StreamRows(*map(np.concatenate, zip(older, new, strict=True)))

    def take(self, kept: NDArray[np.bool_]) -> StreamRows:
        """Copies of some of them."""
        return StreamRows(*(values[kept] for values in self))


class ForgetfulRegressor(VariationalRegressor):
    """Template of a regressor with the parameter ``forgetting``.

    A stream that forgets keeps the rows that still count, and after each call the model is a fit
    to these, with the weights that are left of them: of older rows nothing remains, unless
    `warm_start` lets training go on from what it has learned.
    """

    forgetting: float
    _stream: StreamRows

    @property
    def _learns_anew(self) -> bool:
        return self.forgetting != 1.0

    def _prepare(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any, y_var: Any, streams: bool = False
    ) -> tuple[Any, Any]:
        """The rows, in a stream all of them that still count."""
        metadata = {"sample_weight": sample_weight, "y_var": y_var}
        if not self._learns_anew:
            self.__dict__.pop("_stream", None)
            return super()._prepare(X, y, reset=reset, **metadata)
        for values in (X, y):
            refuse_collection(values, "forgetting")
        X, y, variance = self._read_all(X, y, reset=reset, **metadata)
        weight, age = as_weights(sample_weight, len(y)), np.arange(len(y), dtype=np.float64)[::-1]
        if not streams and self.forgetting < 1.0:
            age = np.zeros(len(y))  # rows of a fit count alike
        rows = StreamRows(X, y, age, weight, np.zeros(y.shape) if variance is None else variance)
        n_seen = int(np.count_nonzero(weight))
        if not reset:
            if not hasattr(self, "_stream"):
                raise ValueError(
                    "forgetting was 1 before, so that no rows were kept which could be forgotten: "
                    "set it before fit."
                )
            rows, n_seen = self._stream.joined(rows), n_seen + self.n_samples_seen_
        share = self._weigh_ages(rows.age)
        newest = np.flatnonzero(rows.weight)[-1]  # rows of weight zero may be newer, and many
        share[newest] = max(share[newest], 1.0 / LARGEST_WEIGHT)
        self._stream = rows.take(share > 0.0)
        if not streams:
            return self._count(X, y, sample_weight, variance)
        rows, share = self._stream, share[share > 0.0]
        weight = np.maximum(rows.weight * share, 1.0 / LARGEST_WEIGHT) * (rows.weight > 0.0)
        inputs, targets = self._count(rows.X, rows.y, weight, rows.variance)
        n_forgotten = n_seen - int(np.count_nonzero(weight))
        return _count_forgotten(inputs, targets, n_forgotten)

    def _weigh_ages(self, age: Array) -> Array:
        """What rows count after so many others, as a share."""
        if self.forgetting > 1.0:
            return (age < self.forgetting).astype(np.float64)
        share = self.forgetting**age
        return np.where(share < FORGOTTEN, 0.0, share)


def _count_forgotten(inputs: Any, targets: Any, n: int) -> tuple[Any, Any]:
    """The same of rows besides which n were seen that do not count any more."""
    if isinstance(targets, list):
        return replace(inputs, n=inputs.n + n), targets
    return inputs, replace(targets, n_copies=targets.n_copies + n)


class FadingRegressor(VariationalRegressor):
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
        weight = given * self.forgetting ** np.arange(n - 1.0, -1.0, -1.0)
        newest, least = np.flatnonzero(given)[-1], 1.0 / LARGEST_WEIGHT
        last = max(weight[newest], least)  # rows of weight zero may be newer, and many
        weight[weight < least] = 0.0
        weight[newest] = last
        prepared = super()._prepare(X, y, reset=reset, sample_weight=weight, y_var=y_var)
        n_forgotten = int(np.count_nonzero(given) - np.count_nonzero(weight))
        inputs, targets = _count_forgotten(*prepared, n_forgotten)
        remains = float(self.forgetting**n)
        if isinstance(targets, list):
            each = [None if one is None else replace(one, remains=remains) for one in targets]
            return replace(inputs, remains=remains), each
        return inputs, replace(targets, remains=remains)

    def _check_collections(self) -> None:
        if self.forgetting != 1.0:
            raise TypeError("forgetting needs rows in memory, not Dask collections.")
        super()._check_collections()
