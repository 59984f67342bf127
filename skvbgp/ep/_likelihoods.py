r"""Likelihoods of labels t of -1 or 1, seen through a Gaussian N(c, v) of the latent value f.

log Z is the logarithm of the average of p(t | f), which rises with t f.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from skvbgp._core.expectations import make_hermite_rule
from skvbgp._core.linalg import Array
from skvbgp._core.sites import match_moments, measure_curvature, measure_ratio

#: Scales of the probits that make up the logistic function: their number, and the range that
#: holds nearly all of them.
_N_SCALES = 16
_SCALE_RANGE = (0.5, 7.0)
#: Terms of the density of the scales, which fall as exp(-j^2 h^2 / 2).
_DENSITY_TERMS = np.arange(1.0, 21.0)
#: Nodes of the Gauss-Hermite rule of tempered likelihoods, and logarithms of its weights.
_NODES, _WEIGHTS = make_hermite_rule(64)
_LOG_WEIGHTS = np.log(_WEIGHTS)
#: Below this variance of g, slopes at the nodes are exact, and its tilted moments cancel.
_NARROW = 0.01


class TiltedMoments(NamedTuple):
    """log Z of every row and what its derivatives need, each (n,)."""

    log_z: Array
    slope: Array  # d log Z / dc
    curvature: Array  # -d^2 log Z / dc^2, up to 1 / v; 0 where it is negative by approximation
    d_v: Array  # d log Z / dv


class Likelihood(Protocol):
    """p(t | f)."""

    def moments(self, t: Array, c: Array, v: Array) -> TiltedMoments:
        """Moments for each row, arguments (n,); finite for margins up to 1e150."""

    def score(self, mean: Array, variance: Array) -> Array:
        """z with Phi(z) = E[p(t = 1 | f)] for f of some mean and variance, of any shape."""


class Probit:
    """Phi(t f), so that log Z = log Phi(z), z = t c / sqrt(1 + v).

    That is log E[p(t | f)]. The class of this name in ``decoupled`` has E[log p(t | f)].
    """

    def moments(self, t: Array, c: Array, v: Array) -> TiltedMoments:
        return _probit_moments(t, c, 1.0 + v)

    def score(self, mean: Array, variance: Array) -> Array:
        return mean / np.sqrt(1.0 + variance)


class Logistic:
    """1 / (1 + exp(-t f)), as the mixture sum_k w_k Phi(t f / h_k), see :ref:`ep-logistic`.

    Its ``scale`` h and ``weight`` w are (k,). It is off by 1e-7 at most, and by one per cent of the
    smaller probability up to |f| = 30. From t f = -9 downwards the mixture is log-concave only up
    to its error: the curvature, which is below 2e-4 there, is then cut off at 0.
    """

    def __init__(self) -> None:
        x, w = np.polynomial.legendre.leggauss(_N_SCALES)
        low, high = np.log(_SCALE_RANGE)
        self.scale = np.exp(0.5 * (high + low) + 0.5 * (high - low) * x)
        self.weight = w * self.scale * _density_of_scales(self.scale)
        self.weight /= self.weight.sum()

    def moments(self, t: Array, c: Array, v: Array) -> TiltedMoments:
        parts = _probit_moments(t, c, self.scale[:, None] ** 2 + v)  # each (k, n)
        log_parts = parts.log_z + np.log(self.weight)[:, None]
        log_z = logsumexp(log_parts, axis=0)
        share = np.exp(log_parts - log_z)
        slope = np.sum(share * parts.slope, axis=0)
        spread = np.sum(share * (parts.slope - slope) ** 2, axis=0)
        curvature = np.maximum(np.sum(share * parts.curvature, axis=0) - spread, 0.0)
        return TiltedMoments(log_z, slope, curvature, np.sum(share * parts.d_v, axis=0))

    def score(self, mean: Array, variance: Array) -> Array:
        log_parts = [  # of the less probable label
            np.log(weight) + log_ndtr(-np.abs(mean) / np.sqrt(scale**2 + variance))
            for scale, weight in zip(self.scale, self.weight, strict=True)
        ]
        return -np.sign(mean) * ndtri_exp(logsumexp(log_parts, axis=0))


def _density_of_scales(h: Array) -> Array:
    """Density of the scales whose mixture of probits is the logistic function."""
    j = _DENSITY_TERMS[:, None]
    sign = np.where(j % 2 == 1, 1.0, -1.0)
    return np.asarray(2.0 * h * np.sum(sign * j**2 * np.exp(-0.5 * (j * h) ** 2), axis=0))


def _probit_moments(t: Array, c: Array, r: Array) -> TiltedMoments:
    """Moments of Phi(t f / h) for r = h^2 + v."""
    root = np.sqrt(r)
    z = t * c / root
    ratio = measure_ratio(z)
    curvature = measure_curvature(z, ratio) / r
    return TiltedMoments(log_ndtr(z), t * ratio / root, curvature, -0.5 * ratio * z / r)


#: By the name that users know.
LIKELIHOODS: dict[str, Likelihood] = {"logistic": Logistic(), "probit": Probit()}


def tempered_moments(
    likelihood: Likelihood, t: Array, c: Array, s: Array, noise: Array, power: Array
) -> TiltedMoments:
    """Moments of p(t | g)^power under g ~ N(c, s), for each row; f is g plus noise.

    Such are the likelihoods of rows that count less than once. The nodes are around where the power
    of the Gaussian that would stand for p has g: N(c, s) alone may have none there.
    """
    whole = likelihood.moments(t, c, noise + s)
    tau, nu = (power * part for part in match_moments(whole.slope, whole.curvature, c, s))
    ratio = 1.0 / (1.0 + s * tau)
    root = np.sqrt(s)
    away = (root * ratio * (nu - tau * c))[:, None] + np.sqrt(ratio)[:, None] * _NODES  # (n, k)
    g = c[:, None] + root[:, None] * away
    exponent = power[:, None]
    rows = np.repeat(np.arange(len(t)), len(_NODES))
    flat = likelihood.moments(t[rows], g.ravel(), noise[rows])
    given = TiltedMoments(*(values.reshape(g.shape) for values in flat))
    log_parts = exponent * given.log_z + _LOG_WEIGHTS + 0.5 * (_NODES**2 - away**2)
    total = logsumexp(log_parts, axis=1)
    share = np.exp(log_parts - total[:, None])
    slopes = exponent * given.slope
    slope = np.sum(share * slopes, axis=1)
    spread = np.sum(share * (slopes - slope[:, None]) ** 2, axis=1)
    curvature = np.sum(share * exponent * given.curvature, axis=1) - spread
    d_v = np.sum(share * exponent * given.d_v, axis=1)
    wide = s > _NARROW
    share, away = share[wide], away[wide]
    place = np.sum(share * away, axis=1)
    variance = np.sum(share * (away - place[:, None]) ** 2, axis=1)  # in units of s
    slope[wide], curvature[wide] = place / root[wide], (1.0 - variance) / s[wide]
    return TiltedMoments(total + 0.5 * np.log(ratio), slope, np.maximum(curvature, 0.0), d_v)
