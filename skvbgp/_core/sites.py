"""Gaussian sites, which stand for likelihoods in expectation propagation."""

from __future__ import annotations

from skvbgp._core.linalg import Array


def match_moments(
    slope: Array, curvature: Array, mean: Array, variance: Array
) -> tuple[Array, Array]:
    """tau and nu of sites exp(nu f - tau f^2 / 2) that give cavities the likelihoods' moments.

    The log normaliser of a likelihood under a cavity N(mean, variance) has these first and minus
    second derivatives in the mean: f has the mean ``mean + variance * slope`` and the variance
    ``variance - variance**2 * curvature`` there.
    """
    rest = 1.0 - variance * curvature
    return curvature / rest, (slope + mean * curvature) / rest
