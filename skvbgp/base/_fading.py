"""Regressors whose streams may forget: rows count less with every row that comes after them."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np

from skvbgp.base._estimator import Interval, _num_samples
from skvbgp.base._regressor import VariationalRegressor
from skvbgp.base._validation import LARGEST_WEIGHT, as_weights

#: The constraint of the parameter.
FORGETTING = {"forgetting": [Interval(Real, 0, 1, closed="right")]}


class FadingRegressor(VariationalRegressor):
    """Template of a regressor with the parameter ``forgetting``.

    Its learner lets known rows fade by ``remains`` of the `Targets` that it gets in a stream, and
    those of an output that was not observed in ``let_fade``.
    """

    forgetting: float

    def _partial_fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        return super()._partial_fit(X, y, streams=True, **metadata)

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
        n_forgotten = int(np.count_nonzero(given) - np.count_nonzero(weight))
        inputs, targets = super()._prepare(X, y, reset=reset, sample_weight=weight, y_var=y_var)
        remains = float(self.forgetting**n)
        if isinstance(targets, list):
            each = [None if one is None else replace(one, remains=remains) for one in targets]
            return replace(inputs, n=inputs.n + n_forgotten, remains=remains), each
        n_copies = targets.n_copies + n_forgotten
        return inputs, replace(targets, remains=remains, n_copies=n_copies)

    def _check_collections(self) -> None:
        if self.forgetting != 1.0:
            raise TypeError("forgetting needs rows in memory, not Dask collections.")
        super()._check_collections()
