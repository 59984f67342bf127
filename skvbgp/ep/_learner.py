"""The model of two classes: what it learns, and how rows are added and predicted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skvbgp._core.linalg import Array
from skvbgp.base import (
    choose_inducing_inputs,
    is_outgrown,
    subsample,
)
from skvbgp.ep._inputs import InputModel, Inputs
from skvbgp.ep._objective import Parameters, Problem, Solution, solve
from skvbgp.ep._prediction import Predictor
from skvbgp.ep._schedules import Schedule
from skvbgp.ep._sites import Sites
from skvbgp.ep._start import ScalePrior, default_kernel
from skvbgp.ep._training import maximise
from skvbgp.kernels import Kernel

#: Convergence of the sites that a fit ends with.
_FINAL_EP_TOL = 1e-9
#: Distance, in units of the inputs' spread, below which two inducing inputs are one.
_SAME_PLACE = 1e-9


@dataclass(frozen=True)
class State:
    """What is known of one problem: `solved` is None until it has been trained."""

    parameters: Parameters
    hyperprior: ScalePrior | None
    seed: int
    n_iter: int = 0
    solved: Solved | None = None


@dataclass(frozen=True)
class Solved:
    """The rows, their sites and the posterior."""

    inputs: Inputs  # (n, n_features) as they were given
    t: Array  # (n,)
    sites: Sites  # of g
    latent_sites: Sites  # of f
    log_evidence: float
    predictor: Predictor


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

    # -- start -----------------------------------------------------------------------------------

    def start(self, inputs: Inputs, t: Array, seed: int, before: State | None) -> State:
        n_features = inputs.mean.shape[1]
        if before is not None:
            _check_width(before.parameters.columns.seen, n_features, "warm_start: the fit before")
            return replace(before, seed=seed)
        columns = InputModel.of(inputs.mean)
        if self.kernel is None:
            kernel = default_kernel(columns.coordinates.scale)
            hyperprior = ScalePrior(kernel.theta)
        else:
            kernel, hyperprior = self.kernel.bind(columns.n_seen), None
        Z = np.empty((0, columns.n_seen))
        if self.inducing_inputs is not None:
            _check_width(self.inducing_inputs.T, n_features, "inducing_inputs")
            Z = self.inducing_inputs[:, columns.seen]
        return self._grown(State(Parameters(kernel, Z, columns), hyperprior, seed), inputs)

    def _grown(self, state: State, inputs: Inputs) -> State:
        """The state with inducing inputs at new places, while there is room for them."""
        p = state.parameters
        room = self.n_inducing - len(p.Z)
        if self.inducing_inputs is not None or room <= 0:
            return state
        rng = np.random.RandomState(state.seed)
        frame = p.columns.coordinates
        U = frame.scaled(p.Z)
        X = frame.scaled(p.columns.conditional(inputs).mean)
        new = choose_inducing_inputs(subsample(X, rng), room, rng)
        new = new[[not np.any(np.all(np.abs(u - U) < _SAME_PLACE, axis=1)) for u in new]]
        Z = np.concatenate([p.Z, frame.original(new)])
        return replace(state, parameters=replace(p, Z=Z))

    # -- training --------------------------------------------------------------------------------

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
        problem, n_iter = self._problem(state, inputs, t), 0
        if not self.learn_hyperparameters:
            solved = self._solved(
                replace(state, n_iter=1), state.parameters, problem, inputs, Sites.vague(len(t))
            )
            end_pass(lambda: solved)
            return solved

        def end_iteration(p: Parameters, sites: Sites) -> bool:
            nonlocal n_iter
            n_iter += 1
            now = replace(state, n_iter=n_iter)
            return end_pass(lambda: self._solved(now, p, problem, inputs, sites))

        best = self._learn(problem, state, end_iteration)
        return self._solved(
            replace(state, n_iter=max(1, n_iter)),
            best.parameters,
            problem,
            inputs,
            best.fixpoint.posterior.sites,
        )

    def _learn(
        self, problem: Problem, state: State, end_pass: Callable[[Parameters, Sites], bool]
    ) -> Solution:
        """The best solution of all starts."""
        rng = np.random.RandomState(state.seed)
        kernel = state.parameters.kernel
        results = []
        for restart in range(1 + self.n_restarts):
            start = state.parameters
            if restart:
                theta = kernel.theta + rng.standard_normal(start.n_theta)
                start = replace(start, kernel=kernel.with_theta(np.clip(theta, *kernel.bounds.T)))
            results.append(
                maximise(
                    problem,
                    start,
                    max_iter=self.max_iter,
                    tol=self.tol,
                    learn_inducing=self._learns_inducing(start, len(problem.t)),
                    end_pass=end_pass,
                )
            )
            if results[-1].stopped:
                break
        return max(results, key=lambda result: result.value).solution

    def _learns_inducing(self, start: Parameters, n: int) -> bool:
        """Unless every row is one; for "fitc" they would overfit, see :ref:`ep-training`."""
        return self.approximation == "dtc" and len(start.Z) < n

    def _solved(
        self, state: State, p: Parameters, problem: Problem, inputs: Inputs, sites: Sites
    ) -> State:
        """The state at some parameters, with converged sites."""
        solution = solve(problem, p, sites, _FINAL_EP_TOL)
        if not solution.fixpoint.converged:
            warnings.warn(
                f"EP has not converged after {self.schedule.max_iter} passes over the sites: "
                "increase max_ep_iter or damping.",
                ConvergenceWarning,
                stacklevel=2,
            )
        q = solution.fixpoint.posterior
        solved = Solved(
            inputs,
            problem.t,
            q.sites,
            solution.latent_sites,
            solution.log_evidence,
            Predictor(solution.prior.inducing, q.mean, q.covariance),
        )
        return replace(state, parameters=p, solved=solved)

    def update(self, state: State, inputs: Inputs, t: Array) -> State:
        known = state.solved
        n_new, new = len(t), inputs
        outgrown = is_outgrown(
            known.inputs.mean, known.t, new.mean, t, learns=self.learn_hyperparameters
        )
        inputs = known.inputs.followed_by(inputs)
        t = np.concatenate([known.t, t])
        if outgrown:
            start = self.start(inputs, t, state.seed, None)
            return self.train(start, inputs, t, lambda _: False)
        state = self._grown(state, new)
        sites = known.sites.followed_by(Sites.vague(n_new))
        return self._solved(state, state.parameters, self._problem(state, inputs, t), inputs, sites)

    # -- prediction ------------------------------------------------------------------------------

    def decision(self, state: State, inputs: Inputs) -> Array:
        completed = state.parameters.columns.completed(inputs)
        mean, variance = state.solved.predictor.moments(completed)
        return self.schedule.likelihood.score(mean, variance)


def _check_width(features: Array, n_features: int, name: str) -> None:
    if len(features) != n_features:
        raise ValueError(f"{name} has {len(features)} columns, but X has {n_features}.")
