r"""Local lower bounds L_i of [Teng2020]_ for one kernel, and their gradients.

With whitened inducing outputs u = L^-1 f(Z), k(Z, Z) = L L', and A = k(X, Z) L^-T, eq. (9) is

    L_i = -1/2 E[ n log(2 pi s2) + (y'y - 2 y'A mu + <A'A, W> + tr k(X, X)) / s2 ]
          - KL(q(u) || N(0, I)) - KL(q(theta) || p(theta))

where q(u) = N(mu, S), W = S + mu mu' - I, s2 is the noise variance and E is over q(theta),
taken over draws of theta. (A point estimate is a single draw, without the last divergence.)
The data enter through sums over rows alone, so a mini-batch of weight n / |batch| estimates
them without bias. At the optimal q(u) the gradient is that at fixed q(u), by the envelope
theorem. With Z = X and one theta, L_i at the optimal q(u) is the log evidence, which
:func:`log_evidence` computes at a third of the cost and without any jitter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian, ZeroMeanNormal
from skvbgp._core.linalg import (
    Array,
    NotPositiveDefiniteError,
)
from skvbgp.kernel_selection._scales import Frame
from skvbgp.kernels import Kernel
from skvbgp.kernels._inducing import InducingPrior

_LOG_2PI = float(np.log(2.0 * np.pi))
#: Logarithms of hyperparameters beyond are not evaluated (X or y may be of any scale).
_LARGEST_LOG = 500.0
#: Rows that are in memory at once.
_CHUNK_ROWS = 4096


class Prior(InducingPrior):
    """The prior of the inducing outputs, and a noise variance."""

    def __init__(self, kernel: Kernel, x: Array, Z: Array) -> None:
        kernel, self.noise = parameters(kernel, x)
        super().__init__(kernel, Z)


def parameters(kernel: Kernel, x: Array) -> tuple[Kernel, float]:
    """Kernel and noise variance of the vector x = (theta, log s2)."""
    if not np.all(np.abs(x) < _LARGEST_LOG):
        raise NotPositiveDefiniteError("A hyperparameter has left the range of double precision.")
    return kernel.with_theta(x[:-1]), float(np.exp(x[-1]))


class Statistics(NamedTuple):
    """What the bound needs to know of the rows, an expectation over q(theta); rows add."""

    information: Array  # (m, m) A'A / s2
    shift: Array  # (m,) A'y / s2
    quadratic: float  # (y'y + tr k(X, X)) / s2
    log_noise: float  # n log(2 pi s2)
    n: float

    @classmethod
    def of(cls, A: Array, y: Array, prior: Prior, diagonal: Array, weight: float) -> Statistics:
        rate = weight / prior.noise
        return cls(
            rate * (A.T @ A),
            rate * (A.T @ y),
            rate * float(y @ y + diagonal.sum()),
            weight * len(y) * (_LOG_2PI + np.log(prior.noise)),
            weight * len(y),
        )

    def add(self, other: Statistics) -> Statistics:
        pairs: Iterator[tuple[Any, Any]] = zip(self, other, strict=True)
        return Statistics(*(a + b for a, b in pairs))

    def optimal_q(self) -> WhitenedGaussian:
        """The q(u) that maximises the bound."""
        return WhitenedGaussian.standard(len(self.shift)).with_information(
            self.information, self.shift
        )

    def loss(self, q: WhitenedGaussian) -> float:
        """Expected sum of squared residuals in units of the noise."""
        fit = 2.0 * float(self.shift @ q.mean)
        return self.quadratic - fit + float(np.vdot(self.information, q.excess_moment))

    def bound(self, q: WhitenedGaussian) -> float:
        """L_i of eq. (9) without KL(q(theta) || p(theta))."""
        return -0.5 * (self.log_noise + self.loss(q)) - q.kl_to_prior


def average_statistics(parts: Sequence[Statistics]) -> Statistics:
    """Expectation over draws of theta."""
    return Statistics(*(sum(part) / len(parts) for part in zip(*parts, strict=True)))


class Evaluation:
    """The data's part of the bound for one theta and a batch of rows of weight n / |batch|."""

    def __init__(self, prior: Prior, X: Array, y: Array, weight: float = 1.0) -> None:
        self._prior, self._X, self._y, self._weight = prior, X, y, weight
        self._K = prior.kernel(X, prior.Z)  # (b, m)
        self._A = self._K @ prior.L_inv.T  # (b, m)
        self.statistics = Statistics.of(self._A, y, prior, prior.kernel.diag(X), weight)

    def gradient(self, q: WhitenedGaussian) -> Array:
        """Gradient in (theta, log s2) at a fixed q(u), (p + 1,)."""
        prior, statistics, rate = self._prior, self.statistics, self._weight / self._prior.noise
        W = q.excess_moment
        dK = self._A @ (W @ prior.L_inv)  # (b, m)
        dK *= -rate
        dK += np.outer(rate * self._y, q.mean @ prior.L_inv)
        LtdL = W @ statistics.information - np.outer(q.mean, statistics.shift)  # -dA' A
        kernel, X, Z = prior.kernel, self._X, prior.Z
        theta, _, _ = kernel.vjp(X, Z, self._K, dK)
        theta_zz, _ = prior.vjp(LtdL)
        theta_diagonal, _ = kernel.vjp_diag(X, np.full(len(X), -0.5 * rate))
        log_noise = -0.5 * (statistics.n - statistics.loss(q))
        return np.append(theta + theta_zz + theta_diagonal, log_noise)


