r"""Likelihoods: their expectations under f ~ N(m, s), and the predictions they make.

Every one has a vector ``theta`` of logarithms of free parameters and

- ``expected(theta, y, m, s)``: E[log p(y|f)] of every row and its gradients in m, s and
  theta; that of `Gaussian` may be told known variances of the noise;

and but for `LogCounts`, which is for a first step alone, what else training asks of a `Likelihood`.
Those of numbers also have

- ``moments(theta, m, s)``: mean and variance of y;
- ``joint(theta, m, S)``: mean and covariance of the y of several rows;
- ``sample(theta, f, rng)``: draws of y given f;
- ``distribution(theta, m, s)``: that of y;

while `Probit`, of classes, has their ``score(m, s)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp, pdtr

from skvbgp._core.expectations import make_hermite_rule
from skvbgp._core.linalg import LOG_2PI, Array
from skvbgp._core.mixture import NormalMixture
from skvbgp._core.sites import measure_ratio
from skvbgp.base import pick

#: The Gauss-Hermite rule of expected likelihoods.
_NODES, _WEIGHTS = make_hermite_rule(20)
#: Quantiles of y between which there is no outlier, and how far beyond them an outlier is cut
#: off, in distances between the two.
_TYPICAL = (0.15, 0.85)
_REACH = 3.0
#: Least ratio of two variances of the noise, one after the other.
_LEAST_RATIO = 1e-12
#: Precisions of the normal components that stand for Student's t: the nodes of a trapezoidal rule.
_LOG_PRECISIONS = np.linspace(-12.0, 2.5, 72)
#: A count above this one is far from its rate where it is twice as large.
_FAR_COUNT = 100.0
#: Logarithm of a Poisson rate beyond which it is cut off.
_MAX_LOG_RATE = 50.0
#: Nodes of the Gauss-Hermite rule of predicted counts.
_RATE_NODES, _RATE_WEIGHTS = make_hermite_rule(64)

#: Values of f -> log p(y|f), its slope in f and those in theta, at each of them.
LogDensity = Callable[[Array], tuple[Array, Array, list[Array]]]


class Expected(NamedTuple):
    """Expected log-likelihoods, by row, and their gradients."""

    value: Array  # (n,)
    dm: Array  # (n,)
    ds: Array  # (n,)
    dtheta: Array  # (n, p)
    precision: Array | None = None  # (n,), of a natural step; that of its curvature if None


def gauss_hermite(log_p: LogDensity, m: Array, s: Array) -> Expected:
    """Expectations of a log density, which returns value and slopes in f and theta.

    The gradients are those of the quadrature sum: f = m + sqrt(s) t at its nodes t.
    """
    root = np.sqrt(s)[:, None]
    value, slope, dtheta = log_p(m[:, None] + root * _NODES)  # (n, k), (n, k), list of (n, k)
    ds = (slope * _NODES) @ _WEIGHTS / (2.0 * root[:, 0])
    columns = [part @ _WEIGHTS for part in dtheta]
    return Expected(
        value @ _WEIGHTS, slope @ _WEIGHTS, ds, np.array(columns).reshape(len(columns), len(m)).T
    )


class Likelihood:
    """What training asks of a likelihood besides its expectations."""

    conjugate = False
    #: A conjugate likelihood that is nearly this one, on which the first step from a prior is.
    stand_in: Any = None
    start: tuple[float, ...] = ()  # theta
    bounds: tuple[tuple[float, float], ...] = ()
    noise_information: tuple[float, ...] = ()  # a row's Fisher information about theta, by entry
    unit_noise = False  # whether f is relative to noise of unit variance
    step_unit: Any = 1.0  # how large steps of the mean are

    def latent_values(self, y: Array, weight: Array | None = None) -> Array:
        """Values of f with additive noise, or nearly, of rows that count as often as given."""
        return y


class AdditiveNoise(Likelihood, ABC):
    """y = f + independent noise."""

    offset = 0.0  # what is added to f for users
    resistant = False  # to outliers: mean and unit of y are those of its latent values

    @abstractmethod
    def noise_variance(self, theta: Array) -> float:
        """Variance of the noise."""

    def refit(self, theta: Array, slopes: Array) -> Array:
        """theta after a step of EM, given the average over rows of their slopes in it, (q,).

        The expected square of a row's noise is the learned variance times one plus twice its slope;
        Student's noise is normal of many variances, of which the slopes know which.
        """
        ratio = np.maximum(1.0 + 2.0 * slopes, _LEAST_RATIO)
        return np.clip(theta + np.log(ratio), *np.array(self.bounds).T)

    def moments(self, theta: Array, m: Array, s: Array) -> tuple[Array, Array]:
        return m, s + self.noise_variance(theta)

    def joint(self, theta: Array, m: Array, S: Array) -> tuple[Array, Array]:
        return m, S + self.noise_variance(theta) * np.eye(len(m))

    def components(self, theta: Array) -> tuple[Array, Array]:
        """Variances and weights, each (K,), of the normal components of the noise.

        One of the noise's variance, unless a likelihood has others.
        """
        return np.array([self.noise_variance(theta)]), np.ones(1)

    def distribution(self, theta: Array, m: Array, s: Array) -> NormalMixture:
        variances, weights = self.components(theta)
        means = np.broadcast_to(m[:, None], (len(m), len(weights)))
        return NormalMixture.of_moments(means, s[:, None] + variances, weights)


@dataclass(frozen=True)
class Gaussian(AdditiveNoise):
    """y = f + N(0, exp(theta)), or with the variance exp(theta) plus a known one, (n,)."""

    conjugate = True
    noise_information = (0.5,)
    start = (np.log(0.1),)
    bounds = ((-16.0, 9.0),)

    @property
    def stand_in(self) -> Gaussian:
        """Itself: it is conjugate."""
        return self

    def expected(
        self, theta: Array, y: Array, m: Array, s: Array, known: Array | None = None
    ) -> Expected:
        share = self.learned_share(theta, known)
        precision = np.exp(-theta[0]) * share
        square = precision * ((y - m) ** 2 + s)
        value = -0.5 * (LOG_2PI + (theta[0] - np.log(share)) + square)
        ds = np.broadcast_to(-0.5 * precision, y.shape)
        dtheta = 0.5 * (square - 1.0) * share
        return Expected(value, precision * (y - m), ds, dtheta[:, None])

    def learned_share(self, theta: Array, known: Array | None) -> Array | float:
        """What the learned variance is of all noise, given the known one."""
        return 1.0 if known is None else 1.0 / (1.0 + np.exp(-theta[0]) * known)

    def noise_variance(self, theta: Array) -> float:
        return float(np.exp(theta[0]))

    def sample(self, theta: Array, f: Array, rng: np.random.RandomState) -> Array:
        return f + np.sqrt(self.noise_variance(theta)) * rng.standard_normal(f.shape)


@dataclass(frozen=True)
class StudentT(AdditiveNoise):
    """y = f + exp(theta / 2) t, t of Student's distribution with four degrees of freedom."""

    start = (np.log(0.05),)
    bounds = ((-16.0, 9.0),)
    dof = 4.0
    noise_information = (dof / (2.0 * (dof + 3.0)),)
    resistant = True

    def latent_values(self, y: Array, weight: Array | None = None) -> Array:
        """y with its outliers cut off."""
        low, high = _quantiles(y, weight, _TYPICAL)
        distance = high - low
        if distance == 0.0 and np.any(y != low):  # most are equal: how far away the others are
            far = y != low
            (distance,) = _quantiles(np.abs(y[far] - low), pick(weight, far), (0.5,))
        return np.clip(y, low - _REACH * distance, high + _REACH * distance)

    def expected(self, theta: Array, y: Array, m: Array, s: Array) -> Expected:
        nu, scale2 = self.dof, np.exp(theta[0])
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu)

        def log_p(f: Array) -> tuple[Array, Array, list[Array]]:
            error = y[:, None] - f
            ratio = error**2 / (nu * scale2)
            value = constant - 0.5 * theta[0] - 0.5 * (nu + 1.0) * np.log1p(ratio)
            slope = (nu + 1.0) * error / (nu * scale2 * (1.0 + ratio))
            return value, slope, [-0.5 + 0.5 * (nu + 1.0) * ratio / (1.0 + ratio)]

        return gauss_hermite(log_p, m, s)

    def noise_variance(self, theta: Array) -> float:
        return float(np.exp(theta[0])) * self.dof / (self.dof - 2.0)

    def components(self, theta: Array) -> tuple[Array, Array]:
        """Student's t is normal given its precision, which is a Gamma variable."""
        half = 0.5 * self.dof
        weights = np.exp(half * (_LOG_PRECISIONS - np.exp(_LOG_PRECISIONS)))
        return np.exp(theta[0] - _LOG_PRECISIONS), weights / weights.sum()

    def sample(self, theta: Array, f: Array, rng: np.random.RandomState) -> Array:
        return f + np.exp(0.5 * theta[0]) * rng.standard_t(self.dof, f.shape)


