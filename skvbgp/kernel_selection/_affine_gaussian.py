r"""Gaussians N(m, C C') as affine maps of standard normal draws, over one flat vector.

Both q(g) and q(theta_i) of [Teng2020]_ have this form. The flat vector holds m and the lower
triangle of C, with the logarithm of its diagonal, so that every vector is a Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array


@dataclass(frozen=True)
class AffineGaussian:
    """Flat vectors of N(m, C C') in k dimensions, and the KL divergence to their prior."""

    prior_mean: Array  # (k,)
    prior_variance: Array  # (k,) of a factorised prior

    @cached_property
    def _tril(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.tril_indices(len(self.prior_mean))

    @cached_property
    def _diagonal(self) -> NDArray[np.intp]:
        """Where the diagonal of C is in the flat vector."""
        rows, columns = self._tril
        return len(self.prior_mean) + np.flatnonzero(rows == columns)

    @cached_property
    def units(self) -> Array:
        """Units of the flat vector in which the prior has no scale."""
        std = np.sqrt(self.prior_variance)
        units = np.concatenate([std, std[self._tril[0]]])
        units[self._diagonal] = 1.0  # logarithms
        return units

    def pack(self, m: Array, std: Array) -> Array:
        """The vector of N(m, diag(std)^2)."""
        x = np.concatenate([m, np.zeros(len(self._tril[0]))])
        x[self._diagonal] = np.log(std)
        return x

    def unpack(self, x: Array) -> tuple[Array, Array]:
        """m (k,) and C (k, k)."""
        k = len(self.prior_mean)
        entries = x.copy()
        entries[self._diagonal] = np.exp(x[self._diagonal])
        C = np.zeros((k, k))
        C[self._tril] = entries[k:]
        return x[:k], C

    def points(self, x: Array, draws: Array) -> Array:
        """m + C e for every draw e, (S, k)."""
        m, C = self.unpack(x)
        return np.asarray(m + draws @ C.T)

    def pull_back(self, x: Array, dvalues: Array, draws: Array) -> Array:
        """Gradient in x from those of a mean over draws in its points m + C e, both (S, k)."""
        gradient = np.concatenate([dvalues.sum(axis=0), (dvalues.T @ draws)[self._tril]])
        gradient[self._diagonal] *= np.exp(x[self._diagonal])
        return gradient

    def kl(self, x: Array) -> tuple[float, Array]:
        """KL(N(m, C C') || prior) and its gradient."""
        m, C = self.unpack(x)
        shift = (m - self.prior_mean) / self.prior_variance
        scaled = C / self.prior_variance[:, None]
        value = 0.5 * (
            float(shift @ (m - self.prior_mean))
            + float(np.vdot(scaled, C))
            - len(m)
            + float(np.log(self.prior_variance).sum())
        ) - float(x[self._diagonal].sum())
        gradient = np.concatenate([shift, scaled[self._tril]])
        gradient[self._diagonal] *= np.exp(x[self._diagonal])
        gradient[self._diagonal] -= 1.0
        return value, gradient
