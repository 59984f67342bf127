r"""Variational bases, and the covariances of their features.

A point of a basis is a location :math:`z` and, in a generalised basis, a multiplier
:math:`c` of the prior's length scales: its feature is a Gaussian average (or, for c < 1, a
sharpening) of the function around z. Data rows are points of the function itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners
from skvbgp._core.scaling import Coordinates
from skvbgp.kernels import RBF, Constant, Kernel
from skvbgp.kernels._by_input import own_hyperparameters
from skvbgp.kernels._distance import centre, factors, row_blocks


@dataclass(frozen=True)
class Basis:
    """Points, with logarithms of their length-scale multipliers."""

    Z: Array  # (m, d) locations, in scaled coordinates
    #: (m,) or (m, d): one for each point, or for each point and input. None stands for c = 1:
    #: points of the function itself.
    log_c: Array | None = None

    def __len__(self) -> int:
        return len(self.Z)

    def __getitem__(self, index: Any) -> Basis:
        return Basis(self.Z[index], None if self.log_c is None else self.log_c[index])

    def joined(self, rows: Basis) -> Basis:
        """These points and some of the function itself."""
        Z = np.concatenate([self.Z, rows.Z])
        if self.log_c is None:
            return Basis(Z)
        ones = np.zeros((len(rows), *self.log_c.shape[1:]))
        return Basis(Z, np.concatenate([self.log_c, ones]))

    def __add__(self, other: Basis) -> Basis:
        """Sum of two gradients."""
        Z = self.Z + other.Z
        if self.log_c is None or other.log_c is None:
            return Basis(Z)
        return Basis(Z, self.log_c + other.log_c)


def exponential(left: Array, right: Array, most: Array) -> Array:
    """Exponentials (n, m) of the products of two factors, which are ``most`` (m,) but for rounding.

    Some rows at a time, so that they stay in the cache.
    """
    K = np.empty((len(left), len(right)))
    for rows in row_blocks(*K.shape):
        exponent = np.matmul(left[rows], right.T, out=K[rows])
        np.minimum(exponent, most, out=exponent)
        np.exp(exponent, out=exponent)
    return K


def features(A: Array) -> Array:
    """[a^2, a, 1], (n, 2 d + 1)."""
    return np.hstack([A**2, A, np.ones((len(A), 1))])


def _products(K: Array, A: Array) -> Array:
    """K' A of a few columns A, in half of the time that ``K.T @ A`` takes."""
    return (A.T @ K).T


_Pair = tuple[Array, Array]
#: Factors of all length scales that training may start from.
_LENGTH_FACTORS = 2.0 ** np.arange(-8, 3)
#: Distances, in scaled coordinates, at which a kernel's correlation is looked up.
_DISTANCES = 2.0 ** np.arange(-10, 3)


