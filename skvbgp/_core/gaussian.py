"""Gaussians: the whitened u of inducing inputs, and what families share.

With the prior covariance ``Sigma = L L'`` of the inducing outputs s, the whitened
outputs ``u = L^-1 s`` are standard normal under the prior. q(u) is held by its natural
parameters, which a data set enters by

    precision = I + sum of information matrices,   shift = sum of information vectors,

so that chunks of data add, and a natural-gradient step is a convex combination.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from skvbgp._core.linalg import (
    LOG_2PI,
    Array,
    cholesky,
    cholesky_vjp,
    eigh,
    exact_cholesky,
    jittered_cholesky,
    log_determinant,
    tril_gram,
    tril_inverse,
    tril_times,
)
from skvbgp._core.pickling import PickledByFields


@dataclass(eq=False)
class InducingOutputs(PickledByFields):
    """Covariance function and inducing inputs Z (m, d), with what all rows share: u = L^-1 f(Z).

    The inducing outputs may differ from f(Z) by noise of a small variance, the nugget.
    """

    kernel: Any  # a `Kernel`, or another covariance function of rows that Z are like
    Z: Array
    nugget: float = 0.0

    def __post_init__(self) -> None:
        _ = self.L_inv  # once, not in each thread

    @cached_property
    def K(self) -> Array:
        """The kernel at Z, (m, m)."""
        return np.asarray(self.kernel(self.Z))

    @cached_property
    def L(self) -> Array:
        """Lower Cholesky factor of the covariance of the inducing outputs, (m, m)."""
        K = self.K + self.nugget * np.eye(len(self.Z)) if self.nugget else self.K
        return jittered_cholesky(K, "covariance of the inducing outputs")

    @cached_property
    def L_inv(self) -> Array:
        return tril_inverse(self.L)

    @cached_property
    def K_inv(self) -> Array:
        """(m, m)."""
        return tril_gram(self.L_inv)

    def whiten(self, X: Array) -> Array:
        """A = k(X, Z) L^-T, (n, m): f(X) = A u but for what u leaves open."""
        return tril_times(self.L_inv, self.kernel(X, self.Z).T).T

    def vjp(self, LtdL: Array, dK: Array | float = 0.0) -> tuple[Array, Array]:
        """Gradients in theta (p,) and Z (m, d) from ``L.T @ dL`` and, if any, from that of K."""
        dtheta, dZ, _ = self.kernel.vjp(self.Z, None, self.K, cholesky_vjp(LtdL, self.L_inv) + dK)
        return dtheta, dZ


@dataclass(frozen=True)
class WhitenedGaussian(PickledByFields):
    """q(u) = N(precision^-1 shift, precision^-1)."""

    precision: Array  # (m, m)
    shift: Array  # (m,)

    @classmethod
    def standard(cls, m: int) -> "WhitenedGaussian":
        """The prior of m whitened outputs."""
        return cls(np.eye(m), np.zeros(m))

    @classmethod
    def of_information(cls, information: Array, shift: Array) -> "WhitenedGaussian":
        """What some data say of u, which is a priori standard normal."""
        precision = information.copy()
        precision.flat[:: len(precision) + 1] += 1.0
        return cls(precision, shift)

    def with_information(self, information: Array, shift: Array) -> "WhitenedGaussian":
        """q(u) after more data."""
        return WhitenedGaussian(self.precision + information, self.shift + shift)

    @cached_property
    def precision_factor(self) -> Array:
        """Lower Cholesky factor of the precision, (m, m)."""
        return cholesky(self.precision, "precision of q(u)")

    def refuse_jitter(self) -> None:
        """Have the factor be that of the precision as it is, or `NotPositiveDefiniteError`."""
        factor = exact_cholesky(self.precision, "precision of q(u)")
        vars(self)["precision_factor"] = factor  # where the property keeps it, too

    @cached_property
    def precision_factor_inv(self) -> Array:
        return tril_inverse(self.precision_factor)

    @cached_property
    def covariance(self) -> Array:
        """(m, m)."""
        return tril_gram(self.precision_factor_inv)

    @cached_property
    def mean(self) -> Array:
        """(m,)."""
        R = self.precision_factor_inv
        return R.T @ (R @ self.shift)

    @cached_property
    def excess_moment(self) -> Array:
        """``E_q[u u'] - E_p[u u']``, the moment by which q departs from the prior, (m, m)."""
        W = self.covariance + np.outer(self.mean, self.mean)
        W.flat[:: len(W) + 1] -= 1.0
        return W

    def draw(self, n: int, rng: np.random.RandomState) -> Array:
        """Draws (m, n) of u."""
        normal = rng.standard_normal((len(self.shift), n))
        return self.mean[:, None] + self.precision_factor_inv.T @ normal

    def moved(self, v: Array) -> "WhitenedGaussian":
        """The distribution of u + v."""
        return WhitenedGaussian(self.precision, self.shift + self.precision @ v)

    def kl_to(self, other: "WhitenedGaussian") -> float:
        """KL(q(u) || another Gaussian of u)."""
        distance = self.mean - other.mean
        trace = float(np.vdot(other.precision, self.covariance))
        log_det = log_determinant(self.precision_factor) - log_determinant(other.precision_factor)
        return 0.5 * (
            trace + float(distance @ other.precision @ distance) - len(distance) + log_det
        )

    @cached_property
    def kl_to_prior(self) -> float:
        """KL(q(u) || N(0, I))."""
        trace = float(np.sum(self.precision_factor_inv**2))
        log_det = log_determinant(self.precision_factor)
        return 0.5 * (trace + float(self.mean @ self.mean) - len(self.mean) + log_det)


def kl_terms(
    mean: Array, variance: Array, prior_mean: Array | float, prior_variance: Array | float
) -> tuple[Array, Array, Array]:
    """KL of each entry of factorised Gaussians, and its gradients in the moments of the first."""
    shift = (mean - prior_mean) / prior_variance
    ratio = variance / prior_variance
    terms = 0.5 * (ratio + shift * (mean - prior_mean) - 1.0 - np.log(ratio))
    return terms, shift, 0.5 * (1.0 / prior_variance - 1.0 / variance)


@dataclass(frozen=True)
class ZeroMeanNormal:
    """N(y | 0, C) at one y, or the product of several at the columns of y."""

    L_inv: Array  # (n, n) inverse of the lower Cholesky factor of C
    weights: Array  # (n,) or (n, k) C^-1 y
    log_density: float

    @classmethod
    def of(cls, L: Array, y: Array) -> Self:
        """From the lower Cholesky factor L of C."""
        L_inv = tril_inverse(L)
        Ly = L_inv @ y
        return cls(L_inv, (Ly.T @ L_inv).T, log_normal_density(Ly, log_determinant(L)))

    def gradient(self) -> Array:
        """Gradient of the log density in C, (n, n)."""
        weights = self.weights.reshape(len(self.weights), -1)
        dC = tril_gram(self.L_inv)
        dC *= -0.5 * weights.shape[1]
        dC += (0.5 * weights) @ weights.T
        return dC


def log_normal_density(white: Array, log_det: float) -> float:
    """log N(y | 0, C) from L^-1 y, (n,) or (n, k), where C = L L', and from log |C|."""
    n_columns = white.size // len(white)
    constant = n_columns * (len(white) * LOG_2PI + log_det)
    return -0.5 * (constant + float(np.vdot(white, white)))


def log_normal(error: Array, variance: Array) -> Array:
    """log N(error | 0, variance), entry by entry."""
    return -0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance)


def scan_log_normal_density(K: Array, y: Array, signal: Array, noise: Array) -> Array:
    """log N(y | 0, a K + s2 I) at many a and s2, (k,) each, by one decomposition of K (n, n).

    Several columns of y are independent of one another.
    """
    eigenvalues, V = eigh(K)
    variances = np.multiply.outer(np.maximum(eigenvalues, 0.0), signal) + noise  # (n, k)
    squares = np.atleast_2d((y.T @ V) ** 2)  # (k, n)
    terms = len(squares) * (LOG_2PI + np.log(variances)) + squares.sum(axis=0)[:, None] / variances
    return -0.5 * np.sum(terms, axis=0)
