"""Inverse noise covariance of a group of rows: a diagonal or one dense block."""

from typing import Protocol

import numpy as np

from skvbgp._core.linalg import Array, cholesky, inverse_from_cholesky, log_determinant


class Precision(Protocol):
    """C^-1 of n rows. A "moment" is an (n,) or (n, n) array, of the same form as C."""

    matrix: Array  # C^-1, (n,) or (n, n)
    log_det: float  # log |C|
    count: float  # rows, each as often as it counts

    def solve(self, A: Array) -> Array:
        """C^-1 A for A of shape (n,) or (n, k)."""

    def outer(self, a: Array, b: Array) -> Array:
        """The moment (a b' + b a') / 2."""

    def gram(self, A: Array, B: Array) -> Array:
        """The moment A B' of two (n, k) matrices whose product is symmetric."""

    def covariance_vjp(self, G: Array) -> Array:
        """Gradient in C of -1/2 (log |C| + tr(C^-1 G)), for a moment G."""


class DiagonalPrecision:
    """Rows with independent noise of variances c, (n,), each as often as its weight says.

    Terms of F are multiplied by the weights (n,), see :ref:`sgpr-weights`: `matrix` and `log_det`
    are those of all equal rows, and a moment is that of one of them.
    """

    def __init__(self, c: Array, weight: Array | None = None) -> None:
        self._inverse, log_c = 1.0 / c, np.log(c)
        self.matrix = self._inverse if weight is None else weight * self._inverse
        self.log_det = float(np.sum(log_c if weight is None else weight * log_c))
        self.count: float = len(c) if weight is None else float(np.sum(weight))

    def solve(self, A: Array) -> Array:
        return A * self.matrix if A.ndim == 1 else A * self.matrix[:, None]

    def outer(self, a: Array, b: Array) -> Array:
        return a * b

    def gram(self, A: Array, B: Array) -> Array:
        return np.einsum("nk,nk->n", A, B)

    def covariance_vjp(self, G: Array) -> Array:
        return 0.5 * (G * self._inverse - 1.0) * self.matrix


class DensePrecision:
    """A block of rows with noise covariance C, (n, n)."""

    def __init__(self, C: Array) -> None:
        L = cholesky(C, "noise covariance of a block")
        self.matrix = inverse_from_cholesky(L)
        self.log_det = log_determinant(L)
        self.count: float = len(C)

    def solve(self, A: Array) -> Array:
        return self.matrix @ A

    def outer(self, a: Array, b: Array) -> Array:
        product = np.outer(a, b)
        return 0.5 * (product + product.T)

    def gram(self, A: Array, B: Array) -> Array:
        return A @ B.T

    def covariance_vjp(self, G: Array) -> Array:
        return 0.5 * (self.matrix @ G @ self.matrix - self.matrix)


def as_precision(C: Array, weight: Array | None = None) -> Precision:
    """The inverse of a covariance given as a vector (diagonal) or a matrix."""
    if C.ndim == 1:
        return DiagonalPrecision(C, weight)
    assert weight is None  # rows of a block are not independent
    return DensePrecision(C)