@dataclass(frozen=True)
class GeneralizedSE:
    r"""The generalised SE-ARD kernel, eq. (19) of [Cheng2017]_, with one multiplier per point.

    .. math:: \rho^2 \left(\frac{2 c c'}{c^2 + c'^2}\right)^{d/2}
              \exp\left(-\frac{r^2}{c^2 + c'^2}\right),
              \quad r^2 = \sum_i (x_i - x'_i)^2 / s_i^2.
    """

    log_variance: float  # log rho^2
    log_length_scale: Array  # (d,) log s

    @property
    def theta(self) -> Array:
        """Logarithms of the free hyperparameters, (p,)."""
        return np.append(self.log_variance, self.log_length_scale)

    @property
    def bounds(self) -> Array:
        """Bounds of ``theta``, (p, 2)."""
        limits = [(-14.0, 14.0)] + [(-7.0, 12.0)] * len(self.log_length_scale)
        return np.array(limits)

    def with_theta(self, theta: Array) -> Self:
        """The kernel with other hyperparameters."""
        return replace(self, log_variance=float(theta[0]), log_length_scale=theta[1:])

    @property
    def candidates(self) -> list[Array]:
        """Values of ``theta`` that training may start from."""
        by_level = [
            np.append(self.log_variance, self.log_length_scale + level)
            for level in np.log(_LENGTH_FACTORS)
        ]
        return [np.clip(theta, *self.bounds.T) for theta in by_level]

    @property
    def length_unit(self) -> Array:
        """Scaled distances along each input over which the function changes, (d,)."""
        return np.exp(self.log_length_scale)

    def __call__(self, X: Basis, Z: Basis) -> Array:
        """Covariances (n, m)."""
        left, right = self._factors(X, Z)
        if X.log_c is None:  # the exponent is one matrix product
            e, log_scale = self._row_of_pairs(Z)
            right = right / -e[:, None]
            right[:, 1] += log_scale
            return exponential(left, right, log_scale)
        if Z.log_c is None:
            return self(Z, X).T
        square_X, square_Z = np.exp(2.0 * X.log_c), np.exp(2.0 * Z.log_c)
        half_d = 0.5 * Z.Z.shape[1]
        constant = self.log_variance + half_d * np.log(2.0)
        by_row, by_column = constant + half_d * X.log_c, half_d * Z.log_c
        K = np.empty((len(X), len(Z)))
        for rows in row_blocks(*K.shape):
            e = square_X[rows, None] + square_Z
            exponent = np.matmul(left[rows], right.T, out=K[rows])
            np.maximum(exponent, 0.0, out=exponent)
            exponent /= e
            np.log(e, out=e)
            e *= half_d
            exponent += e
            np.subtract(by_column, exponent, out=exponent)
            exponent += by_row[rows, None]
            np.exp(exponent, out=exponent)
        return K

    def vjp(self, X: Basis, Z: Basis, K: Array, dK: Array) -> tuple[Array, Basis, Basis]:
        """Gradients in theta and in two bases, which both have multipliers or both have none."""
        if X.log_c is not None and Z.log_c is not None:
            squares = np.exp(2.0 * X.log_c), np.exp(2.0 * Z.log_c)
            return self._vjp_of_points(X, Z, squares, K, lambda rows: dK[rows])
        W, (left, columns) = dK * K, self._features(X, Z)
        return self._vjp_of_plain(X, Z, W.T @ left, W @ columns)

    def vjp_data(self, X: Basis, Z: Basis, K: Array, dK: Array) -> tuple[Array, Basis]:
        """Gradients in theta and in a basis, for rows X of data."""
        A, B = self._in_length_scales(X, Z)
        return self._vjp_of_sums(Z, B, (dK * K).T @ features(A))

    def vjp_data_outer(
        self, X: Basis, Z: Basis, K: Array, u: Array, v: Array
    ) -> tuple[Array, Basis, Array]:
        """The same for dK = u v', u (n, k) and v (m, k), and K' u (m, k)."""
        if u.shape[1] > 1:
            return *self.vjp_data(X, Z, K, u @ v.T), K.T @ u
        A, B = self._in_length_scales(X, Z)
        sums = _products(K, u * features(A))  # W does not have to be formed
        return *self._vjp_of_sums(Z, B, v * sums), sums[:, -1:]

    def _vjp_of_sums(self, Z: Basis, B: Array, sums: Array) -> tuple[Array, Basis]:
        """Gradients in theta and a basis from W' [a^2, a, 1], with W the cotangent of log K."""
        # With e_i = 1 + c_i^2: d/db_i = 2 sum W (a_i - b_i) / e_i,
        # d/dlog s_i = 2 sum W (a_i - b_i)^2 / e_i
        # and d/dlog c_i = sum W (1/2 + 2 c_i^2 ((a_i - b_i)^2 / e_i - 1/2) / e_i)
        d = B.shape[1]
        log_c = np.zeros(len(Z)) if Z.log_c is None else Z.log_c
        square = np.exp(2.0 * (log_c if log_c.ndim == 2 else log_c[:, None]))
        e = 1.0 + square  # (m, 1) or (m, d)
        firsts, total = sums[:, d:-1], sums[:, -1:]
        r2 = (sums[:, :d] + total * B**2 - 2.0 * firsts * B) / e
        dtheta = np.append(total.sum(), 2.0 * r2.sum(axis=0))
        dZ = 2.0 * (firsts - total * B) / e / np.exp(self.log_length_scale)
        if Z.log_c is None:
            return dtheta, Basis(dZ)
        dlog_c = 0.5 * total + 2.0 * square * (r2 - 0.5 * total) / e
        return dtheta, Basis(dZ, dlog_c if log_c.ndim == 2 else dlog_c.sum(axis=1))

    def _vjp_of_points(
        self, X: Basis, Z: Basis, squares: _Pair, K: Array, dK: Callable[[slice], Array]
    ) -> tuple[Array, Basis, Basis]:
        """Gradients for points with multipliers, of which the squares are given.

        ``dK`` is a function of rows, which it may be formed from while they are in the cache.
        """
        # With W the cotangent of log K and e = c^2 + c'^2:
        # d/dr^2 = -W / e,  d/dlog c = d/2 W + 2 c^2 (r^2 / e - d/2) W / e,
        # all from sums of W / e^2, as W / e = (c^2 + c'^2) W / e^2
        half_d = 0.5 * Z.Z.shape[1]
        left, right = self._factors(X, Z)
        A, B = left[:, 2:], -0.5 * right[:, 2:]
        square_X, square_Z = (square[:, None] for square in squares)
        of_X = np.hstack([left, square_X * left, square_X**2])
        of_Z = np.hstack([right, square_Z * right, square_Z**2])
        sums_X, sums_Z = np.empty((len(X), of_Z.shape[1])), np.zeros_like(of_Z)
        for rows in row_blocks(*K.shape):
            W, e = dK(rows) * K[rows], square_X[rows] + square_Z[:, 0]
            e *= e
            W /= e
            sums_X[rows] = W @ of_Z
            sums_Z += _products(W, of_X[rows])
        k = left.shape[1]
        from_Z = square_X * sums_X[:, :k] + sums_X[:, k:-1]  # of W / e
        from_X = square_Z * sums_Z[:, :k] + sums_Z[:, k:-1]
        total_X = (square_X**2 * sums_X[:, :1] + 2.0 * square_X * sums_X[:, k : k + 1])[:, 0]
        total_X += sums_X[:, -1]
        total_Z = (square_Z**2 * sums_Z[:, 1:2] + 2.0 * square_Z * sums_Z[:, k + 1 : k + 2])[:, 0]
        total_Z += sums_Z[:, -1]
        de_X = np.sum(left * sums_X[:, :k], axis=1)  # r^2 = left right'
        de_Z = np.sum(sums_Z[:, :k] * right, axis=1)
        dA = -from_Z[:, 2:] - 2.0 * from_Z[:, :1] * A
        dB = 2.0 * (from_X[:, 2:] - from_X[:, 1:2] * B)
        de_X -= half_d * from_Z[:, 0]
        de_Z -= half_d * from_X[:, 1]
        return self._gather((A, B), (dA, dB), squares, (total_X, total_Z), (de_X, de_Z))

    def vjp_outer(
        self, X: Basis, Z: Basis, K: Array, u: Array, v: Array
    ) -> tuple[Array, Basis, Basis]:
        """The same for dK = u v', u (n, k) and v (m, k), which has short cuts."""
        if X.log_c is not None and Z.log_c is not None:
            squares = np.exp(2.0 * X.log_c), np.exp(2.0 * Z.log_c)
            return self._vjp_of_points(X, Z, squares, K, lambda rows: u[rows] @ v.T)
        if u.shape[1] > 1:
            return self.vjp(X, Z, K, u @ v.T)
        left, columns = self._features(X, Z)
        from_X = v * _products(K, u * left)  # W does not have to be formed
        from_Z = u * (K @ (v * columns))
        return self._vjp_of_plain(X, Z, from_X, from_Z)

    def _features(self, X: Basis, Z: Basis) -> _Pair:
        """[|a|^2, 1, a] and [b / 2, 1 / 2, 1] of points of f."""
        # every sum over pairs is a matrix product with W, the cotangent of log K, as
        # log K = log rho^2 - (|a|^2 + |b|^2 - 2 a.b) / 2
        left, right = self._factors(X, Z)
        B, ones = -0.5 * right[:, 2:], np.ones((len(Z), 1))
        return left, np.hstack([0.5 * B, 0.5 * ones, ones])

    def _vjp_of_plain(
        self, X: Basis, Z: Basis, from_X: Array, from_Z: Array
    ) -> tuple[Array, Basis, Basis]:
        """Gradients for points of f, from W' and W times the two `_features`."""
        left, right = self._factors(X, Z)
        A, B = left[:, 2:], -0.5 * right[:, 2:]
        dA = 2.0 * (from_Z[:, :-2] - from_Z[:, -2:-1] * A)
        dB = from_X[:, 2:] - from_X[:, 1:2] * B
        s, slopes = np.exp(self.log_length_scale), np.sum(A * dA, axis=0) + np.sum(B * dB, axis=0)
        return np.append(from_Z[:, -1].sum(), -slopes), Basis(dA / s), Basis(dB / s)

    def _gather(
        self, inputs: _Pair, gradients: _Pair, squares: _Pair, totals: _Pair, de: _Pair
    ) -> tuple[Array, Basis, Basis]:
        """The same, from sums of W and its products by row and column."""
        s = np.exp(self.log_length_scale)
        products = [np.sum(P * dP, axis=0) for P, dP in zip(inputs, gradients, strict=True)]
        bases = [
            Basis(dP / s, self._through_front(total) + 2.0 * square * change)
            for dP, square, total, change in zip(gradients, squares, totals, de, strict=True)
        ]
        return np.append(totals[0].sum(), -sum(products)), bases[0], bases[1]

    def _through_front(self, total: Array) -> Array:
        """Gradient in log c through the factor of the exponential, of which it is c^(d/2)."""
        return 0.5 * len(self.log_length_scale) * total

    def diag(self, X: Basis) -> Array:
        """Variances (n,)."""
        return np.full(len(X), np.exp(self.log_variance))

    def vjp_diag(self, X: Basis, ddiag: Array) -> tuple[Array, Basis]:
        """Gradients of the variances."""
        dtheta = np.zeros(1 + len(self.log_length_scale))
        dtheta[0] = np.exp(self.log_variance) * ddiag.sum()
        still = None if X.log_c is None else np.zeros_like(X.log_c)
        return dtheta, Basis(np.zeros_like(X.Z), still)

    def own_theta(self, owners: Owners) -> Owners:
        """By entry of ``theta``: the hyperparameter that it is, where columns share theirs."""
        return (0, *(1 + j for j in owners))

    def original(self, coordinates: Coordinates, unit: float) -> Kernel:
        """The prior kernel on X and y as the user has them."""
        variance = np.exp(self.log_variance) * unit**2
        return Constant(variance) * RBF(np.exp(self.log_length_scale) * coordinates.scale)

    def _factors(self, X: Basis, Z: Basis) -> tuple[Array, Array]:
        """[|a|^2, 1, a] and [1, |b|^2, -2 b], whose products are r^2."""
        return factors(*self._in_length_scales(X, Z))

    def _in_length_scales(self, X: Basis, Z: Basis) -> tuple[Array, Array]:
        """Both locations centred, and in units of the length scales."""
        s = np.exp(self.log_length_scale)
        A, B = centre(X.Z, Z.Z)
        return A / s, B / s

    def _row_of_pairs(self, Z: Basis) -> tuple[Array, Array]:
        """c'^2 + 1 and the logarithm of K at r = 0, (m,) both, for pairs with points of f."""
        if Z.log_c is None:
            return np.full(len(Z), 2.0), np.full(len(Z), self.log_variance)
        e = 1.0 + np.exp(2.0 * Z.log_c)
        half_d = 0.5 * Z.Z.shape[1]
        return e, self.log_variance + half_d * (np.log(2.0) + Z.log_c - np.log(e))


