"""Fits that several tests of a module look at, which need not be made for each of them."""

import pickle
from typing import Any


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
