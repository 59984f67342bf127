"""The regressors: their parameters, and the structure of the noise of each."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.linalg import Array
from skvbgp.base import (
    CATEGORIES,
    FORGETTING,
    FORGETTING_OR_WINDOW,
    JOINT_OUTPUTS,
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
    keep,
)
from skvbgp.sgpr._docs import documented
from skvbgp.sgpr._joint_outputs import SparseJointLearner, correlate
from skvbgp.sgpr._learner import SparseLearner
from skvbgp.sgpr._noise import Blocks, Diagonal, White
from skvbgp.sgpr._spread import SpreadRows

_COMMON: dict[str, Any] = {
    "n_inducing": [Interval(Integral, 1, None, closed="left")],
    "inducing_inputs": ["array-like", None],
    **CATEGORIES,
    "length_scale": [Interval(Real, 0, None, closed="neither"), "array-like", None],
    "signal_std": [Interval(Real, 0, None, closed="neither"), None],
    "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
    "hyperparameter_variance": [Interval(Real, 0, None, closed="neither"), None],
    "prior_mean": [Interval(Real, None, None, closed="neither"), "array-like"],
    "prior_variance": [Interval(Real, 0, None, closed="neither"), "array-like"],
    "solver": [StrOptions({"auto", "exact", "collapsed", "stochastic"})],
    "psi": [StrOptions({"auto", "closed_form", "sampled"})],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "normalize_y": ["boolean"],
    **LEARNING,
    "n_jobs": [Integral, None],
}
_NOISE_KERNEL: dict[str, Any] = {"noise_kernel": "no_validation"}  # as_kernel says what it takes
_BLOCKS: dict[str, Any] = {
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


class _IndependentRegressor(JoinsOutputs, FadingRegressor, _SparseRegressor):
    """A regressor whose rows have independent noise: they may fade, and lack entries.

    That of outputs that learn from each other has a variance for each.
    """

    _takes_gaps = True
    _joint_learner = SparseJointLearner
    signal_std_mean_: Any
    signal_std_var_: Any

    @property
    def output_covariance_(self) -> Array:
        """Prior covariance of the outputs' functions at one place, (n_outputs, n_outputs)."""
        check_is_fitted(self)
        variance = np.atleast_1d(self.signal_std_mean_**2 + self.signal_std_var_)
        if not self._joins:
            return np.diag(variance)
        std = np.sqrt(variance)
        return correlate(self._state) * np.outer(std, std)