@dataclass(frozen=True)
class PlainKernel:
    """Any kernel over the user's own inputs, with points of the function as its bases.

    It has what `GeneralizedSE` has.
    """

    kernel: Kernel
    coordinates: Coordinates

    @property
    def theta(self) -> Array:
        return self.kernel.theta

    @property
    def bounds(self) -> Array:
        return self.kernel.bounds

    def with_theta(self, theta: Array) -> Self:
        return replace(self, kernel=self.kernel.with_theta(theta))

    @property
    def candidates(self) -> list[Array]:
        return [self.theta]

    @property
    def length_unit(self) -> Array:
        """Distances from the origin at which the correlation falls to exp(-1/2)."""
        d, k = len(self.coordinates.scale), len(_DISTANCES)
        origin = Basis(np.zeros((1, d)))
        axes = Basis((np.eye(d)[:, None, :] * _DISTANCES[:, None]).reshape(d * k, d))
        variance = self.diag(origin)[0] * self.diag(axes)
        covariance = self(origin, axes)[0]
        is_far = (covariance < np.exp(-0.5) * np.sqrt(variance)).reshape(d, k)
        is_far[:, -1] = True
        return _DISTANCES[np.argmax(is_far, axis=1)]

    def __call__(self, X: Basis, Z: Basis) -> Array:
        return self.kernel(*map(self._inputs, (X, Z)))

    def vjp(self, X: Basis, Z: Basis, K: Array, dK: Array) -> tuple[Array, Basis, Basis]:
        dtheta, dX, dZ = self.kernel.vjp(self._inputs(X), self._inputs(Z), K, dK)
        assert dZ is not None  # it is where Z is
        scale = self.coordinates.scale
        return dtheta, Basis(dX * scale), Basis(dZ * scale)

    def vjp_outer(
        self, X: Basis, Z: Basis, K: Array, u: Array, v: Array
    ) -> tuple[Array, Basis, Basis]:
        return self.vjp(X, Z, K, u @ v.T)

    def vjp_data(self, X: Basis, Z: Basis, K: Array, dK: Array) -> tuple[Array, Basis]:
        dtheta, _, dZ = self.vjp(X, Z, K, dK)
        return dtheta, dZ

    def vjp_data_outer(
        self, X: Basis, Z: Basis, K: Array, u: Array, v: Array
    ) -> tuple[Array, Basis, Array]:
        return *self.vjp_data(X, Z, K, u @ v.T), K.T @ u

    def diag(self, X: Basis) -> Array:
        return self.kernel.diag(self._inputs(X))

    def vjp_diag(self, X: Basis, ddiag: Array) -> tuple[Array, Basis]:
        dtheta, dX = self.kernel.vjp_diag(self._inputs(X), ddiag)
        return dtheta, Basis(dX * self.coordinates.scale)

    def own_theta(self, owners: Owners) -> Owners:
        return own_hyperparameters(self.kernel, owners)

    def original(self, coordinates: Coordinates, unit: float) -> Kernel:
        return unit**2 * self.kernel

    def _inputs(self, X: Basis) -> Array:
        return self.coordinates.original(X.Z)


BasisKernel = GeneralizedSE | PlainKernel
