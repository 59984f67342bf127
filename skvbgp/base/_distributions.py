"""What the regressors say of new rows: moments, draws, quantiles, intervals and densities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.collections import refuse_collections
from skvbgp._core.draws import draw_normal
from skvbgp._core.linalg import Array
from skvbgp._core.order import cut
from skvbgp._core.parallel import single_blas_thread
from skvbgp._core.row_methods import lazily
from skvbgp.base._learner import Distribution, Posterior, predict_distribution
from skvbgp.base._validation import as_count, as_probabilities, reading

#: What is made of the distributions of some rows.
Evaluate = Callable[[Distribution, slice], Array]
#: Rows whose distributions are in memory at a time.
_TILE_ROWS = 2**14


def predict_mean(posterior: Posterior, X: Array, include_noise: bool) -> Array:
    """The mean of each row, by a posterior's own way to it if there is one."""
    mean = getattr(posterior, "predict_mean", None)
    if mean is not None:
        return np.asarray(mean(X, include_noise))
    return posterior.moments(X, include_noise)[0]


class PredictsDistributions:
    """The part of `VariationalRegressor` that says what y may be at new rows."""

    _read: Callable[..., Array]
    _read_rows: Callable[..., tuple[Any, Any]]
    _read_noise: Callable[..., Array | None]
    _full_learner: Callable[[], Any]
    _validate_params: Callable[[], None]
    _state: Any
    #: Whether outputs learn from each other: then the posterior has ``joint_outputs``.
    _joins: Any = False

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
        RuntimeError
            If both `return_std` and `return_cov` are True.
        TypeError
            If `y_var` is given for a Dask collection.
        ValueError
            If `y_var` is negative, or given where `include_noise` is False or the noise is not
            Gaussian, or if `return_cov` is True for a Dask collection.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std and return_cov can be requested.")
        X = self._check_inputs(X)
        known = self._read_noise(y_var, len(X), include_noise=include_noise)
        X, known = self._fill(X, known)
        posterior = self._posterior()
        with single_blas_thread:
            if return_cov:
                mean, cov = posterior.joint(X, include_noise)
                if known is not None:
                    every = np.arange(len(X))
                    cov[every, every] += known
                return mean, cov
            if not return_std:
                return predict_mean(posterior, X, include_noise)
            mean, variance = posterior.moments(X, include_noise)
        if known is not None:
            variance = variance + known
        return mean, np.sqrt(variance)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, include_noise: bool = True
    ) -> Array:
        """Draw from the joint predictive distribution.

        Draws are normal, with the joint moments of :meth:`predict`: mixtures and errors whose shape
        was learned, whose quantiles `predict_quantiles` has, may be skewed or have heavier tails.
        `VBKSRegressor` draws from the mixture itself, and `DecoupledGPRegressor` y by its
        likelihood, given normal draws of f.

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
        samples : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)
            On the scale of y.
        """
        n_samples = as_count(n_samples, "n_samples", least=0)
        check_is_fitted(self)
        if self._joins:
            X = self._check_inputs(X)
            with single_blas_thread:
                mean, cov = self._posterior().joint_outputs(X, include_noise)
            joint = draw_normal(mean, cov, n_samples, check_random_state(random_state))
            return joint.reshape(len(X), -1, n_samples)
        mean, cov = self.predict(X, return_cov=True, include_noise=include_noise)
        rng = check_random_state(random_state)
        if mean.ndim == 1:
            return draw_normal(mean, cov, n_samples, rng)
        draws = [draw_normal(m, C.T, n_samples, rng) for m, C in zip(mean.T, cov.T, strict=True)]
        return np.stack(draws, axis=1)

    @lazily(lambda estimator, options: [str(p) for p in np.ravel(options["quantiles"])])
    def predict_quantiles(
        self, X: Any, quantiles: Any, *, include_noise: bool = True, y_var: Any = None
    ) -> Array:
        """Predict quantiles of new observations.

        They are exact where the model predicts a mixture of normal distributions or counts,
        and those of a normal distribution with the moments of :meth:`predict` otherwise.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs to predict at. A row's prediction does not depend on the other rows.
        quantiles : float or array-like of shape (n_quantiles,)
            Probabilities, between 0 and 1, of an observation that is no larger.
        include_noise : bool, default=True
            Whether to predict observations y or the latent function f.
        y_var : float or array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Known variance of each row's noise, as in :meth:`predict`.

        Returns
        -------
        values : ndarray of shape (n_samples,) or (n_samples, n_quantiles)
            On the scale of y; one column for each probability, none for a single number. Several
            outputs come before these: (n_samples, n_outputs) or (n_samples, n_outputs,
            n_quantiles).

        Raises
        ------
        TypeError, ValueError
            If a probability is not between 0 and 1, or as :meth:`predict` does.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from skvbgp import VBDTCRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = VBDTCRegressor(10, max_iter=10, random_state=0).fit(X[:300], y[:300])
        >>> model.predict_quantiles(X[300:], [0.1, 0.5, 0.9]).shape
        (142, 3)
        """
        p = as_probabilities(quantiles, "quantiles")

        def evaluate(distribution: Distribution, rows: slice) -> Array:
            values = [distribution.quantile(q) for q in np.atleast_1d(p).tolist()]
            return np.stack(values, axis=-1)

        values = self._by_tile(self._check_inputs(X), include_noise, y_var, evaluate)
        return values if p.ndim else values[..., 0]

    @lazily(lambda estimator, options: ["lower", "upper"])
    def predict_interval(
        self, X: Any, coverage: float = 0.95, *, include_noise: bool = True, y_var: Any = None
    ) -> tuple[Array, Array]:
        """Predict the central interval of new observations.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs to predict at. A row's prediction does not depend on the other rows.
        coverage : float, default=0.95
            Probability of the interval: the same share lies below it as above.
        include_noise : bool, default=True
            Whether to predict observations y or the latent function f.
        y_var : float or array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Known variance of each row's noise, as in :meth:`predict`.

        Returns
        -------
        lower, upper : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Ends of the interval, on the scale of y.

        Raises
        ------
        TypeError, ValueError
            If `coverage` is not between 0 and 1, or as :meth:`predict` does.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from skvbgp import VBDTCRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = VBDTCRegressor(10, max_iter=10, random_state=0).fit(X[:300], y[:300])
        >>> lower, upper = model.predict_interval(X[300:], coverage=0.9)
        >>> lower.shape, upper.shape
        ((142,), (142,))
        """
        p = as_probabilities(coverage, "coverage")
        if p.ndim:
            raise ValueError(f"coverage must be one number; got {coverage!r}.")
        tail = 0.5 * (1.0 - float(p))
        if 1.0 - tail == 1.0:
            raise ValueError(f"coverage must not be that close to 1; got {coverage!r}.")
        tails = [tail, 1.0 - tail]
        ends = self.predict_quantiles(X, tails, include_noise=include_noise, y_var=y_var)
        return ends[..., 0], ends[..., 1]

    @lazily(lambda estimator, options: ["log_density"], rows=("y",))
    def log_predictive_density(self, X: Any, y: Any, *, y_var: Any = None) -> Array:
        """Logarithm of the density that was predicted for observations.

        Parameters
        ----------
        X : array-like or Dask collection of shape (n_samples, n_features)
            Inputs.
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_outputs)
            What was observed there, NaN where one of several outputs was not.
        y_var : float or array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Known variance of each row's noise, as in :meth:`predict`.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            In nats, of densities per unit of y; of counts the logarithms of probabilities. That of
            several outputs is of all together, as if they were independent.

        Raises
        ------
        TypeError, ValueError
            As :meth:`predict` does for `y_var`.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from skvbgp import VBDTCRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = VBDTCRegressor(10, max_iter=10, random_state=0).fit(X[:300], y[:300])
        >>> model.log_predictive_density(X[300:], y[300:]).shape
        (142,)
        """
        check_is_fitted(self)
        with reading(X):
            X, y = self._read_rows(X, y, reset=False)
        return self._by_tile(X, True, y_var, lambda given, rows: given.log_density(y[rows]))

    def _by_tile(self, X: Array, include_noise: bool, y_var: Any, evaluate: Evaluate) -> Array:
        """What is made of the rows' distributions, of some rows at a time."""
        known = self._read_noise(y_var, len(X), include_noise=include_noise)
        X, known = self._fill(X, known)
        posterior = self._posterior()

        def evaluate_tile(rows: slice) -> Array:
            given: Any = predict_distribution(posterior, X[rows], include_noise)
            return evaluate(given if known is None else given.with_noise(known[rows]), rows)

        with single_blas_thread:
            return np.concatenate([evaluate_tile(rows) for rows in cut(len(X), _TILE_ROWS)])

    def _check_inputs(self, X: Any) -> Array:
        """X as the posterior takes it."""
        check_is_fitted(self)
        refuse_collections("This method", X)
        with reading(X):
            return self._read(X, reset=False)

    def _fill(self, X: Array, variance: Array | None) -> tuple[Array, Array | None]:
        """X as the posterior takes it, and what is known of the rows' variances besides.

        Posteriors that take gaps get them; to others, see `FillsGaps`.
        """
        return X, variance

    def _posterior(self) -> Any:
        """The posterior of all that was learned, by parameters that may have changed since."""
        self._validate_params()
        with single_blas_thread:  # several would wait for each other
            return self._full_learner().posterior(self._state)
