"""What is known about each kernel, while tasks of all of them run in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.draws import draw_antithetic
from skvbgp._core.journal import Log, begin_log
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import parallel_each
from skvbgp._optim.ascent import EndPass
from skvbgp.kernel_selection._bound import Statistics
from skvbgp.kernels import Kernel

#: Draws of theta from q(theta).
N_THETA_DRAWS = 16


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
    def fail(cls, reason: str) -> LocalFit:
        return cls(np.empty(0), -np.inf, failure=reason)

    def points(self, seed: int) -> Array:
        """Draws of (theta, log s2), or the one point, (S, p + 1)."""
        if self.factor is None:
            return self.x[None, :]
        draws = draw_antithetic(N_THETA_DRAWS, len(self.x), np.random.RandomState(seed))
        return np.asarray(self.x + draws @ self.factor.T)


class _StopError(Exception):
    """A callback asks to stop."""


class KernelFits:
    """Fits of all kernels, which tasks ``function(*shared, kernel, fit)`` replace one by one.

    Parameters
    ----------
    kernels : sequence of Kernel
    fits : sequence of LocalFit
    n_jobs : int or None
    end_pass : callable
        Called at the end of each task with a function that returns the fits of that moment.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        fits: Sequence[LocalFit],
        n_jobs: int | None,
        end_pass: EndPass,
    ) -> None:
        self.fits, self._stopped = tuple(fits), False
        self._kernels, self._n_jobs, self._end_pass = kernels, n_jobs, end_pass

    def run(
        self, function: Callable[..., LocalFit], shared: tuple[Any, ...], chosen: Iterable[int]
    ) -> None:
        """Fit the chosen kernels, until a callback asks to stop."""
        if not self._stopped:
            with suppress(_StopError):
                self._replace(function, shared, chosen)

    def improve(
        self, function: Callable[..., LocalFit], shared: tuple[Any, ...], chosen: Iterable[int]
    ) -> None:
        """The same without those that have failed."""
        self.run(function, shared, [i for i in chosen if not self.fits[i].failure])

    def complete(
        self, function: Callable[..., LocalFit], shared: tuple[Any, ...], chosen: Sequence[int]
    ) -> None:
        """Find the statistics that the chosen kernels are without, though a callback stops."""
        fits = [self.fits[i] for i in chosen]
        wanting = [not fit.failure and fit.statistics is None for fit in fits]
        try:
            self._replace(function, shared, compress(chosen, wanting))
        except _StopError:
            self.complete(function, shared, chosen)

    def _replace(
        self, function: Callable[..., LocalFit], shared: tuple[Any, ...], chosen: Iterable[int]
    ) -> None:
        # kernels with many hyperparameters, which take longest, go first: no worker is left with
        # one of them at the end
        order = sorted(chosen, key=lambda i: -len(self._kernels[i].theta))
        indices = iter(order)
        log = begin_log("kernels") or Log("kernels")

        def receive(fit: LocalFit) -> None:
            i = next(indices)
            self.fits = fits = (*self.fits[:i], fit, *self.fits[i + 1 :])
            if not self._stopped and self._end_pass(lambda: fits):
                self._stopped = True
                raise _StopError

        def note(fit: LocalFit) -> None:
            log.entries.append(fit)
            receive(fit)

        tasks = [(self._kernels[i], self.fits[i]) for i in order[len(log.entries) :]]
        for fit in list(log.entries):
            receive(fit)
        parallel_each(function, tasks, note, n_jobs=self._n_jobs, shared=shared)
