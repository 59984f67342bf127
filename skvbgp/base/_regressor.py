"""The fit, partial_fit and predict contract of the regressors."""

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread
from skvbgp.base._estimator import VariationalEstimator, fit_method


class VariationalRegressor(RegressorMixin, VariationalEstimator):
    """Template of the regressors, whose ``_learner()`` is a `RegressionLearner`."""

    # With scikit-learn's metadata routing, a pipeline hands these on to its last step.
    __metadata_request__predict = dict.fromkeys(("return_std", "return_cov", "include_noise"), True)

    @fit_method
    def fit(self, X: Any, y: Any) -> Self:
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
        return self._fit(X, y)

    @fit_method
    def partial_fit(self, X: Any, y: Any) -> Self:
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
        return self._partial_fit(X, y)

    def _validate(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, order="C", y_numeric=True)
        return X, np.asarray(y, dtype=np.float64)

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        include_noise: bool = True,
    ) -> Any:
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
        posterior = self._learner().posterior(self._state)
        with single_blas_thread:
            if return_cov:
                return posterior.joint(X, include_noise)
            mean, variance = posterior.moments(X, include_noise)
        return (mean, np.sqrt(variance)) if return_std else mean

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
        variances, vectors = np.linalg.eigh(cov)  # rounding may leave it slightly indefinite
        root = vectors * np.sqrt(np.maximum(variances, 0.0))
        return mean[:, None] + root @ rng.standard_normal((len(mean), n_samples))
