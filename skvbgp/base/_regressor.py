"""The fit, partial_fit and predict contract of the regressors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags, check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skvbgp._core.collections import is_collection, make_example, refuse_collection
from skvbgp._core.draws import draw_normal
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread
from skvbgp._core.shards import ShardedColumns, ShardedRows
from skvbgp.base._distributions import PredictsDistributions
from skvbgp.base._estimator import VariationalEstimator, fit_method
from skvbgp.base._lazy import lazily
from skvbgp.base._outputs import Observations, OutputsLearner
from skvbgp.base._start import SUBSAMPLE
from skvbgp.base._validation import (
    as_weights,
    reading,
    refuse_dates,
    what_is_finite,
)
from skvbgp.base._weights import Targets, as_noise, count_targets, unless_zero


class VariationalRegressor(RegressorMixin, PredictsDistributions, VariationalEstimator):
    """Template of the regressors.

    ``_learner()`` is a `RegressionLearner` of one output, which takes `Targets`. A subclass may
    override ``_check_targets(y)``, which refuses y that there cannot be, and
    ``_check_known_noise()``, which refuses that any is given.
    """

    #: Whether the known rows are on Dask's workers; None if an estimator does not keep its rows.
    _keeps_on_workers: Any = None
    #: Whether rows of a Dask collection that are not fetched have to differ.
    _needs_variation = True

    # With scikit-learn's metadata routing, a pipeline hands these on to its last step.
    __metadata_request__predict = dict.fromkeys(
        ("return_std", "return_cov", "include_noise", "y_var"), True
    )

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None, y_var: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Training inputs. A memory-mapped array is read in batches. An estimator that takes Dask
            arrays and DataFrames, as the user guide's table says, never gathers their rows.
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_outputs)
            Training targets. Each of several outputs has a model of its own; where it is NaN, it
            was not observed. A Dask collection has one output.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts: a weight of 2 is the row twice, 0 leaves it out (and has the
            other rows copied). None is 1.
        y_var : float or array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Known variance of each row's noise, on the squared scale of y. It adds to the variance
            that is learned. None is 0.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        TypeError
            If weights or variances are given with a Dask collection.
        ValueError
            If a weight or variance is negative or not finite, if all weights are zero, if
            variances are given for what has no Gaussian noise, or if an output was never observed.
        """
        return self._fit(X, y, sample_weight=sample_weight, y_var=y_var)

    @fit_method
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, y_var: Any = None) -> Self:
        """Add new rows to the data the model knows.

        The first call is :meth:`fit`; each later one adds rows that have not been seen
        before. A call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            New inputs; a single row is enough. Rows on Dask's workers join rows there only.
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_outputs)
            New targets, of as many outputs as before.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts, as in :meth:`fit`.
        y_var : float or array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Known variance of each row's noise, as in :meth:`fit`.

        Returns
        -------
        self : object
            The updated estimator.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`fit`, or if a stream has forgotten all values of an output.
        """
        return self._partial_fit(X, y, sample_weight=sample_weight, y_var=y_var)

    @lazily(lambda estimator, options: ["mean", "std"])
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        include_noise: bool = True,
        y_var: Any = None,
    ) -> Any:
        """Predict the distribution of new observations.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs to predict at, NaN where an entry is missing, if `fit` takes that as well. A
            row's prediction does not depend on the other rows. Those of a Dask array or DataFrame
            are lazy arrays or series.
        return_std : bool, default=False
            Whether to return the standard deviation, too.
        return_cov : bool, default=False
            Whether to return the joint covariance, too.
        include_noise : bool, default=True
            Whether to predict observations y or the latent function f.
        y_var : float or array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Known variance of each row's noise besides the learned one, on the squared scale of y.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictive mean on the scale of y.
        std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Standard deviation on the scale of y. Only returned if `return_std` is True.
        cov : ndarray of shape (n_samples, n_samples) or (n_samples, n_samples, n_outputs)
            Covariance on the squared scale of y. Only returned if `return_cov` is True.

        Raises
        ------
        TypeError
            If `y_var` is given for a Dask collection.
        ValueError
            If `y_var` is negative, or given where `include_noise` is False.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std and return_cov can be requested.")
        X = self._check_inputs(X)
        known = self._read_noise(y_var, len(X), include_noise=include_noise)
        posterior = self._posterior()
        with single_blas_thread:
            if return_cov:
                mean, cov = posterior.joint(X, include_noise)
                if known is not None:
                    every = np.arange(len(X))
                    cov[every, every] += known
                return mean, cov
            mean, variance = posterior.moments(X, include_noise)
        if known is not None:
            variance = variance + known
        return (mean, np.sqrt(variance)) if return_std else mean

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        refuse_collection(X, "score")
        return super().score(X, y, sample_weight)

    def _check_inputs(self, X: Any) -> Array:
        """X as the posterior takes it."""
        check_is_fitted(self)
        refuse_collection(X, "This method")
        with reading(X):
            return self._read(X, reset=False)

    def _posterior(self) -> Any:
        """The posterior of all that was learned, by parameters that may have changed since."""
        self._validate_params()
        with single_blas_thread:  # several would wait for each other
            return self._full_learner().posterior(self._state)

    @property
    def _check_options(self) -> dict[str, Any]:
        """What scikit-learn makes of X."""
        return {"dtype": np.float64, "order": "C", "ensure_all_finite": what_is_finite(self)}

    def _read(self, X: Any, *, reset: bool) -> Array:
        """X as an array of numbers."""
        X = validate_data(self, X, reset=reset, **self._check_options)
        return np.asarray(X)

    def _read_noise(self, y_var: Any, n: int, *, include_noise: bool) -> Array | None:
        """Known variances (n,), or (n, t) of several outputs, of noise that is to be predicted."""
        if y_var is None:
            return None
        self._check_known_noise()
        if not include_noise:
            raise ValueError("y_var is a variance of noise, which include_noise=False leaves out.")
        return as_noise(y_var, (n,) if self.n_outputs_ == 1 else (n, self.n_outputs_))

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, include_noise: bool = True
    ) -> Array:
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
        if mean.ndim == 1:
            return draw_normal(mean, cov, n_samples, rng)
        draws = [draw_normal(m, C.T, n_samples, rng) for m, C in zip(mean.T, cov.T, strict=True)]
        return np.stack(draws, axis=1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _full_learner(self) -> Any:
        single = self._learner()
        return single if self.n_outputs_ == 1 else OutputsLearner(single)

    # -- training --------------------------------------------------------------------------------

    def _prepare(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any, y_var: Any
    ) -> tuple[Any, Any]:
        """X and `Targets`, or of several outputs `Observations` and a list of `Targets`.

        They are without copies and rows of weight zero.
        """
        X, y, variance = self._read_all(X, y, reset=reset, sample_weight=sample_weight, y_var=y_var)
        return self._count(X, y, sample_weight, variance)

    def _read_all(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any, y_var: Any
    ) -> tuple[Any, Any, Array | None]:
        """X, y and known variances of its noise, as arrays of numbers or `ShardedColumns`."""
        self._check_places(X, y, reset=reset, sample_weight=sample_weight, y_var=y_var)
        X, y = self._read_rows(X, y, reset=reset)
        if y_var is None:
            return X, y, None
        self._check_known_noise()
        return X, y, as_noise(y_var, y.shape)

    def _count(self, X: Any, y: Any, sample_weight: Any, variance: Array | None) -> tuple[Any, Any]:
        """What `_prepare` makes of these."""
        if self.n_outputs_ == 1:
            return count_targets(X, y, sample_weight, unless_zero(variance))
        weight = as_weights(sample_weight, len(y))

        def make(rows: Any, j: int) -> tuple[Any, Targets]:
            known = None if variance is None else unless_zero(variance[rows, j])
            inputs = X if len(rows) == len(X) else X[rows]
            return count_targets(inputs, y[rows, j], weight[rows], known)

        observed, targets = Observations.of(y, weight, make)
        return replace(observed, n=int(np.count_nonzero(weight))), targets

    def _check_places(self, X: Any, y: Any, *, reset: bool, **noise: Any) -> None:
        """Refuse weights and variances of rows on workers, and rows in memory that join those."""
        for name, given in noise.items():
            if given is not None:
                for values in (X, y, given):
                    refuse_collection(values, f"fit with {name}")
        if not reset and self._keeps_on_workers and not is_collection(X):
            raise TypeError(
                "The model knows rows on Dask's workers, which rows in memory cannot join: give "
                "them as a Dask collection."
            )

    def _read_rows(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """X and y of shape (n,), or (n, t) of t > 1 outputs."""
        if is_collection(X) or is_collection(y):
            self._bind_outputs(1, "A Dask collection has one output", reset=reset)
            return self._spread(X, y, reset=reset)
        refuse_dates(y, "y")
        columns = np.asarray(y)
        t = columns.shape[1] if columns.ndim == 2 else 1
        if t > 1 or self._encodes(X, reset=reset):
            X = self._read(X, reset=reset)
            y = check_array(
                y if t > 1 else columns.ravel(),
                dtype=np.float64,
                ensure_2d=False,
                ensure_all_finite="allow-nan" if t > 1 else True,
                input_name="y",
            )
            check_consistent_length(X, y)
        else:
            one = columns[:, 0] if columns.shape[1:] == (1,) else y
            X, y = validate_data(self, X, one, reset=reset, y_numeric=True, **self._check_options)
            y = np.asarray(y, dtype=np.float64)
        self._check_targets(y[~np.isnan(y)] if t > 1 else y)
        self._bind_outputs(t, f"y has {t} outputs", reset=reset)
        return X, y

    def _spread(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Rows of Dask collections on their workers, or here if they are few."""
        validate_data(self, make_example(X, 0.0), reset=reset)
        rows, known = ShardedRows(X, y), None if reset else self._keeps_on_workers
        if not known:  # few rows join others that are there, too
            if rows.n <= self._most_fetched:
                return rows.fetch(np.arange(rows.n))
            if rows.at_one_place and self._needs_variation:
                raise ValueError("All rows of X are equal: they say nothing of a function.")
            if known is not None:
                raise TypeError(
                    f"The model knows rows in memory, and a Dask collection of {rows.n} rows is "
                    "too large to join them: fit a model to a collection of all."
                )
        return ShardedColumns(rows, "X"), ShardedColumns(rows, "y")

    @property
    def _most_fetched(self) -> int:
        """Up to so many rows of a Dask collection are fetched."""
        return SUBSAMPLE

    def _encodes(self, X: Any, *, reset: bool) -> bool:
        """Whether ``_read`` makes other columns of X."""
        return False

    def _bind_outputs(self, t: int, said: str, *, reset: bool) -> None:
        """Note the number of outputs, which streams and warm starts do not change."""
        known = getattr(self, "n_outputs_", t)
        if t != known and (not reset or getattr(self, "warm_start", False)):
            raise ValueError(f"{said}, but there were {known}.")
        self.n_outputs_ = t

    def _check_targets(self, y: Array) -> None:
        pass

    def _check_known_noise(self) -> None:
        pass
