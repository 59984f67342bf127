r"""Covariances of function values at inputs of which only means and variances are known.

The function at such a place is its average over what the inputs may be, each place's for itself.
A squared exponential averages to

    k_ij = prod_c (1 + (s_ic + s_jc) / l_c^2)^(-1/2) exp(-r_ij^2 / 2),
    r_ij^2 = sum_c (x_ic - x_jc)^2 / (l_c^2 + s_ic + s_jc),

with variances s. The other stationary kernels are mixtures of it, and have their own k(r^2) in the
place of the last factor: what [Paciorek2004] prove to be a covariance, times a factor of each
place. An ANOVA kernel is averaged input by input. Sums and products are those of their parts. Any
other kernel is taken at the means.

See :doc:`/theory/gp_classes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels._anova import Anova
from skvbgp.kernels._base import Kernel
from skvbgp.kernels._compose import Composite, Sum
from skvbgp.kernels._distance import by_block, cut_triangle, factors, squared_distances
from skvbgp.kernels._stationary import Stationary


@dataclass(frozen=True)
class UncertainCovariance:
    """A kernel of d inputs for rows that may have d variances behind these.

    Rows (n, d) are certain; rows (n, 2 d) have means and variances.
    """

    kernel: Kernel
    d: int

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        """Covariances (n, m) of the functions at places; the same rows are the same place."""
        if X.shape[1] == self.d and (Z is None or Z.shape[1] == self.d):
            return self.kernel(X, Z)
        return _evaluate(self.kernel, self._split(X), None if Z is None else self._split(Z))

    def diag(self, X: Array) -> Array:
        """The diagonal of that, (n,): the covariance of two rows with the same known entries."""
        return self.kernel.diag(X) if X.shape[1] == self.d else _diag(self.kernel, self._split(X))

    def whole(self, X: Array) -> Array:
        """The function's variance at each row, (n,)."""
        return self.kernel.diag(X[:, : self.d])

    def lost(self, X: Array) -> Array:
        """The same less `diag`, (n,): what unknown entries add to the function's variance."""
        if X.shape[1] == self.d:
            return np.zeros(len(X))
        return np.maximum(self.whole(X) - self.diag(X), 0.0)

    def vjp(self, X: Array, K: Array, dK: Array, dlost: Array) -> Array:
        """Pull cotangents of K, the covariances of rows X, and of `lost` back to theta."""
        if X.shape[1] == self.d:
            return self.kernel.vjp(X, None, K, dK)[0]
        rows = self._split(X)
        gradient = self.kernel.vjp_diag(rows.mean, dlost)[0] - _diag_vjp(self.kernel, rows, dlost)
        return gradient + _vjp(self.kernel, rows, dK)

    def vjp_whole(self, X: Array, dwhole: Array) -> Array:
        """Pull a cotangent of `whole` back to theta."""
        return self.kernel.vjp_diag(X[:, : self.d], dwhole)[0]

    def stack(self, X: Array, Z: Array) -> Array:
        """Rows X, followed by rows Z."""
        width = max(X.shape[1], Z.shape[1])
        return np.vstack([_widen(X, width), _widen(Z, width)])

    def _split(self, X: Array) -> _UncertainRows:
        X = _widen(X, 2 * self.d)
        return _UncertainRows(X[:, : self.d], X[:, self.d :])


def append_variances(X: Array, variance: Array | None) -> Array:
    """Rows (n, 2 d) of means and variances, or the rows X (n, d) alone."""
    return X if variance is None else np.hstack([X, variance])


class _UncertainRows(NamedTuple):
    mean: Array  # (n, d)
    variance: Array  # (n, d)


def _widen(X: Array, width: int) -> Array:
    return X if X.shape[1] == width else np.hstack([X, np.zeros((len(X), width - X.shape[1]))])


def _evaluate(kernel: Kernel, rows: _UncertainRows, others: _UncertainRows | None) -> Array:
    if isinstance(kernel, Composite):
        return kernel._combine(_evaluate(part, rows, others) for part in kernel.kernels)
    if isinstance(kernel, Stationary):
        return _UncertainPairs.of(kernel, rows, others).evaluate()
    if isinstance(kernel, Anova):
        means, variances = zip(rows, (None, None) if others is None else others, strict=True)
        return kernel.evaluate(*means, *variances)
    return kernel(rows.mean, None if others is None else others.mean)


def _diag(kernel: Kernel, rows: _UncertainRows) -> Array:
    if isinstance(kernel, Composite):
        return kernel._combine(_diag(part, rows) for part in kernel.kernels)
    if isinstance(kernel, Stationary):
        return np.exp(-0.5 * np.log1p(2.0 * _ratios(kernel, rows)).sum(axis=1))
    if isinstance(kernel, Anova):
        return kernel.evaluate_own(*rows)
    return kernel.diag(rows.mean)


def _vjp(kernel: Kernel, rows: _UncertainRows, dK: Array) -> Array:
    if isinstance(kernel, Composite):
        parts = _share(kernel, dK, lambda part: _evaluate(part, rows, None))
        return np.concatenate([_vjp(part, rows, cotangent) for part, cotangent in parts])
    if isinstance(kernel, Stationary):
        return _UncertainPairs.of(kernel, rows, None).vjp(dK)
    if isinstance(kernel, Anova):
        return kernel.pull_back(*rows, dK)
    return kernel.vjp(rows.mean, None, kernel(rows.mean), dK)[0]


