"""The model of classes: what it learns, and how rows are added and predicted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skvbgp._core.exclusion import learn_exclusion
from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, find_first_columns
from skvbgp._optim.ascent import EndPass, report_as
from skvbgp.base import (
    Labels,
    Learner,
    choose_inducing_inputs,
    choose_rows,
    is_outgrown,
    merge_equal,
    pick,
    weigh_classes,
)
from skvbgp.ep._bound import (
    Objective,
    Parameters,
    Problem,
    ScalePrior,
    make_default_kernel,
    make_vague,
    solve,
)
from skvbgp.ep._inputs import InputModel, Inputs
from skvbgp.ep._posterior import ClassPosterior, LatentPosterior
from skvbgp.ep._refinement import Refinement
from skvbgp.ep._rounds import Reached, maximise_in_rounds
from skvbgp.ep._schedules import Schedule
from skvbgp.ep._sites import Sites
from skvbgp.ep._state import Start, State
from skvbgp.kernels import Kernel
from skvbgp.kernels._by_input import bind_columns, join_columns, share_hyperparameters

#: Convergence of EP within the search, whose line searches need no more: its range, and its ratio
#: to ``tol``.
_EP_TOL_RANGE = (1e-4, 1e-2)
_EP_TOL_RATIO = 1e3
#: The search ends with a round that changes its value by less than this many times ``tol``.
_ROUND_TOL = 10.0
#: Convergence of the sites that a fit ends with.
_FINAL_EP_TOL = 1e-9
#: Distance, in units of the inputs' spread, below which two inducing inputs are one.
_SAME_PLACE = 1e-9


@dataclass(frozen=True)
class EPLearner(Learner):
    """Settings of the estimator, see `EPDTCClassifier`.

    More than two classes share everything but their sites, see :ref:`ep-classes`.
    """

    n_inducing: int
    kernel: Kernel | None
    inducing_inputs: Array | None
    approximation: str
    refine: str | None
    schedule: Schedule
    learn_hyperparameters: bool
    learn_inducing: bool
    n_restarts: int
    max_iter: int
    tol: float
    n_jobs: int | None
    class_weight: Any
    owners: Owners = ()  # by column of X: the input that it encodes

    def max_passes(self, y: Labels) -> int:
        return self.max_iter * (1 + self.n_restarts) if self.learn_hyperparameters else 1

    # -- start -----------------------------------------------------------------------------------

    def start(
        self, X: Inputs, y: Labels, rng: np.random.RandomState, before: State | None
    ) -> Start:
        seed, weight = int(rng.randint(np.iinfo(np.int32).max)), self._weigh(y)
        if before is not None:
            p = before.start.parameters
            refinement = Refinement.start(self.refine, p.columns.find_missing(X), p.refinement)
            start = replace(before.start, parameters=replace(p, refinement=refinement), seed=seed)
            return self._grow(start, X, weight)
        columns = InputModel.of(X.mean, weight, self.owners)
        refinement = Refinement.start(self.refine, columns.find_missing(X))
        hyperprior = None
        if self.kernel is None:
            kernel = make_default_kernel(columns.frame.scale)
            hyperprior = ScalePrior(kernel.theta, columns.owners)
        else:
            kernel = bind_columns(self.kernel, columns.n_seen, columns.owners)
        Z = np.empty((0, columns.n_seen))
        if self.inducing_inputs is not None:
            Z = self.inducing_inputs[:, columns.seen]
        start = Start(Parameters(kernel, Z, columns, refinement), hyperprior, seed)
        return self._grow(start, X, weight)

    def _weigh(self, y: Labels) -> Array | None:
        """How often the rows count, with the weights of the classes; None is once."""
        return y.weigh(weigh_classes(self.class_weight, y.classes, y.count_classes()))

    def _grow(self, start: Start, X: Inputs, weight: Array | None) -> Start:
        """Add inducing inputs at new places, while there is room for them."""
        p = start.parameters
        room = self.n_inducing - len(p.Z)
        if self.inducing_inputs is not None or room <= 0:
            return start
        rng = np.random.RandomState(start.seed)
        frame = p.columns.coordinates
        U = frame.scaled(p.Z)
        rows = frame.scaled(p.columns.condition(X).mean)
        some = choose_rows(len(rows), rng)
        new = choose_inducing_inputs(rows[some], room, rng, pick(weight, some))
        new = new[[not np.any(np.all(np.abs(u - U) < _SAME_PLACE, axis=1)) for u in new]]
        Z = np.concatenate([p.Z, frame.original(new)])
        return replace(start, parameters=replace(p, Z=Z))

    # -- training --------------------------------------------------------------------------------

    def train(self, state: Start, X: Inputs, y: Labels, end_pass: EndPass) -> State:
        problem = self._pose(state, X, y)

        if not self.learn_hyperparameters:
            solved = self._solve(state, problem, X, y, make_vague(problem), 1)
            end_pass(lambda: solved)
            return solved

        def conclude(reached: Reached, searches: list[Reached]) -> State:
            start = replace(state, parameters=reached.parameters)
            n_iter = max(1, sum(len(search.values) for search in searches))
            return self._solve(start, problem, X, y, reached.sites, n_iter)

        searches: list[Reached] = []
        # those that were chosen are rows, and where they are as many, all rows
        may_move = self.inducing_inputs is not None or len(state.parameters.Z) < len(y)

        for start in self._choose_starts(state):
            search = maximise(
                problem,
                start,
                max_iter=self.max_iter,
                tol=self.tol,
                learn_inducing=self.learn_inducing and may_move,
                end_pass=report_as(lambda now: conclude(now, [*searches, now]), end_pass),
            )
            searches.append(search)
            if search.stopped:
                break
        return conclude(max(searches, key=lambda search: search.value), searches)

    def _choose_starts(self, start: Start) -> Iterator[Parameters]:
        """The first start, and those at random hyperparameters around it."""
        rng, p = np.random.RandomState(start.seed), start.parameters
        yield p
        for _ in range(self.n_restarts):
            theta = p.kernel.theta + rng.standard_normal(p.kernel.n_free)
            kernel = p.kernel.with_theta(np.clip(theta, *p.kernel.bounds.T))
            yield replace(p, kernel=share_hyperparameters(kernel, p.columns.owners))

    def _pose(self, start: Start, X: Inputs, y: Labels) -> Problem:
        columns = start.parameters.columns
        return Problem(
            np.array(y.problems()),
            columns.condition(X),
            columns.find_missing(X),
            self.approximation,
            self.schedule,
            start.hyperprior,
            self._weigh(y),
        )

    def _solve(
        self,
        start: Start,
        problem: Problem,
        X: Inputs,
        y: Labels,
        sites: tuple[Sites, ...],
        n_iter: int,
    ) -> State:
        """The state at some parameters, with converged sites."""
        solution = solve(problem, start.parameters, sites, _FINAL_EP_TOL)
        if not all(fixpoint.converged for fixpoint in solution.fixpoints):
            warnings.warn(
                f"EP has not converged after {self.schedule.max_iter} passes over the sites: "
                "increase max_ep_iter or damping.",
                ConvergenceWarning,
                stacklevel=2,
            )
        each = [fixpoint.posterior for fixpoint in solution.fixpoints]
        posterior = LatentPosterior(
            solution.prior.inducing,
            np.array([q.mean for q in each]),
            np.array([q.covariance for q in each]),
        )
        exclusion = 0.0
        if len(each) > 1:
            scores = solution.loo_scores(self.schedule.likelihood)
            exclusion = learn_exclusion(scores, y.codes, problem.weight)
        return State(
            start,
            n_iter,
            X.copy(),  # the user may write to what was given
            y,
            solution.sites,
            solution.latent_sites,
            solution.log_evidence,
            posterior,
            exclusion,
        )

    # -- new rows --------------------------------------------------------------------------------

    def rows_to_restart(self, state: State, X: Inputs, y: Labels) -> tuple[Inputs, Labels] | None:
        outgrown = is_outgrown(
            state.inputs.mean, state.y.codes, X.mean, y.codes, learns=self.learn_hyperparameters
        )
        if not outgrown:
            return None
        X, y = state.inputs.joined(X), state.y.joined(y)
        counted = merge_equal(X.table, y.codes, y.weight)
        return X.rows(counted.rows), y.counted(counted)

    def update(self, state: State, X: Inputs, y: Labels, end_pass: EndPass) -> State:
        n_new, y = len(y), state.y.joined(y)
        start = self._grow(state.start, X, pick(self._weigh(y), slice(-n_new, None)))
        p = start.parameters
        start = replace(start, parameters=replace(p, refinement=p.refinement.extended(n_new)))
        sites = tuple(known.joined(Sites.vague(n_new)) for known in state.sites)
        X = state.inputs.joined(X)
        solved = self._solve(start, self._pose(start, X, y), X, y, sites, state.n_iter)
        end_pass(lambda: solved)
        return solved

    # -- what a state says -----------------------------------------------------------------------

    def posterior(self, state: State) -> ClassPosterior:
        p, likelihood = state.start.parameters, self.schedule.likelihood
        return ClassPosterior(p, state.posterior, likelihood, self.n_jobs)

    def attributes(self, state: State) -> dict[str, Any]:
        p = state.start.parameters
        seen = p.columns.seen
        tau = np.array([_spread(sites.tau, state.y) for sites in state.latent_sites])
        nu = np.array([_spread(sites.nu, state.y) for sites in state.latent_sites])
        mean = np.divide(nu, tau, out=np.zeros_like(nu), where=tau > 0.0)
        evidence: Any = state.log_evidence
        if len(evidence) == 1:
            tau, mean, evidence = tau[0], mean[0], float(evidence[0])
        return {
            "classes_": state.classes,
            "kernel_": join_columns(p.kernel, p.columns.owners),
            "inducing_inputs_": p.Z,
            "observed_features_": seen[find_first_columns(len(seen), self.owners)],
            "log_marginal_likelihood_value_": evidence,
            "site_precision_": tau,
            "site_mean_": mean,
            "exclusion_": state.exclusion,
            "n_iter_": state.n_iter,
            "n_samples_seen_": len(state.y) + state.y.n_copies,
        }


def maximise(
    problem: Problem,
    start: Parameters,
    *,
    max_iter: int,
    tol: float,
    learn_inducing: bool,
    end_pass: EndPass,
) -> Reached:
    """Maximise the log evidence from a start; what `end_pass` gets makes a `Reached`.

    The first round leaves the inducing inputs where they are: it is cheap, and their optimum
    depends on the length scales it finds.
    """
    ep_tol = float(np.clip(_EP_TOL_RATIO * tol, *_EP_TOL_RANGE))

    def pose(reached: Reached) -> Objective:
        p, is_first = reached.parameters, reached.value == -np.inf
        solution = solve(problem, p, reached.sites, ep_tol)
        return Objective(
            problem,
            p,
            solution.correction_weights,
            solution.sites,
            learn_inducing=learn_inducing and not is_first,
            tol=ep_tol,
        )

    return maximise_in_rounds(
        pose,
        Reached(start, make_vague(problem)),
        max_iter=max_iter,
        tol=tol,
        round_tol=_ROUND_TOL * tol,
        end_pass=end_pass,
    )


def _spread(values: Array, y: Labels) -> Array:
    """Values of rows at those that the user has given, 0 where these are left out."""
    return values if y.origin is None else np.append(values, 0.0)[y.origin]
