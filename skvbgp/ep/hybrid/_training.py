"""Start and rounds of the latent-variable model."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from skvbgp._optim.ascent import EndPass, report_as
from skvbgp._optim.convergence import has_settled, warn_of_fall
from skvbgp._optim.lbfgs import LbfgsResult, lbfgs_ascent
from skvbgp.base import choose_inducing_inputs, choose_rows, pick
from skvbgp.ep.hybrid._objective import (
    ColumnSites,
    HybridData,
    HybridObjective,
    HybridParameters,
    solve,
)
from skvbgp.ep.hybrid._recognition import Recognition
from skvbgp.kernels import RBF

#: Iterations until the sites are brought up to date.
_ROUND = 20
#: Convergence of EP between the rounds.
_EP_TOL = 1e-4
#: Precision of the noise of scaled columns at the start.
_START_PRECISION = 2.0


class Reached(NamedTuple):
    """Where a search stands, or has ended."""

    parameters: HybridParameters
    sites: ColumnSites
    values: tuple[float, ...]  # objective after each iteration


def choose_start(
    data: HybridData, n_components: int, n_inducing: int, rng: np.random.RandomState
) -> HybridParameters:
    """Latents by PCA of the completed rows, inducing inputs by k-means."""
    recognition = Recognition.principal(data.rows, n_components, rng, data.counts)
    mean = recognition.latents(data.rows).mean
    some = choose_rows(len(mean), rng)
    return HybridParameters(
        RBF(np.ones(n_components)),
        choose_inducing_inputs(mean[some], n_inducing, rng, pick(data.counts, some)),
        recognition,
        np.full(data.n_continuous, np.log(_START_PRECISION)),
        np.zeros(len(data.weight)),
    )


def maximise(
    data: HybridData, start: HybridParameters, *, max_iter: int, tol: float, end_pass: EndPass
) -> Reached:
    """Rounds of L-BFGS at fixed sites, which are refreshed in between.

    What `end_pass` gets makes a `Reached`.
    """
    reached, value = Reached(start, ColumnSites.vague(data.t), ()), -np.inf
    while True:
        p, n_iter = reached.parameters, len(reached.values)
        objective = HybridObjective(data, p, solve(data, p, reached.sites, _EP_TOL).sites)
        result = lbfgs_ascent(
            objective,
            objective.x,
            max_iter=min(_ROUND, max_iter - n_iter),
            tol=0.1 * tol,
            bounds=objective.bounds,
            end_pass=report_as(partial(_reach, objective, reached.values), end_pass),
        )
        reached = _reach(objective, reached.values, result)
        before, value = value, result.value
        settled = has_settled(value, before, _ROUND * tol)
        if result.stopped or len(reached.values) >= max_iter or settled:
            warn_of_fall(value, before, _ROUND * tol)
            return reached


def _reach(objective: HybridObjective, before: tuple[float, ...], result: LbfgsResult) -> Reached:
    return Reached(objective.parameters(result.x), objective.sites, before + result.values)
