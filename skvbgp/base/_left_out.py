"""Predictions of the rows that a regressor has been trained on, each left out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.collections import refuse_collections
from skvbgp._core.copies import make_keys
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import single_blas_thread
from skvbgp.base._estimator import VariationalRegressor
from skvbgp.base._joint_outputs import JointPosterior, lengthen
from skvbgp.base._validation import as_weights, reading
from skvbgp.base._weights import Targets, as_noise, count_rows


class RowSaysMoreError(ValueError):
    """A row that is to be left out says more than all that a model knows."""


class LeavesOut(VariationalRegressor):
    """A regressor with ``loo_predict``, whose posteriors have ``leave_out``."""

    def loo_predict(
        self, X: Any, y: Any, sample_weight: Any = None, y_var: Any = None
    ) -> tuple[Array, Array]:
        """Predict rows that the model was trained on, each from all the others.

        The hyperparameters, their uncertainty, the belief about kernels, and inducing inputs or
        frequencies stay as they were learned from all rows, as do the mean and the unit of y. What
        a row has added to the posterior is subtracted, in closed form.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of `fit` and `partial_fit`, as they were given there: some of them, or all of a
            single `fit` where their noise is correlated in blocks that are not kept (VBPITC).
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counted, in a stream that forgets times what is left of the row. None
            is 1.
        y_var : float or array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Known variance of each row's noise, as it was given. None is 0.

        Returns
        -------
        mean, std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictive moments of the observations, on the scale of y, with their known noise. Equal
            rows are left out together; those of weight 0 and what was not observed are NaN.

        Raises
        ------
        TypeError
            If rows are Dask collections, or the model keeps rows on Dask's workers.
        ValueError
            If the numbers of inputs or outputs are not those of the fit, or if the model cannot
            have been trained on these rows. This is found out only where the model keeps its rows,
            or where a row says more than all that the model knows: other rows that were never
            seen get a prediction that means nothing. Also if blocks of rows are not known, and for
            SVBSSGPRegressor with another `gamma` than 0.

        Notes
        -----
        After a `partial_fit` that has learned hyperparameters or added inducing inputs, sums over
        earlier rows say what these said at the time: leaving one out is approximate then. Models
        that keep their rows predict from those.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from skvbgp import VBDTCRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = VBDTCRegressor(10, max_iter=10, random_state=0).fit(X, y)
        >>> mean, std = model.loo_predict(X, y)
        >>> mean.shape
        (442,)
        """
        check_is_fitted(self)
        refuse_collections("loo_predict", X, y, sample_weight, y_var)
        with reading(X):
            X, y = self._read_rows(X, y, reset=False)
        weight = as_weights(sample_weight, len(y))
        if y_var is not None:
            self._check_known_noise()
        X, variance = self._fill(X, as_noise(y_var, y.shape))
        assert variance is not None  # as it is given
        posterior = self._posterior()
        with single_blas_thread:
            if y.ndim == 1:
                return _leave_out(posterior, X, y, weight, variance)
            if isinstance(posterior, JointPosterior):
                t = y.shape[1]
                given = lengthen(X, t), y.ravel(), np.repeat(weight, t), variance.ravel()
                mean, std = _leave_out(posterior, *given)
                return mean.reshape(y.shape), std.reshape(y.shape)
            each = [
                _leave_out(one, X, y[:, j], weight, variance[:, j])
                for j, one in enumerate(posterior.outputs)
            ]
        means, stds = zip(*each, strict=True)
        return np.column_stack(means), np.column_stack(stds)


def _leave_out(
    posterior: Any, X: Array, y: Array, weight: Array, variance: Array
) -> tuple[Array, Array]:
    """Mean and standard deviation (n,) of rows of one output."""
    mean, squared = np.full(len(y), np.nan), np.full(len(y), np.nan)
    seen = np.flatnonzero((weight > 0.0) & ~np.isnan(y))
    if len(seen):
        known = variance[seen] if np.any(variance[seen]) else None
        targets = Targets(y[seen], variance=known)
        counted = count_rows(X[seen], targets.keys, weight[seen])
        owner = slice(None) if counted.origin is None else counted.origin
        found = posterior.leave_out(X[seen][counted.rows], targets.counted(counted))
        mean[seen], squared[seen] = found[0][owner], found[1][owner]
    return mean, np.sqrt(squared + variance)


def invert_rest(rest: Array) -> Array:
    """Inverse lower Cholesky factors of what is known (n, k, k) without what each row has said.

    `RowSaysMoreError` if a row has said more.
    """
    try:
        return np.linalg.inv(np.linalg.cholesky(rest))
    except np.linalg.LinAlgError:
        raise RowSaysMoreError(
            "A row says more than all that the model knows: the model has not been trained on all "
            "of these rows, or has learned other hyperparameters since."
        ) from None


def find_known(X: Array, targets: Targets, X_known: Array, known: Targets) -> Index:
    """Which of the rows that a model keeps the given ones are.

    ValueError if one is not among them, is there several times, or counts more or less often.
    """
    known_keys, keys = _make_keys(X_known, known), _make_keys(X, targets)
    place = {key: i for i, key in enumerate(known_keys)}
    index = np.array([place.get(key, -1) for key in keys], dtype=np.intp)
    if np.any(index < 0):
        raise ValueError(
            "The model has not been trained on all of these rows (X, y, y_var): one at least is "
            "new to it."
        )
    if len(place) < len(known_keys):
        times = Counter(known_keys)
        if any(times[key] > 1 for key in keys):
            raise ValueError(
                "The model keeps a row several times, as it came in several calls or among very "
                "many: it cannot be left out with its copies."
            )
    if not np.allclose(targets.counts, known.counts[index], rtol=1e-9, atol=0.0):
        raise ValueError(
            "The model has been trained on as many rows, but they count more or less often there: "
            "give all copies of a row, and the sample_weight of fit, times forgetting ** age in a "
            "stream that forgets."
        )
    return index


def _make_keys(X: Array, targets: Targets) -> list[bytes]:
    variance = np.zeros(len(X)) if targets.variance is None else targets.variance
    return make_keys(X, targets.y, variance).tolist()
