"""VBPITC: noise that is correlated within blocks of nearby rows."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.partition import partition_rows
from skvbgp.base import Interval, StrOptions
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._docs import documented
from skvbgp.sgpr._fitc import NoiseKernelRegressor
from skvbgp.sgpr._initial import fit_noise_to_blocks
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._state import Blocks, State

#: Rows of a block for n_blocks="auto".
_BLOCK_ROWS = 500


class BlockRegressor(NoiseKernelRegressor):
    """A regressor whose noise is correlated within blocks."""

    _parameter_constraints = NoiseKernelRegressor._parameter_constraints | {
        "n_blocks": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
    }

    _correlated = True
    _keeps_data = False

    def __init__(
        self,
        n_inducing=500,
        *,
        noise_kernel=None,
        n_blocks="auto",
        n_samples=8,
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
            noise_kernel=noise_kernel,
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
        self.n_blocks = n_blocks
        self.n_samples = n_samples

    def _group(self, data: Data, unit: Array) -> tuple[Data, Blocks | None]:
        n = len(data)
        n_blocks = max(1, round(n / _BLOCK_ROWS)) if self.n_blocks == "auto" else self.n_blocks
        partition, index = partition_rows(
            data.X, min(n_blocks, n), lambda X: data.coordinates.scaled(X) * unit
        )
        kept = None
        if self._keeps_data:
            kept = Blocks(
                partition,
                unit,
                tuple(data.X[rows] for rows in index),
                tuple(data.y[rows] for rows in index),
            )
        return data.grouped(index), kept

    def _before_training(self, state: State, data: Data, rng: np.random.RandomState) -> Parameters:
        return fit_noise_to_blocks(state.model, state.parameters, data, rng)


@documented(
    """Variational Bayesian sparse Gaussian process with noise correlated in blocks (VBPITC).

    The rows are divided into blocks by location. The noise of a block is correlated by the
    residual of a noise kernel; new rows are predicted through the inducing inputs alone
    [Yu2019]_. See :class:`VBPICRegressor`, which uses the block of a new row as well.
    """,
    default_noise_kernel="a squared exponential with one length scale per input",
    blocks=True,
)
class VBPITCRegressor(BlockRegressor):
    pass
