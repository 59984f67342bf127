r"""Expectations of a squared exponential under Gaussian inputs, with their gradients.

The inputs are x_i ~ N(mu_i, diag(s_i)), the kernel has unit variance and unit length scales,
k(x, z) = exp(-|x - z|^2 / 2), and Z are m inducing inputs. Then

    first_moment[i, a]     = E[k(x_i, z_a)]
                           = prod_k D^-1/2 exp(-(mu - z_a)^2 / (2 D)),         D = 1 + s,
    second_moment_i[a, b]  = E[k(z_a, x_i) k(x_i, z_b)]
                           = prod_k E^-1/2 exp(-apart^2 - (mu - middle)^2 / E),  E = 1 + 2 s,

with apart = (z_a - z_b) / 2 and middle = (z_a + z_b) / 2. Nothing is centred or scaled here: that
is the caller's, who knows the units. Derived in :doc:`/theory/ep`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut
from skvbgp._core.parallel import thread_map

#: Exponentials of a tile of second moments: 2 MiB, which stay in the cache.
_TILE = 2**18


class FirstMomentGradients(NamedTuple):
    """Gradients of a scalar in the arguments of `first_moment`."""

    mu: Array  # (n, d)
    s: Array  # (n, d)
    Z: Array  # (m, d)


class SecondMomentGradients(NamedTuple):
    """Gradients of a scalar in the arguments of `SecondMoment`, and in the weights of its rows."""

    mu: Array  # (n, d)
    s: Array  # (n, d)
    Z: Array  # (m, d)
    w: Array  # (n,)


def first_moment(mu: Array, s: Array, Z: Array) -> Array:
    """E[k(x_i, z_a)], (n, m), for means and variances (n, d) and inducing inputs (m, d)."""
    D = 1.0 + s  # (n, d)
    exponent = (mu / D) @ Z.T  # (n, m)
    exponent -= (0.5 / D) @ (Z**2).T
    exponent -= 0.5 * np.sum(mu**2 / D + np.log(D), axis=1)[:, None]
    return np.exp(exponent, out=exponent)


def first_moment_vjp(mu: Array, s: Array, Z: Array, W: Array) -> FirstMomentGradients:
    """Gradients from W (n, m), the cotangent of the logarithm of `first_moment`."""
    precision = 1.0 / (1.0 + s)
    w, WZ = W.sum(axis=1)[:, None], W @ Z
    squares = w * mu**2 - 2.0 * mu * WZ + W @ Z**2  # sum_a W_ia (mu_i - z_a)^2
    return FirstMomentGradients(
        mu=(WZ - w * mu) * precision,
        s=0.5 * (squares * precision - w) * precision,
        Z=W.T @ (mu * precision) - Z * (W.T @ precision),
    )


class SecondMoment:
    """E[k(z_a, x_i) k(x_i, z_b)] of every row, through weighted sums and quadratic forms.

    Only the pairs a <= b are formed, n m (m + 1) / 2 exponentials. The exponent is a product of
    features of the row and features of the pair,

        [2 mu / E, -1 / E, 1, -sum_k (mu^2 / E + log(E) / 2)] . [middle, middle^2, -|apart|^2, 1],

    so a tile of rows is one matrix product and one exponential. The exponentials are kept for later
    calls if there are no more than ``n_kept``.
    """

    def __init__(self, mu: Array, s: Array, Z: Array, n_kept: int) -> None:
        self._mu, self._E, self._Z = mu, 1.0 + 2.0 * s, Z
        self._a, self._b = np.triu_indices(len(Z))  # (M,) pairs of inducing inputs
        self._middle = 0.5 * (Z[self._a] + Z[self._b])  # (M, d)
        self._apart = 0.5 * (Z[self._a] - Z[self._b])  # (M, d)
        closeness = -np.sum(self._apart**2, axis=1, keepdims=True)
        pairs = [self._middle, self._middle**2, closeness, np.ones_like(closeness)]
        self._pair_features = np.hstack(pairs).T  # (2 d + 2, M)
        constant = -np.sum(mu**2 / self._E + 0.5 * np.log(self._E), axis=1, keepdims=True)
        rows = [2.0 * mu / self._E, -1.0 / self._E, np.ones_like(constant), constant]
        self._row_features = np.hstack(rows)  # (n, 2 d + 2)
        self._tiles = cut(len(mu), max(1, _TILE // len(self._a)))
        self._multiplicity = np.where(self._a == self._b, 1.0, 2.0)  # (M,)
        self._tile_values: dict[int, Array] = {}
        self._keeps = len(mu) * len(self._a) <= n_kept

    def weighted_sum(self, w: Array) -> Array:
        """Sum over rows with weights (n,), (m, m); with weights (n, p), (p, m, m)."""
        matrices = np.empty((*w.shape[1:], len(self._Z), len(self._Z)))
        sums = sum(self._map(lambda rows, T: w[rows].T @ T))  # (..., M)
        matrices[..., self._a, self._b] = matrices[..., self._b, self._a] = sums
        return matrices

    def quadratic_forms(self, V: Array) -> Array:
        """Trace with a symmetric V (m, m) of each row, (n,); (n, p) for a stack (p, m, m)."""
        v = self._pair_weights(V)
        return np.concatenate(self._map(lambda rows, T: T @ v.T))

    def pair_forms(self, V: Array, features: Callable[[Array, Array], Array]) -> Array:
        """Traces with V (m, m) whose pairs have several weights each, (n, p).

        ``features(middle, apart)``, of arrays (M, d), gives these weights (M, p).
        """
        weights = self._pair_weights(V)[:, None] * features(self._middle, self._apart)
        return np.concatenate(self._map(lambda rows, T: T @ weights))

    def matrices(self) -> Array:
        """Those of all rows, (n, m, m)."""
        matrices = np.empty((len(self._mu), len(self._Z), len(self._Z)))
        for rows, values in self._map(lambda rows, T: (rows, T)):
            matrices[rows, self._a, self._b] = matrices[rows, self._b, self._a] = values
        return matrices

    def vjp(self, w: Array, V: Array, mixture: Array | None = None) -> SecondMomentGradients:
        """Gradients of sum_i w_i tr(second_moment_i V), for weights (n,) and a symmetric V (m, m).

        With a mixture (n, p), V is a stack (p, m, m), and row i has sum_p mixture_ip V_p.
        """
        v = self._pair_weights(V)

        def tile_vjp(rows: slice, T: Array) -> tuple[Array, Array]:
            Q = T * (v if mixture is None else mixture[rows] @ v)
            weighted = w[rows, None] * self._row_features[rows]
            return Q @ self._pair_features.T, weighted.T @ Q  # (rows, 2 d + 2), (2 d + 2, M)

        of_rows, of_pairs = zip(*self._map(tile_vjp), strict=True)
        sums = np.concatenate(of_rows)
        d_mu, d_s = self._rows_vjp(w[:, None] * sums)
        return SecondMomentGradients(d_mu, d_s, self._pairs_vjp(sum(of_pairs).T), sums[:, -1])

    def _rows_vjp(self, d_features: Array) -> tuple[Array, Array]:
        """Gradients in mu and s from those in the features of the rows, (n, 2 d + 2)."""
        ratio, d = self._mu / self._E, self._mu.shape[1]
        d_first, d_second, q = d_features[:, :d], d_features[:, d : 2 * d], d_features[:, -1:]
        d_mu = 2.0 * (d_first / self._E - ratio * q)
        d_s = 2.0 * (d_second / self._E - 2.0 * ratio * d_first) / self._E
        d_s += q * (2.0 * ratio**2 - 1.0 / self._E)
        return d_mu, d_s

    def _pairs_vjp(self, d_features: Array) -> Array:
        """Gradient in Z from that in the features of the pairs, (M, 2 d + 2)."""
        m, d = self._Z.shape
        half = 0.5 * d_features[:, :d] + self._middle * d_features[:, d : 2 * d]
        lever = self._apart * d_features[:, 2 * d, None]
        by_pair = np.zeros((m, m, d))
        by_pair[self._a, self._b] = half - lever
        d_Z = by_pair.sum(axis=1)
        by_pair[self._a, self._b] = half + lever
        return d_Z + by_pair.sum(axis=0)

    def _pair_weights(self, V: Array) -> Array:
        """Weights (M,) of the pairs in a trace with V, or (p, M) for a stack."""
        return self._multiplicity * V[..., self._a, self._b]

    def _map(self, function: Callable[[slice, Array], Any]) -> list[Any]:
        """``function(rows, exponentials)`` of every tile."""
        return thread_map(
            lambda k, rows: function(rows, self._exponentials(k, rows)), enumerate(self._tiles)
        )

    def _exponentials(self, k: int, rows: slice) -> Array:
        """The pairs' values in a tile of rows, (rows, M)."""
        if k in self._tile_values:
            return self._tile_values[k]
        exponent = self._row_features[rows] @ self._pair_features
        values: Array = np.exp(exponent, out=exponent)
        if self._keeps:
            self._tile_values[k] = values
        return values


def make_hermite_rule(n: int) -> tuple[Array, Array]:
    """Nodes and weights (n,) of expectations of a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()
