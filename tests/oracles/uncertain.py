"""Covariances at uncertain inputs: averages over Gauss-Hermite points, one pair at a time."""

import numpy as np
from scipy.integrate import quad
from scipy.special import gamma


def average_squared_exponential(mean, variance, other_mean, other_variance, length_scale, n=180):
    """E exp(-r^2 / 2) over independent normal inputs of both rows, input by input."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    weights = weights / weights.sum()
    value = 1.0
    for m, s, o, t, ell in zip(
        mean, variance, other_mean, other_variance, length_scale, strict=True
    ):
        x, z = m + np.sqrt(s) * nodes, o + np.sqrt(t) * nodes
        k = np.exp(-0.5 * (x[:, None] - z[None]) ** 2 / ell**2)
        value *= weights @ k @ weights
    return value


def average_rational_quadratic(mean, variance, other_mean, other_variance, length_scale, alpha):
    """The scale mixture of squared exponentials that it is, with the factor of unit scale.

    With a gamma variable g of shape alpha, k(r^2) = E exp(-g r^2 / (2 alpha)).
    """
    spread = np.asarray(length_scale) ** 2 + variance + other_variance
    r2 = np.sum((np.asarray(mean) - other_mean) ** 2 / spread)

    def integrand(g):
        return g ** (alpha - 1.0) * np.exp(-g) / gamma(alpha) * np.exp(-0.5 * g / alpha * r2)

    factor = np.sqrt(np.prod(np.asarray(length_scale) ** 2 / spread))
    return factor * quad(integrand, 0.0, np.inf, limit=200)[0]
