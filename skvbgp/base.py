"""What the estimators share: validation, progress, roll-back and the predict contract."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions  # noqa: F401
from sklearn.utils.validation import check_is_fitted, validate_data

from skvbgp._callbacks import TEARDOWN_ATTRIBUTES, FitProgress
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread, thread_map

#: Rows of one prediction tile, so that memory does not grow with the number of test rows.
_TILE_ROWS = 1024


class DocumentedEstimator(CallbackSupportMixin, BaseEstimator):
    """Callback support, and a link from the HTML representation to the documentation."""

    _doc_link_module = "skvbgp"
    _doc_link_template = (
        "https://skvbgp.readthedocs.io/en/stable/api/generated/"
        "{estimator_module}.{estimator_name}.html"
    )


class VariationalRegressor(RegressorMixin, DocumentedEstimator):
    """Template of the regressors: fit, partial_fit and predict over an immutable state.

    A subclass implements

    - ``_start(X, y)``: the state before training, from validated data;
    - ``_max_passes(n)``: the largest number of passes over n rows;
    - ``_train(state, X, y, progress)``: the state after training;
    - ``_max_update_passes(state, X)``: the largest number of passes when rows X are added;
    - ``_update(state, X, y, progress)``: the state after new rows;
    - ``_attributes(state)``: public fitted attributes of a state, as a dict;
    - ``_moments(X, include_noise)``: mean and variance of every row;
    - ``_joint(X, include_noise)``: mean and covariance of all rows.

    The state is kept in ``_state`` and replaced, never modified: what fails on its way
    to a new state leaves the estimator as it was.
    """

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs. A memory-mapped array is read in batches.
        y : array-like of shape (n_samples,)
            Training targets.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with _restored_on_error(self), single_blas_thread:
            return self._fit_validated(X, y, *self._validate(X, y, reset=True))

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y):
        """Add new rows to the data the model knows.

        The first call is :meth:`fit`; each later one adds rows that have not been seen
        before. A call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New inputs; a single row is enough.
        y : array-like of shape (n_samples,)
            New targets.

        Returns
        -------
        self : object
            The updated estimator.
        """
        first = not hasattr(self, "_state")
        with _restored_on_error(self), single_blas_thread:
            X_in, y_in = X, y
            X, y = self._validate(X, y, reset=first)
            if first:
                return self._fit_validated(X_in, y_in, X, y)
            progress = FitProgress(self, X_in, y_in, self._max_update_passes(self._state, X))
            self._publish(self._update(self._state, X, y, progress), progress)
        return self

    def _fit_validated(self, X_in, y_in, X, y):
        start = self._start(X, y)
        progress = FitProgress(self, X_in, y_in, self._max_passes(len(X)))
        self._publish(self._train(start, X, y, progress), progress)
        return self

    def _publish(self, state, progress):
        for name, value in self._attributes(state).items():
            setattr(self, name, value)
        self._state = state
        progress.close()

    def _validate(self, X, y, *, reset: bool):
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, order="C", y_numeric=True)
        return X, np.asarray(y, dtype=np.float64)

    def predict(self, X, return_std=False, return_cov=False, *, include_noise=True):
        """Predict the distribution of new observations.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at. A row's prediction does not depend on the other rows.
        return_std : bool, default=False
            Whether to return the standard deviation, too.
        return_cov : bool, default=False
            Whether to return the joint covariance, too.
        include_noise : bool, default=True
            Whether to predict observations y or the latent function f.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            Predictive mean on the scale of y.
        std : ndarray of shape (n_samples,)
            Standard deviation on the scale of y. Only returned if `return_std` is True.
        cov : ndarray of shape (n_samples, n_samples)
            Covariance on the squared scale of y. Only returned if `return_cov` is True.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std and return_cov can be requested.")
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64, order="C")
        with single_blas_thread:
            if return_cov:
                return self._joint(X, include_noise)
            mean, variance = self._moments(X, include_noise)
        return (mean, np.sqrt(variance)) if return_std else mean

    def sample_y(self, X, n_samples=1, random_state=0, *, include_noise=True):
        """Draw from the joint predictive distribution.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Inputs to draw at.
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
            Determines the draws.
        include_noise : bool, default=True
            Whether to draw observations y or the latent function f.

        Returns
        -------
        samples : ndarray of shape (n_samples_X, n_samples)
            On the scale of y.
        """
        mean, cov = self.predict(X, return_cov=True, include_noise=include_noise)
        rng = check_random_state(random_state)
        variances, vectors = np.linalg.eigh(cov)  # rounding may leave it slightly indefinite
        root = vectors * np.sqrt(np.maximum(variances, 0.0))
        return mean[:, None] + root @ rng.standard_normal((len(mean), n_samples))


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
