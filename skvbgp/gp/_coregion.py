r"""How several outputs go together: intrinsic coregionalisation.

A row says by an indicator which output it is of: its last t columns hold a unit vector z. With
inputs x,

    cov(f(x, z), f(x', z')) = k(x, x') z' B z',   B = exp(S),

where S is symmetric and otherwise free: any B that is positive definite has one, whatever the order
of the outputs. The noise of output j has the variance r_j sigma_n^2. See
:doc:`/theory/gp_outputs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.optimize import nnls
from scipy.special import exprel

from skvbgp._core.linalg import Array, eigh
from skvbgp._core.pickling import PickledByFields
from skvbgp.kernels import Kernel
from skvbgp.kernels._pairs import Pairs

#: Limits of the entries of S, and of the logarithms of r: noise of one output may be next to
#: nothing, and most of the spread of another one.
_ENTRY_LIMITS = (-4.0, 4.0)
_LOG_FACTOR_LIMITS = (-16.0, 16.0)
#: Standard deviations of their normal priors, which have the mean zero.
_ENTRY_STD, _LOG_FACTOR_STD = 1.0, 1.0
#: Least correlation that neighbours of other outputs are looked for by.
_LEAST_CORRELATION = 1e-3


#: From the cotangent (n, n) of a matrix to the gradients in the kernel's theta, in the rows and,
#: where these say which output they are of, in `Coregion.entries`.
PullBack = Callable[[Array], tuple[Array, Array, Array | None]]


@dataclass(frozen=True)
class Coregion(PickledByFields):
    """The covariance of t outputs, and their noise relative to a common one."""

    entries: tuple[float, ...]  # S on and above the diagonal, row by row, t (t + 1) / 2
    log_factors: tuple[float, ...]  # log r, t

    @classmethod
    def start(cls, t: int) -> Self:
        """Outputs of unit variance and equal noise that know nothing of one another."""
        return cls((0.0,) * (t * (t + 1) // 2), (0.0,) * t)

    @property
    def t(self) -> int:
        """Number of outputs."""
        return len(self.log_factors)

    @property
    def vector(self) -> Array:
        """All that is free, (p,)."""
        return np.array(self.entries + self.log_factors)

    def with_vector(self, vector: Array) -> Self:
        """The coregion of another `vector`."""
        p = len(self.entries)
        return replace(
            self, entries=tuple(vector[:p].tolist()), log_factors=tuple(vector[p:].tolist())
        )

    @property
    def bounds(self) -> Array:
        """Limits of `vector`, (p, 2)."""
        return np.array([_ENTRY_LIMITS] * len(self.entries) + [_LOG_FACTOR_LIMITS] * self.t)

    @property
    def prior(self) -> list[tuple[float, float]]:
        """Mean and standard deviation of the normal prior of each entry of `vector`."""
        return [(0.0, _ENTRY_STD)] * len(self.entries) + [(0.0, _LOG_FACTOR_STD)] * self.t

    @property
    def factors(self) -> Array:
        """r, (t,)."""
        return np.exp(self.log_factors)

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues (t,) and eigenvectors (t, t) of S."""
        S = np.zeros((self.t, self.t))
        S[np.triu_indices(self.t)] = self.entries
        return eigh(S, upper=True)

    @cached_property
    def B(self) -> Array:
        """(t, t)."""
        values, U = self._spectrum
        return np.asarray((U * np.exp(values)) @ U.T)

    @property
    def root(self) -> Array:
        """Symmetric square root (t, t) of B."""
        values, U = self._spectrum
        return np.asarray((U * np.exp(0.5 * values)) @ U.T)

    def vjp(self, dB: Array) -> Array:
        """Gradient in `entries`, from that in B (t, t), symmetric or not."""
        values, U = self._spectrum
        # d exp(S) in the eigenvectors of S: divided differences of exp at pairs of eigenvalues
        slopes = np.exp(values) * exprel(values[:, None] - values)
        dS = U @ (slopes * (U.T @ (dB + dB.T) @ U)) @ U.T
        dS.flat[:: self.t + 1] *= 0.5
        return dS[np.triu_indices(self.t)]

    def split(self, X: Array) -> tuple[Array, Array]:
        """Inputs (..., d) and indicators (..., t) of rows."""
        return X[..., : -self.t], X[..., -self.t :]

    @cached_property
    def distances(self) -> Array:
        """How far indicators are apart, (t,): weights for the distance of neighbours.

        In units of the length scale. The squared distance of outputs i and j would be
        -2 log |correlation|; the sums of squared weights are as near to that as they can be.
        """
        std = np.sqrt(np.diagonal(self.B))
        i, j = np.triu_indices(self.t, 1)
        correlation = np.maximum(np.abs(self.B / std[:, None] / std)[i, j], _LEAST_CORRELATION)
        ends = np.eye(self.t)[i] + np.eye(self.t)[j]
        return np.sqrt(nnls(ends, np.maximum(-2.0 * np.log(correlation), 0.0))[0])


