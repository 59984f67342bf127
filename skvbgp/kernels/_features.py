"""Random features of kernels: functions whose products average to the covariance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import betaincinv, chdtri, gammainccinv

from skvbgp._core.draws import share_members
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, cut
from skvbgp.kernels._anova import Anova
from skvbgp.kernels._base import Kernel
from skvbgp.kernels._compose import list_terms
from skvbgp.kernels._constant import Constant, White
from skvbgp.kernels._linear import Linear
from skvbgp.kernels._periodic import Periodic
from skvbgp.kernels._stationary import RBF, Matern, RationalQuadratic

#: Frequencies of each term of a kernel for draws of functions, and functions that have them in
#: common.
FREQUENCIES, SHARING = 512, 20
#: Waves of a tile of rows, cosines and sines.
_TILE = 2**15
#: Radii of frequencies that a share of at least this exceed are drawn as often at each order of
#: magnitude of that share as at others.
_LEAST_TAIL = 1e-8


def multiply_columns(left: Array, right: Array) -> Array:
    """Products (n, l r) of each column (n, l) with each of others (n, r), also of no rows."""
    n_products = left.shape[1] * right.shape[1]
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), n_products)


@dataclass(frozen=True)
class Term:
    """Features of a product of elementary kernels."""

    #: (m, d): of a wave each: those of stationary factors add up. One of zero if there is no such
    #: factor.
    frequencies: Array
    amplitudes: Array  # (m,) of these waves. Their squares add up to the product of the constants.
    lines: tuple[Linear, ...]  # linear factors, whose features are exact

    @property
    def n_features(self) -> int:
        return 2 * len(self.amplitudes) * (1 + self.frequencies.shape[1]) ** len(self.lines)

    def __call__(self, X: Array) -> Array:
        features = make_waves(X @ self.frequencies.T)
        features *= np.tile(self.amplitudes, 2)
        return multiply_columns(features, self._measure_lines(X)) if self.lines else features

    def _measure_lines(self, X: Array) -> Array:
        """Features (n, p) of the linear factors."""
        features = np.ones((len(X), 1))
        for line in self.lines:
            inputs = X / line.length_scale
            parts = np.column_stack([np.full(len(X), line.offset), inputs])
            features = multiply_columns(features, parts)
        return features

    def times(self, X: Array, weights: Array) -> Array:
        """The features times weights (F, s), by rows whose waves stay in the cache.

        With t = tan(a / 2) and c = 2 / (1 + t^2), cos a = c - 1 and sin a = t c: ones are
        subtracted from the functions instead of from every cosine, and amplitudes are those of the
        weights.
        """
        if self.lines:
            return self._sum_lines(X, weights)
        of_cosine, of_sine = np.split(np.tile(self.amplitudes, 2)[:, None] * weights, 2)
        values, ones = np.empty((len(X), weights.shape[1])), of_cosine.sum(axis=0)
        halves = 0.5 * self.frequencies.T
        for rows in cut(len(X), max(1, _TILE // len(weights))):
            t = X[rows] @ halves
            np.tan(t, out=t)
            c = t * t
            c += 1.0
            np.divide(2.0, c, out=c)
            t *= c
            own = np.matmul(c, of_cosine, out=values[rows])
            own += t @ of_sine
            own -= ones
        return values

    def _sum_lines(self, X: Array, weights: Array) -> Array:
        """The same where there are linear factors: waves for every product of theirs."""
        lines, s = self._measure_lines(X), weights.shape[1]
        p = lines.shape[1]
        waves = replace(self, lines=())
        by_line = waves.times(X, weights.reshape(-1, p * s)).reshape(-1, p, s)
        return np.einsum("np,nps->ns", lines, by_line)

    def gradient(self, x: Array) -> Array:
        """Derivatives (F, d) of the features at one row x (d,)."""
        features = np.tile(self.amplitudes, 2) * make_waves((self.frequencies @ x)[None])[0]
        cosine, sine = np.split(features, 2)
        slopes = np.vstack([-sine[:, None] * self.frequencies, cosine[:, None] * self.frequencies])
        for line in self.lines:
            parts = np.append(line.offset, x / line.length_scale)
            d_parts = np.vstack(
                [np.zeros(len(x)), np.diag(1.0 / (line.length_scale * np.ones_like(x)))]
            )
            slopes = slopes[:, None, :] * parts[:, None] + features[:, None, None] * d_parts
            slopes, features = slopes.reshape(-1, len(x)), np.outer(features, parts).ravel()
        return slopes


@dataclass(frozen=True)
class Features:
    """Features phi (n, F) with phi(X) phi(Z)' close to k(X, Z), exact at X = Z if k is stationary.

    Functions phi(x)' v with standard normal v are draws of the Gaussian process.
    """

    terms: tuple[Term, ...]

    def __call__(self, X: Array) -> Array:
        parts = [term(X) for term in self.terms]
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def times(self, X: Array, weights: Array) -> Array:
        """Functions phi(X) weights (n, s), faster than by the features."""
        ends = np.cumsum([term.n_features for term in self.terms])[:-1]
        parts = zip(self.terms, np.split(weights, ends), strict=True)
        values, *others = (term.times(X, own) for term, own in parts)
        for other in others:
            values += other
        return values

    def gradient(self, x: Array) -> Array:
        """Derivatives (F, d) of the features at one row x (d,)."""
        return np.vstack([term.gradient(x) for term in self.terms])


@dataclass(frozen=True)
class PriorPaths:
    """Functions s of a process a priori, which have random features in common."""

    features: Any  # `Features`, or what is made of them
    weights: Array  # (F, s), standard normal

    def __call__(self, X: Array) -> Array:
        """Values (n, s)."""
        return self.features.times(X, self.weights)

    def gradient(self, x: Array) -> Array:
        """Derivatives (d, s) at one row x (d,)."""
        return self.features.gradient(x).T @ self.weights


def draw_features(kernel: Kernel, d: int, m: int, rng: np.random.RandomState) -> Features:
    """Features of a kernel of d inputs, with m random frequencies for each of its terms.

    White noise, which is no function, has none, and raises ValueError.
    """
    return Features(tuple(_draw_term(leaves, d, m, rng) for leaves in list_terms(kernel)))


def share_functions(
    n: int, shares: Array, rng: np.random.RandomState
) -> Iterator[tuple[int, Index]]:
    """Sets of some of n functions, and which of C things of these shares (C,) each set goes by."""
    for c, members in share_members(n, shares, rng):
        for start in range(0, len(members), SHARING):
            yield c, members[start : start + SHARING]


def make_waves(phases: Array) -> Array:
    """Cosines and sines of phases (n, m), side by side (n, 2 m); the phases are overwritten.

    With t = tan(a / 2), cos a = 2 / (1 + t^2) - 1 and sin a = 2 t / (1 + t^2): NumPy's tangent is
    vectorised, and this a fifth of the time that its cosine and sine take.
    """
    n, m = phases.shape
    waves = np.empty((n, 2 * m))
    cosine, sine = waves[:, :m], waves[:, m:]
    phases *= 0.5
    t = np.tan(phases, out=phases)
    np.multiply(t, t, out=cosine)
    cosine += 1.0
    np.divide(2.0, cosine, out=cosine)
    np.multiply(t, cosine, out=sine)
    cosine -= 1.0
    return waves


def _draw_term(leaves: list[Kernel], d: int, m: int, rng: np.random.RandomState) -> Term:
    constants = [leaf.value for leaf in leaves if isinstance(leaf, Constant)]
    constants += [leaf.diag(np.zeros((1, d)))[0] for leaf in leaves if isinstance(leaf, Anova)]
    lines = tuple(leaf for leaf in leaves if isinstance(leaf, Linear))
    waves = [leaf for leaf in leaves if not isinstance(leaf, Constant | Linear)]
    frequencies = np.zeros((m if waves else 1, d))
    weights = np.ones(len(frequencies))
    for leaf in waves:
        drawn, counts = _draw_frequencies(leaf, frequencies.shape, rng)
        frequencies += drawn
        weights *= counts
    amplitudes = np.sqrt(float(np.prod(constants)) * weights / weights.sum())
    return Term(frequencies, amplitudes, lines)


def _draw_frequencies(
    leaf: Any, shape: tuple[int, int], rng: np.random.RandomState
) -> tuple[Array, Array]:
    """Frequencies (m, d) from the spectral density of a stationary kernel, and weights (m,)."""
    m, d = shape
    if isinstance(leaf, Periodic) and not (leaf.isotropic and d > 1):
        # exp((cos a - 1) / l^2) has the weights of a Skellam variable at its harmonics
        rate = 0.5 / np.broadcast_to(leaf.length_scale, shape) ** 2
        harmonics = rng.poisson(rate) - rng.poisson(rate)
        return 2.0 * np.pi / np.asarray(leaf.period) * harmonics, np.ones(m)
    if isinstance(leaf, Anova):
        return leaf.draw_frequencies(shape, rng), np.ones(m)
    if not isinstance(leaf, RBF | Matern | RationalQuadratic):
        reason = "white noise is no function" if isinstance(leaf, White) else "no spectrum is known"
        raise ValueError(f"Functions cannot be drawn from {leaf!r}: {reason}.")
    tail, weights = _draw_tails(m, rng)
    if isinstance(leaf, Matern):  # a normal vector over the root of a mean square of 2 nu others
        share = betaincinv(leaf.nu, 0.5 * d, tail)
        radius = np.sqrt(2.0 * leaf.nu * (1.0 / share - 1.0))
    else:
        radius = np.sqrt(chdtri(d, tail))
    if isinstance(leaf, RationalQuadratic):  # one times the root of a gamma variable
        tail, counts = _draw_tails(m, rng)
        radius = radius * np.sqrt(gammainccinv(leaf.alpha, tail) / leaf.alpha)
        weights = weights * counts
    direction = rng.standard_normal(shape)
    direction *= (radius / np.linalg.norm(direction, axis=1))[:, None]
    return direction / np.asarray(leaf.length_scale), weights


def _draw_tails(m: int, rng: np.random.RandomState) -> tuple[Array, Array]:
    """Probabilities u (m,) that something uniform is below, and weights (m,) of these draws.

    One half of u is uniform and the other half has a uniform logarithm, both by strata, so that
    what is rare is drawn with a small weight instead of hardly ever with a large one. Averages
    with the weights, m in all, are those of uniform draws.
    """
    half = m // 2
    rare, plain = (
        (np.arange(size) + rng.uniform(size=size)) / max(size, 1) for size in (half, m - half)
    )
    u = np.append(_LEAST_TAIL**rare, plain)
    density = (m - half) + half * (u >= _LEAST_TAIL) / (-np.log(_LEAST_TAIL) * u)
    order = rng.permutation(m)
    return u[order], m / density[order]
