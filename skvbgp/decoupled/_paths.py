r"""Draws of the function by pathwise conditioning, and the derivatives of covariances.

A draw g of the prior from random features, with values g(beta) at the covariance's basis, becomes
one of the posterior by the coefficients that a parametrization replaces these values with,

    f(x) = g(x) + k_xa a + k_xb c.

A point with the multiplier c has for the feature of a wave of the frequency r (per length scale)
that of its location times c^(1/2) exp(-r^2 (c^2 - 1) / 4), by input. See :doc:`/theory/decoupled`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skvbgp._core.draws import join_members
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates
from skvbgp.base import ScaledDraws
from skvbgp.decoupled._basis import Basis, BasisKernel, GeneralizedSE, PlainKernel
from skvbgp.decoupled._variational_process import VariationalProcess
from skvbgp.kernels._features import FREQUENCIES, Features, PriorPaths, draw_features


def contract_slopes(kernel: BasisKernel, X: Array, Z: Basis, C: Array) -> Array:
    """Derivatives of k(X, Z) C in each input of scaled rows, (n, d, s) for C (m, s)."""
    if isinstance(kernel, PlainKernel):
        inputs, points = kernel.coordinates.original(X), kernel.coordinates.original(Z.Z)
        slopes = [kernel.kernel.gradient(x, points).T @ C for x in inputs]
        return np.array(slopes) * kernel.coordinates.scale[:, None]
    assert isinstance(kernel, GeneralizedSE)
    K, square = kernel(Basis(X), Z), 1.0 + np.exp(2.0 * _spread_log_c(Z))
    rates = -2.0 / (kernel.length_unit**2 * square)  # (m, d)
    columns = zip(X.T, Z.Z.T, rates.T, strict=True)
    slopes = [((x[:, None] - z) * K) @ (rate[:, None] * C) for x, z, rate in columns]
    return np.stack(slopes, axis=1)


def slope_variances(kernel: BasisKernel, X: Array) -> Array:
    """Prior variances of the function's derivatives at scaled rows, (n, d)."""
    if isinstance(kernel, PlainKernel):
        inputs = kernel.coordinates.original(X)
        return kernel.kernel.curvature(inputs) * kernel.coordinates.scale**2
    return np.outer(kernel.diag(Basis(X)), 1.0 / kernel.length_unit**2)


def measure_slopes(process: VariationalProcess, X: Array) -> tuple[Array, Array]:
    """Mean and variance (n, d) of the derivatives of the only function at scaled rows."""
    kernel, prior = process.kernel, slope_variances(process.kernel, X)
    A = contract_slopes(kernel, X, process.beta, process.T)  # (n, d, m_b)
    mean = contract_slopes(kernel, X, process.alpha, process.a)[..., 0] + A @ process.w[:, 0]
    variance = prior + np.einsum("ndj,ndj->nd", A @ process.M[0], A)
    return mean, np.maximum(variance, 1e-10 * prior)


@dataclass(frozen=True)
class BasisFeatures:
    """Random features of a kernel, for the points of a basis too."""

    kernel: BasisKernel
    features: Features
    coordinates: Coordinates  # in which a scaled row is what the features are of

    @classmethod
    def draw(cls, kernel: BasisKernel, d: int, rng: np.random.RandomState) -> BasisFeatures:
        if isinstance(kernel, PlainKernel):
            prior, coordinates = kernel.kernel, kernel.coordinates
        else:
            coordinates = Coordinates(np.zeros(d), np.ones(d))
            prior = kernel.original(coordinates, 1.0)
        return cls(kernel, draw_features(prior, d, FREQUENCIES, rng), coordinates)

    def __call__(self, points: Basis) -> Array:
        """Those of points (m, F)."""
        values = self.features(self.coordinates.original(points.Z))
        if points.log_c is None:
            return values
        (term,) = self.features.terms
        log_c, squares = _spread_log_c(points), (term.frequencies * self.kernel.length_unit) ** 2
        log_factor = 0.5 * log_c.sum(axis=1)[:, None] - 0.25 * np.expm1(2.0 * log_c) @ squares.T
        return values * np.tile(np.exp(log_factor), 2)

    def times(self, X: Array, weights: Array) -> Array:
        """Functions (n, s) of weights (F, s), at scaled rows."""
        return self.features.times(self.coordinates.original(X), weights)

    def gradient(self, x: Array) -> Array:
        """Derivatives (F, d) of those of a point of the function, at one scaled row."""
        return self.features.gradient(self.coordinates.original(x)) * self.coordinates.scale


class Paths(NamedTuple):
    """Some functions with random features in common."""

    members: Index  # which of all functions they are, (s,)
    prior: PriorPaths  # of `BasisFeatures`
    coefficients: Array  # of the covariance's basis, (m_b, s)


@dataclass(frozen=True)
class FunctionDraws(ScaledDraws):
    """Functions S from the posterior of a single function, on the scale of y."""

    offset: float  # of the scaled function
    process: VariationalProcess
    sets: tuple[Paths, ...]

    def _evaluate(self, X: Array) -> Array:
        process, rows = self.process, Basis(X)
        priors = [paths.prior(X) for paths in self.sets]
        mean = process.kernel(rows, process.alpha) @ process.a + self.offset
        own = process.kernel(rows, process.beta) @ self._coefficients
        return mean + own + self._gather(priors)

    def _differentiate(self, X: Array) -> Array:
        process = self.process
        priors = [np.array([paths.prior.gradient(x) for x in X]) for paths in self.sets]
        mean = contract_slopes(process.kernel, X, process.alpha, process.a)
        own = contract_slopes(process.kernel, X, process.beta, self._coefficients)
        return mean + own + self._gather(priors)

    @property
    def _coefficients(self) -> Array:
        return self._gather([paths.coefficients for paths in self.sets])

    def _gather(self, parts: list[Array]) -> Array:
        return join_members([paths.members for paths in self.sets], parts)


def _spread_log_c(points: Basis) -> Array:
    """Log multipliers of each point and input, (m, d)."""
    if points.log_c is None:
        return np.zeros_like(points.Z)
    log_c = points.log_c[:, None] if points.log_c.ndim == 1 else points.log_c
    return np.broadcast_to(log_c, points.Z.shape)
