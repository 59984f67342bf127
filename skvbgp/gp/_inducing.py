"""The global part of the function: a sparse process of inducing inputs, given all rows.

`_sum` has how it is learned, and `_inducing_inputs` what the rows say. See :doc:`/theory/gp`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from skvbgp._core.blockwise import by_tile, in_tiles
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import single_blas_thread, thread_map
from skvbgp._core.pickling import PickledByFields
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import Draws
from skvbgp.gp._gradient import Slopes
from skvbgp.gp._inducing_inputs import InducingInputs, leave_out_rows
from skvbgp.gp._mixture import LocalMoments
from skvbgp.gp._posterior import NeighbourPosterior
from skvbgp.gp._prior_draws import PriorDraws
from skvbgp.gp._process import Process
from skvbgp.gp._rows import Rows
from skvbgp.kernels import Kernel

#: Most rows that the process is conditioned on.
_MOST_ROWS = 100_000


@dataclass(frozen=True)
class GlobalPart(PickledByFields):
    """A sparse process given rows."""

    process: Process
    coordinates: Coordinates
    target: Target
    Z: Array  # (m, d) inducing inputs, scaled
    known: Index  # which rows it is conditioned on, in ascending order
    q: WhitenedGaussian  # of v

    def given(self, rows: Rows, order: Index) -> Self:
        """The same process given rows in a random order, of which the first ones are enough."""
        known = np.sort(order[:_MOST_ROWS])
        y, t = self.target.scaled(rows.y[known]), self._spread_noise(rows, known)
        X = self.coordinates.scaled(rows.X[known])
        q = WhitenedGaussian.of_information(*self.inducing.gather(X, 1.0 / t, y / t))
        return replace(self, known=known, q=q)

    def _spread_noise(self, rows: Rows, index: Index) -> Array:
        """Variances of the noise of some rows, scaled."""
        noise = None if rows.noise is None else rows.noise[index].scaled(self.target.unit)
        return np.broadcast_to(self.process.spread_noise(noise), len(index))

    @property
    def kernel(self) -> Kernel:
        return self.process.kernel

    def average_prior(self, X: Array) -> float:
        """Variance of the function a priori, averaged over places X; in the user's units."""
        return float(np.mean(self.kernel.diag(self.coordinates.scaled(X)))) * self.target.unit**2

    @cached_property
    def inducing(self) -> InducingInputs:
        return InducingInputs(self.kernel, self.Z)

    # -- what it says ------------------------------------------------------------------------------

    def mean(self, X: Array) -> Array:
        """(n,), in the user's units, as everything below."""
        coefficients = self.inducing.L_inv.T @ self.q.mean

        def measure(tile: Array) -> Array:
            return coefficients @ self.kernel(self.Z, self.coordinates.scaled(tile))

        return self.target.original(by_tile(measure, X))

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n,) of the function."""
        mean, rest, learned = self._measure(X)
        return self.target.unscaled(mean, rest + learned)

    def leave_out(self, rows: Rows, index: Index) -> tuple[Array, Array]:
        """The same at some of the rows, each without itself if it is known.

        The targets of `rows` are what the mean has left.
        """
        mean, rest, learned = self._measure(rows.X[index])
        error, t = rows.y[index] / self.target.unit, self._spread_noise(rows, index)
        is_known = np.isin(index, self.known)
        mean, learned = leave_out_rows(mean, learned, mean + error, t, is_known)
        return self.target.unscaled(mean, rest + learned)

    def _measure(self, X: Array) -> tuple[Array, Array, Array]:
        """phi' w, k - phi' phi and phi' A^-1 phi, (n,) each and scaled."""
        return in_tiles(
            lambda tile: self.inducing.measure(self.q, self.coordinates.scaled(tile)), X
        )

    def covariance(self, X: Array) -> Array:
        """Covariance (n, n) of the function."""
        scaled = self.coordinates.scaled(X)
        phi = self.inducing.features(scaled)
        root = self.q.precision_factor_inv @ phi
        K = self.kernel(scaled) - phi.T @ phi + root.T @ root
        return np.asarray(K * self.target.unit**2)

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d) of the function's derivatives."""
        scaled, L_inv = self.coordinates.scaled(X), self.inducing.L_inv
        coefficients = L_inv.T @ self.q.mean
        prior, R = self.kernel.curvature(scaled), self.q.precision_factor_inv

        def measure(x: Array, prior: Array) -> Array:
            slopes = self.kernel.gradient(x, self.Z)  # (m, d)
            phi = L_inv @ slopes
            rest = np.maximum(prior - np.sum(phi**2, axis=0), 0.0)
            return np.array([coefficients @ slopes, rest + np.sum((R @ phi) ** 2, axis=0)])

        result = np.array(thread_map(measure, list(zip(scaled, prior, strict=True))))
        return self.target.unscaled_slopes(result[:, 0], result[:, 1], self.coordinates.scale)

    def draw(self, n: int, rng: np.random.RandomState) -> GlobalDraws:
        """Functions n from the posterior."""
        prior = PriorDraws.draw(self.process, self.Z.shape[1], n, rng)
        v = self.q.draw(n, rng)
        u = prior(self.Z) + np.sqrt(self.inducing.jitter) * rng.standard_normal(v.shape)
        L_inv = self.inducing.L_inv
        weights = L_inv.T @ (v - L_inv @ u)
        return GlobalDraws(self, prior, weights)

    # -- rows --------------------------------------------------------------------------------------

    def subtract(self, rows: Rows) -> Rows:
        """The rows with what the mean leaves of their targets."""
        return self._shift(rows, -1.0)

    def restore(self, rows: Rows) -> Rows:
        """What has been subtracted from."""
        return self._shift(rows, 1.0)

    def _shift(self, rows: Rows, sign: float) -> Rows:
        chunks = ((X, y + sign * self.mean(X), noise) for X, y, noise in rows.chunks)
        return replace(rows, chunks=tuple(chunks))


