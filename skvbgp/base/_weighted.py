"""Regressors and classifiers whose rows may have weights, and known noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils import Tags, check_array, check_consistent_length

from skvbgp._core.collections import is_collection, refuse_collection
from skvbgp._core.labels import LabelledRows
from skvbgp._core.linalg import Array
from skvbgp.base._classifier import Labels, VariationalClassifier
from skvbgp.base._estimator import as_weights, fit_method
from skvbgp.base._known_noise import add_noise, as_noise
from skvbgp.base._outputs import Observations, OutputsLearner
from skvbgp.base._reading import refuse_dates
from skvbgp.base._regressor import VariationalRegressor
from skvbgp.base._weights import Targets, count_rows, count_targets


class WeightedRegressor(VariationalRegressor):
    """Template of a regressor whose learner takes `Targets`, of one output or several.

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
            New inputs; a single row is enough.
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
        if y_var is not None:
            self._check_known_noise()
            refuse_collection(X, "predict with y_var")
        result = super().predict(X, return_std, return_cov, include_noise=include_noise)
        return add_noise(result, y_var, return_std, return_cov, include_noise=include_noise)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _full_learner(self) -> Any:
        single = self._learner()
        return single if self.n_outputs_ == 1 else OutputsLearner(single)

    def _validate(self, X: Any, y: Any, *, reset: bool, **metadata: Any) -> tuple[Any, Any]:
        """X and y, or what training takes, without copies and rows of weight zero.

        That is X and `Targets`, or of several outputs `Observations` and a list of `Targets`.
        """
        for name, given in metadata.items():
            if given is not None:
                for values in (X, y, given):
                    refuse_collection(values, f"fit with {name}")
        X, y = self._read_rows(X, y, reset=reset)
        if not metadata:
            return X, y
        variance = None
        if metadata["y_var"] is not None:
            self._check_known_noise()
            variance = as_noise(metadata["y_var"], y.shape)
        if self.n_outputs_ == 1:
            return count_targets(X, y, metadata["sample_weight"], _unless_zero(variance))
        weight = as_weights(metadata["sample_weight"], len(y))

        def make(rows: Any, j: int) -> tuple[Any, Targets]:
            known = None if variance is None else _unless_zero(variance[rows, j])
            inputs = X if len(rows) == len(X) else X[rows]
            return count_targets(inputs, y[rows, j], weight[rows], known)

        observed, targets = Observations.of(y, weight, make)
        return replace(observed, n=int(np.count_nonzero(weight))), targets

    def _read_rows(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """X and y of shape (n,), or (n, t) of t > 1 outputs."""
        if is_collection(X) or is_collection(y):
            self._bind_outputs(1, "A Dask collection has one output", reset=reset)
            return super()._validate(X, y, reset=reset)
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
            X, y = super()._validate(X, one, reset=reset)
        self._check_targets(y[~np.isnan(y)] if t > 1 else y)
        self._bind_outputs(t, f"y has {t} outputs", reset=reset)
        return X, y

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


def _unless_zero(variance: Array | None) -> Array | None:
    """Known variances of noise, None if all are zero."""
    return variance if variance is not None and np.any(variance) else None


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
