"""A process through inducing inputs: what rows say of its values there, and these of other places.

With u the function at the inducing inputs Z, K = L L' its matrix there, u = L v and
phi = L^-1 k(Z, x), the rows with noise variances t say

    v | y ~ N(w, A^-1),   A = I + sum_i phi_i phi_i' / t_i,   w = A^-1 sum_i phi_i y_i / t_i,

so that the function at x has the mean phi' w and the variance k(x, x) - phi' phi + phi' A^-1 phi,
where A^-1 = R' R. Sums over rows are all that has to be known of these. See :doc:`/theory/gp`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import InducingOutputs, WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.order import cut

#: Rows at a time.
_TILE_ROWS = 1024


class InducingInputs(InducingOutputs):
    """The process at Z by a kernel, or by a covariance of uncertain rows."""

    def __len__(self) -> int:
        return len(self.Z)

    @property
    def jitter(self) -> float:
        """What L L' has more than K on the diagonal: u is known with as much noise."""
        return max(0.0, float(np.mean(np.sum(self.L**2, axis=1) - self.kernel.diag(self.Z))))

    def features(self, X: Array) -> Array:
        """phi (m, n) of rows."""
        return np.asarray(self.L_inv @ self.kernel(self.Z, X))

    def gather(self, X: Array, precision: Array, shift: Array) -> tuple[Array, Array]:
        """What rows say: the sums of phi phi' / t (m, m) and of phi times `shift`.

        From 1 / t (n,) and y / t, (n,) or (n, K).
        """
        m = len(self.Z)
        information, moved = np.zeros((m, m)), np.zeros((m, *shift.shape[1:]))
        for tile in cut(len(X), _TILE_ROWS):
            phi = self.features(X[tile])
            moved += phi @ shift[tile]
            phi *= np.sqrt(precision[tile])
            information += phi @ phi.T
        return information, moved

    def measure(self, q: WhitenedGaussian, X: Array) -> tuple[Array, Array, Array]:
        """phi' w, (n,) or (n, K), and k - phi' phi and phi' A^-1 phi, (n,) each."""
        phi = self.features(X)
        rest = np.maximum(self.kernel.diag(X) - np.sum(phi**2, axis=0), 0.0)
        return phi.T @ q.mean, rest, np.sum((q.precision_factor_inv @ phi) ** 2, axis=0)


def leave_out_rows(
    mean: Array, learned: Array, targets: Array, t: Array, is_known: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """phi' w and phi' A^-1 phi at rows of noise variances t, each without itself if it is known."""
    share = np.where(is_known, learned / t, 0.0)  # below 1
    moved = (share / (1.0 - share)).reshape(-1, *[1] * (mean.ndim - 1))
    return mean - moved * (targets - mean), learned / (1.0 - share)
