"""Latents of the training rows that no map ties together: (S.6), see :ref:`hybrid-free`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.ep._inputs import Inputs
from skvbgp.ep.hybrid._columns import CompletedRows

#: Range of their variances.
_VARIANCE_RANGE = (1e-4, 1e1)


@dataclass(frozen=True)
class RowLatents:
    """q(x_i) = N(mu_i, diag(S_i)) of every training row, in the place of `Recognition`."""

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

    def joined(self, latents: Inputs) -> RowLatents:
        return RowLatents(self.latents_of_rows.joined(latents))

    def latents(self, rows: CompletedRows) -> Inputs:
        """q(x_i) of the training rows, whatever their entries are."""
        return self.latents_of_rows

    def log_prior(self, length_scale: Array) -> float:
        """None but that of the latents, which is in the bound."""
        return 0.0

    def gradient(
        self, rows: CompletedRows, d_mean: Array, d_variance: Array, length_scale: Array
    ) -> tuple[Array, Array]:
        """Gradients in x, from those in the latents (n, Q), and in the log length scales."""
        d_log_variance = self.latents_of_rows.variance * d_variance
        d_x = np.concatenate([d_mean.ravel(), d_log_variance.ravel()])
        return d_x, np.zeros_like(length_scale)
