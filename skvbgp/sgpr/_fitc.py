"""VBFITC: independent noise whose variance depends on the input."""

from __future__ import annotations

from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels import RBF, Constant, Kernel, as_kernel
from skvbgp.sgpr._base import SparseRegressor
from skvbgp.sgpr._docs import documented
from skvbgp.sgpr._state import State


class NoiseKernelRegressor(SparseRegressor):
    """A regressor whose noise covariance is built from a noise kernel."""

    _parameter_constraints = SparseRegressor._parameter_constraints | {
        "noise_kernel": "no_validation"
    }

    def __init__(
        self,
        n_inducing=500,
        *,
        noise_kernel=None,
        inducing_inputs=None,
        length_scale=None,
        signal_std=None,
        noise_variance=None,
        hyperparameter_variance=None,
        prior_mean=0.0,
        prior_variance=4.0,
        solver="auto",
        psi="auto",
        learn_hyperparameters=True,
        max_iter=None,
        batch_size=2048,
        learning_rate=0.03,
        tol=1e-5,
        normalize_y=True,
        warm_start=False,
        random_state=None,
        n_jobs=None,
    ):
        super().__init__(
            n_inducing,
            inducing_inputs=inducing_inputs,
            length_scale=length_scale,
            signal_std=signal_std,
            noise_variance=noise_variance,
            hyperparameter_variance=hyperparameter_variance,
            prior_mean=prior_mean,
            prior_variance=prior_variance,
            solver=solver,
            psi=psi,
            learn_hyperparameters=learn_hyperparameters,
            max_iter=max_iter,
            batch_size=batch_size,
            learning_rate=learning_rate,
            tol=tol,
            normalize_y=normalize_y,
            warm_start=warm_start,
            random_state=random_state,
            n_jobs=n_jobs,
        )
        self.noise_kernel = noise_kernel

    def _start_noise_kernel(self, scale: Array, noise_variance: float) -> tuple[Kernel, bool]:
        if self.noise_kernel is None:
            length_scale = scale * np.sqrt(len(scale))
            bounds = np.outer(scale, [1e-3, 1e4])
            return Constant(noise_variance) * RBF(length_scale, length_scale_bounds=bounds), False
        kernel = as_kernel(self.noise_kernel).bind(len(scale))
        if np.all(kernel.diag(scale[None, :]) == 1.0):
            kernel = Constant(1.0) * kernel
        return kernel, True

    def _attributes(self, state: State) -> dict[str, Any]:
        model, unit = state.model, state.target.unit
        kernel = model.noise_kernel.with_theta(state.parameters.noise_theta)
        scaled = Constant(model.noise_scale * unit**2, value_bounds="fixed") * kernel
        return super()._attributes(state) | {"noise_kernel_": scaled}


@documented(
    """Variational Bayesian sparse Gaussian process with input-dependent noise (VBFITC).

    The noise of each row is independent; its variance is sigma_n^2 plus what a noise
    kernel cannot explain from the inducing inputs, so that it grows away from them
    [Yu2019]_.
    """,
    default_noise_kernel="a squared exponential with one length scale per input",
)
class VBFITCRegressor(NoiseKernelRegressor):
    pass
