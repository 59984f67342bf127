"""A Gaussian, or a mixture of Gaussians, for every row (see doc/theory/scores.rst)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erf, logsumexp, ndtr, ndtri
from sklearn.utils import check_array

from skvbgp._core.linalg import LOG_2PI, Array

#: Halvings of the interval that a quantile lies in: as many as a number has binary digits.
_HALVINGS = 53
#: The standard deviation of what is certain.
_LEAST_STD = 1e-300


@dataclass(frozen=True)
class NormalMixture:
    """Predictive distributions of n rows; one component is a Gaussian.

    Quantiles and probabilities of a component without variance are those of its mean.
    """

    mean: Array  # (n, K)
    std: Array  # (n, K)
    weights: Array  # (n, K) or (1, K), with rows that sum to one

    @classmethod
    def of_moments(
        cls, mean: Array, variance: Array, weights: Array | None = None
    ) -> NormalMixture:
        """From a posterior's moments, (n,) or (n, K), and weights (K,) or (n, K) if not equal."""
        mean, std = mean.reshape(len(mean), -1), np.sqrt(variance).reshape(len(mean), -1)
        if weights is None:
            weights = np.full(mean.shape[1], 1.0 / mean.shape[1])
        return cls(mean, np.maximum(std, _LEAST_STD), np.atleast_2d(weights))

    @classmethod
    def of(cls, mean: Any, std: Any, weights: Any = None) -> NormalMixture:
        """From what a caller gives; raises ValueError if that is no distribution."""
        mean, std = _components(mean, "mean"), _components(std, "std")
        if mean.shape != std.shape:
            raise ValueError(f"mean and std differ in shape: {mean.shape} and {std.shape}.")
        if not np.all(std > 0.0):
            raise ValueError("std must be positive.")
        n, k = mean.shape
        if weights is None:
            return cls(mean, std, np.full((1, k), 1.0 / k))
        weights = np.atleast_2d(_finite(weights, "weights"))
        if weights.shape not in {(1, k), (n, k)}:
            raise ValueError(f"weights must have shape ({k},) or ({n}, {k}), as mean has.")
        total = weights.sum(axis=1, keepdims=True)
        if np.any(weights < 0.0) or not np.allclose(total, 1.0):
            raise ValueError("weights must not be negative, and must sum to one.")
        return cls(mean, std, weights / total)

    def rescaled(self, origin: float, unit: float) -> NormalMixture:
        """The distributions of origin + unit * y."""
        return NormalMixture(origin + unit * self.mean, abs(unit) * self.std, self.weights)

    def with_noise(self, variance: Array) -> NormalMixture:
        """Those of y with independent normal noise of these variances (n,), too."""
        return NormalMixture(
            self.mean, np.hypot(self.std, np.sqrt(variance)[:, None]), self.weights
        )

    def with_errors(self, errors: NormalMixture) -> NormalMixture:
        """Those of mean + std * error for every component; the errors have one distribution.

        They are a mixture of one row, (1, E), whose components follow those of each component.
        """
        mean = self.mean[:, :, None] + self.std[:, :, None] * errors.mean
        std = np.maximum(self.std[:, :, None] * errors.std, _LEAST_STD)
        weights = self.weights[:, :, None] * errors.weights
        return NormalMixture(*(part.reshape(len(part), -1) for part in (mean, std, weights)))

    def expectation(self) -> Array:
        """Mean of the mixture, (n,)."""
        return self._average(self.mean)

    def log_density(self, y: Array) -> Array:
        """Log density at y, (n,)."""
        with np.errstate(over="ignore", divide="ignore"):  # zero densities and zero weights
            exponents = np.log(self.weights) - 0.5 * self._standardised(y) ** 2
        return logsumexp(exponents - np.log(self.std), axis=1) - 0.5 * LOG_2PI

    def cdf(self, y: Array) -> Array:
        """Probability of values up to y, (n,)."""
        return self._average(ndtr(self._standardised(y)))

    def crps(self, y: Array) -> Array:
        """E|Y - y| - E|Y - Y'| / 2 for independent draws Y and Y', (n,)."""
        value = self._average(_mean_absolute(self.mean - y[:, None], self.std))
        for k in range(self.mean.shape[1]):  # one component at a time, for the sake of memory
            mean, std, weight = self.mean[:, [k]], self.std[:, [k]], self.weights[:, k]
            apart = _mean_absolute(self.mean - mean, np.hypot(self.std, std))
            value -= 0.5 * weight * self._average(apart)
        return value

    def interval(self, level: float) -> tuple[Array, Array]:
        """Ends of the central interval of probability ``level``, each (n,)."""
        tail = 0.5 * (1.0 - level)
        return self._lower_quantile(tail), -self._mirrored()._lower_quantile(tail)

    def quantile(self, p: float) -> Array:
        """What is exceeded with probability 1 - p, (n,)."""
        if p <= 0.5:
            return self._lower_quantile(p)
        return -self._mirrored()._lower_quantile(1.0 - p)  # no upper tail is a rounded number

    def _mirrored(self) -> NormalMixture:
        return NormalMixture(-self.mean, self.std, self.weights)

    def _lower_quantile(self, p: float) -> Array:
        """What is exceeded with probability 1 - p, which is at least a half, (n,)."""
        return find_quantile(self.cdf, p, self.mean + self.std * ndtri(p))

    def _standardised(self, y: Array) -> Array:
        with np.errstate(over="ignore"):
            return (y[:, None] - self.mean) / self.std

    def _average(self, values: Array) -> Array:
        return (self.weights * values).sum(axis=1)


def average_moments(means: Array, variances: Array, axis: int = 0) -> tuple[Array, Array]:
    """Mean and variance of mixtures of equal shares, whose components are along an axis."""
    return means.mean(axis=axis), variances.mean(axis=axis) + means.var(axis=axis)


def find_quantile(cdf: Callable[[Array], Array], p: float, quantiles: Array) -> Array:
    """The p-quantiles (n,) of mixtures, by bisection between those (n, K) of their components."""
    low, high = quantiles.min(axis=1), quantiles.max(axis=1)
    for _ in range(_HALVINGS if np.any(low < high) else 0):
        middle = 0.5 * low + 0.5 * high
        is_below = cdf(middle) < p
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return high


def _mean_absolute(mean: Array, std: Array) -> Array:
    """E|Z| of a Gaussian Z."""
    with np.errstate(over="ignore"):
        z = mean / (np.sqrt(2.0) * std)
        return np.sqrt(2.0 / np.pi) * std * np.exp(-(z**2)) + mean * erf(z)


def _finite(values: Any, name: str) -> Array:
    return check_array(values, ensure_2d=False, dtype=np.float64, input_name=name)


def _components(values: Any, name: str) -> Array:
    """One column for each component, (n, K)."""
    values = _finite(values, name)
    return values[:, None] if values.ndim == 1 else values
