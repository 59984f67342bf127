"""The latent-variable model: what it learns, and how rows are added."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from skvbgp._core.linalg import Array
from skvbgp._optim.ascent import EndPass, report_as
from skvbgp.base import (
    Labels,
    Learner,
    choose_inducing_inputs,
    choose_rows,
    is_outgrown,
    merge_equal,
    pick,
)
from skvbgp.ep._likelihoods import Likelihood
from skvbgp.ep._rounds import ROUND, Reached, maximise_in_rounds
from skvbgp.ep.hybrid._columns import ColumnModel
from skvbgp.ep.hybrid._free_posterior import FreePosterior
from skvbgp.ep.hybrid._objective import (
    ColumnSites,
    HybridData,
    HybridObjective,
    HybridParameters,
    solve,
)
from skvbgp.ep.hybrid._posterior import HybridPosterior
from skvbgp.ep.hybrid._recognition import Recognition, RowLatents
from skvbgp.ep.hybrid._state import HybridStart, HybridState
from skvbgp.kernels import RBF

#: Convergence of EP between the rounds.
_EP_TOL = 1e-4
#: Precision of the noise of scaled columns at the start.
_START_PRECISION = 2.0
#: Convergence of the sites that a fit ends with.
_FINAL_EP_TOL = 1e-7


@dataclass(frozen=True)
class HybridLearner(Learner):
    """Settings of the estimator, see `HybridGPLVM`."""

    n_components: int
    n_inducing: int
    binary: NDArray[np.bool_]
    free: bool  # latents of the training rows
    likelihood: Likelihood
    prior_weight: float
    max_iter: int
    tol: float

    def max_passes(self, y: Labels) -> int:
        return self.max_iter

    def start(self, X: Array, y: Labels, rng: np.random.RandomState, before: None) -> HybridStart:
        """Latents by PCA of the completed rows, inducing inputs by k-means."""
        columns = ColumnModel.of(X, self.binary, y.weight)
        data = self._prepare(columns, X, y)
        recognition = Recognition.principal(data.rows, self.n_components, rng, data.counts)
        latents = recognition.latents(data.rows)
        some = choose_rows(len(X), rng)
        Z = choose_inducing_inputs(
            latents.mean[some], self.n_inducing, rng, pick(data.counts, some)
        )
        parameters = HybridParameters(
            RBF(np.ones(self.n_components)),
            Z,
            RowLatents(latents) if self.free else recognition,
            np.full(data.n_continuous, np.log(_START_PRECISION)),
            np.zeros(len(data.weight)),
        )
        return HybridStart(columns, parameters)

    def _prepare(self, columns: ColumnModel, X: Array, y: Labels) -> HybridData:
        Y, seen = columns.continuous(X)
        t, prior_weight = columns.signs(X), 1.0
        weight = np.ones(X.shape[1])
        if len(y.classes):
            labels = np.column_stack(y.problems())
            t, prior_weight = np.hstack([t, labels]), self.prior_weight
            weight = np.append(prior_weight * weight, np.ones(labels.shape[1]))
        rows = columns.complete(X)
        return HybridData(rows, Y, seen, t, weight, prior_weight, self.likelihood, y.weight)

    def train(self, state: HybridStart, X: Array, y: Labels, end_pass: EndPass) -> HybridState:
        columns = state.columns
        data = self._prepare(columns, X, y)

        def conclude(reached: Reached) -> HybridState:
            return _conclude(columns, data, reached, X, y)

        reached = maximise(
            data,
            state.parameters,
            max_iter=self.max_iter,
            tol=self.tol,
            end_pass=report_as(conclude, end_pass),
        )
        return conclude(reached)

    def rows_to_restart(
        self, state: HybridState, X: Array, y: Labels
    ) -> tuple[Array, Labels] | None:
        """All rows, if another map to the latents is to be learned with the new ones."""
        known, new = (rows.codes[rows.codes >= 0] for rows in (state.y, y))
        if not is_outgrown(state.X, known, X, new, learns=True):
            return None
        X, y = np.concatenate([state.X, X]), state.y.joined(y)
        counted = merge_equal(X, y.codes, y.weight)
        return X[counted.rows], y.counted(counted)

    def update(self, state: HybridState, X: Array, y: Labels, end_pass: EndPass) -> HybridState:
        columns = state.posterior.columns
        columns.check(X)
        p = state.posterior.extend(self._prepare(columns, X, y))
        X, y = np.concatenate([state.X, X]), state.y.joined(y)
        data = self._prepare(columns, X, y)
        reached = Reached(p, ColumnSites.vague(data.t), values=state.values)
        updated = _conclude(columns, data, reached, X, y)
        end_pass(lambda: updated)
        return updated

    def attributes(self, state: HybridState) -> dict[str, Any]:
        columns, p = state.posterior.columns, state.posterior.parameters
        noise = np.full(len(columns.binary), np.nan)
        scale = columns.coordinates.scale[~columns.binary]
        noise[~columns.binary] = np.exp(-p.log_precision) * scale**2
        classes = {"classes_": state.y.classes} if len(state.y.classes) else {}
        C = p.recognition.projection if isinstance(p.recognition, Recognition) else None
        return classes | {
            "lower_bound_": state.lower_bound,
            "objective_values_": np.array(state.values),
            "length_scale_": np.array(p.kernel.length_scale),
            "relevance_": state.relevance,
            "projection_": C,
            "inducing_inputs_": p.Z,
            "noise_variance_": noise,
            "n_iter_": len(state.values),
            "n_samples_seen_": len(state.y) + state.y.n_copies,
        }


def maximise(
    data: HybridData, start: HybridParameters, *, max_iter: int, tol: float, end_pass: EndPass
) -> Reached:
    """Maximise the joint bound, at fixed sites within a round.

    What `end_pass` gets makes a `Reached`.
    """

    def pose(reached: Reached) -> HybridObjective:
        p = reached.parameters
        return HybridObjective(data, p, solve(data, p, reached.sites, _EP_TOL).sites)

    return maximise_in_rounds(
        pose,
        Reached(start, ColumnSites.vague(data.t)),
        max_iter=max_iter,
        tol=0.1 * tol,
        round_tol=ROUND * tol,
        end_pass=end_pass,
    )


def _conclude(
    columns: ColumnModel, data: HybridData, reached: Reached, X: Array, y: Labels
) -> HybridState:
    """The state at some parameters, with converged sites."""
    p = reached.parameters
    solution = solve(data, p, reached.sites, _FINAL_EP_TOL)
    if not solution.sites.converged:
        warnings.warn(
            "The sites of EP have not converged: probabilities may be inaccurate.",
            ConvergenceWarning,
            stacklevel=2,
        )
    mean = solution.features.latents.mean
    deviation = mean - np.average(mean, axis=0, weights=data.counts)
    spread = np.average(deviation**2, axis=0, weights=data.counts)
    relevance = spread / np.square(p.kernel.length_scale)
    bound, inducing = solution.bound, solution.features.inducing
    kind = FreePosterior if isinstance(p.recognition, RowLatents) else HybridPosterior
    posterior = kind(columns, p, data.likelihood, inducing, bound.mean, bound.covariance)
    return HybridState(posterior, X.copy(), y, reached.values, solution.lower_bound, relevance)
