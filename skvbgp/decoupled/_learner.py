"""Settings of a model and what it does with data; the estimators are thin shells around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.scaling import Coordinates, RunningScale, Target, check_unit
from skvbgp._optim.adam import AdamState
from skvbgp._optim.convergence import has_converged
from skvbgp._optim.schedule import cosine_annealing
from skvbgp.base import START_ROWS, at_one_place, in_tiles
from skvbgp.decoupled._basis import BasisKernel, GeneralizedSE, PlainKernel
from skvbgp.decoupled._bound import Model
from skvbgp.decoupled._likelihood import Gaussian, Poisson, Probit, StudentT
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._start import EVIDENCE_ROWS, most_probable_hyperparameters
from skvbgp.decoupled._state import Replay, State
from skvbgp.decoupled._training import Ascent
from skvbgp.kernels import as_kernel

#: max_iter=None: visits of a row in an update; rows that are visited in all; most passes of a fit.
_VISITS = 120
_VISITED_ROWS = 1_080_000
_MAX_PASSES = 200
#: Variance of the prior of the default kernel's log hyperparameters, around the median trick's.
_PRIOR_VARIANCE = 0.5


@dataclass(frozen=True)
class Learner:
    """Constructor parameters that training needs; see the estimators for their meaning."""

    likelihood: str
    n_mean_basis: int
    n_cov_basis: int
    parametrization: str
    kernel: Any
    generalized_length_scales: bool
    basis_growth: int
    learn_hyperparameters: bool
    max_iter: int | None
    batch_size: int
    learning_rate: float
    tol: float
    normalize_y: bool = False

    def max_passes(self, n: int) -> int:
        if self.max_iter is not None:
            return self.max_iter
        return int(np.clip(round(_VISITED_ROWS / n), 2, _MAX_PASSES))

    # -- the start -------------------------------------------------------------------------------

    def start(self, X: Array, y: Array, seed: int, before: State | None) -> State:
        if self.parametrization == "decoupled" and self.n_mean_basis == 0:
            raise ValueError('parametrization="decoupled" needs n_mean_basis >= 1.')
        rng = np.random.RandomState(seed)
        summary = RunningScale.of(y[:, None])
        replay = Replay.of(X, y, rng)
        likelihood = self._start_likelihood(y)
        target = self._target(likelihood, summary, replay)
        if before is not None:
            if before.parameters.alpha.shape[1] != X.shape[1]:
                raise ValueError(
                    f"warm_start: X has {X.shape[1]} features, but the fit before had "
                    f"{before.parameters.alpha.shape[1]}."
                )
            return replace(
                before.in_frame(target),
                adam=AdamState.zeros(len(before.adam.first)),
                summary=summary,
                replay=replay,
                seed=seed,
                lower_bounds=(),
            )
        order = rng.permutation(len(X))
        first = X[order[: self.batch_size]]
        coordinates = Coordinates.of(first).filled(first, X)
        kernel = self._start_kernel(coordinates, coordinates.scaled(first))
        d, none = X.shape[1], np.zeros(0)
        parameters = Parameters(
            theta=kernel.theta,
            noise=np.array(likelihood.start, dtype=float),
            alpha=np.zeros((0, d)),
            alpha_log_c=none,
            a0=none,
            beta=np.zeros((0, d)),
            beta_log_c=none,
            L0=np.zeros((0, 0)),
        )
        model = Model(
            kernel,
            likelihood,
            self.parametrization,
            self.generalized_length_scales and self.kernel is None,
            _PRIOR_VARIANCE if self.kernel is None else np.inf,
        )
        if self.learn_hyperparameters and len(X) >= START_ROWS:
            sample = order[:EVIDENCE_ROWS]
            values = likelihood.latent_values(target.scaled(y[sample]))
            if np.ptp(values) > 0.0:
                inputs = coordinates.scaled(X[sample])
                theta = most_probable_hyperparameters(model, inputs, values)
                parameters = replace(parameters, theta=theta)
        return State(
            model=model,
            parameters=parameters,
            q=None if model.is_direct else WhitenedGaussian.standard(0),
            adam=AdamState.zeros(len(parameters.pack())),
            coordinates=coordinates,
            target=target,
            summary=summary,
            replay=replay,
            seed=seed,
        )

    def _start_kernel(self, coordinates: Coordinates, rows: Array) -> BasisKernel:
        """The given kernel, or SE-ARD by the median trick."""
        d = rows.shape[1]
        if self.kernel is not None:
            return PlainKernel(as_kernel(self.kernel).bind(d), coordinates)
        k = len(rows) // 2
        distances = np.linalg.norm(rows[:k] - rows[k : 2 * k], axis=1)
        median = float(np.median(distances)) if k else 0.0
        return GeneralizedSE(0.0, np.full(d, np.log(median if median > 0.0 else 1.0)))

    def _start_likelihood(self, y: Array) -> Any:
        if self.likelihood == "poisson":
            return Poisson(float(np.log(max(np.mean(y), 0.5 / len(y)))))
        return {"gaussian": Gaussian, "student_t": StudentT, "probit": Probit}[self.likelihood]()

    def _target(self, likelihood: Any, summary: RunningScale, replay: Replay) -> Target:
        if not self.normalize_y:
            return Target(0.0, 1.0)
        check_unit(summary.unit, "y")
        if likelihood.resistant:
            summary = RunningScale.of(likelihood.latent_values(replay.y)[:, None])
            check_unit(summary.unit, "y")
        return Target(float(summary.mean[0]), float(summary.unit[0]))

    # -- steps -----------------------------------------------------------------------------------

    def train(self, state: State, X: Array, y: Array, end_pass: Callable[..., bool]) -> State:
        rng = np.random.RandomState(state.seed)
        ascent, n = self._ascent(state, rng), len(y)
        n_batches = -(-n // self.batch_size)
        n_steps = self.max_passes(n) * n_batches
        lower_bounds: list[float] = []
        unused = np.ones(n, dtype=bool)

        def finished() -> State:
            return replace(
                state,
                parameters=ascent.parameters,
                q=ascent.q,
                adam=ascent.adam,
                lower_bounds=tuple(lower_bounds),
                n_iter=len(lower_bounds),
            )

        step = 0
        for _ in range(self.max_passes(n)):
            values = []
            for rows in np.array_split(rng.permutation(n), n_batches):
                X_batch = state.coordinates.scaled(X[rows])
                if ascent.room > 0:
                    candidates = np.flatnonzero(unused[rows])
                    used = ascent.grow(X_batch[candidates])
                    unused[rows[candidates[:used]]] = False
                annealing = cosine_annealing(step, n_steps)
                y_batch = state.target.scaled(y[rows])
                values.append(ascent.step(X_batch, y_batch, n / len(rows), annealing))
                step += 1
            lower_bounds.append(float(np.mean(values)) - n * float(np.log(state.target.unit)))
            if end_pass(finished) or has_converged(lower_bounds, self.tol, len(values)):
                break
        return finished()

    def update(self, state: State, X: Array, y: Array) -> State:
        rng = np.random.RandomState((state.seed + state.replay.n_seen) % 2**32)
        if self.kernel is None and self.learn_hyperparameters:
            state = replace(state, coordinates=state.coordinates.filled(state.replay.X, X))
        replay = state.replay.plus(X, y, rng)
        if state.replay.n_seen < START_ROWS or at_one_place(state.replay.X):
            again = self.start(replay.X, replay.y, state.seed, None)
            return self.train(again, replay.X, replay.y, lambda make_state: False)
        summary = state.summary.merged(RunningScale.of(y[:, None]))
        target = self._target(state.model.likelihood, summary, replay)
        state = replace(state, summary=summary, replay=replay).in_frame(target)
        ascent = self._ascent(state, rng)
        ascent.grow(state.coordinates.scaled(X[rng.permutation(len(X))]))
        size = min(self.batch_size, len(replay.y))
        visits = min(_VISITS, self.max_iter or _VISITS) * len(y)
        n_steps = max(1, round(min(visits, _VISITED_ROWS) / size))
        values = []
        for step in range(n_steps):
            rows = rng.choice(len(replay.y), size, replace=False)
            X_batch = state.coordinates.scaled(replay.X[rows])
            y_batch = state.target.scaled(replay.y[rows])
            annealing = cosine_annealing(step, n_steps)
            values.append(ascent.step(X_batch, y_batch, replay.n_seen / size, annealing))
        lower_bound = float(np.mean(values)) - replay.n_seen * float(np.log(state.target.unit))
        return replace(
            state,
            parameters=ascent.parameters,
            q=ascent.q,
            adam=ascent.adam,
            lower_bounds=(*state.lower_bounds, lower_bound),
        )

    def _ascent(self, state: State, rng: np.random.RandomState) -> Ascent:
        return Ascent(
            state.model,
            state.parameters,
            state.q,
            state.adam,
            sizes=(self.n_mean_basis, self.n_cov_basis),
            growth=self.basis_growth,
            learning_rate=self.learning_rate,
            learn_hyperparameters=self.learn_hyperparameters,
            rng=rng,
        )

    # -- prediction ------------------------------------------------------------------------------

    def decision(self, state: State, X: Array) -> Array:
        """Scores whose normal distribution function is P(y = 1), for the probit likelihood."""
        posterior, coordinates = state.posterior, state.coordinates
        mean, variance = in_tiles(lambda X: posterior.moments(coordinates.scaled(X)), X)
        return mean / np.sqrt(1.0 + variance)
