"""One factorisation that gives all a prediction from neighbours needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from skvbgp._core.linalg import LAST_JITTER, Array, NotPositiveDefiniteError, choose_jitter


class Bordered(NamedTuple):
    """What a bordered factorisation gives; L L' = C."""

    place: Array  # L^-1 k, (n,)
    targets: Array  # L^-1 Y', as rows (m, n)
    factor: Array  # L, (n, n)

    def weigh_rows(self) -> Array:
        """C^-1 k, (n,): the weights that the place gives to values at the rows."""
        return np.asarray(
            solve_triangular(self.factor, self.place, trans="T", lower=True, check_finite=False)
        )


def factorise_bordered(K: Array, Y: Array, noise: Array) -> Bordered:
    """Factorise C with two borders, the place's k and the targets Y.

    C is the matrix of n rows, K[:n, :n] + diag(noise), and k what a place has in common with them.
    The factor of C, bordered by k' and Y, is bordered by (L^-1 k)' and (L^-1 Y')'.

    Parameters
    ----------
    K : ndarray of shape (n + 1, n + 1)
        The kernel's matrix of the rows and of the place, which is the last.
    Y : ndarray of shape (m, n)
        Targets.
    noise : ndarray of shape (n,)
    """
    m, n = Y.shape
    prior = np.diagonal(K)
    C = np.zeros((n + 1 + m, n + 1 + m))  # the lower triangle is read
    diagonal = C.reshape(-1)[:: n + 2 + m]
    jitter = choose_jitter(noise, prior[:n] + noise)
    while True:
        load = noise + jitter * (prior[:n] + noise)  # relative to each row's own variance
        C[: n + 1, : n + 1] = K
        diagonal[:n] += load
        C[n + 1 :, :n] = Y
        least = float(load.min())  # last entries that are large enough
        diagonal[n] += least
        diagonal[n + 1 :] = 1.0 + 2.0 * float(np.vdot(Y, Y)) / least * (1.0 + prior[n] / least)
        try:  # unlike SciPy's, this lets other threads run meanwhile: most of a prediction's time
            L: Array = np.asarray(np.linalg.cholesky(C))
        except np.linalg.LinAlgError:  # rounding asks for more
            if jitter >= LAST_JITTER:
                raise NotPositiveDefiniteError(
                    "The covariance of neighbours is not positive definite: the kernel is not a "
                    "valid covariance function at these inputs."
                ) from None
            jitter *= 10.0
        else:
            return Bordered(L[n, :n], L[n + 1 :, :n], L[:n, :n])
