r"""The log evidence as a function of hyperparameters, inducing inputs and missing entries.

EP's evidence is stationary in the sites, so its gradient is that for fixed sites. The trace
correction -1/2 sum_i tau_i residual_i is not: the objective has constant weights in the place
of tau, which the rounds of training bring up to date, see :ref:`ep-training`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.alike import log_alike
from skvbgp._core.gaussian import InducingOutputs
from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, average_shared, divide_equally
from skvbgp._core.parallel import thread_map
from skvbgp.ep._features import SparsePrior
from skvbgp.ep._inputs import InputModel, Inputs
from skvbgp.ep._likelihoods import Likelihood
from skvbgp.ep._refinement import Refinement
from skvbgp.ep._schedules import Schedule
from skvbgp.ep._sites import Fixpoint, Sites, features_gradient
from skvbgp.kernels import RBF, Constant, Kernel
from skvbgp.kernels._by_input import own_hyperparameters

#: Prior of the default kernel: median of the variance of f, and std. of its logarithm.
_VARIANCE = 2.0
_LOG_VARIANCE_STD = 2.0
#: Range of the default kernel's hyperparameters, as a factor of their start.
_RANGE = 1e3


def make_default_kernel(length_scale: Array) -> Kernel:
    """Squared exponential that starts with some length scales (d,), those of `InputModel.frame`."""
    limits = np.array([1.0 / _RANGE, _RANGE])
    return Constant(_VARIANCE, value_bounds=_VARIANCE * limits) * RBF(
        length_scale, length_scale_bounds=length_scale[:, None] * limits
    )


@dataclass(frozen=True)
class ScalePrior:
    """Log-normal prior of the default kernel's theta = (log variance, log length scales).

    That of the length scales is `log_alike`.
    """

    start: Array  # (1 + d,) prior median
    owners: Owners = ()  # by length scale: its input. What columns of an input share counts once.

    def log_density(self, theta: Array) -> tuple[float, Array]:
        """Logarithm of the density, up to its constant, and its gradient."""
        deviation = theta - self.start
        scaled = float(deviation[0]) / _LOG_VARIANCE_STD
        value, slope = log_alike(deviation[1:], divide_equally(len(theta) - 1, self.owners))
        return value - 0.5 * scaled**2, np.append(-scaled / _LOG_VARIANCE_STD, slope)


@dataclass(frozen=True)
class Parameters:
    """What the log evidence is maximised over."""

    kernel: Kernel
    Z: Array  # (m, d) inducing inputs
    columns: InputModel
    refinement: Refinement

    def complete(self, inputs: Inputs) -> Inputs:
        """New rows over the columns seen, without missing entries."""
        columns = self.columns
        return self.refinement.refine_new(columns.condition(inputs), columns.find_missing(inputs))


@dataclass(frozen=True)
class Problem:
    """Data and settings of one training, of one problem or of each class versus the rest."""

    T: Array  # (k, n) signs of the problems, -1 or 1
    conditional: Inputs  # (n, d) missing entries as the joint Gaussian has them
    missing: NDArray[np.bool_]  # (n, d)
    approximation: str
    schedule: Schedule
    hyperprior: ScalePrior | None
    weight: Array | None = None  # (n,) how often each row counts; None is once

    @property
    def gaps(self) -> NDArray[Any]:
        """How often every missing entry counts, (n, d)."""
        return self.missing if self.weight is None else self.missing * self.weight[:, None]

    def prior(self, p: Parameters) -> SparsePrior:
        """The sparse prior of f at the rows."""
        inputs = p.refinement.refine(self.conditional, self.missing)
        return SparsePrior(InducingOutputs(p.kernel, p.Z), inputs, self.approximation)


@dataclass(frozen=True)
class Solution:
    """Parameters with converged sites of every problem."""

    parameters: Parameters
    prior: SparsePrior
    fixpoints: tuple[Fixpoint, ...]

    @property
    def sites(self) -> tuple[Sites, ...]:
        """Of g."""
        return tuple(fixpoint.posterior.sites for fixpoint in self.fixpoints)

    @property
    def latent_sites(self) -> tuple[Sites, ...]:
        """Sites of f itself, which has the noise on top of g."""
        return tuple(sites.without_noise(self.prior.noise) for sites in self.sites)

    @property
    def log_evidence(self) -> Array:
        """Of each problem (k,), with the trace correction: the corrected (S.21)."""
        corrections = [-0.5 * float(f.tau @ self.prior.residual) for f in self._latent_totals]
        return np.array([f.log_evidence for f in self.fixpoints]) + corrections

    def loo_scores(self, likelihood: Likelihood) -> Array:
        """Scores (n, k) of the rows, each by all others: by the cavity of its sites."""
        own = self.prior.noise + self.prior.residual
        cavities = [fixpoint.posterior.cavity for fixpoint in self.fixpoints]
        return np.column_stack([likelihood.score(mean, v + own) for mean, v in cavities])

    @property
    def correction_weights(self) -> Array:
        """Weights (n,) of the residuals in the trace correction of all problems."""
        return np.sum([sites.tau for sites in self._latent_totals], axis=0)

    @property
    def _latent_totals(self) -> list[Sites]:
        """What equal rows say of f."""
        pairs = zip(self.latent_sites, self.fixpoints, strict=True)
        return [sites.times(fixpoint.posterior.weight) for sites, fixpoint in pairs]


def make_vague(problem: Problem) -> tuple[Sites, ...]:
    """Sites that carry no information, for every problem."""
    return tuple(Sites.vague(len(t)) for t in problem.T)


def solve(problem: Problem, p: Parameters, sites: tuple[Sites, ...], tol: float) -> Solution:
    """Run EP from some sites, for each problem on the same prior."""
    prior = problem.prior(p)
    fixpoints = thread_map(
        lambda t, own: problem.schedule.run(t, prior.A, prior.noise, own, tol, problem.weight),
        zip(problem.T, sites, strict=True),
    )
    return Solution(p, prior, tuple(fixpoints))


class Objective:
    """x -> (value, gradient) for L-BFGS.

    x holds the kernel's theta and, if they are to be learned, the inducing inputs in units of the
    distance of typical rows and the refinement of the missing entries.

    The weights (n,) are those of the residuals in the trace correction. EP starts from the sites of
    each problem, and in each evaluation from those of the one before; ``tol`` is that of EP.
    """

    def __init__(
        self,
        problem: Problem,
        start: Parameters,
        weights: Array,
        sites: tuple[Sites, ...],
        *,
        learn_inducing: bool,
        tol: float,
    ) -> None:
        self._problem, self._start, self._weights = problem, start, weights
        self._learned = start.Z if learn_inducing else start.Z[:0]  # all of Z, or nothing
        self._tol, self.sites = tol, sites

    @property
    def x(self) -> Array:
        """The start as a flat vector."""
        p = self._start
        U = p.columns.frame.scaled(self._learned)
        return np.concatenate([p.kernel.theta, U.ravel(), p.refinement.x])

    @property
    def bounds(self) -> Array:
        """(len(x), 2)."""
        p = self._start
        of_Z = np.full((self._learned.size, 2), [-np.inf, np.inf])
        return np.concatenate([p.kernel.bounds, of_Z, p.refinement.bounds])

    @property
    def memory(self) -> Objective:
        """That of a search, see `lbfgs_ascent`: the sites."""
        return self

    def get_state(self) -> tuple[Sites, ...]:
        """What an evaluation leaves for the next one, see `Resumable`."""
        return self.sites

    def set_state(self, state: tuple[Sites, ...]) -> None:
        self.sites = state

    def parameters(self, x: Array) -> Parameters:
        p = self._start
        theta, U, rest = np.split(x, np.cumsum([p.kernel.n_free, self._learned.size]))
        Z = p.columns.frame.original(U.reshape(p.Z.shape)) if len(U) else p.Z
        return Parameters(p.kernel.with_theta(theta), Z, p.columns, p.refinement.with_x(rest))

    def __call__(self, x: Array) -> tuple[float, Array]:
        problem, p = self._problem, self.parameters(x)
        solution = solve(problem, p, self.sites, self._tol)
        prior, fixpoints = solution.prior, solution.fixpoints
        value = sum(fixpoint.log_evidence for fixpoint in fixpoints)
        if np.isfinite(value):  # where EP fails, the next evaluation starts from the last sites
            self.sites = solution.sites
        value -= 0.5 * float(self._weights @ prior.residual)
        d_noise = np.sum([fixpoint.d_noise for fixpoint in fixpoints], axis=0)
        g = prior.vjp(
            lambda rows: features_gradient(fixpoints, rows), d_noise, -0.5 * self._weights
        )
        theta = g.theta
        if problem.hyperprior is not None:
            log_density, d_theta = problem.hyperprior.log_density(p.kernel.theta)
            value, theta = value + log_density, theta + d_theta
        owners = p.columns.owners
        if owners:
            theta = average_shared(theta, own_hyperparameters(p.kernel, owners))
        value -= p.refinement.kl(problem.gaps)
        d_U = (g.Z * p.columns.frame.scale)[: len(self._learned)]
        of_gaps = p.refinement.gradient(problem.conditional, problem.gaps, g.mean, g.variance)
        return value, np.concatenate([theta, d_U.ravel(), of_gaps])
