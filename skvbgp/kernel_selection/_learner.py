"""Training of all kernels, the belief about them, and the models of those that are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp._core.parallel import parallel_each, parallel_map
from skvbgp.base import choose_inducing_inputs
from skvbgp.kernel_selection._belief import kernel_belief
from skvbgp.kernel_selection._bound import parameters
from skvbgp.kernel_selection._local import (
    LocalFit,
    evaluate,
    screen,
    train_collapsed,
    train_gaussian,
    train_stochastic,
)
from skvbgp.kernel_selection._model import KernelModel
from skvbgp.kernel_selection._state import State
from skvbgp.kernel_selection._stochastic import StochasticSettings

#: batch_size=None takes all rows at once, exactly, up to so many, and else mini-batches.
COLLAPSED_ROWS = 2_000
_BATCH_ROWS = 1_024
#: max_iter=None: L-BFGS iterations on all rows; rows that mini-batches visit.
_COLLAPSED_ITERATIONS = 60
_VISITED_ROWS = 300_000
#: Rows that starting values are searched with, and inducing inputs of the two steps of it.
_SCREENING_ROWS = 1_000
_COARSE_INDUCING = 48
_SCREENING_INDUCING = 128
#: Up to so many rows the screening takes them all as inducing inputs.
_SCREENING_DENSE_ROWS = 256
#: Kernels that are trained further after the screening, for each one kept.
_TRAINED_PER_KEPT = 3

#: Called with all fits so far after each task; True asks to stop.
Monitor = Callable[[Sequence[LocalFit]], bool]
#: A function for every kernel, and the arguments that are the same for all.
Task = tuple[Callable[..., LocalFit], tuple[Any, ...]]


class _Sample(NamedTuple):
    """Scaled rows that starting values are searched with, and inducing inputs; None is Z = X."""

    X: Array  # (n, d)
    y: Array  # (n,)
    Z_coarse: Array  # of the first look at many values
    Z_climb: Array | None
    Z_bound: Array | None  # of the bound that kernels are ranked by


@dataclass(frozen=True)
class Trainer:
    """The options of a fit, and what they mean for n rows."""

    is_gaussian: bool
    top_k: int
    n_samples: int
    n_restarts: int
    max_iter: int | None
    batch_size: int | None
    learning_rate: float
    tol: float
    n_jobs: int | None

    def is_collapsed(self, n: int) -> bool:
        """Whether all rows are taken at once."""
        return self.batch_size is None and n <= COLLAPSED_ROWS

    def n_tasks(self, n: int, n_kernels: int) -> int:
        """Largest number of tasks of a fit."""
        evaluated = 0 if self._knows_bounds(n) else n_kernels
        phases = 1 if self.is_collapsed(n) else 2
        return n_kernels + phases * self._n_trained(n_kernels) + evaluated

    def _knows_bounds(self, n: int) -> bool:
        """Whether the search for the hyperparameters ends with the bound itself."""
        return self.is_collapsed(n) and not self.is_gaussian

    def _n_trained(self, n_kernels: int) -> int:
        """Only the best go on after the screening, unless all have to get a q(theta)."""
        return n_kernels if self.is_gaussian else min(n_kernels, _TRAINED_PER_KEPT * self.top_k)

    # -- the fits --------------------------------------------------------------------

    def train(self, state: State, X: Array, y: Array, monitor: Monitor) -> State:
        """Search for all hyperparameters, from the start."""
        fits = [LocalFit.failed("It was not reached.")] * len(state.names)
        sample = self._screening_sample(state, X, y)
        fits, stopped = self._screened(state, sample, fits, monitor)
        order = np.argsort([-fit.lower_bound for fit in fits], kind="stable")
        chosen = order[: self._n_trained(len(fits))].tolist()
        if not stopped and not self.is_collapsed(len(X)):
            task = self._climbing(state, sample)
            fits, stopped = self._continued(state, task, fits, chosen, monitor)
        if not stopped:
            fits, _ = self._continued(state, self._training(state, X, y), fits, chosen, monitor)
        return self.concluded(replace(state, n_screened=len(X)), X, y, fits, monitor)

    def retrain(self, state: State, X: Array, y: Array, monitor: Monitor) -> State:
        """Go on from the hyperparameters of before, on other rows."""
        chosen = list(range(len(state.fits)))
        task = self._training(state, X, y)
        fits, _ = self._continued(state, task, list(state.fits), chosen, monitor)
        return self.concluded(state, X, y, fits, monitor)

    def _screening_sample(self, state: State, X: Array, y: Array) -> _Sample:
        rng = np.random.RandomState(state.seed)
        exact = self.is_collapsed(len(X))
        if not exact and len(X) > _SCREENING_ROWS:
            index = np.sort(rng.choice(len(X), _SCREENING_ROWS, replace=False))
            X, y = X[index], y[index]
        X, y = state.frame.scaled(X, y)
        m = len(X) if state.Z is None else len(state.Z)
        coarse, climb = (
            choose_inducing_inputs(X / state.scales.spread, min(limit, m), rng)
            * state.scales.spread
            for limit in (_COARSE_INDUCING, _SCREENING_INDUCING)
        )
        Z_climb = None if m >= len(X) and len(X) <= _SCREENING_DENSE_ROWS else climb
        return _Sample(X, y, coarse, Z_climb, state.Z if exact else Z_climb)

    def _screened(
        self, state: State, sample: _Sample, fits: list[LocalFit], monitor: Monitor
    ) -> tuple[list[LocalFit], bool]:
        shared = (*sample, state.scales, self.n_restarts, self.tol, state.seed)
        tasks = [(i, (kernel,)) for i, kernel in enumerate(state.kernels)]
        return self._run(state, screen, tasks, shared, fits, monitor)

    def _continued(
        self,
        state: State,
        task: Task,
        fits: list[LocalFit],
        chosen: list[int],
        monitor: Monitor,
    ) -> tuple[list[LocalFit], bool]:
        """The chosen kernels go on from where they are, by a function of shared arguments."""
        function, shared = task
        tasks = [(i, (state.kernels[i], fits[i].x)) for i in chosen if not fits[i].failure]
        return self._run(state, function, tasks, shared, fits, monitor)

    def _climbing(self, state: State, sample: _Sample) -> Task:
        """To the top on the sample, which Adam would take thousands of steps for."""
        rows = sample.X, sample.y, sample.Z_climb
        return train_collapsed, (*rows, state.scales, _COLLAPSED_ITERATIONS, self.tol)

    def _training(self, state: State, X: Array, y: Array) -> Task:
        """On all rows."""
        if not self.is_collapsed(len(X)):
            settings = self._stochastic_settings(len(X))
            return train_stochastic, (
                X, y, state.frame, state.Z, state.scales, settings, self.is_gaussian, state.seed
            )  # fmt: skip
        max_iter = self.max_iter or _COLLAPSED_ITERATIONS
        shared = (*state.frame.scaled(X, y), state.Z, state.scales, max_iter, self.tol)
        if self.is_gaussian:
            return train_gaussian, (*shared, state.seed)
        return train_collapsed, shared

    def _stochastic_settings(self, n: int) -> StochasticSettings:
        n_passes = self.max_iter or max(2, round(_VISITED_ROWS / n))
        return StochasticSettings(self.batch_size or _BATCH_ROWS, n_passes, self.learning_rate)

    def _run(
        self,
        state: State,
        function: Callable[..., LocalFit],
        tasks: list[tuple[int, tuple[Any, ...]]],
        shared: tuple[Any, ...],
        fits: list[LocalFit],
        monitor: Monitor,
    ) -> tuple[list[LocalFit], bool]:
        """Run one task for some kernels; True if the monitor asked to stop.

        Kernels with many hyperparameters, which take longest, go first: no worker is left with
        one of them at the end.
        """
        fits, stopped = list(fits), False
        tasks = sorted(tasks, key=lambda task: -len(state.kernels[task[0]].theta))
        indices = iter([i for i, _ in tasks])

        def record(fit: LocalFit) -> None:
            nonlocal stopped
            fits[next(indices)] = fit
            stopped = monitor(tuple(fits)) or stopped

        parallel_each(
            function, [task for _, task in tasks], record, n_jobs=self.n_jobs, shared=shared
        )
        return fits, stopped

    # -- the belief ------------------------------------------------------------------

    def concluded(
        self, state: State, X: Array, y: Array, fits: Sequence[LocalFit], monitor: Monitor
    ) -> State:
        """The belief about the kernels and the models of the best of them."""
        fits = list(fits)
        missing = [i for i, fit in enumerate(fits) if not fit.failure and fit.statistics is None]
        if not self._knows_bounds(len(X)):
            fits, _ = self._evaluated(state, X, y, fits, missing, monitor)
        state = replace(state, fits=tuple(fits))
        bounds = state.local_bounds
        if not np.isfinite(bounds).any():
            reasons = "; ".join(f"{n}: {f.failure}" for n, f in zip(state.names, fits, strict=True))
            raise NotPositiveDefiniteError(f"No kernel could be fitted. {reasons}")
        order = np.argsort(-bounds, kind="stable")[: self.top_k]
        kept = tuple(int(i) for i in order if np.isfinite(bounds[i]))
        wanting = [i for i in kept if fits[i].statistics is None]
        fits, _ = self._evaluated(state, X, y, fits, wanting, lambda _: False)
        Z = inducing_inputs(state, X)
        models = tuple(_model(state, i, fits[i], Z) for i in kept)
        light = tuple(fit._replace(statistics=None) for fit in fits)
        return self.believed(replace(state, fits=light, kept=kept, models=models))

    def believed(self, state: State) -> State:
        """The belief about all kernels, and about the kept ones alone."""
        bounds, settings = state.local_bounds, {"n_samples": self.n_samples, "seed": state.seed}
        belief = kernel_belief(bounds, **settings)
        weights = kernel_belief(bounds[list(state.kept)], **settings).posterior
        return replace(state, belief=belief, weights=weights)

    def updated(self, state: State, X: Array, y: Array) -> State:
        """The kept kernels and the belief after more rows, at the same hyperparameters."""
        state = self.pruned(state, self.top_k)
        tasks = [(model,) for model in state.models]
        results = parallel_map(_with_rows, tasks, n_jobs=self.n_jobs, shared=(X, y))
        models, bounds = zip(*results, strict=True)
        fits = tuple(
            fit._replace(lower_bound=bound - fit.kl)
            for fit, bound in zip(state.fits, bounds, strict=True)
        )
        return self.believed(replace(state, models=models, fits=fits, n=state.n + len(X)))

    def pruned(self, state: State, top_k: int) -> State:
        """The kept kernels of the highest bounds alone."""
        kept = state.kept[:top_k]
        state = replace(
            state,
            names=tuple(state.names[i] for i in kept),
            kernels=tuple(state.kernels[i] for i in kept),
            fits=tuple(state.fits[i] for i in kept),
            models=state.models[:top_k],
            kept=tuple(range(len(kept))),
        )
        return self.believed(state)

    def _evaluated(
        self,
        state: State,
        X: Array,
        y: Array,
        fits: list[LocalFit],
        chosen: list[int],
        monitor: Monitor,
    ) -> tuple[list[LocalFit], bool]:
        tasks = [(i, (state.kernels[i], fits[i])) for i in chosen]
        shared = (X, y, state.frame, inducing_inputs(state, X), state.seed)
        return self._run(state, evaluate, tasks, shared, fits, monitor)


def inducing_inputs(state: State, X: Array) -> Array:
    """The inducing inputs, centred; all different rows if they are the rows."""
    return np.unique(X - state.frame.origin, axis=0) if state.Z is None else state.Z


def _model(state: State, i: int, fit: LocalFit, Z: Array) -> KernelModel:
    kernel, noise = parameters(state.kernels[i], fit.x)
    assert fit.statistics is not None
    return KernelModel(
        state.names[i],
        kernel,
        noise * state.frame.target.unit**2,
        Z + state.frame.origin,
        fit.points(state.seed),
        fit.statistics,
        state.frame,
    )


def _with_rows(X: Array, y: Array, model: KernelModel) -> tuple[KernelModel, float]:
    return model._with_rows(X, y)
