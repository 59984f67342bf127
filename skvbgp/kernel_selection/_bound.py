r"""Local lower bounds L_i of [Teng2020]_ for one kernel, and their gradients.

With whitened inducing outputs u = L^-1 f(Z), k(Z, Z) = L L', and A = k(X, Z) L^-T, eq. (9) is

    L_i = -1/2 E[ n log(2 pi s2) + (y'y - 2 y'A mu + <A'A, W> + tr k(X, X)) / s2 ]
          - KL(q(u) || N(0, I)) - KL(q(theta) || p(theta))

where q(u) = N(mu, S), W = S + mu mu' - I, s2 is the noise variance and E is over q(theta),
taken over draws of theta. (A point estimate is a single draw, without the last divergence.)
The data enter through sums over rows alone, so a mini-batch times n / |batch| estimates them
without bias, and a row that counts w times enters w times, whatever w > 0 is. One whose noise has
the known variance v besides counts w s2 / (s2 + v) times wherever it is squared, see
:ref:`kernel-known-noise`. At the optimal q(u) the gradient is that at fixed q(u), by the envelope
theorem. With Z = X and one theta, L_i at the optimal q(u) is the log evidence, which
:func:`log_evidence` computes at a third of the cost and without any jitter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial, reduce
from operator import add, mul
from typing import NamedTuple

import numpy as np

from skvbgp._core.evidence import own_evidence, own_log_evidence
from skvbgp._core.gaussian import InducingOutputs, WhitenedGaussian
from skvbgp._core.linalg import LOG_2PI, Array, NotPositiveDefiniteError, whiten_bordered
from skvbgp._core.order import cut
from skvbgp.base import Targets
from skvbgp.kernel_selection._categories import ColumnsKernel
from skvbgp.kernel_selection._scales import Frame
from skvbgp.kernels import Kernel
from skvbgp.kernels._pairs import Grid, Pairs

#: Logarithms of hyperparameters beyond are not evaluated (X or y may be of any scale).
_LARGEST_LOG = 500.0
#: Rows that are in memory at once.
_CHUNK_ROWS = 4096
#: Entries of the kernel at several hyperparameters, that stay in the cache of a core.
_MOST_ENTRIES = 2**16


class Prior(InducingOutputs):
    """The prior of the inducing outputs, and a noise variance."""

    def __init__(self, kernel: ColumnsKernel, x: Array, Z: Array, K: Array | None = None) -> None:
        learned, self.noise = parameters(kernel, x)
        self.given = kernel
        if K is not None:  # the kernel at Z, if it is there already
            self.K = K
        super().__init__(learned, Z)


def parameters(kernel: ColumnsKernel, x: Array) -> tuple[Kernel, float]:
    """Kernel of the columns, and noise variance, of the vector x = (theta, log s2)."""
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

    def plus(self, other: Statistics) -> Statistics:
        """Those of both sets of rows."""
        return Statistics(*map(add, self, other))

    def faded(self, share: float) -> Statistics:
        """Those of the same rows, which count less by a factor."""
        return Statistics(*map(partial(mul, share), self))

    def optimal_q(self) -> WhitenedGaussian:
        """The q(u) that maximises the bound."""
        return WhitenedGaussian.of_information(self.information, self.shift)

    def loss(self, q: WhitenedGaussian) -> float:
        """Expected sum of squared residuals in units of the noise."""
        fit = 2.0 * float(self.shift @ q.mean)
        return self.quadratic - fit + float(np.vdot(self.information, q.excess_moment))

    def bound(self, q: WhitenedGaussian) -> float:
        """L_i of eq. (9) without KL(q(theta) || p(theta))."""
        return -0.5 * (self.log_noise + self.loss(q)) - q.kl_to_prior

    @property
    def highest_bound(self) -> float:
        """That at the optimal q(u), of the precision P = I + A'A / s2.

        The loss and twice the divergence are y'y + tr k(X, X) - tr A'A, over s2, and log |P| less
        the square of P^-1/2 times the shift.
        """
        precision = np.eye(len(self.shift)) + self.information
        log_det, white = whiten_bordered(precision, self.shift, 1.0)
        loss = self.quadratic - float(np.trace(self.information)) - float(white @ white)
        return -0.5 * (self.log_noise + loss + log_det)


def average_statistics(parts: Sequence[Statistics]) -> Statistics:
    """Expectation over draws of theta."""
    return Statistics(*(sum(part) / len(parts) for part in zip(*parts, strict=True)))


class Evaluation:
    """The data's part of the bound for one theta and a batch of rows, times n / |batch|.

    A row that counts w times is w copies; s2 has the share s2 / (s2 + v) in the noise of each. All
    that is squared has the factor root = sqrt(w s2 / (s2 + v)).
    """

    def __init__(
        self, prior: Prior, X: Array, y: Targets, factor: float = 1.0, K: Array | None = None
    ) -> None:
        self._prior, self._X, self._factor = prior, X, factor
        n, squares, self._share = y.total, y.counts, None
        log_noise = factor * n * (LOG_2PI + np.log(prior.noise))
        if y.variance is not None:
            self._share = prior.noise / (prior.noise + y.variance)
            squares = y.counts * self._share
            log_noise -= factor * float(y.counts @ np.log(self._share))
        self._squares, self._root = squares, np.sqrt(squares)
        self._K = prior.kernel(X, prior.Z) if K is None else K  # (b, m)
        self._A = self._K @ prior.L_inv.T  # (b, m)
        self._A *= self._root[:, None]
        self._y, self._diagonal = self._root * y.y, squares * prior.kernel.diag(X)
        A, rate, quadratic = self._A, factor / prior.noise, self._y @ self._y + self._diagonal.sum()
        self.statistics = Statistics(
            rate * (A.T @ A), rate * (A.T @ self._y), rate * float(quadratic), log_noise, factor * n
        )

    def gradient(self, q: WhitenedGaussian) -> Array:
        """Gradient in (theta, log s2) at a fixed q(u), (p + 1,)."""
        prior, statistics, rate = self._prior, self.statistics, self._factor / self._prior.noise
        W = q.excess_moment
        dK = self._A @ (W @ prior.L_inv)  # (b, m)
        dK *= -rate
        dK += np.outer(rate * self._y, q.mean @ prior.L_inv)
        dK *= self._root[:, None]
        LtdL = W @ statistics.information - np.outer(q.mean, statistics.shift)  # -dA' A
        kernel, X, Z = prior.kernel, self._X, prior.Z
        theta, _, _ = kernel.vjp(X, Z, self._K, dK)
        theta_zz, _ = prior.vjp(LtdL)
        theta_diagonal, _ = kernel.vjp_diag(X, -0.5 * rate * self._squares)
        theta = prior.given.gather(theta + theta_zz + theta_diagonal)
        return np.append(theta, self._differentiate_noise(q))

    def _differentiate_noise(self, q: WhitenedGaussian) -> float:
        """Gradient in log s2, which moves the shares of rows with known noise, too."""
        if self._share is None:
            return -0.5 * (self.statistics.n - self.statistics.loss(q))
        A, y = self._A, self._y
        losses = y**2 + self._diagonal - 2.0 * y * (A @ q.mean)
        losses += np.sum((A @ q.excess_moment) * A, axis=1)
        losses /= self._prior.noise
        return -0.5 * self._factor * float(np.sum(self._squares - self._share * losses))


def total_statistics(
    X: Array, y: Targets, frame: Frame, Z: Array, kernel: ColumnsKernel, points: Array
) -> Statistics:
    """Statistics of many rows, an expectation over the draws of theta."""
    priors = [Prior(kernel, x, Z) for x in points]
    scaled = (frame.scale(X[rows], y[rows]) for rows in cut(len(X), _CHUNK_ROWS))
    return reduce(
        Statistics.plus,
        (
            average_statistics([Evaluation(prior, X, y).statistics for prior in priors])
            for X, y in scaled
        ),
    )


def collapsed_bound(
    kernel: ColumnsKernel, points: Array, Z: Array, X: Array, y: Targets
) -> tuple[float, Array]:
    """The bound at the optimal q(u) without KL(q(theta)), and its gradient (S, p + 1).

    The gradient is that in each of the points (S, p + 1), draws of (theta, log s2).
    """
    evaluations = [Evaluation(Prior(kernel, x, Z), X, y) for x in points]
    statistics = average_statistics([e.statistics for e in evaluations])
    q = statistics.optimal_q()
    gradient = np.stack([e.gradient(q) for e in evaluations]) / len(points)
    return statistics.bound(q), gradient


def log_evidence(given: ColumnsKernel, x: Array, pairs: Pairs, y: Targets) -> tuple[float, Array]:
    """log N(y | 0, k(X, X) + s2 I), the bound at Z = X, and its gradient (p + 1,).

    Each row of X is there as often as it counts, and noise whose variance is known adds to its
    own. A search hands on the same pairs of rows each time.
    """
    kernel, noise = parameters(given, x)
    K, pull_back = pairs.evaluate(kernel)
    value, dK, d_noise = own_evidence(K, y.y, y.add_known(noise), y.weight, exact=True)
    return value, np.append(given.gather(pull_back(dK)), noise * float(d_noise.sum()))


class Comparison:
    """Rows by which hyperparameters of a kernel are compared, without gradients.

    Without inducing inputs Z (m, d), these are the rows.
    """

    def __init__(self, X: Array, y: Targets, Z: Array | None = None) -> None:
        self._y, self._rows = y, Grid(X, Z)
        self._inducing = None if Z is None else Grid(Z)

    def bounds(self, kernel: ColumnsKernel, points: Sequence[Array]) -> Array:
        """The bound at each x, (S,); -inf where it fails."""
        values = np.full(len(points), -np.inf)
        size = max(1, _MOST_ENTRIES // self._rows.n_pairs)
        for some in cut(len(points), size):
            for i, value in self._measure(kernel, points, range(len(points))[some]):
                values[i] = value
        return np.where(np.isfinite(values), values, -np.inf)

    def _measure(
        self, kernel: ColumnsKernel, points: Sequence[Array], some: range
    ) -> Iterator[tuple[int, float]]:
        """Bounds of those of the points that have one."""
        learned = {}
        for i in some:
            with suppress(NotPositiveDefiniteError):
                learned[i] = parameters(kernel, points[i])
        if not learned:
            return
        kernels = [given for given, _ in learned.values()]
        K = self._rows.evaluate(kernels)
        K_inducing = [None] * len(K) if self._inducing is None else self._inducing.evaluate(kernels)
        for i, K_rows, K_own in zip(learned, K, K_inducing, strict=True):
            with suppress(NotPositiveDefiniteError):
                yield i, self._weigh(kernel, points[i], learned[i][1], K_rows, K_own)

    def _weigh(
        self, kernel: ColumnsKernel, x: Array, noise: float, K: Array, K_inducing: Array | None
    ) -> float:
        X, y, Z = self._rows.X, self._y, self._rows.Z
        if Z is None:
            return own_log_evidence(K, y.y, y.add_known(noise), y.weight, exact=True)
        return Evaluation(Prior(kernel, x, Z, K_inducing), X, y, K=K).statistics.highest_bound