@dataclass(frozen=True)
class JointCovariance:
    """k(x, x') z' B z' of rows that hold inputs x and indicators z."""

    kernel: Kernel
    coregion: Coregion

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        """(n, m)."""
        inputs, outputs = self.coregion.split(X)
        others, other_outputs = (None, outputs) if Z is None else self.coregion.split(Z)
        return self.kernel(inputs, others) * (outputs @ self.coregion.B @ other_outputs.T)

    def diag(self, X: Array) -> Array:
        """(n,)."""
        inputs, outputs = self.coregion.split(X)
        return self.kernel.diag(inputs) * (outputs @ np.diagonal(self.coregion.B))

    def evaluate(self, X: Array, pairs: Pairs | None = None) -> tuple[Array, PullBack]:
        """The matrix (n, n), and what gives the gradients of its cotangent (n, n).

        Those in the indicators, which are given, are zero. By pairs of the inputs, what is above
        the diagonal may be missing, and there is no gradient in the rows.
        """
        inputs, outputs = self.coregion.split(X)
        between = outputs @ self.coregion.B @ outputs.T
        if pairs is not None:
            K, pull_pairs = pairs.evaluate(self.kernel)
        else:
            K = self.kernel(inputs)

        def pull_back(dK: Array) -> tuple[Array, Array, Array]:
            lower = np.tril(dK * K)
            told = outputs.T @ lower @ outputs
            own = (outputs.T * np.diagonal(lower)) @ outputs
            d_entries = self.coregion.vjp(told + told.T - own)
            if pairs is not None:
                return pull_pairs(dK * between), np.empty(0), d_entries
            d_theta, d_inputs, _ = self.kernel.vjp(inputs, None, K, dK * between)
            return d_theta, np.hstack([d_inputs, np.zeros_like(outputs)]), d_entries

        return K * between, pull_back

    def gradient(self, X: Array, Z: Array) -> Array:
        """Derivatives (n, m, d + t) in rows X, or (m, d + t) in one, zero in the indicators."""
        (inputs, own), (others, outputs) = self.coregion.split(X), self.coregion.split(Z)
        between = (own @ self.coregion.B @ outputs.T)[..., None]
        slopes = self.kernel.gradient(inputs, others) * between
        zeros = np.zeros((*slopes.shape[:-1], self.coregion.t))
        return np.concatenate([slopes, zeros], axis=-1)

    def curvature(self, X: Array) -> Array:
        """Prior variances (n, d + t) of the derivatives, zero in the indicators."""
        inputs, outputs = self.coregion.split(X)
        variance = (outputs @ np.diagonal(self.coregion.B))[:, None]
        return np.hstack([variance * self.kernel.curvature(inputs), np.zeros_like(outputs)])


Covariance = Kernel | JointCovariance


def hide_outputs(X: Array, t: int) -> Array:
    """The same rows, whose indicators say nothing."""
    return np.hstack([X[:, : X.shape[1] - t], np.zeros((len(X), t))]) if t else X
