"""The model of two classes: what it learns, and how rows are added and predicted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import thread_map
from skvbgp.base import choose_inducing_inputs, subsample
from skvbgp.ep._features import InducingPrior, RowFeatures, tiles
from skvbgp.ep._inputs import InputModel, Inputs
from skvbgp.ep._objective import Parameters, Problem, solve
from skvbgp.ep._schedules import Schedule
from skvbgp.ep._sites import Sites
from skvbgp.ep._start import ScalePrior, default_kernel
from skvbgp.ep._training import FINAL_EP_TOL, maximise
from skvbgp.kernels import Kernel


@dataclass(frozen=True)
class Predictor:
    """Latent moments of new rows."""

    inducing: InducingPrior
    mean: Array  # (m,) of the whitened inducing outputs
    covariance: Array  # (m, m)

    def moments(self, inputs: Inputs) -> tuple[Array, Array]:
        """Mean and variance of f at completed inputs, each (n,)."""

        def tile(rows: slice) -> tuple[Array, Array]:
            features = RowFeatures(self.inducing, inputs.rows(rows), "dtc")
            return features.moments(self.mean, self.covariance)

        means, variances = zip(*thread_map(tile, [(r,) for r in tiles(len(inputs))]), strict=True)
        return np.concatenate(means), np.concatenate(variances)


@dataclass(frozen=True)
class State:
    """What is known of one problem; the fields after `hyperprior` come with training."""

    parameters: Parameters
    seed: int
    hyperprior: ScalePrior | None
    inputs: Inputs | None = None  # (n, n_features) the rows as they were given
    t: Array | None = None  # (n,)
    sites: Sites | None = None  # of g
    latent_sites: Sites | None = None  # of f
    predictor: Predictor | None = None
    log_evidence: float = np.nan
    n_iter: int = 0


@dataclass(frozen=True)
class EPLearner:
    """Settings of the estimator, see `EPDTCClassifier`."""

    n_inducing: int
    kernel: Kernel | None
    inducing_inputs: Array | None
    approximation: str
    schedule: Schedule
    learn_hyperparameters: bool
    n_restarts: int
    max_iter: int
    tol: float

    def max_passes(self, n: int) -> int:
        return self.max_iter * (1 + self.n_restarts) if self.learn_hyperparameters else 1

    # -- training --------------------------------------------------------------------------------

    def start(self, inputs: Inputs, t: Array, seed: int, before: State | None) -> State:
        if before is not None:
            return replace(before, seed=seed)
        columns = InputModel.of(inputs.mean)
        hyperprior = None
        if self.kernel is None:
            kernel = default_kernel(columns.unit)
            hyperprior = ScalePrior(kernel.theta)
        else:
            kernel = self.kernel.bind(len(columns.unit))
        rng = np.random.RandomState(seed)
        if self.inducing_inputs is None:
            Z = self._places(columns, inputs, self.n_inducing, rng)
        else:
            Z = self.inducing_inputs[:, columns.seen]
        return State(Parameters(kernel, Z, columns), seed, hyperprior)

    @staticmethod
    def _places(columns: InputModel, inputs: Inputs, m: int, rng: np.random.RandomState) -> Array:
        """At most m places (m, d) that cover the rows."""
        X = columns.conditional(inputs).mean
        U = choose_inducing_inputs(subsample((X - columns.offset) / columns.unit, rng), m, rng)
        return columns.offset + columns.unit * U

    def _problem(self, state: State, inputs: Inputs, t: Array) -> Problem:
        columns = state.parameters.columns
        return Problem(
            t,
            columns.conditional(inputs),
            np.isnan(inputs.mean[:, columns.seen]),
            self.approximation,
            self.schedule,
            state.hyperprior,
        )

    def train(
        self, state: State, inputs: Inputs, t: Array, end_pass: Callable[[Callable[[], Any]], bool]
    ) -> State:
        problem = self._problem(state, inputs, t)
        state = replace(state, inputs=inputs, t=t)
        sites, n_iter = Sites.vague(len(t)), 0
        if self.learn_hyperparameters:
            best, rng = -np.inf, np.random.RandomState(state.seed)
            start = state.parameters
            for restart in range(1 + self.n_restarts):
                if restart:
                    lower, upper = start.kernel.bounds.T
                    theta = start.kernel.theta + rng.standard_normal(start.n_theta)
                    start = replace(
                        start, kernel=start.kernel.with_theta(np.clip(theta, lower, upper))
                    )
                solution, value, used = maximise(
                    problem,
                    start,
                    max_iter=self.max_iter,
                    tol=self.tol,
                    learn_inducing=len(start.Z) < len(t),
                    end_pass=lambda p, sites: end_pass(
                        lambda: self._finished(replace(state, parameters=p), problem, sites)
                    ),
                )
                n_iter += used
                if value > best:
                    best, state = value, replace(state, parameters=solution.parameters)
                    sites = solution.fixpoint.posterior.sites
        state = self._finished(replace(state, n_iter=max(1, n_iter)), problem, sites)
        if not self.learn_hyperparameters:
            end_pass(lambda: state)
        return state

    def _finished(self, state: State, problem: Problem, sites: Sites) -> State:
        """The state with converged sites, ready to predict."""
        solution = solve(problem, state.parameters, sites, FINAL_EP_TOL)
        if not solution.fixpoint.converged:
            warnings.warn(
                f"EP did not converge in {self.schedule.max_iter} passes over the sites: increase "
                "max_ep_iter or damping.",
                ConvergenceWarning,
                stacklevel=2,
            )
        q = solution.fixpoint.posterior
        return replace(
            state,
            sites=q.sites,
            predictor=Predictor(solution.prior.inducing, q.mean, q.covariance),
            log_evidence=solution.log_evidence,
        )

    def update(self, state: State, inputs: Inputs, t: Array) -> State:
        old = len(state.t)
        inputs, t = state.inputs.followed_by(inputs), np.concatenate([state.t, t])
        problem = self._problem(state, inputs, t)
        n_new = len(t) - old
        vague = Sites.vague(n_new)
        sites = Sites(
            np.concatenate([state.sites.tau, vague.tau]), np.concatenate([state.sites.nu, vague.nu])
        )
        return self._finished(replace(state, inputs=inputs, t=t), problem, sites)

    # -- prediction ------------------------------------------------------------------------------

    def decision(self, state: State, inputs: Inputs) -> Array:
        mean, variance = state.predictor.moments(state.parameters.columns.completed(inputs))
        return mean / np.sqrt(1.0 + variance)
