"""Counts whose rate is log-normal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp, pdtr

from skvbgp._core.linalg import Array

#: Logarithm of a Poisson rate beyond which it is cut off.
MAX_LOG_RATE = 50.0
#: Nodes of the Gauss-Hermite rule.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True)
class PoissonMixture:
    """Poisson distributions of n rows, averaged over K rates each."""

    rates: Array  # (n, K)

    @classmethod
    def of_log_rate(cls, mean: Array, variance: Array) -> PoissonMixture:
        """Rates exp(N(mean, variance)), at the nodes of a quadrature."""
        log_rate = mean[:, None] + np.sqrt(variance)[:, None] * _NODES
        return cls(np.exp(np.minimum(log_rate, MAX_LOG_RATE)))

    def log_density(self, y: Array) -> Array:
        """Log probability of counts, (n,)."""
        log_p = y[:, None] * np.log(self.rates) - self.rates - gammaln(y[:, None] + 1.0)
        return np.asarray(logsumexp(log_p, axis=1, b=_WEIGHTS))

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
        return np.where(y < 0.0, 0.0, pdtr(np.maximum(y, 0.0)[:, None], self.rates) @ _WEIGHTS)
