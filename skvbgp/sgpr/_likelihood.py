r"""Expected log likelihood of one group of rows, given q(s) and q(theta).

A group is a set of rows whose noise is independent (C a vector) or correlated (C a
block). With v = Sigma^-1 m, V = Sigma^-1 (S + m m' - Sigma) Sigma^-1 and unit-variance
kernel matrices K, K~, the group adds to the bound (Corollary 1 of [Yu2019]_, with every
constant)

    F = -1/2 [ n log 2 pi + log|C| + tr(C^-1 G) ],
    G = E[(y - f)(y - f)'] = y y' - alpha E[K v y' + y v' K'] + (alpha^2 + beta) E[K V K' + K~]

so that dF/dC = (C^-1 G C^-1 - C^-1) / 2. The expectation over Lambda is taken in closed
form or over reparameterised samples; both classes here offer the same three members.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skvbgp._core.copies import Copies
from skvbgp._core.linalg import (
    LOG_2PI,
    Array,
    cholesky,
    log_determinant,
    symmetric_product,
    tril_gram,
    tril_inverse,
    tril_times,
    triu_times,
)
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._psi import psi_statistic
from skvbgp.sgpr.expectations import omega, omega_vjp, upsilon, upsilon_vjp

#: Rows without copies.
_NONE = Copies()


class GroupGradients(NamedTuple):
    """Value of F and its cotangents; ``signal`` is that of (alpha, alpha^2 + beta)."""

    value: float
    nu: Array  # (d,)
    xi: Array  # (d,)
    Z: Array  # (m, d)
    signal: Array  # (2,)
    covariance: Callable[[], Array]  # that of C, (n,) or (n, n), which not all ask for


class DiagonalPrecision:
    """C^-1 of n rows with independent noise of variances c, (n,).

    A "moment" is an (n,) or (n, n) array, of the same form as C.
    """

    def __init__(self, c: Array, copies: Copies) -> None:
        self.matrix = 1.0 / c  # C^-1, (n,) or (n, n)
        self.log_det = float(np.sum(np.log(c))) + copies.log_det  # log |C|, of all copies
        self.count = len(c) + copies.number  # rows, with all copies

    def solve(self, A: Array) -> Array:
        """C^-1 A for A of shape (n,) or (n, k)."""
        return A * self.matrix if A.ndim == 1 else A * self.matrix[:, None]

    def root_times(self, A: Array) -> Array:
        """R A for A of shape (n, k), where C^-1 = R' R."""
        return A * np.sqrt(self.matrix)[:, None]

    root_back = root_times  # R' A

    def gram(self, A: Array, B: Array) -> Array:
        """The moment A B' of two (n, k) matrices whose product is symmetric."""
        return np.einsum("nk,nk->n", A, B)

    def weigh(self, G: Array, A: Array, B: Array) -> Array:
        """The moment C^-1 G C^-1 + A B' C^-1, where A B' = C^-1 H of a symmetric H."""
        return G * self.matrix**2 + self.gram(A, B) * self.matrix


class DensePrecision:
    """The same of a block of rows with noise covariance C, (n, n)."""

    def __init__(self, C: Array, copies: Copies) -> None:
        L = cholesky(C, "noise covariance of a block")
        self._root = tril_inverse(L)
        self.log_det = log_determinant(L) + copies.log_det
        self.count = len(C) + copies.number

    @cached_property
    def matrix(self) -> Array:
        return tril_gram(self._root)

    def solve(self, A: Array) -> Array:
        return self.matrix @ A

    def root_times(self, A: Array) -> Array:
        return tril_times(self._root, A)

    def root_back(self, A: Array) -> Array:
        return triu_times(self._root, A)

    def gram(self, A: Array, B: Array) -> Array:
        return symmetric_product(A, B)

    def weigh(self, G: Array, A: Array, B: Array) -> Array:
        half = self.matrix @ G
        half += A @ B.T
        return symmetric_product(half, self.matrix)


Precision = DiagonalPrecision | DensePrecision


def as_precision(C: Array, copies: Copies) -> Precision:
    """The inverse of a covariance given as a vector (diagonal) or a matrix."""
    return DiagonalPrecision(C, copies) if C.ndim == 1 else DensePrecision(C, copies)


