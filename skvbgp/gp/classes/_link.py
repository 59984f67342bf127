r"""From what a process says of the classes to their probabilities.

At a place where the function of class c has mean m_c, and all of them variance v,

    log p_c = log pi_c + z_c - log sum_b pi_b exp(z_b),
    z_c = slope / sqrt(1 + damping v) (g(pi_c + m_c) - g(pi_c)) / g'(1/2),
    g(f) = log log(1 + exp(f / width)),

with the frequencies pi of the classes, which is what remains where nothing is known, m = 0. The
regression's own probability of a class, f = pi + m, enters by its logarithm, rounded off where it
is about zero or less; at a half, the slope does not depend on the width. See
:doc:`/theory/gp_classes`.

Where probabilities are too sure, or not enough, what they say beside pi may count with a power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from skvbgp._core.linalg import Array, normalise_logs
from skvbgp._optim.lbfgs import lbfgs_ascent

#: Mean and standard deviation of the normal priors of the logarithms of the parameters.
_PRIOR_MEAN = np.log([6.0, 1.0, 0.3])
_PRIOR_STD = np.array([1.0, 1.5, 1.5])
#: Their limits.
_LIMITS = ((0.1, 200.0), (1e-3, 1e3), (5e-3, 10.0))
_MAX_ITER = 50
#: Limits of the logarithm of the power that evidence is raised to.
_POWER_LIMITS = (-np.log(5.0), np.log(5.0))
#: Below this, log log(1 + exp(u)) is u in double precision.
_LOW = -35.0


@dataclass(frozen=True)
class Link:
    """How steep probabilities are in the means, what variances take from that, and the rounding."""

    slope: float = 6.0
    damping: float = 1.0
    width: float = 0.3

    @property
    def vector(self) -> Array:
        """Logarithms of all three, (3,)."""
        return np.log([self.slope, self.damping, self.width])

    @classmethod
    def of(cls, vector: Array) -> Self:
        slope, damping, width = np.exp(vector)
        return cls(float(slope), float(damping), float(width))

    @property
    def bounds(self) -> Array:
        """Limits of `vector`, (3, 2)."""
        return np.log(_LIMITS)

    @property
    def _power(self) -> float:
        """slope / g'(1/2): what probabilities are raised to where g is their logarithm."""
        return float(self.slope * self.width / _log_softplus(0.5 / self.width)[1])

    def log_prior(self) -> tuple[float, Array]:
        """Logarithm of the prior density of `vector`, and its gradient."""
        shift = (self.vector - _PRIOR_MEAN) / _PRIOR_STD
        constant = -float(np.sum(np.log(_PRIOR_STD * np.sqrt(2.0 * np.pi))))
        return constant - 0.5 * float(shift @ shift), -shift / _PRIOR_STD

    def log_probabilities(self, mean: Array, variance: Array, log_frequencies: Array) -> Array:
        """Of the classes, (n, K), from means (n, K), variances (n,) and log pi (K,)."""
        u, origin = self._locate(mean, log_frequencies)
        rise = _log_softplus(u)[0] - _log_softplus(origin)[0]
        return self._normalise(rise, variance, log_frequencies)

    def score(
        self, mean: Array, variance: Array, counts: Array, log_frequencies: Array
    ) -> tuple[float, Array, Array, Array]:
        """Log probability of labels, and its gradients in mean (n, K), variance (n,) and `vector`.

        The counts (n, K) say how often each place has each label.
        """
        u, origin = self._locate(mean, log_frequencies)
        (at_u, slope_u), (at_origin, slope_origin) = _log_softplus(u), _log_softplus(origin)
        rise = at_u - at_origin
        log_p = self._normalise(rise, variance, log_frequencies)
        shrink = 1.0 / (1.0 + self.damping * variance)
        dz = counts - counts.sum(axis=1, keepdims=True) * np.exp(log_p)
        drise = (self._power * np.sqrt(shrink))[:, None] * dz
        dsteep = np.sum(drise * rise, axis=1)  # in the logarithm of what is steep
        d_variance = -0.5 * self.damping * shrink * dsteep
        half = 0.5 / self.width
        d_power = 1.0 + half * (1.0 - expit(half) - _log_softplus(half)[1])  # by width, logarithms
        d_width = np.vdot(drise, origin * slope_origin - u * slope_u) + d_power * np.sum(dsteep)
        d_vector = np.array([np.sum(dsteep), d_variance @ variance, d_width])
        return float(np.vdot(counts, log_p)), drise * slope_u / self.width, d_variance, d_vector

    def _locate(self, mean: Array, log_frequencies: Array) -> tuple[Array, Array]:
        """(pi + m) / width, (n, K), and pi / width, (K,), where nothing is known."""
        origin = np.exp(log_frequencies) / self.width
        return origin + mean / self.width, origin

    def _normalise(self, rise: Array, variance: Array, log_frequencies: Array) -> Array:
        """Log probabilities (n, K), from what g rises by (n, K)."""
        steep = self._power / np.sqrt(1.0 + self.damping * variance)
        joint = log_frequencies + steep[:, None] * rise
        return np.asarray(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))

    def learn(self, mean: Array, variance: Array, counts: Array, log_frequencies: Array) -> Link:
        """The link that these labels of places ask for, starting here."""

        def objective(vector: Array) -> tuple[float, Array]:
            link = Link.of(vector)
            value, _, _, slope = link.score(mean, variance, counts, log_frequencies)
            prior, prior_slope = link.log_prior()
            return value + prior, slope + prior_slope

        start = np.clip(self.vector, *self.bounds.T)
        found = lbfgs_ascent(objective, start, max_iter=_MAX_ITER, tol=1e-9, bounds=self.bounds)
        return Link.of(found.x)


def _log_softplus(u: Any) -> tuple[Array, Array]:
    """log log(1 + exp(u)), and its slope."""
    low = u < _LOW
    softplus = np.logaddexp(0.0, np.where(low, 0.0, u))
    return np.where(low, u, np.log(softplus)), np.where(low, 1.0, expit(u) / softplus)


def raise_evidence(log_p: Array, log_frequencies: Array, power: float) -> Array:
    """Log probabilities (n, K) where what is said beside log pi (K,) counts with a power."""
    return normalise_logs(log_p + (power - 1.0) * (log_p - log_frequencies))


def learn_power(log_p: Array, counts: Array, log_frequencies: Array) -> float:
    """The power by which votes ask that are left out, of which counts (M, K) says how often."""

    def lose(log_power: float) -> float:
        powered = raise_evidence(log_p, log_frequencies, float(np.exp(log_power)))
        return 0.5 * log_power**2 - float(np.vdot(counts, powered))

    return float(np.exp(minimize_scalar(lose, bounds=_POWER_LIMITS, method="bounded").x))
