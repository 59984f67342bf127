"""What the regressors have in common: constraints of their parameters, and who learns."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.linalg import Array
from skvbgp.base import (
    CATEGORIES,
    LEARNING,
    DescribesFunction,
    FadingRegressor,
    FillsGaps,
    ForgetfulRegressor,
    Interval,
    JoinsOutputs,
    LeavesOut,
    StrOptions,
    VariationalRegressor,
)
from skvbgp.sgpr._joint_outputs import SparseJointLearner, correlate
from skvbgp.sgpr._learner import SparseLearner
from skvbgp.sgpr._noise import Blocks

COMMON: dict[str, Any] = {
    "n_inducing": [Interval(Integral, 1, None, closed="left")],
    "inducing_inputs": ["array-like", None],
    **CATEGORIES,
    "length_scale": [Interval(Real, 0, None, closed="neither"), "array-like", None],
    "signal_std": [Interval(Real, 0, None, closed="neither"), None],
    "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
    "hyperparameter_variance": [Interval(Real, 0, None, closed="neither"), None],
    "prior_mean": [Interval(Real, None, None, closed="neither"), "array-like"],
    "prior_variance": [Interval(Real, 0, None, closed="neither"), "array-like", None],
    "solver": [StrOptions({"auto", "exact", "collapsed", "stochastic"})],
    "psi": [StrOptions({"auto", "closed_form", "sampled"})],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "normalize_y": ["boolean"],
    **LEARNING,
    "n_jobs": [Integral, None],
}
NOISE_KERNEL: dict[str, Any] = {"noise_kernel": "no_validation"}  # as_kernel says what it takes
BLOCKS: dict[str, Any] = {
    "n_blocks": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    "n_samples": [Interval(Integral, 1, None, closed="left")],
}


class _SparseRegressor(DescribesFunction, LeavesOut, VariationalRegressor):
    """A regressor whose data terms are sums over rows, or over blocks of them."""

    solver: str

    def _make_learner(self, **others: Any) -> SparseLearner:
        places = self._read_inducing_inputs()
        return SparseLearner.of(self, owners=self._owners, inducing_inputs=places, **others)

    def _check_collections(self) -> None:
        if self.solver in ("exact", "collapsed"):
            raise TypeError(
                f"solver={self.solver!r} needs rows in memory; 'stochastic' and 'auto' take Dask "
                "collections."
            )


class IndependentRegressor(JoinsOutputs, FadingRegressor, _SparseRegressor):
    """A regressor whose rows have independent noise: they may fade, and lack entries.

    That of outputs that learn from each other has a variance for each.
    """

    _takes_gaps = True
    _joint_learner = SparseJointLearner
    signal_std_mean_: Any
    signal_std_var_: Any
    output_covariance: Any

    def _bind_outputs(self, t: int, said: str, *, reset: bool) -> None:
        super()._bind_outputs(t, said, reset=reset)
        joins = t > 1 and self.output_covariance is not None
        goes_on = not reset or getattr(self, "warm_start", False)
        if goes_on and joins != vars(self).get("_joins", joins):
            raise ValueError("output_covariance has changed since the outputs were learned.")
        self._joins = joins

    def _check_collections(self) -> None:
        if self.output_covariance is not None:
            raise TypeError("output_covariance needs rows in memory, not Dask collections.")
        super()._check_collections()

    @property
    def output_covariance_(self) -> Array:
        """Prior covariance of the outputs' functions at one place, (n_outputs, n_outputs)."""
        check_is_fitted(self)
        variance = np.atleast_1d(self.signal_std_mean_**2 + self.signal_std_var_)
        if not self._joins:
            return np.diag(variance)
        std = np.sqrt(variance)
        return correlate(self._state) * np.outer(std, std)


class BlockRegressor(FillsGaps, ForgetfulRegressor, _SparseRegressor):
    """A regressor whose rows have noise that is correlated in blocks, of which the newest count."""

    noise_kernel: Any

    def _make_block_learner(self, *, local: bool) -> SparseLearner:
        return self._make_learner(structure=Blocks(self.noise_kernel), local=local, forgetting=1.0)
