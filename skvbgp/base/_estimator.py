"""fit and partial_fit over an immutable state: validation, progress and roll-back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.utils._param_validation import Interval, StrOptions  # noqa: F401

from skvbgp._callbacks import TEARDOWN_ATTRIBUTES, FitProgress
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread, thread_map

#: Rows of one prediction tile, so that memory does not grow with the number of test rows.
_TILE_ROWS = 1024

#: Decorator of `fit` and `partial_fit`: checks the constructor parameters, ends the callbacks.
fit_method = _fit_context(prefer_skip_nested_validation=True)


class DocumentedEstimator(CallbackSupportMixin, BaseEstimator):
    """Callback support, and a link from the HTML representation to the documentation."""

    _doc_link_module = "skvbgp"
    _doc_link_template = (
        "https://skvbgp.readthedocs.io/en/stable/api/generated/"
        "{estimator_module}.{estimator_name}.html"
    )


class VariationalEstimator(DocumentedEstimator):
    """Template of training over an immutable state, for regressors and classifiers.

    A subclass implements

    - ``_validate(X, y, *, reset, **metadata)``: the data as the other hooks take them, a
      pair of inputs and targets;
    - ``_start(X, y)``: the state before training, from validated data;
    - ``_max_fit_passes(y)``: the largest number of passes over rows with these targets;
    - ``_train(state, X, y, progress)``: the state after training;
    - ``_max_update_passes(state, X, y)``: the largest number of passes when rows are added;
    - ``_update(state, X, y, progress)``: the state after new rows;
    - ``_attributes(state)``: public fitted attributes of a state, as a dict.

    The state is kept in ``_state`` and replaced, never modified: what fails on its way
    to a new state leaves the estimator as it was.
    """

    def _fit(self, X, y, **metadata):
        with _restored_on_error(self), single_blas_thread:
            return self._fit_validated(X, y, *self._validate(X, y, reset=True, **metadata))

    def _partial_fit(self, X, y, **metadata):
        first = not hasattr(self, "_state")
        with _restored_on_error(self), single_blas_thread:
            X_in, y_in = X, y
            X, y = self._validate(X, y, reset=first, **metadata)
            if first:
                return self._fit_validated(X_in, y_in, X, y)
            max_passes = self._max_update_passes(self._state, X, y)
            progress = FitProgress(self, X_in, y_in, max_passes)
            return self._publish(self._update(self._state, X, y, progress), progress)

    def _fit_validated(self, X_in, y_in, X, y):
        start = self._start(X, y)
        progress = FitProgress(self, X_in, y_in, self._max_fit_passes(y))
        return self._publish(self._train(start, X, y, progress), progress)

    def _publish(self, state, progress):
        for name, value in self._attributes(state).items():
            setattr(self, name, value)
        self._state = state
        progress.close()
        return self

    def _reconstruction(self, state: Any) -> dict[str, Any]:
        """What makes an estimator that callbacks can use from a state on the way."""
        return self._attributes(state) | {"_state": state}


def in_tiles(moments: Callable[[Array], tuple[Array, Array]], X: Array) -> tuple[Array, Array]:
    """Means and variances of many rows, tile by tile on several threads."""
    tiles = [(X[start : start + _TILE_ROWS],) for start in range(0, len(X), _TILE_ROWS)]
    means, variances = zip(*thread_map(moments, tiles), strict=True)
    return np.concatenate(means), np.concatenate(variances)


@contextmanager
def _restored_on_error(estimator: Any) -> Iterator[None]:
    """Undo every change of the estimator's attributes if the block fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        now = vars(estimator)
        in_use = {name: now[name] for name in TEARDOWN_ATTRIBUTES if name in now}
        now.clear()
        now.update(before | in_use)
        raise


def as_vector(value: Any, size: int, name: str, *, positive: bool) -> Array:
    """A number, or several, as a finite vector of a given size."""
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers; got {value!r}.") from None
    if vector.ndim > 1 or (vector.ndim == 1 and len(vector) != size):
        raise ValueError(f"{name} must be a number or have shape ({size},); got {vector.shape}.")
    if not np.isfinite(vector).all() or (positive and not (vector > 0.0).all()):
        kind = "finite and positive" if positive else "finite"
        raise ValueError(f"{name} must be {kind}; got {value!r}.")
    return np.broadcast_to(vector, (size,)).copy()