@documented(
    """Variational Bayesian sparse Gaussian process regression with white noise (VBDTC).

    Observations are f(x) plus independent Gaussian noise of one variance. This is the
    member of the family to start from: it is the cheapest, and its predictive moments
    have a closed form [Yu2019]_.

    X may have missing entries (NaN), in training and in prediction: rows that have them have more
    noise, by slopes that are learned.
    """
)
class VBDTCRegressor(_IndependentRegressor):
    _parameter_constraints = _COMMON | FORGETTING | JOINT_OUTPUTS

    def __init__(
        self,
        n_inducing: int = 500,
        *,
        inducing_inputs: Any = None,
        categorical_features: Any = None,
        output_covariance: str | None = None,
        length_scale: Any = None,
        signal_std: float | None = None,
        noise_variance: float | None = None,
        hyperparameter_variance: float | None = None,
        prior_mean: Any = 0.0,
        prior_variance: Any = 4.0,
        solver: str = "auto",
        psi: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 2048,
        learning_rate: float = 0.03,
        tol: float = 1e-5,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    def _learner(self) -> SparseLearner:
        return self._make_learner(structure=White())


@documented(
    """Variational Bayesian sparse Gaussian process with input-dependent noise (VBFITC).

    The noise of each row is independent; its variance is sigma_n^2 plus what a noise
    kernel cannot explain from the inducing inputs, so that it grows away from them
    [Yu2019]_.

    X may have missing entries (NaN), in training and in prediction: rows that have them have the
    noise of places far from the inducing inputs, and more, by slopes that are learned.
    """,
    noise_kernel=True,
)
class VBFITCRegressor(_IndependentRegressor):
    _parameter_constraints = _COMMON | FORGETTING | JOINT_OUTPUTS | _NOISE_KERNEL

    def __init__(
        self,
        n_inducing: int = 500,
        *,
        noise_kernel: Any = None,
        inducing_inputs: Any = None,
        categorical_features: Any = None,
        output_covariance: str | None = None,
        length_scale: Any = None,
        signal_std: float | None = None,
        noise_variance: float | None = None,
        hyperparameter_variance: float | None = None,
        prior_mean: Any = 0.0,
        prior_variance: Any = 4.0,
        solver: str = "auto",
        psi: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 2048,
        learning_rate: float = 0.03,
        tol: float = 1e-5,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    def _learner(self) -> SparseLearner:
        return self._make_learner(structure=Diagonal(self.noise_kernel, owners=self._owners))


@documented(
    """Variational Bayesian sparse Gaussian process with noise correlated in blocks (VBPITC).

    The rows are divided into blocks by location. The noise of a block is correlated by the
    residual of a noise kernel; new rows are predicted through the inducing inputs alone
    [Yu2019]_. See :class:`VBPICRegressor`, which uses the block of a new row as well.

    X may have missing entries (NaN), in training and in prediction: rows that have them are in the
    blocks of their means, and have more noise, by slopes that are learned before.
    """,
    noise_kernel=True,
    blocks=True,
)
class VBPITCRegressor(FillsGaps, ForgetfulRegressor, _SparseRegressor):
    _parameter_constraints = _COMMON | FORGETTING_OR_WINDOW | _NOISE_KERNEL | _BLOCKS

    def __init__(
        self,
        n_inducing: int = 500,
        *,
        noise_kernel: Any = None,
        n_blocks: int | str = "auto",
        n_samples: int = 8,
        inducing_inputs: Any = None,
        categorical_features: Any = None,
        length_scale: Any = None,
        signal_std: float | None = None,
        noise_variance: float | None = None,
        hyperparameter_variance: float | None = None,
        prior_mean: Any = 0.0,
        prior_variance: Any = 4.0,
        solver: str = "auto",
        psi: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 2048,
        learning_rate: float = 0.03,
        tol: float = 1e-5,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    def _learner(self) -> SparseLearner:
        structure = Blocks(self.noise_kernel, owners=self._owners)
        return self._make_learner(structure=structure, forgetting=1.0)


@documented(
    """Variational Bayesian sparse Gaussian process with local blocks (VBPIC).

    The rows are divided into blocks by location. Across blocks the inducing inputs carry
    the information; within a block rows are correlated directly, through the Gaussian
    process and through a noise kernel's residual. A new row is predicted from the
    inducing inputs and from the data of its own block, which are kept [Yu2019]_.

    `predict` gives the distribution of the *observation*: the noise of a new row is
    correlated with that of its block, so its conditional mean is part of the prediction.
    With ``include_noise=False`` it is that of the latent function alone, whose standard
    deviation may be larger: rows of the block tell the sum of the two better than either.
    `sample_function`, `predict_gradient` and `feature_importances_` are of that function, too.

    X may have missing entries (NaN), in training and in prediction: rows that have them are in the
    blocks of their means, and have more noise, by slopes that are learned before.
    """,
    noise_kernel=True,
    blocks=True,
    automatic=True,
)
class VBPICRegressor(FillsGaps, ForgetfulRegressor, _SparseRegressor):
    _parameter_constraints = VBPITCRegressor._parameter_constraints | {
        "n_inducing": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})]
    }

    def __init__(
        self,
        n_inducing: int | str = "auto",
        *,
        noise_kernel: Any = "auto",
        n_blocks: int | str = "auto",
        n_samples: int = 8,
        inducing_inputs: Any = None,
        categorical_features: Any = None,
        length_scale: Any = None,
        signal_std: float | None = None,
        noise_variance: float | None = None,
        hyperparameter_variance: float | None = None,
        prior_mean: Any = 0.0,
        prior_variance: Any = 4.0,
        solver: str = "auto",
        psi: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | None = None,
        batch_size: int = 2048,
        learning_rate: float = 0.03,
        tol: float = 1e-5,
        normalize_y: bool = True,
        forgetting: float = 1.0,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        keep(self, locals())

    @property
    def _keeps_on_workers(self) -> bool:
        return isinstance(getattr(self._state, "blocks", None), SpreadRows)

    def _learner(self) -> SparseLearner:
        structure = Blocks(self.noise_kernel, owners=self._owners)
        return self._make_learner(structure=structure, local=True, forgetting=1.0)
