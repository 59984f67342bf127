"""Inverse noise covariance of a group of rows: a diagonal or one dense block."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from skvbgp._core.copies import Copies
from skvbgp._core.linalg import Array, cholesky, inverse_from_cholesky, log_determinant


class Precision(Protocol):
    """C^-1 of n rows. A "moment" is an (n,) or (n, n) array, of the same form as C."""

    matrix: Array  # C^-1, (n,) or (n, n)
    log_det: float  # log |C|, of all copies
    count: float  # rows, with all copies

    def solve(self, A: Array) -> Array:
        """C^-1 A for A of shape (n,) or (n, k)."""

    def outer(self, a: Array, b: Array) -> Array:
        """The moment (a b' + b a') / 2."""

    def gram(self, A: Array, B: Array) -> Array:
        """The moment A B' of two (n, k) matrices whose product is symmetric."""

    def covariance_vjp(self, G: Array) -> Array:
        """Gradient in C of -1/2 (log |C| + tr(C^-1 G)), for a moment G."""


class DiagonalPrecision:
    """Rows with independent noise of variances c, (n,)."""

    def __init__(self, c: Array, copies: Copies) -> None:
        self.matrix = 1.0 / c
        self.log_det = float(np.sum(np.log(c))) + copies.log_det
        self.count = len(c) + copies.number

    def solve(self, A: Array) -> Array:
        return A * self.matrix if A.ndim == 1 else A * self.matrix[:, None]

    def outer(self, a: Array, b: Array) -> Array:
        return a * b

    def gram(self, A: Array, B: Array) -> Array:
        return np.einsum("nk,nk->n", A, B)

    def covariance_vjp(self, G: Array) -> Array:
        return 0.5 * (G * self.matrix - 1.0) * self.matrix


class DensePrecision:
    """A block of rows with noise covariance C, (n, n)."""

    def __init__(self, C: Array, copies: Copies) -> None:
        L = cholesky(C, "noise covariance of a block")
        self.matrix = inverse_from_cholesky(L)
        self.log_det = log_determinant(L) + copies.log_det
        self.count = len(C) + copies.number

    def solve(self, A: Array) -> Array:
        return self.matrix @ A

    def outer(self, a: Array, b: Array) -> Array:
        product = np.outer(a, b)
        return 0.5 * (product + product.T)

    def gram(self, A: Array, B: Array) -> Array:
        return A @ B.T

    def covariance_vjp(self, G: Array) -> Array:
        product = self.matrix @ G @ self.matrix
        # symmetric to the last digit: the noise's gradient in U is the small difference of two sums
        return 0.25 * (product + product.T) - 0.5 * self.matrix


def as_precision(C: Array, copies: Copies) -> Precision:
    """The inverse of a covariance given as a vector (diagonal) or a matrix."""
    return DiagonalPrecision(C, copies) if C.ndim == 1 else DensePrecision(C, copies)
