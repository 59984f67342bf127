"""Variational Bayesian kernel selection."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import RunningScale, Target
from skvbgp.base import (
    Interval,
    StrOptions,
    VariationalRegressor,
    choose_inducing_inputs,
    subsample,
)
from skvbgp.kernel_selection._bound import parameters
from skvbgp.kernel_selection._frame import Frame
from skvbgp.kernel_selection._grammar import kernel_grammar
from skvbgp.kernel_selection._local import LocalFit
from skvbgp.kernel_selection._model import mixture_joint, mixture_moments
from skvbgp.kernel_selection._start import DataScales
from skvbgp.kernel_selection._state import State
from skvbgp.kernel_selection._training import COLLAPSED_ROWS, Monitor, Trainer
from skvbgp.kernels import Kernel, as_kernel

#: n_inducing=None is every row up to so many rows, and else fewer.
_DENSE_ROWS = 1_000
_SPARSE_INDUCING = 500


class VBKSRegressor(VariationalRegressor):
    """Variational Bayesian kernel selection."""

    _parameter_constraints = {
        "kernels": [StrOptions({"grammar"}), "array-like"],
        "depth": [Interval(Integral, 1, None, closed="left")],
        "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "hyperparameter_posterior": [StrOptions({"point", "gaussian"})],
        "top_k": [Interval(Integral, 1, None, closed="left")],
        "n_samples": [Interval(Integral, 2, None, closed="left")],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "normalize_y": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        kernels="grammar",
        *,
        depth=3,
        n_inducing=None,
        hyperparameter_posterior="point",
        top_k=10,
        n_samples=2000,
        n_restarts=3,
        max_iter=None,
        batch_size=None,
        learning_rate=0.03,
        tol=1e-7,
        normalize_y=True,
        random_state=None,
        n_jobs=None,
    ):
        self.kernels = kernels
        self.depth = depth
        self.n_inducing = n_inducing
        self.hyperparameter_posterior = hyperparameter_posterior
        self.top_k = top_k
        self.n_samples = n_samples
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.normalize_y = normalize_y
        self.random_state = random_state
        self.n_jobs = n_jobs

    # -- training --------------------------------------------------------------------

    def _trainer(self) -> Trainer:
        return Trainer(
            self.hyperparameter_posterior == "gaussian",
            self.top_k,
            self.n_samples,
            self.n_restarts,
            self.max_iter,
            self.batch_size,
            self.learning_rate,
            self.tol,
            self.n_jobs,
        )

    def _max_passes(self, n: int) -> int:
        return self._trainer().n_tasks(n, len(self._named_kernels()))

    def _max_update_passes(self, state: State, X: Array) -> int:
        return 1 if state.rows is None else self._max_passes(state.n + len(X))

    def _named_kernels(self) -> list[tuple[str, Kernel]]:
        if isinstance(self.kernels, str):
            return kernel_grammar(self.depth)
        pairs = [_named(entry) for entry in self.kernels]
        if not pairs:
            raise ValueError("kernels must not be empty.")
        return pairs

    def _start(self, X: Array, y: Array) -> State:
        names, kernels = zip(*self._named_kernels(), strict=True)
        return self._framed(X, y, names, kernels)

    def _framed(
        self, X: Array, y: Array, names: tuple[str, ...], kernels: tuple[Kernel, ...]
    ) -> State:
        """State before training: everything that only the data decide."""
        n, d = X.shape
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        rng = np.random.RandomState(seed)
        summary, target = RunningScale.of(X), RunningScale.of(y[:, None])
        frame = Frame(
            summary.mean,
            Target(float(target.mean[0]), float(target.unit[0]))
            if self.normalize_y
            else Target(0.0, 1.0),
        )
        is_collapsed = self._trainer().is_collapsed(n)
        m = self.n_inducing or (n if n <= _DENSE_ROWS else _SPARSE_INDUCING)
        Z = None
        if not is_collapsed or self.hyperparameter_posterior == "gaussian" or n > m:
            sample = (subsample(X, rng) - summary.mean) / summary.unit
            Z = choose_inducing_inputs(sample, m, rng) * summary.unit
        index = np.sort(rng.choice(n, min(n, COLLAPSED_ROWS), replace=False))
        scales = DataScales.of(*frame.scaled(X[index], y[index]))
        return State(
            names=tuple(names),
            kernels=tuple(kernel.bind(d) for kernel in kernels),
            frame=frame,
            Z=Z,
            scales=scales,
            seed=seed,
            n=n,
            rows=(X, y) if n <= COLLAPSED_ROWS else None,
        )

    def _train(self, state: State, X: Array, y: Array, progress: Any) -> State:
        state = self._trainer().train(state, X, y, self._monitor(state, X, y, progress))
        _warn_of_failures(state)
        return state

    def _monitor(self, state: State, X: Array, y: Array, progress: Any) -> Monitor:
        def monitor(fits: Sequence[LocalFit]) -> bool:
            def reconstruction() -> dict[str, Any]:
                now = self._trainer().concluded(state, X, y, fits, lambda _: False)
                return self._reconstruction(now)

            return progress.end_pass(reconstruction)

        return monitor

    def _update(self, state: State, X: Array, y: Array, progress: Any) -> State:
        trainer = self._trainer()
        if state.rows is None:
            state = trainer.updated(state, X, y)
            progress.end_pass(lambda: self._reconstruction(state))
            return state
        X = np.concatenate([state.rows[0], X])
        y = np.concatenate([state.rows[1], y])
        fresh = self._framed(X, y, state.names, state.kernels)
        monitor = self._monitor(fresh, X, y, progress)
        if len(X) >= 2 * state.n_screened:
            return self._train(fresh, X, y, progress)
        fresh = replace(fresh, fits=state.fits, n_screened=state.n_screened)
        return trainer.retrain(fresh, X, y, monitor)

    def prune(self, top_k):
        """Keep the kernels of the highest belief only, and recompute the belief about them.

        Parameters
        ----------
        top_k : int
            Number of kernels to keep.

        Returns
        -------
        self : object
            The estimator, whose fitted attributes are those of the kept kernels.
        """
        check_is_fitted(self)
        if not isinstance(top_k, Integral) or top_k < 1:
            raise ValueError(f"top_k must be a positive integer, got {top_k!r}.")
        self._state = self._trainer().pruned(self._state, top_k)
        for name, value in self._attributes(self._state).items():
            setattr(self, name, value)
        return self

    # -- fitted attributes and prediction ----------------------------------------------

    def _attributes(self, state: State) -> dict[str, Any]:
        assert state.belief is not None
        kernels = [
            (name, kernel if fit.failure else parameters(kernel, fit.x)[0])
            for name, kernel, fit in zip(state.names, state.kernels, state.fits, strict=True)
        ]
        return {
            "kernels_": kernels,
            "kernel_posterior_": state.belief.posterior,
            "g_mean_": state.belief.mean,
            "g_cov_": state.belief.covariance,
            "local_lower_bounds_": state.local_bounds,
            "lower_bound_": state.belief.lower_bound,
            "best_kernel_": kernels[state.kept[0]],
            "estimators_": list(state.models),
            "estimator_weights_": state.weights,
            "n_iter_": max(fit.n_iter for fit in state.fits),
            "n_samples_seen_": state.n,
        }

    def _moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        state = self._state
        parts = [model._moments(X, include_noise) for model in state.models]
        return mixture_moments(parts, state.weights)

    def _joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        state = self._state
        return mixture_joint([m._joint(X, include_noise) for m in state.models], state.weights)


def _named(entry: Any) -> tuple[str, Kernel]:
    """Name and kernel of an entry of `kernels`; a kernel without a name is called as it prints."""
    if isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[0], str):
        name, kernel = entry
        return name, as_kernel(kernel)
    return repr(entry), as_kernel(entry)


def _warn_of_failures(state: State) -> None:
    for name, fit in zip(state.names, state.fits, strict=True):
        if fit.failure:
            warnings.warn(
                f"Kernel {name!r} could not be fitted and gets no belief. {fit.failure}",
                RuntimeWarning,
                stacklevel=2,
            )
