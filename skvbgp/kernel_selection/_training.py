"""Fit of one kernel: the tasks that run in parallel, one call for each kernel.

Hyperparameters are searched for in two steps. `screen` draws many starting values, evaluates
the bound of a few inducing inputs at them and climbs from the best; a `train_` task goes on from
there with all rows and inducing inputs - on mini-batches after `train_collapsed` on a sample.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.kernel_selection._affine import AffineGaussian, standard_draws
from skvbgp.kernel_selection._bound import (
    Statistics,
    collapsed_bound,
    log_evidence,
    total_statistics,
)
from skvbgp.kernel_selection._frame import Frame
from skvbgp.kernel_selection._start import DataScales, draw_start, hyperprior, limits
from skvbgp.kernel_selection._stochastic import StochasticSettings, solve_stochastic
from skvbgp.kernels import Kernel

#: Starting values for each restart, and L-BFGS iterations from the best of them.
_DRAWS_PER_RESTART = 16
_SCREENING_ITERATIONS = 20
#: Draws of theta from q(theta), and its first standard deviation.
N_THETA_DRAWS = 16
_FIRST_STD = 0.05


class LocalFit(NamedTuple):
    """What is known about one kernel."""

    x: Array  # mean of q(theta, log s2), or the point estimate, (p + 1,)
    lower_bound: float  # -inf: failed
    n_iter: int = 1
    factor: Array | None = None  # C of q(theta), (p + 1, p + 1)
    kl: float = 0.0  # KL(q(theta) || p(theta))
    statistics: Statistics | None = None
    failure: str = ""

    @classmethod
    def failed(cls, reason: str) -> LocalFit:
        return cls(np.empty(0), -np.inf, failure=reason)

    def points(self, seed: int) -> Array:
        """Draws of (theta, log s2), or the one point, (S, p + 1)."""
        if self.factor is None:
            return self.x[None, :]
        draws = standard_draws(N_THETA_DRAWS, len(self.x), np.random.RandomState(seed))
        return np.asarray(self.x + draws @ self.factor.T)


def _failing_alone(task: Callable[..., LocalFit]) -> Callable[..., LocalFit]:
    """A task whose numerical failure becomes its result, so that others go on."""

    @wraps(task)
    def guarded(*args: Any) -> LocalFit:
        try:
            with np.errstate(all="ignore"):  # what is not finite is found below
                fit = task(*args)
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            return LocalFit.failed(str(error))
        if not np.isfinite(fit.lower_bound):
            return LocalFit.failed("Its bound is not finite.")
        return fit

    return guarded


class Rows(NamedTuple):
    """Rows and inducing inputs; None stands for Z = X."""

    X: Array  # (n, d), centred
    y: Array  # (n,), scaled
    Z: Array | None  # (m, d)

    def objective(self, kernel: Kernel) -> Callable[[Array], tuple[float, Array]]:
        """The bound of a point estimate x, with its gradient."""
        X, y, Z = self
        if Z is None:
            return lambda x: log_evidence(kernel, x, X, y)

        def objective(x: Array) -> tuple[float, Array]:
            value, gradient = collapsed_bound(kernel, x[None, :], Z, X, y)
            return value, gradient[0]

        return objective


@_failing_alone
def screen(
    X: Array,
    y: Array,
    Z_coarse: Array,
    Z_climb: Array | None,
    Z: Array | None,
    scales: DataScales,
    n_restarts: int,
    tol: float,
    seed: int,
    kernel: Kernel,
) -> LocalFit:
    """Best of some climbs from the best of many starting values; its bound is that of X, y, Z."""
    rng = np.random.RandomState(seed)
    coarse = Rows(X, y, Z_coarse).objective(kernel)
    starts = [draw_start(kernel, scales, rng) for _ in range(_DRAWS_PER_RESTART * n_restarts)]
    values = [_value(coarse, x) for x in starts]
    climb = Rows(X, y, Z_climb).objective(kernel)
    bounds, fits = limits(kernel, scales), []
    for i in np.argsort(values)[::-1][:n_restarts]:
        if not np.isfinite(_value(climb, starts[i])):
            continue
        fits.append(
            lbfgs_ascent(climb, starts[i], max_iter=_SCREENING_ITERATIONS, tol=tol, bounds=bounds)
        )
    if not fits:
        raise NotPositiveDefiniteError("No starting value gives a positive definite covariance.")
    x = max(fits, key=lambda fit: fit.value).x
    return LocalFit(x, Rows(X, y, Z).objective(kernel)(x)[0])


def _value(objective: Callable[[Array], tuple[float, Array]], x: Array) -> float:
    try:
        value = objective(x)[0]
    except NotPositiveDefiniteError:
        return -np.inf
    return value if np.isfinite(value) else -np.inf


@_failing_alone
def train_collapsed(
    X: Array,
    y: Array,
    Z: Array | None,
    scales: DataScales,
    max_iter: int,
    tol: float,
    kernel: Kernel,
    x: Array,
) -> LocalFit:
    """Climb from x on all rows, by the bound at the optimal q(u)."""
    objective = Rows(X, y, Z).objective(kernel)
    result = lbfgs_ascent(objective, x, max_iter=max_iter, tol=tol, bounds=limits(kernel, scales))
    return LocalFit(result.x, result.value, result.n_iter)


@_failing_alone
def train_gaussian(
    X: Array,
    y: Array,
    Z: Array,
    scales: DataScales,
    max_iter: int,
    tol: float,
    seed: int,
    kernel: Kernel,
    x: Array,
) -> LocalFit:
    """q(theta) = N(m, C C') from a first mean x, on all rows, over fixed draws."""
    family = AffineGaussian(*hyperprior(kernel, scales))
    draws = standard_draws(N_THETA_DRAWS, len(x), np.random.RandomState(seed))

    def objective(v: Array) -> tuple[float, Array]:
        value, dpoints = collapsed_bound(kernel, family.points(v, draws), Z, X, y)
        kl, dkl = family.kl(v)
        return value - kl, family.pull_back(v, dpoints, draws) - dkl

    start = family.pack(x, np.full(len(x), _FIRST_STD))
    result = lbfgs_ascent(objective, start, max_iter=max_iter, tol=tol)
    m, C = family.unpack(result.x)
    return LocalFit(m, result.value, result.n_iter, C, family.kl(result.x)[0])


@_failing_alone
def train_stochastic(
    X: Array,
    y: Array,
    frame: Frame,
    Z: Array,
    scales: DataScales,
    settings: StochasticSettings,
    is_gaussian: bool,
    seed: int,
    kernel: Kernel,
    x: Array,
) -> LocalFit:
    """Mini-batches: natural gradients on q(u), Adam on the hyperparameters or q(theta)."""
    rng = np.random.RandomState(seed)
    if not is_gaussian:
        bounds = limits(kernel, scales)
        x = solve_stochastic(kernel, x, X, y, frame, Z, settings, rng, bounds=bounds)
        return LocalFit(x, 0.0, n_iter=settings.n_passes)
    family = AffineGaussian(*hyperprior(kernel, scales))
    start = family.pack(x, np.full(len(x), _FIRST_STD))
    v = solve_stochastic(kernel, start, X, y, frame, Z, settings, rng, family=family)
    m, C = family.unpack(v)
    return LocalFit(m, 0.0, settings.n_passes, C, family.kl(v)[0])


@_failing_alone
def evaluate(
    X: Array, y: Array, frame: Frame, Z: Array, seed: int, kernel: Kernel, fit: LocalFit
) -> LocalFit:
    """The bound on all rows, chunk by chunk, at the q(u) that is optimal there.

    With a Gaussian q(theta), q(u) is optimal for some draws of theta and the bound is
    estimated from others, which makes the estimate unbiased.
    """
    statistics = total_statistics(X, y, frame, Z, kernel, fit.points(seed))
    q = statistics.optimal_q()
    judged = statistics
    if fit.factor is not None:
        judged = total_statistics(X, y, frame, Z, kernel, fit.points(seed + 1))
    return fit._replace(lower_bound=judged.bound(q) - fit.kl, statistics=statistics)