def _diag_vjp(kernel: Kernel, rows: _UncertainRows, ddiag: Array) -> Array:
    if isinstance(kernel, Composite):
        parts = _share(kernel, ddiag, lambda part: _diag(part, rows))
        return np.concatenate([_diag_vjp(part, rows, cotangent) for part, cotangent in parts])
    if isinstance(kernel, Stationary):
        s = 2.0 * _ratios(kernel, rows)  # d log(diag) / d log l = s / (1 + s)
        d_log_scale = (ddiag * _diag(kernel, rows)) @ (s / (1.0 + s))
        return kernel._dtheta(length_scale=d_log_scale, alpha=0.0)
    if isinstance(kernel, Anova):
        return kernel.pull_own_back(rows.mean, ddiag, rows.variance)
    return kernel.vjp_diag(rows.mean, ddiag)[0]


def _share(
    kernel: Composite, cotangent: Array, evaluate: Callable[[Kernel], Array]
) -> Iterator[tuple[Kernel, Array]]:
    """The parts of a kernel, and the cotangent of what each of them evaluates to."""
    if isinstance(kernel, Sum):
        yield from ((part, cotangent) for part in kernel.kernels)
        return
    values = [evaluate(part) for part in kernel.kernels]
    for i, part in enumerate(kernel.kernels):
        yield part, reduce(mul, values[:i] + values[i + 1 :], cotangent)


def _ratios(kernel: Stationary, rows: _UncertainRows) -> Array:
    """Variances over squared length scales, (n, d)."""
    return rows.variance / kernel._scale("length_scale", rows.mean.shape[1]) ** 2


class _UncertainPairs(NamedTuple):
    """Pairs of rows, in units of the length scales.

    Inputs that no row is uncertain of enter r^2 as a product of matrices, the others one by one.
    """

    kernel: Stationary
    scaled: tuple[Array, Array]  # (n, d) and (m, d), centred; the same if both are the same rows
    left: Array  # factors of the squared distance in the inputs that are certain
    right: Array
    columns: list[int]  # the others
    halves: tuple[Array, Array]  # 1/2 + s / l^2, (n, d) and (m, d)

    @classmethod
    def of(
        cls, kernel: Stationary, rows: _UncertainRows, others: _UncertainRows | None
    ) -> _UncertainPairs:
        A, B = kernel._centre_and_scale(rows.mean, None if others is None else others.mean)
        half = 0.5 + _ratios(kernel, rows)
        other_half = half if others is None else 0.5 + _ratios(kernel, others)
        uncertain = rows.variance.any(axis=0)
        if others is not None:
            uncertain = uncertain | others.variance.any(axis=0)
        known = A[:, ~uncertain]
        left, right = factors(known, known if others is None else B[:, ~uncertain])
        columns = np.flatnonzero(uncertain).tolist()
        return cls(kernel, (A, B), left, right, columns, (half, other_half))

    def evaluate(self) -> Array:
        A, B = self.scaled
        return by_block(lambda *block: self._block(*block)[0], len(A), len(B), is_symmetric=A is B)

    def vjp(self, dK: Array) -> Array:
        """Pull the cotangent of the covariances of rows with themselves back to theta."""
        A = self.scaled[0]
        certain = np.setdiff1d(np.arange(A.shape[1]), self.columns)
        known, squares = A[:, certain], A[:, certain] ** 2
        d_log_scale, dshape = np.zeros(A.shape[1]), 0.0
        for rows, before in cut_triangle(len(A)):  # both cotangents of a pair to the lower one
            columns = slice(rows.stop)
            K, r2 = self._block(rows, columns)
            dlog = dK[rows, columns].copy()
            dlog[:, before] += dK[before, rows].T
            dlog *= K
            W, dshape_rows = self.kernel._radial_vjp(r2, dlog.copy())
            dshape += dshape_rows
            # d/dlog l of (x - x')^2 / l^2 is -2 times it
            own = W.sum(axis=1) @ squares[rows] + W.sum(axis=0) @ squares[columns]
            cross = np.einsum("ic,ic->c", known[rows], W @ known[columns])
            d_log_scale[certain] -= 2.0 * (own - 2.0 * cross)
            for c in self.columns:
                t, difference = self._compare(c, rows, columns)
                difference /= t
                # d/dlog l of -log(t) / 2 is 1 - 1 / t, that of difference^2 / t is -2 (./ t)^2
                d_log_scale[c] += dlog.sum() - np.sum(dlog / t)
                d_log_scale[c] -= 2.0 * np.vdot(W, difference**2)
        return self.kernel._dtheta(length_scale=d_log_scale, alpha=dshape)

    def _block(self, rows: slice, columns: slice) -> tuple[Array, Array]:
        """Covariances and r^2 of some pairs."""
        own = rows.start if self.scaled[0] is self.scaled[1] else None
        r2 = squared_distances(self.left[rows], self.right[columns], own)
        scale = np.ones_like(r2)
        for c in self.columns:
            t, difference = self._compare(c, rows, columns)
            scale *= t
            difference *= difference
            difference /= t
            r2 += difference
        K = self.kernel._radial(r2.copy())
        K /= np.sqrt(scale)
        return K, r2

    def _compare(self, c: int, rows: slice, columns: slice) -> tuple[Array, Array]:
        """1 + (s_i + s_j) / l^2 and (x_i - x_j) / l of some pairs, in one input."""
        (A, B), (a, b) = self.scaled, self.halves
        t = np.add.outer(a[rows, c], b[columns, c])
        return t, np.subtract.outer(A[rows, c], B[columns, c])
