r"""The statistic Psi of [Yu2019]_ (Appendix C) and its gradients, as matrix products.

For every pair of rows (x, x') and of rotated inducing inputs (z, z')

    E_q[k(x, z) k(x', z')] = exp( c0 + sum_k c1 z_k^2 + c2 z'_k^2 + c3 z_k z'_k + c4 z_k + c5 z'_k )

(unit signal variance) with coefficients c that depend on (x, x', nu, xi) alone. The
exponent is therefore ONE product of the coefficients, (pairs of rows, 5 d), with the
features of the inducing inputs, (5 d, pairs of inducing inputs). With a diagonal
C^-1 only x = x' occurs: then c1 = c2, c4 = c5, Psi is symmetric term by term, and
three features of the pairs z <= z' suffice. Derivation: ``doc/theory/expectations.rst``.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array

#: Numbers of one tile of exponentials; 2**22 doubles are 32 MiB.
_TILE = 2**22


class PsiGradients(NamedTuple):
    """Cotangents of the arguments of :class:`PsiStatistic`."""

    Z: Array  # (m, d)
    nu: Array  # (d,)
    xi: Array  # (d,)
    C_inv: Array  # like C_inv


class PsiStatistic:
    """E_q(Lambda)[K' C^-1 K] at unit signal variance, for K = k(Lambda X, Z).

    Parameters
    ----------
    X : ndarray of shape (n, d)
    Z : ndarray of shape (m, d)
        Rotated inducing inputs.
    nu, xi : ndarray of shape (d,)
        Moments of q(Lambda).
    C_inv : ndarray of shape (n,) or (n, n)
        Noise precision; a vector stands for a diagonal matrix.

    Attributes
    ----------
    value : ndarray of shape (m, m)
    """

    def __init__(self, X: Array, Z: Array, nu: Array, xi: Array, C_inv: Array) -> None:
        self._Z, self._nu, self._xi = Z, nu, xi
        self._diagonal = C_inv.ndim == 1
        n, m = len(X), len(Z)
        self._pairs: tuple[NDArray[np.intp], ...]
        if self._diagonal:
            self._rows = self._columns = np.arange(n)
            self._pairs = np.triu_indices(m)
            self._weights = C_inv
        else:
            self._rows, self._columns = np.triu_indices(n)
            self._pairs = tuple(np.indices((m, m)).reshape(2, -1))
            on_diagonal = self._rows == self._columns
            self._weights = C_inv[self._rows, self._columns] * np.where(on_diagonal, 0.5, 1.0)
        self._x, self._x_prime = X[self._rows], X[self._columns]  # (R, d)
        self._n = n
        c0, self._c = _coefficients(self._x, self._x_prime, nu, xi)
        self._c0 = c0
        self._features = _features(Z, self._pairs, self._diagonal)  # (3 d or 5 d, M)
        self._kept: list[tuple[slice, Array]] | None = None
        R, M = len(self._rows), self._features.shape[1]
        if R * M <= _TILE:
            self._kept = list(self._compute_tiles())
        pooled = np.zeros(M)
        for rows, T in self._tiles():
            pooled += self._weights[rows] @ T
        value = np.zeros((m, m))
        value[self._pairs] = pooled
        if self._diagonal:
            self.value = np.triu(value) + np.triu(value, 1).T
        else:
            self.value = value + value.T

    def _used_coefficients(self, c: Array) -> Array:
        """(R, 5, d) -> (R, 3 d) or (R, 5 d), in the order of the features."""
        if self._diagonal:
            c = c[:, [0, 2, 3]]
        return c.reshape(len(c), -1)

    def _compute_tiles(self) -> Iterator[tuple[slice, Array]]:
        R, M = len(self._rows), self._features.shape[1]
        height = max(1, _TILE // M)
        c = self._used_coefficients(self._c)
        for start in range(0, R, height):
            rows = slice(start, min(start + height, R))
            T = c[rows] @ self._features  # (rows, M)
            T += self._c0[rows, None]
            yield rows, np.exp(T, out=T)

    def _tiles(self) -> Iterator[tuple[slice, Array]]:
        return iter(self._kept) if self._kept is not None else self._compute_tiles()

    def _pair_weights(self, dPsi: Array) -> Array:
        """Weight of each pair (z, z') in ``sum(dPsi * value)``, (M,)."""
        weights = 2.0 * dPsi[self._pairs]
        if self._diagonal:
            weights[self._pairs[0] == self._pairs[1]] *= 0.5
        return weights

    def quadratic_forms(self, V: Array) -> Array:
        """E[k(x, Z) V k(Z, x)] of every row x, (n,); only for a diagonal C^-1."""
        weights = self._pair_weights(V)
        return np.concatenate([T @ weights for _, T in self._tiles()])

    def vjp(self, dPsi: Array) -> PsiGradients:
        """Gradients of ``sum(dPsi * value)`` for a symmetric ``dPsi`` of shape (m, m)."""
        d_pair = self._pair_weights(dPsi)
        d_weights = np.empty(len(self._rows))
        dc0 = np.empty(len(self._rows))
        c = self._used_coefficients(self._c)
        dc = np.empty_like(c)
        d_features = np.zeros_like(self._features)
        for rows, T in self._tiles():
            W = T * d_pair  # (rows, M)
            d_weights[rows] = W.sum(axis=1)
            weighted = self._weights[rows, None]
            dc0[rows] = d_weights[rows] * self._weights[rows]
            dc[rows] = (W @ self._features.T) * weighted
            d_features += (c[rows] * weighted).T @ W
        dc_all = np.zeros_like(self._c)
        d = len(self._nu)
        used = [0, 2, 3] if self._diagonal else [0, 1, 2, 3, 4]
        dc_all[:, used] = dc.reshape(len(dc), len(used), d)
        d_nu, d_xi = _coefficients_vjp(
            self._x, self._x_prime, self._nu, self._xi, self._c, dc0, dc_all
        )
        dZ = _features_vjp(self._Z, self._pairs, self._diagonal, d_features)
        return PsiGradients(dZ, d_nu, d_xi, self._weights_vjp(d_weights))

    def _weights_vjp(self, d_weights: Array) -> Array:
        if self._diagonal:
            return d_weights
        dC_inv = np.zeros((self._n, self._n))
        dC_inv[self._rows, self._columns] = 0.5 * d_weights
        return np.triu(dC_inv) + np.triu(dC_inv, 1).T


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


def _features(Z: Array, pairs: tuple[NDArray[np.intp], ...], diagonal: bool) -> Array:
    z, z_prime = Z[pairs[0]].T, Z[pairs[1]].T  # (d, M)
    if diagonal:
        return np.concatenate([z**2 + z_prime**2, z * z_prime, z + z_prime])
    return np.concatenate([z**2, z_prime**2, z * z_prime, z, z_prime])


def _features_vjp(
    Z: Array, pairs: tuple[NDArray[np.intp], ...], diagonal: bool, d_features: Array
) -> Array:
    m, d = Z.shape
    G = np.zeros((len(d_features), m, m))
    G[:, pairs[0], pairs[1]] = d_features
    if diagonal:
        square, product, linear = (G + G.transpose(0, 2, 1)).reshape(3, d, m, m)
        dZ = 2.0 * Z.T * square.sum(axis=2) + linear.sum(axis=2)
        return np.asarray((dZ + np.einsum("kij,jk->ki", product, Z)).T)
    first, second, product, left, right = G.reshape(5, d, m, m)
    dZ = 2.0 * Z.T * (first.sum(axis=2) + second.sum(axis=1))
    dZ += left.sum(axis=2) + right.sum(axis=1)
    dZ += np.einsum("kij,jk->ki", product, Z) + np.einsum("kij,ik->kj", product, Z)
    return np.asarray(dZ.T)