@dataclass(frozen=True)
class GlobalDraws:
    """Functions from the posterior of a global part.

    A draw of the prior, from random features, which its values at the inducing inputs correct to
    those of a draw of u.
    """

    part: GlobalPart
    prior: PriorDraws
    weights: Array  # (m, S)

    def __call__(self, X: Array) -> Array:
        """Values (n, S) at rows X."""
        part = self.part

        def measure(tile: Array) -> Array:
            scaled = part.coordinates.scaled(tile)
            return self.prior(scaled) + part.kernel(scaled, part.Z) @ self.weights

        return part.target.original(by_tile(measure, X))

    def gradient(self, X: Array) -> Array:
        """Derivatives (n, d, S)."""
        part = self.part

        def measure(x: Array) -> Array:
            slopes = part.kernel.gradient(x, part.Z).T
            return self.prior.gradient(x) + slopes @ self.weights

        tasks = [(x,) for x in part.coordinates.scaled(X)]
        unit = part.target.unit / part.coordinates.scale
        return np.array(thread_map(measure, tasks)) * unit[:, None]


@dataclass(frozen=True)
class SumDraws:
    """Functions that are the sum of a local and a global part."""

    local: Draws
    shared: GlobalDraws
    factor: float  # of deviations from the mean, as those of the local part have it

    def __call__(self, X: Array) -> Array:
        values = self.local(X)
        with single_blas_thread:
            mean = self.shared.part.mean(X)[:, None]
            return values + mean + self.factor * (self.shared(X) - mean)

    def gradient(self, X: Array) -> Array:
        """Derivatives (n_samples, n_features, n)."""
        slopes = self.local.gradient(X)
        with single_blas_thread:
            mean = self.shared.part.measure_gradient(X)[0][:, :, None]
            return np.asarray(slopes + mean + self.factor * (self.shared.gradient(X) - mean))


@dataclass(frozen=True)
class SumPosterior(NeighbourPosterior):
    """A global part, and a mixture given what its mean leaves of the rows' targets.

    To every process of the mixture, the variance of the global part is one more part of that of the
    latent function, so that the mixture's calibration is that of the sum.
    """

    shared: GlobalPart = field(kw_only=True)

    def _measure(self, X: Array, *, with_variance: bool = True) -> LocalMoments:
        local = super()._measure(X, with_variance=with_variance)
        return self._add(local, *self.shared.moments(X))

    def _leave_out(self, index: Index) -> LocalMoments:
        moments = self.shared.leave_out(self.rows, index)
        return self._add(super()._leave_out(index), *moments)

    def _observe(self, index: Index) -> Array:
        """With what the mean of the global part has taken from them."""
        return super()._observe(index) + self.shared.mean(self.rows.X[index]) / self.target.unit

    def _add(self, parts: LocalMoments, mean: Array, variance: Array) -> LocalMoments:
        """`parts` with moments (n,) of the global part, in the user's units."""
        unit = self.target.unit
        mean, variance = mean[:, None] / unit, variance[:, None] / unit**2
        return parts._replace(mean=parts.mean + mean, variance=parts.variance + variance)

    def _covary(self, X: Array, parts: LocalMoments) -> Array:
        """All functions have the same global part, whatever process they go by."""
        shared = self.shared.covariance(X) / self.target.unit**2
        local = parts.variance - np.diagonal(shared)[:, None]
        return super()._covary(X, parts._replace(variance=local)) + shared

    def draw_functions(self, n: int, rng: np.random.RandomState) -> SumDraws:
        local, shared = super().draw_functions(n, rng), self.shared.draw(n, rng)
        return SumDraws(local, shared, float(np.sqrt(self.mixture.calibration)))

    def measure_slopes(self, X: Array) -> Slopes:
        belief, mean, variance = super().measure_slopes(X)
        shared_mean, shared_variance = self.shared.measure_gradient(X)
        return Slopes(belief, mean + shared_mean[:, None], variance + shared_variance[:, None])
