"""Fits of the kernels: the tasks, one call for each kernel, and what runs them in parallel.

Hyperparameters are searched for in two steps. `screen` draws many starting values, evaluates
the bound of a few inducing inputs at them and climbs from the best; a `train_` task goes on from
there with all rows and inducing inputs - on mini-batches after `train_collapsed` on a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from itertools import chain, count, islice
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.draws import draw_antithetic
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.journal import Log, begin_log
from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp._core.order import Index, shuffle_parts
from skvbgp._core.parallel import spread_each
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp._optim.ascent import Clock, EndPass, ascend
from skvbgp._optim.convergence import give_up_below
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp._optim.natural_gradient import natural_gradient_step
from skvbgp.base import Targets
from skvbgp.kernel_selection._affine_gaussian import AffineGaussian
from skvbgp.kernel_selection._bound import (
    Comparison,
    Evaluation,
    Prior,
    average_statistics,
    collapsed_bound,
    log_evidence,
    total_statistics,
)
from skvbgp.kernel_selection._categories import ColumnsKernel
from skvbgp.kernel_selection._scales import DataScales, Frame
from skvbgp.kernel_selection._start import (
    DEVIATIONS_IN_BOUNDS,
    Sample,
    draw_starts,
    find_limits,
    hyperprior,
)
from skvbgp.kernel_selection._state import N_THETA_DRAWS, LocalFit, State
from skvbgp.kernels._pairs import Pairs

#: Starting values for each restart, and L-BFGS iterations from the best of them.
_DRAWS_PER_RESTART = 16
_SCREENING_ITERATIONS = 20
#: First noise variance of a series, in units of what neighbours differ by.
_NOISE_SHARE = 0.3
#: First standard deviation of q(theta).
_FIRST_STD = 0.05
#: Step of the natural gradient on q(u): at first, and at the end of training.
_NATURAL_RATE = 0.1
_LAST_NATURAL_RATE = 0.01

#: ``function(*shared, kernel, fit)``: another fit of the kernel.
Task = Callable[..., LocalFit]


class _StopError(Exception):
    """A callback asks to stop."""


class KernelFits:
    """A state whose kernels are fitted to rows, by tasks that replace its fits one by one.

    At the end of each task, ``end_pass`` gets a function that returns the state of that moment.
    """

    def __init__(
        self, state: State, X: Array, y: Targets, n_jobs: int | None, end_pass: EndPass
    ) -> None:
        self.state, self.X, self.y = state, X, y
        self._n_jobs, self._end_pass, self._stopped = n_jobs, end_pass, False

    def run(self, function: Task, shared: tuple[Any, ...], chosen: Iterable[int]) -> None:
        """Fit the chosen kernels, until a callback asks to stop."""
        if not self._stopped:
            with suppress(_StopError):
                self._replace(function, shared, chosen)

    def improve(self, function: Task, shared: tuple[Any, ...], chosen: Iterable[int]) -> None:
        """The same without those that have failed or been left behind."""
        self.run(function, shared, [i for i in chosen if self.state.fits[i].is_valid])

    def leave_all_but(self, chosen: Iterable[int]) -> None:
        """Leave the other kernels behind, with a bound that says nothing."""
        kept = set(chosen)
        fits = (
            fit if i in kept else fit._replace(lower_bound=-np.inf)
            for i, fit in enumerate(self.state.fits)
        )
        self.state = replace(self.state, fits=tuple(fits))

    def evaluate(self, chosen: Iterable[int] | None = None) -> None:
        """Find the bounds on all rows of the chosen kernels, or all, that are without."""
        Z = self.state.inducing_inputs(self.X)
        every = range(len(self.state.fits))
        for frame, members in self.state.by_frame(every if chosen is None else chosen):
            shared = (self.X, self.y, frame, Z, self.state.seed)
            while wanting := [i for i in members if self.state.fits[i].wants_statistics]:
                with suppress(_StopError):  # a callback that stops leaves none without a bound
                    self._replace(evaluate, shared, wanting)

    def _replace(self, function: Task, shared: tuple[Any, ...], chosen: Iterable[int]) -> None:
        # kernels with many hyperparameters, which take longest, go first: no worker is left with
        # one of them at the end
        order = sorted(chosen, key=lambda i: -len(self.state.candidates[i].kernel.theta))
        indices = iter(order)
        log = begin_log("kernels") or Log("kernels")

        def receive(fit: LocalFit) -> None:
            i, fits = next(indices), self.state.fits
            self.state = state = replace(self.state, fits=(*fits[:i], fit, *fits[i + 1 :]))
            if not self._stopped and self._end_pass(lambda: state):
                self._stopped = True
                raise _StopError

        def note(fit: LocalFit) -> None:
            log.entries.append(fit)
            receive(fit)

        # without statistics, which no task reads: they would go to every worker
        tasks = [
            (self.state.candidates[i].kernel, self.state.fits[i]._replace(statistics=None))
            for i in order[len(log.entries) :]
        ]
        for fit in list(log.entries):
            receive(fit)
        spread_each(function, tasks, note, n_jobs=self._n_jobs, shared=shared)


def fail_alone(task: Task) -> Task:
    """A task whose numerical failure becomes its result, so that others go on."""

    @wraps(task)
    def guarded(*args: Any) -> LocalFit:
        try:
            with np.errstate(all="ignore"):  # what is not finite is found below
                fit = task(*args)
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            return LocalFit.fail(str(error))
        if not np.isfinite(fit.lower_bound):
            return LocalFit.fail("Its bound is not finite.")
        return fit

    return guarded


def bound_at_point(
    X: Array, y: Targets, Z: Array | None, kernel: ColumnsKernel
) -> Callable[[Array], tuple[float, Array]]:
    """The bound and its gradient as a function of a point estimate x; None stands for Z = X."""
    if Z is None:
        pairs = Pairs(X)
        return lambda x: log_evidence(kernel, x, pairs, y)

    def objective(x: Array) -> tuple[float, Array]:
        value, gradient = collapsed_bound(kernel, x[None, :], Z, X, y)
        return value, gradient[0]

    return objective


@fail_alone
def screen(
    sample: Sample,
    scales: DataScales,
    n_restarts: int,
    tol: float,
    seed: int,
    kernel: ColumnsKernel,
    _: LocalFit,
) -> LocalFit:
    """Best of some climbs from the best of many starting values, by the bounds of a sample."""
    rng, (X, y) = np.random.RandomState(seed), sample[:2]
    starts = draw_starts(kernel, scales, _DRAWS_PER_RESTART * n_restarts, rng)
    values = Comparison(X, y, sample.Z_coarse).bounds(kernel, starts)
    climb = bound_at_point(X, y, sample.Z_climb, kernel)
    bounds, fits = find_limits(kernel, scales), []
    for i in np.argsort(values)[::-1][:n_restarts]:
        with suppress(NotPositiveDefiniteError):
            fit = lbfgs_ascent(
                climb, starts[i], max_iter=_SCREENING_ITERATIONS, tol=tol, bounds=bounds
            )
            if np.isfinite(fit.value):
                fits.append(fit)
    if not fits:
        raise NotPositiveDefiniteError("No starting value gives a positive definite covariance.")
    x = max(fits, key=lambda fit: fit.value).x
    return LocalFit(x, Comparison(X, y, sample.Z_bound).bounds(kernel, [x])[0])


class Climb(NamedTuple):
    """All rows, in the frame of some kernels, and how far these climb by them."""

    X: Array  # (n, d)
    y: Targets
    Z: Array | None  # (m, d) inducing inputs; None is X
    scales: DataScales
    max_iter: int
    tol: float


@fail_alone
def train_series(climb: Climb, kernel: ColumnsKernel, fit: LocalFit) -> LocalFit:
    """Climb by the evidence and a prior, from the kernel's own values or fit.x; L_i is without it.

    The prior of the logarithms is Gaussian about the middle of their bounds.
    """
    bounds = find_limits(kernel, climb.scales)
    middle, std = bounds.mean(axis=1), np.diff(bounds)[:, 0] / DEVIATIONS_IN_BOUNDS
    evidence = bound_at_point(climb.X, climb.y, None, kernel)

    def objective(z: Array) -> tuple[float, Array]:
        value, gradient = evidence(middle + std * z)
        return value - 0.5 * float(z @ z), std * gradient - z

    x = fit.x
    if not len(x):
        noise = np.log(_NOISE_SHARE * max(climb.scales.noise, np.finfo(float).tiny))
        x = np.clip(np.append(kernel.theta, noise), *bounds.T)
    widest = np.array([-0.5, 0.5]) * DEVIATIONS_IN_BOUNDS
    result = lbfgs_ascent(
        objective,
        (x - middle) / std,
        max_iter=climb.max_iter,
        tol=climb.tol,
        bounds=np.tile(widest, (len(x), 1)),
    )
    z = result.x
    return LocalFit(middle + std * z, result.value + 0.5 * float(z @ z), result.n_iter)


@fail_alone
def judge(X: Array, y: Targets, Z: Array | None, kernel: ColumnsKernel, fit: LocalFit) -> LocalFit:
    """The bound of X, y and Z at fit.x."""
    return fit._replace(lower_bound=Comparison(X, y, Z).bounds(kernel, [fit.x])[0])


@fail_alone
def train_collapsed(climb: Climb, target: float, kernel: ColumnsKernel, fit: LocalFit) -> LocalFit:
    """Climb from fit.x on all rows, by the bound at the optimal q(u).

    A climb that is not going to reach the target ends.
    """
    result = lbfgs_ascent(
        bound_at_point(climb.X, climb.y, climb.Z, kernel),
        fit.x,
        max_iter=climb.max_iter,
        tol=climb.tol,
        bounds=find_limits(kernel, climb.scales),
        end_pass=give_up_below(target, climb.max_iter),
    )
    return LocalFit(result.x, result.value, result.n_iter)


@fail_alone
def train_gaussian(climb: Climb, seed: int, kernel: ColumnsKernel, fit: LocalFit) -> LocalFit:
    """q(theta) = N(m, C C') from a first mean fit.x, on all rows, over fixed draws."""
    X, y, Z = climb[:3]
    assert Z is not None  # the bound of several draws is by inducing inputs
    family = AffineGaussian(*hyperprior(kernel, climb.scales))
    draws = draw_antithetic(N_THETA_DRAWS, len(fit.x), np.random.RandomState(seed))

    def objective(v: Array) -> tuple[float, Array]:
        points = family.points(v, draws)
        value, dpoints = collapsed_bound(kernel, points, Z, X, y)
        kl, dkl = family.kl(v)
        return value - kl, family.pull_back(v, dpoints, draws) - dkl

    start = family.pack(fit.x, np.full(len(fit.x), _FIRST_STD))
    result = lbfgs_ascent(objective, start, max_iter=climb.max_iter, tol=climb.tol)
    m, C = family.unpack(result.x)
    return LocalFit(m, result.value, result.n_iter, C, family.kl(result.x)[0])


class StochasticSettings(NamedTuple):
    """How mini-batches are used."""

    batch_size: int
    n_before: int  # steps that have been made before these
    n_steps: int
    learning_rate: float


class _Iterate(NamedTuple):
    """Where stochastic ascent stands."""

    x: Array  # a point estimate, or the flat vector of q(theta)
    q: WhitenedGaussian
    adam: AdamState


@fail_alone
def train_stochastic(
    X: Array,
    y: Targets,
    frame: Frame,
    Z: Array,
    scales: DataScales,
    settings: StochasticSettings,
    is_gaussian: bool,
    seed: int,
    kernel: ColumnsKernel,
    fit: LocalFit,
) -> LocalFit:
    """Mini-batches: natural gradients on q(u), Adam on the hyperparameters or q(theta).

    Sec. 4.1 of [Teng2020]_; the step sizes fall along a cosine, Adam's to zero.
    """
    rng, n = np.random.RandomState(seed), len(X)
    n_batches, n_done = -(-n // settings.batch_size), settings.n_before + settings.n_steps
    family = AffineGaussian(*hyperprior(kernel, scales)) if is_gaussian else None
    x = fit.x if family is None else family.pack(fit.x, np.full(len(fit.x), _FIRST_STD))
    lowest, highest = find_limits(kernel, scales).T

    def draw_batches() -> Iterator[Index]:
        passes = (shuffle_parts(n, n_batches, rng) for _ in count())
        for batch in islice(chain.from_iterable(passes), settings.n_before, n_done):
            yield np.sort(batch)  # a memory map is read in order

    def step(at: _Iterate, batch: Index, clock: Clock) -> tuple[_Iterate, float]:
        draws = np.empty((0, 0)) if family is None else rng.standard_normal((1, len(fit.x)))
        points = at.x[None, :] if family is None else family.points(at.x, draws)
        X_batch, given = frame.scale(X[batch], y[batch])
        rows = X_batch, given, n / len(batch)
        evaluations = [Evaluation(Prior(kernel, p, Z), *rows) for p in points]
        statistics = average_statistics([e.statistics for e in evaluations])
        rate = max(_NATURAL_RATE * clock.annealing, _LAST_NATURAL_RATE, 1.0 / (clock.step + 1.0))
        q = natural_gradient_step(at.q, statistics.information, statistics.shift, rate)
        gradient = np.stack([e.gradient(q) for e in evaluations]) / len(points)
        if family is None:
            gradient = gradient[0]
        else:
            gradient = family.pull_back(at.x, gradient, draws) - family.kl(at.x)[1]
        x, adam = adam_ascent(at.x, gradient, at.adam, settings.learning_rate * clock.annealing)
        if family is None:
            x = np.clip(x, lowest, highest)
        return _Iterate(x, q, adam), statistics.bound(q)

    start = _Iterate(x, WhitenedGaussian.standard(len(Z)), AdamState.zeros(len(x)))
    x = ascend(step, start, draw_batches, n_passes=1, n_batches=settings.n_steps, rng=rng).state.x
    n_passes = -(-n_done // n_batches)
    if family is None:
        return LocalFit(x, 0.0, n_passes)
    m, C = family.unpack(x)
    return LocalFit(m, 0.0, n_passes, C, family.kl(x)[0])


@fail_alone
def evaluate(
    X: Array, y: Targets, frame: Frame, Z: Array, seed: int, kernel: ColumnsKernel, fit: LocalFit
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
