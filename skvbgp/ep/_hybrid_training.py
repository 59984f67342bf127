"""Start and rounds of the latent-variable model, and what is left for prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from skvbgp._core.linalg import Array
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.base import choose_inducing_inputs, subsample
from skvbgp.ep._hybrid_columns import ColumnModel
from skvbgp.ep._hybrid_objective import (
    ColumnSites,
    HybridData,
    HybridObjective,
    HybridParameters,
    HybridSolution,
)
from skvbgp.ep._hybrid_recognition import Recognition
from skvbgp.ep._inputs import Inputs
from skvbgp.ep._likelihoods import Logistic
from skvbgp.ep._schedules import Schedule
from skvbgp.kernels import RBF

#: Iterations until the sites are brought up to date.
_ROUND = 20
#: Convergence of EP between the rounds and at the end.
_EP_TOL = 1e-4
_FINAL_EP_TOL = 1e-7
_LIKELIHOOD = Logistic()
_SCHEDULE = Schedule("parallel", 500, 0.0, _LIKELIHOOD)
#: Precision of the noise of scaled columns at the start.
_START_PRECISION = 2.0

#: Sees parameters, sites and objective after an iteration; True asks to stop.
EndIteration = Callable[[HybridParameters, ColumnSites, float], bool]


@dataclass(frozen=True)
class HybridModel:
    """Parameters with q(v_j) = N(mean_j, covariance_j) of every column.

    Attributes
    ----------
    columns : ColumnModel
    parameters : HybridParameters
    mean : ndarray of shape (p, m)
    covariance : ndarray of shape (p, m, m)
    """

    columns: ColumnModel
    parameters: HybridParameters
    mean: Array
    covariance: Array

    def latents(self, X: Array) -> Inputs:
        """q(x_i) of rows (n, d) with missing entries."""
        return self.parameters.recognition.latents(self.columns.completed(X))

    def moments(self, latents: Inputs) -> tuple[Array, Array]:
        """Mean and variance (n, p) of f_j at some latents, averaged over their uncertainty."""
        features = self.parameters.features(latents)
        first = features.A @ self.mean.T
        H = self.covariance + self.mean[:, :, None] * self.mean[:, None, :]
        H = H - np.eye(H.shape[1])
        variance = np.maximum(1.0 + features.quadratic_forms(H) - first**2, 0.0)
        amplitude = np.exp(self.parameters.log_amplitude)
        return amplitude * first, amplitude**2 * variance

    def entries(self, latents: Inputs) -> tuple[Array, Array]:
        """Mean and standard deviation (n, d) of entries of X, in its units."""
        mean, variance = self.moments(latents)
        binary = self.columns.binary
        k = int(np.sum(~binary))
        discrete = slice(k, k + int(binary.sum()))
        probability = ndtr(_LIKELIHOOD.score(mean[:, discrete], variance[:, discrete]))
        noise = np.exp(-self.parameters.log_precision)
        return self.columns.original(mean[:, :k], variance[:, :k] + noise, probability)

    def decisions(self, latents: Inputs) -> Array:
        """Scores of the labels, (n, number of label columns)."""
        mean, variance = self.moments(latents)
        d = len(self.columns.binary)
        return _LIKELIHOOD.score(mean[:, d:], variance[:, d:])


def starting_parameters(
    data: HybridData, n_components: int, n_inducing: int, rng: np.random.RandomState
) -> HybridParameters:
    """Latents by PCA of the completed rows, inducing inputs by k-means."""
    recognition = Recognition.principal(data.rows, n_components, rng)
    mean = recognition.latents(data.rows).mean
    return HybridParameters(
        RBF(np.ones(n_components)),
        choose_inducing_inputs(subsample(mean, rng), n_inducing, rng),
        recognition,
        np.full(data.n_continuous, np.log(_START_PRECISION)),
        np.zeros(len(data.weight)),
    )


def solve(data: HybridData, p: HybridParameters, sites: ColumnSites, tol: float) -> HybridSolution:
    """The bound with sites that are brought up to date."""
    features = p.features(p.recognition.latents(data.rows))
    amplitude = np.exp(p.log_amplitude[data.n_continuous :])
    sites = sites.refreshed(data.t, features, amplitude, _SCHEDULE, tol)
    return HybridSolution(data, p, sites, features)


def solve_finally(data: HybridData, p: HybridParameters, sites: ColumnSites) -> HybridSolution:
    """The bound with converged sites."""
    return solve(data, p, sites, _FINAL_EP_TOL)


def maximise(
    data: HybridData,
    start: HybridParameters,
    *,
    max_iter: int,
    tol: float,
    end_pass: EndIteration,
) -> tuple[HybridParameters, ColumnSites]:
    """Rounds of L-BFGS at fixed sites, which are refreshed in between.

    Returns the parameters and the sites of the last round.
    """
    p, sites = start, ColumnSites.vague(data.t)
    n_iter, value = 0, -np.inf
    while n_iter < max_iter:
        sites, before = solve(data, p, sites, _EP_TOL).sites, value
        size = min(_ROUND, max_iter - n_iter)
        p, value, used, stopped = _one_round(data, p, sites, size, tol, end_pass)
        n_iter += used
        if stopped or value - before < _ROUND * tol * abs(value):
            break
    return p, sites


def _one_round(
    data: HybridData,
    start: HybridParameters,
    sites: ColumnSites,
    max_iter: int,
    tol: float,
    end_pass: EndIteration,
) -> tuple[HybridParameters, float, int, bool]:
    """L-BFGS at fixed sites: parameters, objective, iterations, and whether to stop for good."""
    objective = HybridObjective(data, start, sites)
    n_iter, stopped = 0, False

    def monitor(x: Array, value: float) -> bool:
        nonlocal n_iter, stopped
        n_iter += 1
        stopped = end_pass(objective.parameters(x), sites, value)
        return stopped

    result = lbfgs_ascent(
        objective,
        objective.x,
        max_iter=max_iter,
        tol=0.1 * tol,
        bounds=objective.bounds,
        monitor=monitor,
    )
    return objective.parameters(result.x), result.value, n_iter, stopped
