r"""The generalised kernel with a multiplier for each point *and* input.

With d_i = x_i - z_i in length scales and e_i = c_i^2 + c'_i^2, the logarithm of a covariance is

    log rho^2 + sum_i (log(2 c_i c'_i / e_i) / 2 - d_i^2 / e_i).

Between points of f, whose c is 1, and those of a basis, e does not depend on the first: the
exponent is then a product of the features [x^2, x, 1] with coefficients of the basis point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.decoupled._basis import (
    Basis,
    GeneralizedSE,
    Gradients,
    exponential,
    features,
    square_multipliers,
)
from skvbgp.kernels._distance import cut_rows


@dataclass(frozen=True)
class InputwiseSE(GeneralizedSE):
    r"""The generalised SE-ARD kernel, eq. (19) of [Cheng2017]_, as it is there.

    .. math:: \rho^2 \prod_i \left(\frac{2 c_i c_i'}{c_i^2 + c_i'^2}\right)^{1/2}
              \exp\left(-\frac{(x_i - x'_i)^2}{s_i^2 (c_i^2 + c_i'^2)}\right).

    ``log_c`` of its bases has the shape (m, d).
    """

    def __call__(self, X: Basis, Z: Basis) -> Array:
        A, B = self._in_length_scales(X, Z)
        if X.log_c is None:
            e, log_front = 1.0 + square_multipliers(Z), self._log_front(Z)
            level = log_front - np.sum(B**2 / e, axis=0)
            return exponential(features(A), np.vstack([-1.0 / e, 2.0 * B / e, level]), log_front)
        if Z.log_c is None:
            return self(Z, X).T
        square_X, square_Z = square_multipliers(X), square_multipliers(Z)
        by_row = self.log_variance + 0.5 * np.sum(np.log(2.0) + X.log_c, axis=1)
        by_column = 0.5 * Z.log_c.sum(axis=1)
        K = np.empty((len(X), len(Z)))
        for rows in cut_rows(*K.shape):
            exponent = by_row[rows, None] + by_column
            for a, b, c_X, c_Z in zip(A[:, rows], B, square_X[:, rows], square_Z, strict=True):
                e = c_X[:, None] + c_Z
                exponent -= (a[:, None] - b) ** 2 / e
                exponent -= 0.5 * np.log(e)
            np.exp(exponent, out=K[rows])
        return K

    def _vjp_of_points(
        self, X: Basis, Z: Basis, K: Array, dK: Callable[[slice], Array]
    ) -> Gradients:
        # With W the cotangent of log K:
        # d/dd_i^2 = -W / e_i,  d/dlog c_i = W / 2 + 2 c_i^2 (d_i^2 / e_i - 1/2) W / e_i
        A, B = self._in_length_scales(X, Z)
        square_X, square_Z = square_multipliers(X), square_multipliers(Z)
        dA, dB, de_X, de_Z = (np.zeros_like(part) for part in (A, B, A, B))
        total_X, total_Z = np.empty(len(X)), np.zeros(len(Z))
        for rows in cut_rows(*K.shape):
            W = dK(rows) * K[rows]
            total_X[rows], total_Z = W.sum(axis=1), total_Z + W.sum(axis=0)
            for i in range(len(A)):
                e = square_X[i, rows, None] + square_Z[i]
                V, difference = W / e, A[i, rows, None] - B[i]
                pull = V * difference
                dA[i, rows], dB[i] = -2.0 * pull.sum(axis=1), dB[i] + 2.0 * pull.sum(axis=0)
                de = pull * difference / e - 0.5 * V
                de_X[i, rows], de_Z[i] = de.sum(axis=1), de_Z[i] + de.sum(axis=0)
        squares, totals = (square_X, square_Z), (total_X, total_Z)
        return self._gather((A, B), (dA, dB), squares, totals, (de_X, de_Z))

    def _through_front(self, total: Array) -> Array:
        return 0.5 * total

    def _log_front(self, Z: Basis) -> Array:
        """The logarithm of K at zero distance from points of f, (m,)."""
        if Z.log_c is None:
            return np.full(len(Z), self.log_variance)
        logs = np.log(2.0) + Z.log_c.T - np.log(1.0 + square_multipliers(Z))
        return np.asarray(self.log_variance + 0.5 * logs.sum(axis=0))
