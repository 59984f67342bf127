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

from skvbgp._core.linalg import Array, outer_factors
from skvbgp._core.owners import Owners
from skvbgp._core.scaling import Coordinates
from skvbgp.kernels import RBF, Constant, Kernel
from skvbgp.kernels._by_input import own_hyperparameters
from skvbgp.kernels._distance import choose_origin, cut_rows


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
    """Exponentials (n, m) of left' right, which is no more than ``most`` but for rounding.

    From features (k, n) and (k, m), and (n, 1) or (m,). Some rows at a time, so that they stay in
    the cache.
    """
    K = np.empty((left.shape[1], right.shape[1]))
    size = float(np.dot(*(np.abs(part).max(axis=1, initial=0.0) for part in (left, right))))
    most = np.broadcast_to(most, K.shape)
    for rows in cut_rows(*K.shape):
        exponent = np.matmul(left[:, rows].T, right, out=K[rows])
        if size > _LARGE:
            np.minimum(exponent, most[rows], out=exponent)
        np.exp(exponent, out=exponent)
    return K


def features(A: Array) -> Array:
    """[a^2, a, 1] of inputs (d, n): (2 d + 1, n)."""
    return np.concatenate([A**2, A, np.ones((1, A.shape[1]))])


#: Sum of products from which on rounding may change a covariance by more than 1e-10 of it.
_LARGE = 1e5
_Pair = tuple[Array, Array]
#: In theta (p,), and in two bases.
Gradients = tuple[Array, Basis, Basis]
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

    Inside, what belongs to points is an array with a column for each of them: what has as few
    entries for a point as it has inputs is worked on in long rows.
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
            e, most = self._row_of_pairs(Z)
            right /= -e
            right[1] += most
            return exponential(left, right, most)
        if Z.log_c is None:
            e, most = self._row_of_pairs(X)
            left /= -e
            left[0] += most
            return exponential(left, right, most[:, None])
        # with h = (c / c' + c' / c) / 2 and q = r^2 / (2 c c'), log K = log rho^2 - d/2 log h - q/h
        c_X, c_Z, half_d = np.exp(X.log_c), np.exp(Z.log_c), 0.5 * Z.Z.shape[1]
        unit = 0.5 * np.exp(-self.log_variance / half_d)  # of h and q, so that rho^2 is in log h
        left /= c_X
        right *= -unit / c_Z
        ratios, others = np.stack([c_X, 1.0 / c_X]), unit * np.stack([1.0 / c_Z, c_Z])
        K = np.empty((len(X), len(Z)))
        for rows in cut_rows(*K.shape):
            h = ratios[:, rows].T @ others
            exponent = np.matmul(left[:, rows].T, right, out=K[rows])
            np.minimum(exponent, 0.0, out=exponent)
            exponent /= h
            np.log(h, out=h)
            h *= half_d
            exponent -= h
            np.exp(exponent, out=exponent)
        return K

    def vjp(self, X: Basis, Z: Basis, K: Array, dK: Array) -> Gradients:
        """Gradients in theta and in two bases, which both have multipliers or both have none."""
        if X.log_c is not None and Z.log_c is not None:
            return self._vjp_of_points(X, Z, K, lambda rows: dK[rows])
        W, (left, columns) = dK * K, self._features(X, Z)
        return self._vjp_of_plain(X, Z, left @ W, columns @ W.T)

    def vjp_data(self, X: Basis, Z: Basis, K: Array, dK: Array) -> tuple[Array, Basis]:
        """Gradients in theta and in a basis, for rows X of data."""
        A, B = self._in_length_scales(X, Z)
        return self._vjp_of_sums(Z, B, features(A) @ (dK * K))

    def vjp_data_outer(
        self, X: Basis, Z: Basis, K: Array, u: Array, v: Array
    ) -> tuple[Array, Basis, Array]:
        """The same for dK = u v', u (n, k) and v (m, k), and K' u (m, k)."""
        if u.shape[1] > 1:
            return *self.vjp_data(X, Z, K, u @ v.T), K.T @ u
        A, B = self._in_length_scales(X, Z)
        sums = (u.T * features(A)) @ K  # W does not have to be formed
        return *self._vjp_of_sums(Z, B, v.T * sums), sums[-1:].T

    def _vjp_of_sums(self, Z: Basis, B: Array, sums: Array) -> tuple[Array, Basis]:
        """Gradients in theta and a basis from [a^2, a, 1] W, with W the cotangent of log K."""
        # With e_i = 1 + c_i^2: d/db_i = 2 sum W (a_i - b_i) / e_i,
        # d/dlog s_i = 2 sum W (a_i - b_i)^2 / e_i
        # and d/dlog c_i = sum W (1/2 + 2 c_i^2 ((a_i - b_i)^2 / e_i - 1/2) / e_i)
        d = len(B)
        square = square_multipliers(Z)
        e = 1.0 + square
        firsts, total = sums[d:-1], sums[-1]
        r2 = (sums[:d] + total * B**2 - 2.0 * firsts * B) / e
        dtheta = np.append(total.sum(), 2.0 * r2.sum(axis=1))
        dZ = 2.0 * (firsts - total * B) / (e * np.exp(self.log_length_scale)[:, None])
        if Z.log_c is None:
            return dtheta, Basis(dZ.T)
        if Z.log_c.ndim == 1:
            r2 = r2.sum(axis=0)
        through_front = self._through_front(total)
        return dtheta, Basis(dZ.T, (through_front + 2.0 * square * (r2 - through_front) / e).T)

    def _vjp_of_points(
        self, X: Basis, Z: Basis, K: Array, dK: Callable[[slice], Array]
    ) -> Gradients:
        """Gradients for points with multipliers.

        ``dK`` is a function of rows, which it may be formed from while they are in the cache.
        """
        # With W the cotangent of log K and e = c^2 + c'^2:
        # d/dr^2 = -W / e,  d/dlog c = d/2 W + 2 c^2 (r^2 / e - d/2) W / e,
        # all from sums of W / e^2, as W / e = (c^2 + c'^2) W / e^2
        half_d, k = 0.5 * Z.Z.shape[1], Z.Z.shape[1] + 2
        left, right = self._factors(X, Z)
        A, B = left[2:], -0.5 * right[2:]
        square_X, square_Z = square_multipliers(X), square_multipliers(Z)
        of_X = np.vstack([left, square_X * left, square_X**2])
        of_Z = np.vstack([right, square_Z * right, square_Z**2])
        powers_X = np.stack([square_X**2, 2.0 * square_X, np.ones_like(square_X)])
        powers_Z = np.stack([np.ones_like(square_Z), square_Z, square_Z**2])
        sums_X, sums_Z = np.empty_like(of_X), np.zeros_like(of_Z)
        for rows in cut_rows(*K.shape):
            W = dK(rows) * K[rows]
            W /= powers_X[:, rows].T @ powers_Z  # e^2
            np.matmul(of_Z, W.T, out=sums_X[:, rows])
            sums_Z += of_X[:, rows] @ W
        from_Z = square_X * sums_X[:k] + sums_X[k:-1]  # of W / e
        from_X = square_Z * sums_Z[:k] + sums_Z[k:-1]
        total_X = square_X * (square_X * sums_X[0] + 2.0 * sums_X[k]) + sums_X[-1]
        total_Z = square_Z * (square_Z * sums_Z[1] + 2.0 * sums_Z[k + 1]) + sums_Z[-1]
        dA = -from_Z[2:] - 2.0 * from_Z[0] * A
        dB = 2.0 * (from_X[2:] - from_X[1] * B)
        de_X = _dot(left, sums_X[:k]) - half_d * from_Z[0]  # r^2 = left' right
        de_Z = _dot(right, sums_Z[:k]) - half_d * from_X[1]
        squares, totals = (square_X, square_Z), (total_X, total_Z)
        return self._gather((A, B), (dA, dB), squares, totals, (de_X, de_Z))

    def vjp_outer(self, X: Basis, Z: Basis, K: Array, u: Array, v: Array) -> Gradients:
        """The same for dK = u v', u (n, k) and v (m, k), which has short cuts."""
        if X.log_c is not None and Z.log_c is not None:
            left, right = outer_factors(u, v)
            return self._vjp_of_points(X, Z, K, lambda rows: left[rows] @ right)
        if u.shape[1] > 1:
            return self.vjp(X, Z, K, u @ v.T)
        features, columns = self._features(X, Z)
        from_X = v.T * ((u.T * features) @ K)  # W does not have to be formed
        from_Z = u.T * ((v.T * columns) @ K.T)
        return self._vjp_of_plain(X, Z, from_X, from_Z)

    def _features(self, X: Basis, Z: Basis) -> _Pair:
        """[|a|^2, 1, a] and [b / 2, 1 / 2, 1] of points of f."""
        # every sum over pairs is a matrix product with W, the cotangent of log K, as
        # log K = log rho^2 - (|a|^2 + |b|^2 - 2 a.b) / 2
        left, right = self._factors(X, Z)
        return left, np.vstack([-0.25 * right[2:], 0.5 * right[:1], right[:1]])

    def _vjp_of_plain(self, X: Basis, Z: Basis, from_X: Array, from_Z: Array) -> Gradients:
        """Gradients for points of f, from the two `_features` times W and times W'."""
        A, B = self._in_length_scales(X, Z)
        dA = 2.0 * (from_Z[:-2] - from_Z[-2] * A)
        dB = from_X[2:] - from_X[1] * B
        s, slopes = np.exp(self.log_length_scale), np.sum(A * dA, axis=1) + np.sum(B * dB, axis=1)
        return np.append(from_Z[-1].sum(), -slopes), Basis(dA.T / s), Basis(dB.T / s)

    def _gather(
        self, inputs: _Pair, gradients: _Pair, squares: _Pair, totals: _Pair, de: _Pair
    ) -> Gradients:
        """The same, from sums of W and its products by row and column."""
        s = np.exp(self.log_length_scale)[:, None]
        products = [np.sum(P * dP, axis=1) for P, dP in zip(inputs, gradients, strict=True)]
        bases = [
            Basis((dP / s).T, (self._through_front(total) + 2.0 * square * change).T)
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

    def _factors(self, X: Basis, Z: Basis) -> _Pair:
        """[|a|^2, 1, a] and [1, |b|^2, -2 b], (d + 2, n) and (d + 2, m): r^2 is left' right."""
        A, B = self._in_length_scales(X, Z)
        left = np.vstack([_dot(A, A), np.ones(len(X)), A])
        return left, np.vstack([np.ones(len(Z)), _dot(B, B), -2.0 * B])

    def _in_length_scales(self, X: Basis, Z: Basis) -> _Pair:
        """Both locations centred, and in units of the length scales, (d, n) and (d, m)."""
        s, origin = np.exp(self.log_length_scale), choose_origin(X.Z, Z.Z)
        A, B = (np.subtract(P.Z.T, origin[:, None], order="C") / s[:, None] for P in (X, Z))
        return A, B

    def _row_of_pairs(self, Z: Basis) -> tuple[Array, Array]:
        """c'^2 + 1 and the logarithm of K at r = 0, (m,) both, for pairs with points of f."""
        if Z.log_c is None:
            return np.full(len(Z), 2.0), np.full(len(Z), self.log_variance)
        e = 1.0 + np.exp(2.0 * Z.log_c)
        half_d = 0.5 * Z.Z.shape[1]
        return e, self.log_variance + half_d * (np.log(2.0) + Z.log_c - np.log(e))


def square_multipliers(points: Basis) -> Array:
    """c^2 of points, (m,) or for each input (d, m); 1 for points of f."""
    if points.log_c is None:
        return np.ones(points.Z.shape[::-1])
    return np.asarray(np.exp(2.0 * points.log_c.T))


def _dot(A: Array, B: Array) -> Array:
    """Inner products of the columns of two arrays, (m,)."""
    return np.asarray(np.einsum("ij,ij->j", A, B))


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

    def vjp(self, X: Basis, Z: Basis, K: Array, dK: Array) -> Gradients:
        dtheta, dX, dZ = self.kernel.vjp(self._inputs(X), self._inputs(Z), K, dK)
        assert dZ is not None  # it is where Z is
        scale = self.coordinates.scale
        return dtheta, Basis(dX * scale), Basis(dZ * scale)

    def vjp_outer(self, X: Basis, Z: Basis, K: Array, u: Array, v: Array) -> Gradients:
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