@dataclass(frozen=True)
class Poisson(Likelihood):
    """y ~ Poisson(exp(offset + f)): the expectations have a closed form."""

    offset: float  # what is added to f for users

    @property
    def stand_in(self) -> LogCounts:
        """That of the logarithms, which are nearly normal where counts are large."""
        return LogCounts(self.offset)

    @property
    def step_unit(self) -> float:
        """What a count says of the logarithm of its rate, as a standard deviation below 1."""
        return float(1.0 / np.sqrt(1.0 + np.exp(self.offset)))

    def latent_values(self, y: Array, weight: Array | None = None) -> Array:
        log_rate = np.log(y + 0.5)
        return log_rate - np.average(log_rate, weights=weight)

    def expected(self, theta: Array, y: Array, m: Array, s: Array) -> Expected:
        log_rate = np.minimum(self.offset + m + 0.5 * s, _MAX_LOG_RATE)
        rate = np.exp(log_rate)
        value = y * (self.offset + m) - rate - gammaln(y + 1.0)
        # a step with the curvature of a rate that is far below y would end far above it: there the
        # precision is that with which one step ends at log y
        far = (y > _FAR_COUNT) & (y > 2.0 * rate)
        distance = np.where(far, np.log(np.maximum(y, 1.0)) - log_rate, 1.0)
        precision = np.where(far, y - rate, rate) / distance
        return Expected(value, y - rate, -0.5 * rate, np.zeros((len(y), 0)), precision)

    def moments(self, theta: Array, m: Array, s: Array) -> tuple[Array, Array]:
        mean = np.exp(np.minimum(self.offset + m + 0.5 * s, _MAX_LOG_RATE))
        return mean, mean + np.expm1(np.minimum(s, _MAX_LOG_RATE)) * mean**2

    def joint(self, theta: Array, m: Array, S: Array) -> tuple[Array, Array]:
        mean, variance = self.moments(theta, m, np.diagonal(S))
        covariance = np.outer(mean, mean) * np.expm1(np.minimum(S, _MAX_LOG_RATE))
        covariance.flat[:: len(m) + 1] = variance
        return mean, covariance

    def distribution(self, theta: Array, m: Array, s: Array) -> PoissonMixture:
        log_rate = (self.offset + m)[:, None] + np.sqrt(s)[:, None] * _RATE_NODES
        return PoissonMixture(np.exp(np.minimum(log_rate, _MAX_LOG_RATE)))

    def sample(self, theta: Array, f: Array, rng: np.random.RandomState) -> Array:
        return rng.poisson(np.exp(np.minimum(self.offset + f, 40.0))).astype(float)