def covariance_vjp(precision: Precision, weighed: Array) -> Array:
    """Gradient in C of -1/2 (log |C| + tr(C^-1 G)), for a moment G of which this is `weigh`.

    That of a block is symmetric to the last digit: the noise's gradient in U is the small
    difference of two sums.
    """
    return 0.5 * (weighed - precision.matrix)


def _sum_up(
    precision: Precision,
    y: Array,
    f: Array,
    moment: Array,
    factors: Callable[[], tuple[Array, Array]],
    penalty: float,
    alpha: float,
    second: float,
) -> tuple[float, Array, Callable[[], Array]]:
    """F, and its gradients in the signal and in C.

    Given f = E[K v] and, of G = E[K V K' + K~], the penalty tr(C^-1 G), a part ``moment`` in the
    form of C, and ``factors`` A, B (n, k) of the rest's A B' = C^-1 (G - moment).
    """
    weighted_y = precision.solve(y)
    fit = float(weighted_y @ f)
    constant = precision.count * LOG_2PI + precision.log_det
    value = -0.5 * (constant + weighted_y @ y - 2.0 * alpha * fit + second * penalty)

    def covariance() -> Array:
        weighted_f = precision.solve(f)
        left = np.column_stack([weighted_y - alpha * weighted_f, -alpha * weighted_y])
        right = np.column_stack([weighted_y, weighted_f])  # left @ right' is symmetric
        weighed = precision.gram(left, right)
        weighed += second * precision.weigh(moment, *factors())
        return covariance_vjp(precision, weighed)

    return float(value), np.array([fit, -0.5 * penalty]), covariance


class ClosedFormGroup:
    """Rows (X, y) with noise covariance C; expectations over Lambda at unit variance.

    These are in closed form (Appendices C and E).
    """

    def __init__(
        self, X: Array, y: Array, C: Array, Z: Array, nu: Array, xi: Array, copies: Copies = _NONE
    ) -> None:
        self._X, self.y, self._Z, self._nu, self._xi = X, y, Z, nu, xi
        self.precision = as_precision(C, copies)
        self._omega = omega(X, Z, nu, xi, 1.0)  # (n, m)
        self._statistic = psi_statistic(X, Z, nu, xi, self.precision.matrix)
        self._prior = upsilon(X, nu, xi, 1.0, 0.0) if C.ndim == 2 else np.ones(len(y))
        self.psi = self._statistic.value  # E[K' C^-1 K], (m, m)
        self.prior_trace = float(np.sum(self.precision.matrix * self._prior))  # tr(C^-1 E[K~])

    def information(self, targets: Array) -> Array:
        """E[K]' C^-1 targets for targets of shape (n,) or (n, k)."""
        return np.asarray(self._omega.T @ self.precision.solve(targets))

    def backward(self, v: Array, V: Array, alpha: float, second: float) -> GroupGradients:
        """F and its gradients; ``second`` is alpha^2 + beta."""
        X, y, Z, nu, xi = self._X, self.y, self._Z, self._nu, self._xi
        precision, f = self.precision, self._omega @ v
        d_psi = self._statistic.vjp(V)
        d_omega = omega_vjp(X, Z, nu, xi, 1.0, np.outer(precision.solve(y), v))
        assert d_omega.Z is not None
        d_prior_nu = d_prior_xi = np.zeros_like(nu)
        if precision.matrix.ndim == 2:
            d_upsilon = upsilon_vjp(X, nu, xi, 1.0, 0.0, precision.matrix)
            d_prior_nu, d_prior_xi = d_upsilon.nu, d_upsilon.xi
        penalty = float(np.sum(V * self.psi)) + self.prior_trace
        none, moment = np.empty((len(y), 0)), d_psi.C_inv + self._prior
        value, d_signal, covariance = _sum_up(
            precision, y, f, moment, lambda: (none, none), penalty, alpha, second
        )
        half = -0.5 * second
        return GroupGradients(
            value=value,
            nu=alpha * d_omega.nu + half * (d_psi.nu + d_prior_nu),
            xi=alpha * d_omega.xi + half * (d_psi.xi + d_prior_xi),
            Z=alpha * d_omega.Z + half * d_psi.Z,
            signal=d_signal,
            covariance=covariance,
        )


