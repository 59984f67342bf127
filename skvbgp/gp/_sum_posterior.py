"""Predictions of a function that has a global part: near rows say what that leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp.gp._gradient import Slopes
from skvbgp.gp._inducing import GlobalPart
from skvbgp.gp._posterior import LocalMoments, NeighbourPosterior


@dataclass(frozen=True)
class SumPosterior(NeighbourPosterior):
    """A global part, and a mixture given what its mean leaves of the rows' targets.

    To every process of the mixture, the variance of the global part is one more part of that of the
    latent function, so that the mixture's calibration is that of the sum.
    """

    shared: GlobalPart = field(kw_only=True)

    def _measure(self, X: Array) -> LocalMoments:
        return self._add(super()._measure(X), *self.shared.moments(X))

    def _leave_out(self, index: Index) -> LocalMoments:
        moments = self.shared.leave_out(self.rows, index)
        return self._add(super()._leave_out(index), *moments)

    def _add(self, parts: LocalMoments, mean: Array, variance: Array) -> LocalMoments:
        """The same with moments (n,) of the global part, in the user's units."""
        unit = self.target.unit
        mean, variance = mean[:, None] / unit, variance[:, None] / unit**2
        return parts._replace(mean=parts.mean + mean, variance=parts.variance + variance)

    def _add_covariance(self, X: Array, covariance: Array) -> Array:
        return covariance + self.shared.covariance(X) / self.target.unit**2

    def measure_slopes(self, X: Array) -> Slopes:
        belief, mean, variance = super().measure_slopes(X)
        shared_mean, shared_variance = self.shared.measure_gradient(X)
        return Slopes(belief, mean + shared_mean[:, None], variance + shared_variance[:, None])