@dataclass(frozen=True)
class LogCounts:
    """log(y + 1/2) ~ N(offset + f, 1 / (y + 1/2)): `Poisson` near its maximum, but for a constant.

    Only what the first step needs: its expectations.
    """

    offset: float

    def expected(self, theta: Array, y: Array, m: Array, s: Array) -> Expected:
        precision = y + 0.5
        error = np.log(precision) - self.offset - m
        value = -0.5 * (np.log(2.0 * np.pi / precision) + precision * (error**2 + s))
        return Expected(value, precision * error, -0.5 * precision, np.zeros((len(y), 0)))


@dataclass(frozen=True)
class Probit(Likelihood):
    """P(y = 1) = Phi(f) for y in {-1, 1}: y is the sign of f + N(0, 1).

    E[log p(y | f)], by quadrature. The class of this name in ``ep`` has log E[p(y | f)].
    """

    unit_noise = True

    def expected(self, theta: Array, y: Array, m: Array, s: Array) -> Expected:
        def log_p(f: Array) -> tuple[Array, Array, list[Array]]:
            z = y[:, None] * f
            return log_ndtr(z), y[:, None] * measure_ratio(z), []

        return gauss_hermite(log_p, m, s)

    def score(self, m: Array, s: Array) -> Array:
        """z with Phi(z) = P(y = 1) for f ~ N(m, s), of any shape."""
        return np.asarray(m / np.sqrt(1.0 + s))


def _quantiles(y: Array, weight: Array | None, shares: tuple[float, ...]) -> Array:
    """Quantiles of values that are there as often as their weights say, between neighbours."""
    if weight is None:
        return np.asarray(np.quantile(y, shares))
    order = np.argsort(y)
    ends = np.cumsum(weight[order])
    place = np.maximum(np.multiply(shares, ends[-1] - 1.0), 0.0)
    before = np.floor(place)
    low, high = (
        y[order[np.minimum(np.searchsorted(ends, one, side="right"), len(y) - 1)]]
        for one in (before, before + 1.0)
    )
    return np.asarray(low + (place - before) * (high - low))


@dataclass(frozen=True)
class PoissonMixture:
    """Poisson distributions of n rows, averaged over K rates each."""

    rates: Array  # (n, K), at the nodes of a quadrature

    def log_density(self, y: Array) -> Array:
        """Log probability of counts, (n,)."""
        log_p = y[:, None] * np.log(self.rates) - self.rates - gammaln(y[:, None] + 1.0)
        return np.asarray(logsumexp(log_p, axis=1, b=_RATE_WEIGHTS))

    def quantile(self, p: float) -> Array:
        """Smallest count whose distribution function is at least p, (n,)."""
        low, high = np.full(len(self.rates), -1.0), np.ones(len(self.rates))
        while np.any(short := self._cdf(high) < p):
            low, high = np.where(short, high, low), np.where(short, 2.0 * high, high)
        middle = np.floor(0.5 * (low + high))
        while np.any((low < middle) & (middle < high)):
            is_below = self._cdf(middle) < p
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
            middle = np.floor(0.5 * (low + high))
        return high

    def _cdf(self, y: Array) -> Array:
        return np.where(y < 0.0, 0.0, pdtr(np.maximum(y, 0.0)[:, None], self.rates) @ _RATE_WEIGHTS)