def total_statistics(
    X: Array, y: Array, frame: Frame, Z: Array, kernel: Kernel, points: Array
) -> Statistics:
    """Statistics of many rows, an expectation over the draws of theta."""
    priors = [Prior(kernel, x, Z) for x in points]
    chunks = (slice(start, start + _CHUNK_ROWS) for start in range(0, len(X), _CHUNK_ROWS))
    scaled = (frame.scale(X[rows], y[rows]) for rows in chunks)
    return reduce(
        Statistics.add,
        (
            average_statistics([Evaluation(prior, *rows).statistics for prior in priors])
            for rows in scaled
        ),
    )


def collapsed_bound(
    kernel: Kernel, points: Array, Z: Array, X: Array, y: Array
) -> tuple[float, Array]:
    """The bound at the optimal q(u) without KL(q(theta)), and its gradient in each draw.

    Parameters
    ----------
    points : ndarray of shape (S, p + 1)
        Draws of (theta, log s2).

    Returns
    -------
    value : float
    gradient : ndarray of shape (S, p + 1)
    """
    evaluations = [Evaluation(Prior(kernel, x, Z), X, y) for x in points]
    statistics = average_statistics([e.statistics for e in evaluations])
    q = statistics.optimal_q()
    gradient = np.stack([e.gradient(q) for e in evaluations]) / len(points)
    return statistics.bound(q), gradient


def log_evidence(kernel: Kernel, x: Array, X: Array, y: Array) -> tuple[float, Array]:
    """log N(y | 0, k(X, X) + s2 I), the bound at Z = X, and its gradient (p + 1,)."""
    kernel, noise = parameters(kernel, x)
    K = kernel(X)  # (n, n)
    C = K.copy()
    C.flat[:: len(C) + 1] += noise
    try:
        L = np.asarray(np.linalg.cholesky(C))
    except np.linalg.LinAlgError:  # with a jitter it would be the evidence of other noise
        raise NotPositiveDefiniteError("The noise drowns in the rounding of k(X, X).") from None
    normal = ZeroMeanNormal.of(L, y)
    dK = normal.gradient()
    theta, _, _ = kernel.vjp(X, None, K, dK)
    return normal.log_density, np.append(theta, noise * float(np.trace(dK)))