class SampledGroup:
    """The same as averages over reparameterised draws Lambda = nu + sqrt(xi) * e.

    The draws e are standard normal: (S, 1, d), common to the group's rows, or (S, n, d), one for
    each row (independent noise only, where the bound is a sum over rows), which averages out far
    faster.

    With the whitening L^-1 (m, m) of Sigma_ZZ = L L', ``psi`` and ``information`` are about the
    whitened inducing outputs, with A = K L^-T for K, and `backward` takes W L^-1 for V = L^-T W
    L^-1.
    """

    def __init__(
        self,
        X: Array,
        y: Array,
        C: Array,
        Z: Array,
        nu: Array,
        xi: Array,
        draws: Array,
        copies: Copies = _NONE,
        whitening: Array | None = None,
    ) -> None:
        self._X, self.y, self._Z, self._nu, self._xi, self._draws = X, y, Z, nu, xi, draws
        self.precision = as_precision(C, copies)
        self._rotated = [X * (nu + np.sqrt(xi) * e) for e in draws]  # S of (n, d)
        self._K = [unit_se(x, Z) for x in self._rotated]  # S of (n, m)
        A = (K if whitening is None else tril_times(whitening, K.T).T for K in self._K)
        self._roots = [self.precision.root_times(a) for a in A]  # of C^-1, times A
        self.psi = np.asarray(sum(root.T @ root for root in self._roots) / len(draws))

    @cached_property
    def prior_trace(self) -> float:
        matrix = self.precision.matrix
        if matrix.ndim == 1:
            return float(matrix.sum())
        total = sum(float(np.sum(matrix * unit_se(x, x))) for x in self._rotated)
        return total / len(self._rotated)

    def information(self, targets: Array) -> Array:
        columns = self.precision.root_times(targets.reshape(len(targets), -1))
        total = sum(root.T @ columns for root in self._roots)
        return np.reshape(total, (-1, *targets.shape[1:])) / len(self._roots)

    def backward(self, v: Array, V: Array, alpha: float, second: float) -> GroupGradients:
        y, Z, precision = self.y, self._Z, self.precision
        weighted_y = precision.solve(y)
        n_draws, is_block = len(self._draws), precision.matrix.ndim == 2
        d_nu, d_xi = np.zeros_like(self._nu), np.zeros_like(self._xi)
        dZ = np.zeros_like(Z)
        f, penalty = np.zeros(len(y)), 0.0
        products = []  # C^-1 A V and K of each draw, of whose product E[K V K'] is the mean
        priors = np.ones(len(y))  # E[K~] of the form of C
        if is_block:
            priors = np.zeros_like(precision.matrix)
        for e, x, K, root in zip(self._draws, self._rotated, self._K, self._roots, strict=True):
            f += K @ v / n_draws
            weighted = precision.root_back(root)
            weighted_V = weighted @ V
            penalty += float(np.vdot(K, weighted_V)) / n_draws
            products.append((weighted_V, K))
            W = -second * weighted_V  # W becomes dF/dK * K
            W += np.outer(alpha * weighted_y, v)
            W *= K
            dx = W @ Z - W.sum(axis=1)[:, None] * x
            dZ += (W.T @ x - W.sum(axis=0)[:, None] * Z) / n_draws
            if is_block:
                prior = unit_se(x, x)
                priors += prior / n_draws
                W = -second * precision.matrix * prior
                dx += W @ x - W.sum(axis=1)[:, None] * x
            dx *= self._X / n_draws
            d_nu += dx.sum(axis=0)
            d_xi += 0.5 * np.sum(dx * e, axis=0) / np.sqrt(self._xi)
        penalty += float(np.vdot(precision.matrix, priors))

        def factors() -> tuple[Array, Array]:
            left, right = zip(*products, strict=True)
            return np.hstack(left) / n_draws, np.hstack(right)

        value, d_signal, covariance = _sum_up(
            precision, y, f, priors, factors, penalty, alpha, second
        )
        return GroupGradients(value, d_nu, d_xi, dZ, d_signal, covariance)


GroupTerms = ClosedFormGroup | SampledGroup
