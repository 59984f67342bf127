r"""The latents of rows: what maps a row's entries to its q(x_i), in training and prediction.

With the completed entries y_i ~ N(m_i, V_i),

    q(x_i) = N(mu_i, diag(S_i)),    mu_i = C' m_i + c,    S_i = diag(C' V_i C) + s,

see :ref:`hybrid-recognition`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.extmath import svd_flip

from skvbgp._core.linalg import Array
from skvbgp.ep._inputs import Inputs
from skvbgp.ep.hybrid._columns import CompletedRows

#: Residual variance at the start, where the means have unit variance.
_START_RESIDUAL = 0.3
#: Standard deviation of the latents that PCA has no component for.
_START_SPARE = 0.1
#: Range of residual variances, and of those of latents that no map gives.
_VARIANCE_RANGE = (1e-4, 1e1)


@dataclass(frozen=True)
class Recognition:
    """C, c and s above."""

    projection: Array  # (d, Q)
    offset: Array  # (Q,)
    residual: Array  # (Q,) variance that even a complete row leaves

    @classmethod
    def principal(
        cls,
        rows: CompletedRows,
        n_components: int,
        rng: np.random.RandomState,
        counts: Array | None = None,
    ) -> Recognition:
        """Principal components with unit variance, of rows that may have positive weights (n,)."""
        n, d = rows.mean.shape
        counts = np.ones(n) if counts is None else counts
        location, total = np.average(rows.mean, axis=0, weights=counts), counts.sum()
        centred = np.sqrt(counts)[:, None] * (rows.mean - location)
        U, spread, Vt = np.linalg.svd(centred, full_matrices=False)
        U, Vt = svd_flip(U, Vt)
        rank = min(n_components, int(np.sum(spread > 1e-9 * np.sqrt(total))))
        C = _START_SPARE / np.sqrt(d) * rng.standard_normal((d, n_components))
        C[:, :rank] = Vt[:rank].T * (np.sqrt(total) / spread[:rank])
        return cls(C, -location @ C, np.full(n_components, _START_RESIDUAL))

    @property
    def x(self) -> Array:
        """The parameters as L-BFGS sees them."""
        return np.concatenate([self.projection.ravel(), self.offset, np.log(self.residual)])

    @property
    def bounds(self) -> Array:
        """(len(x), 2)."""
        ranges = [(-np.inf, np.inf), tuple(np.log(_VARIANCE_RANGE))]
        sizes = [self.projection.size + self.offset.size, self.residual.size]
        return np.repeat(ranges, sizes, axis=0)

    def with_x(self, x: Array) -> Recognition:
        C, c, log_s = np.split(x, np.cumsum([self.projection.size, self.offset.size]))
        return Recognition(C.reshape(self.projection.shape), c, np.exp(log_s))

    def latents(self, rows: CompletedRows) -> Inputs:
        """q(x_i) of some rows."""
        C = self.projection
        variance = np.tile(self.residual, (len(rows.mean), 1))
        variance[rows.incomplete] += np.sum(C * (rows.covariance @ C), axis=1)
        return Inputs(rows.mean @ C + self.offset, variance)

    def gradient(self, rows: CompletedRows, d_mean: Array, d_variance: Array) -> Array:
        """Gradient in x, from those in the latents (n, Q)."""
        blurred = rows.covariance @ self.projection  # (u, d, Q)
        d_C = rows.mean.T @ d_mean
        d_C += 2.0 * np.einsum("udq,uq->dq", blurred, d_variance[rows.incomplete])
        d_log_s = self.residual * d_variance.sum(axis=0)
        return np.concatenate([d_C.ravel(), d_mean.sum(axis=0), d_log_s])

    def log_prior(self, length_scale: Array) -> tuple[float, Array, Array]:
        """log p(C / l), up to its constant, and its gradients in x and log l (Q,).

        Independent entries with variance 1 / (4 d): two independent rows of unit columns are
        half a squared length scale apart in each latent.
        """
        precision = 4.0 * len(self.projection)
        relative = self.projection / length_scale
        squares = np.sum(relative**2, axis=0)
        d_C = -precision * relative / length_scale
        others = np.zeros(self.offset.size + self.residual.size)
        value = -0.5 * precision * float(squares.sum())
        return value, np.append(d_C, others), precision * squares


@dataclass(frozen=True)
class RowLatents:
    """q(x_i) = N(mu_i, diag(S_i)) of every training row, which no map ties together: (S.6).

    It takes the place of `Recognition`, see :ref:`hybrid-free`.
    """

    latents_of_rows: Inputs  # moments (n, Q)

    @property
    def x(self) -> Array:
        """The parameters as L-BFGS sees them."""
        q = self.latents_of_rows
        return np.concatenate([q.mean.ravel(), np.log(q.variance).ravel()])

    @property
    def bounds(self) -> Array:
        """(len(x), 2)."""
        size = self.latents_of_rows.mean.size
        ranges = [(-np.inf, np.inf), tuple(np.log(_VARIANCE_RANGE))]
        return np.repeat(ranges, size, axis=0)

    def with_x(self, x: Array) -> RowLatents:
        mean, log_variance = x.reshape(2, *self.latents_of_rows.mean.shape)
        return RowLatents(Inputs(mean, np.exp(log_variance)))

    def latents(self, rows: CompletedRows) -> Inputs:
        """q(x_i) of the training rows, whatever their entries are."""
        return self.latents_of_rows

    def gradient(self, rows: CompletedRows, d_mean: Array, d_variance: Array) -> Array:
        """Gradient in x, from those in the latents (n, Q)."""
        d_log_variance = self.latents_of_rows.variance * d_variance
        return np.concatenate([d_mean.ravel(), d_log_variance.ravel()])

    def log_prior(self, length_scale: Array) -> tuple[float, float, float]:
        """None but that of the latents, which is in the bound."""
        return 0.0, 0.0, 0.0
