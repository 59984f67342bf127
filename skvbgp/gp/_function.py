"""What a fitted regressor says of its function besides predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread
from skvbgp.base import DescribesFunction

#: Kernels of less belief are not named.
_LEAST_SHARE = 0.005


class LearnedFunction(DescribesFunction):
    """The function, rows left out, and a description, from the state of a fit."""

    _state: Any
    _full_learner: Callable[[], Any]
    n_outputs_: int
    kernels_: Any
    kernel_posterior_: Any
    noise_variance_: Any

    def _function(self) -> Any:
        return self._state

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
    def learns_from_others_(self) -> NDArray[np.bool_]:
        """Which outputs are predicted by the model of all of them, (n_outputs,)."""
        check_is_fitted(self)
        return self._state.joins

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
        text = _describe(
            "Every output", self.kernels_, self.kernel_posterior_, *self.noise_variance_
        )
        if not self._full_learner().joins_outputs:
            return text
        apart = np.flatnonzero(~self.learns_from_others_)
        return "\n".join([text, *(f"Output {j} has a model of its own." for j in apart)])


def _describe(name: str, kernels: list[tuple[str, Any]], belief: Array, *noises: float) -> str:
    shares: dict[str, float] = {}  # kernels of the same name may differ in their hyperparameters
    for (kernel, _), share in zip(kernels, belief.tolist(), strict=True):
        shares[kernel] = shares.get(kernel, 0.0) + share
    ranked = sorted(shares, key=lambda kernel: -shares[kernel])
    lines = [f"{name} is believed to have"]
    lines += [f"- {shares[one]:.2f}: {one}" for one in ranked if shares[one] >= _LEAST_SHARE]
    std = ", ".join(f"{noise**0.5:.3g}" for noise in noises)
    return "\n".join([*lines, f"and noise of standard deviation {std}."])
