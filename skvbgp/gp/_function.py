"""What a fitted regressor says of its function besides predictions."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread
from skvbgp.gp._categories import Categories, Draws


class LearnedFunction:
    """Gradients, draws, rows left out, relevance and a description, from the state of a fit."""

    _state: Any
    _categories: Categories | None
    _check_inputs: Callable[[Any], Array]
    n_outputs_: int
    kernels_: Any
    kernel_posterior_: Any
    noise_variance_: Any

    def predict_gradient(self, X: Any) -> tuple[Array, Array]:
        """Predict the gradient of the latent function.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs to predict at. A row's prediction does not depend on the other rows.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_features) or (n_samples, n_outputs, n_features)
            Of the derivatives, in units of y per unit of the input: the gradient of the mean that
            `predict` returns.
        std : ndarray of the same shape
            Standard deviation of each. Infinite where a kernel is believed in whose functions have
            no gradient, such as Matern-1/2. Both are NaN for a category.

        Examples
        --------
        >>> import numpy as np
        >>> from skvbgp import VBGPRegressor
        >>> from skvbgp.kernels import RBF
        >>> X = np.linspace(-3.0, 3.0, 40)[:, None]
        >>> model = VBGPRegressor(RBF(), random_state=0).fit(X, np.sin(X[:, 0]))
        >>> mean, std = model.predict_gradient([[0.0]])
        >>> mean.round(2)
        array([[1.]])
        """
        X = self._check_inputs(X)
        if np.isnan(X).any():
            raise ValueError("predict_gradient needs rows without missing entries (NaN).")
        with single_blas_thread:
            mean, variance = self._state.measure_gradient(X)
        if self._categories is not None:
            mean, variance = self._categories.pick(mean), self._categories.pick(variance)
        return mean, np.sqrt(variance)

    def sample_function(self, n: Any = 1, random_state: Any = 0) -> Draws:
        """Draw functions from the posterior.

        Parameters
        ----------
        n : int, default=1
            Number of functions.
        random_state : int, RandomState instance or None, default=0
            Determines the functions.

        Returns
        -------
        functions : callable
            ``functions(X)``, with X of shape (n_samples, n_features), gives the values of all of
            them, (n_samples, n), without noise and on the scale of y; of several outputs
            (n_samples, n_outputs, n). A function has the same value at the same place in every
            call. It knows the rows of the moment when it was drawn. ``functions.gradient(X)``
            gives the derivatives, (n_samples, n_features, n) or (n_samples, n_outputs,
            n_features, n); NaN for a category.

        Raises
        ------
        ValueError
            If `n` is no positive number, or the kernel has a part of which functions cannot be
            drawn, such as :class:`~skvbgp.kernels.White`. The functions refuse what `predict`
            refuses, and missing entries (NaN).

        Notes
        -----
        Means and variances are those of `predict` with ``include_noise=False``, and those of
        gradients are those of `predict_gradient`. With more rows than neighbours, functions jump a
        little where the neighbours change, as predictions do.

        Examples
        --------
        >>> import numpy as np
        >>> from skvbgp import VBGPRegressor
        >>> from skvbgp.kernels import RBF
        >>> X = np.linspace(-3.0, 3.0, 40)[:, None]
        >>> model = VBGPRegressor(RBF(), random_state=0).fit(X, np.sin(X[:, 0]))
        >>> functions = model.sample_function(5)
        >>> functions(np.linspace(-4.0, 4.0, 100)[:, None]).shape
        (100, 5)
        """
        check_is_fitted(self)
        if not isinstance(n, Integral) or n < 1:
            raise ValueError(f"n must be a positive whole number; got {n!r}.")
        rng = check_random_state(random_state)
        functions = self._state.draw_functions(int(n), rng)
        reader = copy(self)
        del reader._state
        return ReadDraws(functions, reader)

    def loo_predict(self) -> tuple[Array, Array]:
        """Predict each training row from the others.

        The hyperparameters and the belief in the kernels are those learned from all rows. Up to as
        many rows as neighbours, it is exact and costs no more than a prediction; with more, a row
        is predicted from its nearest others.

        Returns
        -------
        mean, std : ndarray of shape (n_samples_seen,) or (n_samples_seen, n_outputs)
            Predictive moments of the observations, on the scale of y, in the order in which the
            rows were given. Equal rows are left out together; those of weight 0 and what was not
            observed are NaN.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from skvbgp import VBGPRegressor
        >>> from skvbgp.kernels import RBF
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = VBGPRegressor(RBF(), random_state=0).fit(X[:100], y[:100])
        >>> mean, std = model.loo_predict()
        >>> mean.shape
        (100,)
        """
        check_is_fitted(self)
        with single_blas_thread:
            mean, variance = self._state.leave_out_all()
        return mean, np.sqrt(variance)

    @property
    def feature_importances_(self) -> Array:
        """Shares of the inputs in the variation of predictions, (n_features,)."""
        check_is_fitted(self)
        return self._state.relevance.mean

    @property
    def feature_importances_std_(self) -> Array:
        """Standard deviations of `feature_importances_` between what is believed in."""
        check_is_fitted(self)
        return self._state.relevance.std

    @property
    def output_covariance_(self) -> Array:
        """Prior covariance of the outputs' functions at one place, (n_outputs, n_outputs)."""
        check_is_fitted(self)
        return self._state.covariance

    def summary(self) -> str:
        """Describe what has been learned in words.

        Returns
        -------
        text : str
            The kernels with the belief in them, and the noise.
        """
        check_is_fitted(self)
        if self.n_outputs_ == 1:
            return _describe(
                "The function", self.kernels_, self.kernel_posterior_, self.noise_variance_
            )
        if isinstance(self.kernel_posterior_, list):
            parts = zip(self.kernels_, self.kernel_posterior_, self.noise_variance_, strict=True)
            return "\n".join(_describe(f"Output {j}", *part) for j, part in enumerate(parts))
        return _describe(
            "Every output", self.kernels_, self.kernel_posterior_, *self.noise_variance_
        )


@dataclass(frozen=True)
class ReadDraws:
    """Functions from the posterior of a regressor, as ``sample_function`` draws them.

    Calling it with rows X as the regressor takes them, of shape (n_samples, n_features), gives the
    values of all functions, on the scale of y. Each is the same function in every call.
    """

    functions: Draws
    reader: LearnedFunction  # the regressor without what it has learned

    def __call__(self, X: Any) -> Array:
        return self.functions(self._read(X))

    def gradient(self, X: Any) -> Array:
        """Derivatives of all functions, in units of y over those of each input."""
        slopes, categories = self.functions.gradient(self._read(X)), self.reader._categories
        if categories is None:
            return slopes
        return np.moveaxis(categories.pick(np.moveaxis(slopes, -1, 0)), 0, -1)

    def _read(self, X: Any) -> Array:
        X = self.reader._check_inputs(X)
        if np.isnan(X).any():
            raise ValueError("Functions need rows without missing entries (NaN).")
        return X


def _describe(name: str, kernels: list[tuple[str, Any]], belief: Array, *noises: float) -> str:
    lines = [f"{name} is believed to have"]
    lines += [f"- {belief[i]:.2f}: {kernels[i][0]}" for i in belief.argsort()[::-1]]
    std = ", ".join(f"{noise**0.5:.3g}" for noise in noises)
    return "\n".join([*lines, f"and noise of standard deviation {std}."])
