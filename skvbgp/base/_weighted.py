"""Regressors and classifiers whose rows may have weights, and known noise."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from skvbgp._core.collections import refuse_collection
from skvbgp._core.labels import LabelledRows
from skvbgp.base._classifier import Labels, VariationalClassifier
from skvbgp.base._estimator import fit_method
from skvbgp.base._known_noise import add_noise, as_noise
from skvbgp.base._regressor import VariationalRegressor
from skvbgp.base._weights import count_rows, count_targets


class WeightedRegressor(VariationalRegressor):
    """Template of a regressor whose learner takes `Targets`.

    A subclass may override ``_check_targets(y)``, which refuses y that there cannot be, and
    ``_check_known_noise()``, which refuses that any is given.
    """

    # With scikit-learn's metadata routing, a pipeline hands it on to its last step.
    __metadata_request__predict = {"y_var": True}

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None, y_var: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Training inputs. A memory-mapped array is read in batches. An estimator that takes Dask
            arrays and DataFrames, as the user guide's table says, never gathers their rows.
        y : array-like or Dask collection of shape (n_samples,)
            Training targets.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts: a weight of 2 is the row twice, 0 leaves it out (and has the
            other rows copied). None is 1.
        y_var : float or array-like of shape (n_samples,), default=None
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
            If a weight or variance is negative or not finite, if all weights are zero, or if
            variances are given for what has no Gaussian noise.
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
            New inputs; a single row is enough.
        y : array-like or Dask collection of shape (n_samples,)
            New targets.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts, as in :meth:`fit`.
        y_var : float or array-like of shape (n_samples,), default=None
            Known variance of each row's noise, as in :meth:`fit`.

        Returns
        -------
        self : object
            The updated estimator.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`fit`.
        """
        return self._partial_fit(X, y, sample_weight=sample_weight, y_var=y_var)

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
            Inputs to predict at. A row's prediction does not depend on the other rows. Those of
            a Dask array or DataFrame are lazy arrays or series.
        return_std : bool, default=False
            Whether to return the standard deviation, too.
        return_cov : bool, default=False
            Whether to return the joint covariance, too.
        include_noise : bool, default=True
            Whether to predict observations y or the latent function f.
        y_var : float or array-like of shape (n_samples,), default=None
            Known variance of each row's noise besides the learned one, on the squared scale of y.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            Predictive mean on the scale of y.
        std : ndarray of shape (n_samples,)
            Standard deviation on the scale of y. Only returned if `return_std` is True.
        cov : ndarray of shape (n_samples, n_samples)
            Covariance on the squared scale of y. Only returned if `return_cov` is True.

        Raises
        ------
        TypeError
            If `y_var` is given for a Dask collection.
        ValueError
            If `y_var` is negative, or given where `include_noise` is False.
        """
        if y_var is not None:
            self._check_known_noise()
            refuse_collection(X, "predict with y_var")
        result = super().predict(X, return_std, return_cov, include_noise=include_noise)
        return add_noise(result, y_var, return_std, return_cov, include_noise=include_noise)

    def _validate(self, X: Any, y: Any, *, reset: bool, **metadata: Any) -> tuple[Any, Any]:
        """X and y, or for training X and `Targets`, without copies and rows of weight zero."""
        for name, given in metadata.items():
            if given is not None:
                for values in (X, y, given):
                    refuse_collection(values, f"fit with {name}")
        X, y = super()._validate(X, y, reset=reset)
        self._check_targets(y)
        if not metadata:
            return X, y
        variance = None
        if metadata["y_var"] is not None:
            self._check_known_noise()
            variance = as_noise(metadata["y_var"], y.shape)
            variance = variance if np.any(variance) else None
        return count_targets(X, y, metadata["sample_weight"], variance)

    def _check_targets(self, y: Any) -> None:
        pass

    def _check_known_noise(self) -> None:
        pass


class WeightedClassifier(VariationalClassifier):
    """Template of a classifier whose learner takes `Labels` with weights.

    A subclass may override ``_count``, if its inputs or its targets are other ones.
    """

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Training inputs. An estimator that takes Dask arrays and DataFrames, as the user
            guide's table says, never gathers their rows.
        y : array-like or Dask collection of shape (n_samples,)
            Class labels, of at least two classes.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts: a weight of 2 is the row twice, 0 leaves it out, though its
            label is still one of the classes. None is 1.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        TypeError
            If weights are given with a Dask collection.
        ValueError
            If a weight is negative or not finite, or if all are zero.
        """
        return self._fit(X, y, sample_weight=sample_weight)

    @fit_method
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add new rows to the data the model knows.

        The first call is :meth:`fit`; each later one adds rows that have not been seen
        before. A call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            New inputs; a single row is enough.
        y : array-like or Dask collection of shape (n_samples,)
            Class labels, maybe of a single class.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever occur. Needed in the first call.
        sample_weight : float or array-like of shape (n_samples,), default=None
            How often each row counts, as in :meth:`fit`.

        Returns
        -------
        self : object
            The updated estimator.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`fit`.
        """
        return self._partial_fit(X, y, classes=classes, sample_weight=sample_weight)

    def _validate(
        self, X: Any, y: Any, *, reset: bool, sample_weight: Any = None, **metadata: Any
    ) -> tuple[Any, Any]:
        """Inputs and labels, without copies and rows of weight zero; of collections as given."""
        if sample_weight is not None:
            for values in (X, y, sample_weight):
                refuse_collection(values, "fit with sample_weight")
        inputs, labels = super()._validate(X, y, reset=reset, **metadata)
        if isinstance(labels, LabelledRows):
            return inputs, labels
        return self._count(inputs, labels, sample_weight)

    def _count(self, inputs: Any, labels: Labels, sample_weight: Any) -> tuple[Any, Any]:
        """The rows that training works with, and how often each one counts."""
        counted = count_rows(inputs, labels.codes, sample_weight)
        return inputs[counted.rows], labels.counted(counted)
