"""Fits that tests look at: those that need not be made for each, and of single outputs."""

import pickle
from typing import Any

import numpy as np
from sklearn.base import clone


class FitOnce:
    """Call it for an estimator, fitted: the first of all with its settings and data is trained.

    The others are copies of that one, so that a test may do to it what it likes. Those of a module
    are its own, for whatever fixtures have changed is not among the settings.
    """

    def __init__(self) -> None:
        self._pickles: dict[bytes, bytes] = {}

    def __call__(self, estimator: Any, *data: Any, **given: Any) -> Any:
        key = pickle.dumps((estimator, data, given))
        if key not in self._pickles:
            self._pickles[key] = pickle.dumps(estimator.fit(*data, **given))
        return pickle.loads(self._pickles[key])


def fit_alone(model, data, j, chunks=(slice(None),), **given):
    """The model of one output of data (X, Y, ...), of the rows in which it was observed."""
    X, Y, *_ = data
    one = clone(model)
    for chunk in chunks:
        rows = np.arange(len(X))[chunk]
        rows = rows[~np.isnan(Y[rows, j])]
        if len(rows):
            own = {k: v[rows, j] if v.ndim == 2 else v[rows] for k, v in given.items()}
            one.partial_fit(X[rows], Y[rows, j], **own)
    return one


def train_until(learner, start, rows, y, n):
    """Where training ends that is stopped after n passes, and what these have reported."""
    seen = []

    def stop(make):
        seen.append(make())
        return len(seen) == n

    return learner.train(start, rows, y, stop), seen
