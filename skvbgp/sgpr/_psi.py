r"""The statistic Psi of [Yu2019]_ (Appendix C) and its gradients, as matrix products.

Lambda x has the moments nu x and xi x^2, so a diagonal C^-1 needs no more than the second
moments of :mod:`skvbgp._core.expectations`. A dense one couples the rows: for every pair of
rows (x, x') and of rotated inducing inputs (z, z')

    E_q[k(x, z) k(x', z')] = exp( c0 + sum_k c1 z_k^2 + c2 z'_k^2 + c3 z_k z'_k + c4 z_k + c5 z'_k )

(unit signal variance) with coefficients c that depend on (x, x', nu, xi) alone. The
exponent is therefore ONE product of the coefficients, (pairs of rows, 5 d), with the
features of the inducing inputs, (5 d, pairs of inducing inputs). Derivation:
``doc/theory/expectations.rst``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from skvbgp._core.expectations import SecondMoment
from skvbgp._core.linalg import Array
from skvbgp._core.order import cut

#: Exponentials of a tile of a block, and those that are kept for the gradient; 32 MiB.
_TILE = 2**22


class PsiGradients(NamedTuple):
    """Cotangents of the arguments of `psi_statistic`."""

    Z: Array  # (m, d)
    nu: Array  # (d,)
    xi: Array  # (d,)
    C_inv: Array  # like C_inv


def rotate(X: Array, nu: Array, xi: Array) -> tuple[Array, Array]:
    """Mean and variance of Lambda x for every row, each (n, d)."""
    return nu * X, xi * X**2


def rotate_vjp(X: Array, d_mean: Array, d_variance: Array) -> tuple[Array, Array]:
    """Gradients in nu and xi, each (d,)."""
    return np.sum(d_mean * X, axis=0), np.sum(d_variance * X**2, axis=0)


def psi_statistic(X: Array, Z: Array, nu: Array, xi: Array, C_inv: Array) -> DiagonalPsi | DensePsi:
    """E_q(Lambda)[K' C^-1 K] at unit signal variance, for K = k(Lambda X, Z) and rotated Z (m, d).

    Lambda has moments nu and xi (d,). A noise precision (n,) stands for a diagonal matrix. The
    matrix (m, m) is the ``value`` of what is returned, which has a ``vjp``.
    """
    return (DiagonalPsi if C_inv.ndim == 1 else DensePsi)(X, Z, nu, xi, C_inv)


class DiagonalPsi:
    """`psi_statistic` of rows with independent noise."""

    def __init__(self, X: Array, Z: Array, nu: Array, xi: Array, C_inv: Array) -> None:
        self._X, self._C_inv = X, C_inv
        self._moment = SecondMoment(*rotate(X, nu, xi), Z, n_kept=_TILE)
        self.value = self._moment.weighted_sum(C_inv)

    def vjp(self, dPsi: Array) -> PsiGradients:
        """Gradients of ``sum(dPsi * value)`` for a symmetric ``dPsi`` of shape (m, m)."""
        g = self._moment.vjp(self._C_inv, dPsi)
        return PsiGradients(g.Z, *rotate_vjp(self._X, g.mu, g.s), g.w)


class DensePsi:
    """`psi_statistic` of the rows of a block."""

    def __init__(self, X: Array, Z: Array, nu: Array, xi: Array, C_inv: Array) -> None:
        self._Z, self._nu, self._xi = Z, nu, xi
        n, m = len(X), len(Z)
        self._rows, self._columns = np.triu_indices(n)
        on_diagonal = self._rows == self._columns
        self._weights = C_inv[self._rows, self._columns] * np.where(on_diagonal, 0.5, 1.0)
        self._x, self._x_prime = X[self._rows], X[self._columns]  # (R, d)
        self._n = n
        self._c0, c = _coefficients(self._x, self._x_prime, nu, xi)
        self._c = c.reshape(len(c), -1)  # (R, 5 d), in the order of the features
        self._features = _features(Z)  # (5 d, m^2)
        self._kept: list[tuple[slice, Array]] | None = None
        if len(self._rows) * m**2 <= _TILE:
            self._kept = list(self._compute_tiles())
        half = np.zeros(m**2)
        for rows, T in self._tiles():
            half += self._weights[rows] @ T
        self.value = half.reshape(m, m) + half.reshape(m, m).T

    def _compute_tiles(self) -> Iterator[tuple[slice, Array]]:
        height = max(1, _TILE // self._features.shape[1])
        for rows in cut(len(self._rows), height):
            T = self._c[rows] @ self._features  # (rows, m^2)
            T += self._c0[rows, None]
            yield rows, np.exp(T, out=T)

    def _tiles(self) -> Iterator[tuple[slice, Array]]:
        return iter(self._kept) if self._kept is not None else self._compute_tiles()

    def vjp(self, dPsi: Array) -> PsiGradients:
        """Gradients of ``sum(dPsi * value)`` for a symmetric ``dPsi`` of shape (m, m)."""
        d_pair = 2.0 * dPsi.ravel()
        d_weights = np.empty(len(self._rows))
        dc = np.empty_like(self._c)
        d_features = np.zeros_like(self._features)
        for rows, T in self._tiles():
            W = T * d_pair  # (rows, m^2)
            d_weights[rows] = W.sum(axis=1)
            weighted = self._weights[rows, None]
            dc[rows] = (W @ self._features.T) * weighted
            d_features += (self._c[rows] * weighted).T @ W
        d_nu, d_xi = _coefficients_vjp(
            self._x,
            self._x_prime,
            self._nu,
            self._xi,
            self._c.reshape(len(dc), 5, -1),
            d_weights * self._weights,
            dc.reshape(len(dc), 5, -1),
        )
        dC_inv = np.zeros((self._n, self._n))
        dC_inv[self._rows, self._columns] = 0.5 * d_weights
        dC_inv = np.triu(dC_inv) + np.triu(dC_inv, 1).T
        return PsiGradients(_features_vjp(self._Z, d_features), d_nu, d_xi, dC_inv)

    def matrices(self, H: Array) -> Array:
        """E_q(Lambda)[K' h h' K] for each row h of H (k, n), (k, m, m)."""
        m = len(self._Z)
        half = np.zeros((len(H), m**2))
        for pairs, T in self._tiles():
            a, b = self._rows[pairs], self._columns[pairs]
            weights = np.where(a == b, 0.5, 1.0)
            for some in cut(len(H), max(1, _TILE // len(T))):
                half[some] += (weights * H[some][:, a] * H[some][:, b]) @ T
        matrices = half.reshape(-1, m, m)
        return matrices + matrices.mT


def _coefficients(x: Array, x_prime: Array, nu: Array, xi: Array) -> tuple[Array, Array]:
    """c0 (R,) and c1..c5 (R, 5, d) of the module's exponent."""
    s = x**2 + x_prime**2
    D = xi * s + 1.0
    c0 = -0.5 * np.sum(nu**2 * s / D + np.log(D), axis=1)
    c = np.stack(
        [
            -0.5 * (xi * x_prime**2 + 1.0) / D,
            -0.5 * (xi * x**2 + 1.0) / D,
            xi * x * x_prime / D,
            x * nu / D,
            x_prime * nu / D,
        ],
        axis=1,
    )
    return c0, c


def _coefficients_vjp(
    x: Array, x_prime: Array, nu: Array, xi: Array, c: Array, dc0: Array, dc: Array
) -> tuple[Array, Array]:
    """Gradients in nu and xi, each (d,)."""
    s = x**2 + x_prime**2
    D = xi * s + 1.0
    dc0 = dc0[:, None]
    d_nu = np.sum((dc[:, 3] * x + dc[:, 4] * x_prime - dc0 * nu * s) / D, axis=0)
    dD = -np.sum(dc * c, axis=1) / D + 0.5 * dc0 * (nu**2 * s / D - 1.0) / D
    explicit = -0.5 * dc[:, 0] * x_prime**2 - 0.5 * dc[:, 1] * x**2 + dc[:, 2] * x * x_prime
    d_xi = np.sum(explicit / D + dD * s, axis=0)
    return d_nu, d_xi


def _features(Z: Array) -> Array:
    """z^2, z'^2, z z', z and z' of all pairs, (5 d, m^2)."""
    m = len(Z)
    z, z_prime = np.repeat(Z, m, axis=0).T, np.tile(Z, (m, 1)).T  # (d, m^2)
    return np.concatenate([z**2, z_prime**2, z * z_prime, z, z_prime])


def _features_vjp(Z: Array, d_features: Array) -> Array:
    """Gradient in Z from that in the features."""
    m, d = Z.shape
    first, second, product, left, right = d_features.reshape(5, d, m, m)
    dZ = 2.0 * Z.T * (first.sum(axis=2) + second.sum(axis=1))
    dZ += left.sum(axis=2) + right.sum(axis=1)
    dZ += np.einsum("kij,jk->ki", product, Z) + np.einsum("kij,ik->kj", product, Z)
    return np.asarray(dZ.T)
