"""A process given rows: all of them, or the neighbours of one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array, Bordered, factorise_bordered
from skvbgp.gp._coregion import Covariance
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._stack import measure_stack

if TYPE_CHECKING:
    from skvbgp.gp._process import Process, Summary


class Moments(NamedTuple):
    """What the rows say of others."""

    mean: Array  # (n,)
    variance: Array  # (n,), of the latent function
    noise: float  # variance of the noise
    evidence: float  # log evidence of the rows


@dataclass(frozen=True)
class Conditional:
    """The process given the rows of one neighbourhood."""

    process: Process
    X: Array  # (n, d)
    y: Array  # (n,), or of several outputs (n, m), which are to be split
    L_inv: Array  # (n, n) inverse of the lower Cholesky factor of C
    known: RowNoise | None = None  # what is known of the rows' noise
    #: (n,): how much each row, given those before it, counts for scale and evidence. None is once.
    share: Array | None = None

    def split_outputs(self) -> list[Conditional]:
        """What the rows say of each output; they have the factor in common."""
        return [self] if self.y.ndim == 1 else [self.given_targets(y) for y in self.y.T]

    def given_targets(self, y: Array) -> Conditional:
        """The same rows with other targets."""
        return replace(self, y=y)

    @cached_property
    def _whitened(self) -> Array:
        return np.asarray(self.L_inv @ self.y)

    @cached_property
    def weights(self) -> Array:
        """C^-1 y."""
        return np.asarray(self._whitened @ self.L_inv)

    @cached_property
    def summary(self) -> Summary:
        """What the rows say of the scale."""
        log_diagonal = -np.log(np.diagonal(self.L_inv))
        return self.process.summarise(self._whitened, log_diagonal, self.known, self.share)

    @cached_property
    def log_evidence(self) -> float:
        """log St(y | 0, C, dof)."""
        return self.process.log_density(*self.summary)

    @property
    def spread(self) -> float:
        """Factor of all variances."""
        return self.process.spread(*self.summary[:2])

    def compare_scales(self, n: int) -> float:
        """Mean squared innovation of all rows as a multiple of that of the first n."""
        weight = np.ones(len(self.y)) if self.known is None else self.known.weight
        squares = self._whitened**2 + np.finfo(float).tiny  # of targets that are all the same
        scales = np.cumsum(squares) / np.cumsum(weight)
        return float(scales[-1] / scales[n - 1])

    def moments(self, X: Array) -> Moments:
        """Moments at rows X (n*, d)."""
        k, prior = self.process.covariance(self.X, X), self.process.covariance.diag(X)
        variance = prior - np.sum((self.L_inv @ k) ** 2, axis=0)
        least = bound_variance(prior, k, self.process.spread_noise(self.known))
        return self._as_moments(self.weights @ k, self.spread * np.maximum(variance, least))

    def leave_out(self, index: NDArray[np.intp]) -> Moments:
        """Moments at some of the rows, each given all the others.

        The scale is that of all rows, of which one has a share of 1 / n.
        """
        precision = np.sum(self.L_inv**2, axis=0)[index]  # of the diagonal of C^-1
        noise = np.broadcast_to(self.process.spread_noise(self.known), len(self.y))[index]
        variance = self.spread * np.maximum(1.0 / precision - noise, 0.0)
        return self._as_moments(self.y[index] - self.weights[index] / precision, variance)

    def _as_moments(self, mean: Array, variance: Array) -> Moments:
        return Moments(mean, variance, self.spread * self.process.noise, self.log_evidence)

    def gradient(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance (d,) of the latent function's derivatives at one row x (d,)."""
        slopes = self.process.covariance.gradient(x, self.X)  # (n, d)
        prior = self.process.covariance.curvature(x[None])[0]
        variance = self.spread * np.maximum(prior - np.sum((self.L_inv @ slopes) ** 2, axis=0), 0.0)
        return self.weights @ slopes, variance

    def covariance(self, X: Array) -> Array:
        """Covariance (n*, n*) of the latent function at rows X."""
        root = self.L_inv @ self.process.covariance(self.X, X)
        return np.asarray(self.spread * (self.process.covariance(X) - root.T @ root))


def bound_variance(prior: Array | float, k: Array, noise: Array | float) -> Array:
    """What the latent function's variance cannot fall below at places, whatever is rounded.

    Rows say most of f(x) if nothing but f(x) and noise moves them. Then y_i = k_i / prior f(x) +
    noise, and the precision of f(x) is 1 / prior + sum_i (k_i / prior)^2 / noise_i. The prior
    variances are those of a place or of m of them, k (n,) or (n, m) the covariances of the rows
    with these.
    """
    told = (1.0 / np.full(len(k), noise)) @ k**2  # prior^2 times what rows add
    return np.asarray(prior**2 / (prior + told + np.finfo(float).tiny))


def measure_matrices(processes: Sequence[Process], X: Array) -> list[dict[Covariance, Array]]:
    """The matrices (n, n) of the kernels of processes, for each of some sets of rows (b, n, d)."""
    kernels = {process.covariance for process in processes}
    stacks = {kernel: measure_stack(kernel, X) for kernel in kernels}
    return [{kernel: stack[i] for kernel, stack in stacks.items()} for i in range(len(X))]


def predict_from_matrices(
    processes: Sequence[Process],
    K: dict[Covariance, Array],
    y: Array,
    known: RowNoise | None = None,
) -> Array:
    """Mean and variance of the latent function at one row, its noise and the log evidence.

    One line (4,) for each process; processes with the same kernel share its matrix K (n + 1, n +
    1), of the neighbours, the nearest one last, and the row. The neighbours have targets (n,), and
    maybe what is known of their noise.
    """
    return np.array([predict_line(one, y, K[one.covariance], known)[0] for one in processes])


def predict_line(
    process: Process, y: Array, K: Array, known: RowNoise | None
) -> tuple[tuple[float, float, float, float], Bordered]:
    """The line (4,) of a process, and what it was made from.

    The entries of L^-1 y are standardised innovations: how far each row is from what those before
    it say. The nearest rows are the last, and the scale follows their innovations.
    """
    n, prior = len(y), float(K[-1, -1])
    noise = np.full(n, process.spread_noise(known))  # for one place faster than to broadcast it
    bordered = factorise_bordered(K, y[None], noise)
    a, innovations, diagonal = bordered.place, bordered.targets[0], np.diagonal(bordered.factor)
    summary = process.summarise(innovations, np.log(diagonal), known, process.count_nearest(n))
    spread = process.spread(*summary[:2])
    variance = prior - float(a @ a)
    least = bound_variance(prior, K[-1, :-1], noise)
    variance = spread * float(np.maximum(variance, least))
    evidence = process.log_density(*summary)
    return (float(innovations @ a), variance, spread * process.noise, evidence), bordered
