"""A process given rows: all of them, or the neighbours of one place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skvbgp._core.factor import Diagonals
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp.base import pick
from skvbgp.gp._row_noise import RowNoise

if TYPE_CHECKING:
    from skvbgp.gp._process import Process, Summary


class Scale(NamedTuple):
    """What rows say of the scale at m places, or wherever they predict."""

    spread: Any  # (m,) or a number: factor of all variances
    evidence: Any  # the same: log evidence of the rows that say so


class Moments(NamedTuple):
    """What the rows say of n others; noise and evidence are of each or the same for all."""

    mean: Array  # (n,)
    variance: Array  # (n,), of the latent function
    noise: Any  # variance of the noise
    evidence: Any  # log evidence of the rows


class Seen(NamedTuple):
    """What moments at n* rows are made of, whatever the targets are."""

    covariance: Array  # (n, n*) with the rows that are known
    variance: Array  # (n*,), of the latent function at scale one


@dataclass(frozen=True)
class Conditional:
    """The process given rows. At which scale it predicts others is said by some of these."""

    process: Process
    X: Array  # (n, d)
    y: Array  # (n,), or of several outputs (n, m), which are to be split
    factor: Any  # `InverseFactor` of C (n, n), another one, or what is left of it
    known: RowNoise | None = None  # what is known of the rows' noise

    def split_outputs(self) -> list[Conditional]:
        """What the rows say of each output; they have the factor in common."""
        return [self] if self.y.ndim == 1 else [self.given_targets(y) for y in self.y.T]

    def given_targets(self, y: Array) -> Conditional:
        return replace(self, y=y)

    def without_factor(self, *, has_scales: bool) -> Conditional:
        """What is needed of it where only means are asked for, and the scale, maybe of places."""
        n, factor = len(self.y), self.factor
        precision = factor.precision if has_scales else np.full(n, np.nan)
        given = replace(self, factor=Diagonals(factor.log_diagonal, precision))
        vars(given).update(_whitened=self._whitened, weights=self.weights)
        return given

    @cached_property
    def _whitened(self) -> Array:
        return np.asarray(self.factor.whiten(self.y))

    @cached_property
    def weights(self) -> Array:
        """C^-1 y."""
        return np.asarray(self.factor.unwhiten(self._whitened))

    @property
    def L_inv(self) -> Array:
        """Inverse (n, n) of the lower Cholesky factor of C."""
        return np.asarray(self.factor.inverse)

    # -- the scale ---------------------------------------------------------------------------------

    @cached_property
    def summary(self) -> Summary:
        """What all rows say of the scale, if it is one."""
        return self._summarise_innovations(None)

    @cached_property
    def scale(self) -> Scale:
        """That of all rows, each of which counts once."""
        return self.process.follow(self.summary)

    @property
    def scale_of_last(self) -> Scale:
        """That at a place to which the last row is the nearest, and the first the farthest."""
        share = self.process.count_nearest(len(self.y))
        return self.process.follow(self._summarise_innovations(share))

    def _summarise_innovations(self, share: Array | None) -> Summary:
        log_diagonal = self.factor.log_diagonal
        return self.process.summarise(self._whitened, log_diagonal, self.known, share)

    def scale_at(self, near: Index) -> Scale:
        """That at m places, from the rows (m, k) nearest to each, or (k,) of one, nearest first.

        Each is predicted from all the others.
        """
        return self._follow_errors(self.weights[near], self.factor.precision[near], near)

    def scale_without(self, index: Index, near: Index) -> Scale:
        """The same at m of the rows, which do not predict their neighbours either."""
        both = self.factor.take_precision(index, near)
        gain = both / self.factor.precision[index, None]
        noise = self.process.spread_noise(self.known)
        least = 1.0 / (self.process.covariance.diag(self.X) + noise)  # where no row says anything
        weights = self.weights[near] - gain * self.weights[index, None]
        return self._follow_errors(
            weights, np.maximum(self.factor.precision[near] - gain * both, least[near]), near
        )

    def _follow_errors(self, weights: Array, precision: Array, near: Index) -> Scale:
        """From the entries of C^-1 y and of the diagonal of C^-1 of near rows, nearest first."""
        return self.process.follow(
            self.process.summarise(
                (weights / np.sqrt(precision))[..., ::-1],
                -0.5 * np.log(precision)[..., ::-1],
                pick(self.known, near[..., ::-1]),
                self.process.count_nearest(near.shape[-1]),
            )
        )

    def compare_scales(self, n: int) -> float:
        """Mean squared innovation of all rows as a multiple of that of the first n."""
        weight = np.ones(len(self.y)) if self.known is None else self.known.weight
        squares = self._whitened**2 + np.finfo(float).tiny  # of targets that are all the same
        scales = np.cumsum(squares) / np.cumsum(weight)
        return float(scales[-1] / scales[n - 1])

    # -- predictions -------------------------------------------------------------------------------

    def moments(self, X: Array, scale: Scale | None = None) -> Moments:
        """Moments at rows X (n*, d), at the scale there; None is that of all rows."""
        return self.tell(self.see(X), scale or self.scale)

    def see(self, X: Array, *, with_variance: bool = True) -> Seen:
        """What does not depend on the targets, and takes most of the time.

        Variances, which take n times as long as means, are NaN if nobody asks for them.
        """
        k = self.process.covariance(self.X, X)
        variance = self._measure_variance(X, k) if with_variance else np.full(len(X), np.nan)
        return Seen(k, variance)

    def tell(self, seen: Seen, scale: Scale) -> Moments:
        """The moments at rows that this has seen, or one with the same factor."""
        return self._as_moments(self.weights @ seen.covariance, seen.variance, scale)

    def _measure_variance(self, X: Array, k: Array) -> Array:
        """That of the latent function at rows X, with covariances k (n, n*), at scale one."""
        prior = self.process.covariance.diag(X)
        variance = prior - np.sum(self.factor.whiten(k) ** 2, axis=0)
        least = bound_variance(prior, k, self.process.spread_noise(self.known))
        return np.maximum(variance, least)

    def leave_out(self, index: Index, near: Index | None = None) -> Moments:
        """Moments at m of the rows, each given all the others; near ones (m, k) say the scale.

        None are those of one scale of all rows, in which each has its share.
        """
        scale = self.scale if near is None else self.scale_without(index, near)
        precision = self.factor.precision[index]
        noise = np.broadcast_to(self.process.spread_noise(self.known), len(self.y))[index]
        variance = np.maximum(1.0 / precision - noise, 0.0)
        return self._as_moments(self.y[index] - self.weights[index] / precision, variance, scale)

    def _as_moments(self, mean: Array, variance: Array, scale: Scale) -> Moments:
        spread, evidence = scale
        return Moments(mean, spread * variance, spread * self.process.noise, evidence)

    def gradient(self, X: Array, scale: Scale | None = None) -> tuple[Array, Array]:
        """Mean and variance (n*, d) of the latent function's derivatives at rows X (n*, d)."""
        covariance = self.process.covariance
        slopes = np.swapaxes(covariance.gradient(X, self.X), 0, 1)  # (n, n*, d)
        told = np.sum(self.factor.whiten(slopes.reshape(len(self.X), -1)) ** 2, axis=0)
        variance = np.maximum(covariance.curvature(X) - told.reshape(X.shape), 0.0)
        spread = np.reshape((scale or self.scale).spread, (-1, 1))
        return np.tensordot(self.weights, slopes, 1), spread * variance

    def covariance(self, X: Array) -> Array:
        """Covariance (n*, n*) of the latent function at rows X, at the scale of all rows."""
        root = self.factor.whiten(self.process.covariance(self.X, X))
        return np.asarray(self.scale.spread * (self.process.covariance(X) - root.T @ root))


def bound_variance(prior: Array | float, k: Array, noise: Array | float) -> Array:
    """What the latent function's variance cannot fall below at places, whatever is rounded.

    Rows say most of f(x) if nothing but f(x) and noise moves them. Then y_i = k_i / prior f(x) +
    noise, and the precision of f(x) is 1 / prior + sum_i (k_i / prior)^2 / noise_i. The prior
    variances are those of a place or of m of them, k (n,) or (n, m) the covariances of the rows
    with these.
    """
    return leave_told(prior, (1.0 / np.full(len(k), noise)) @ k**2)


def leave_told(prior: Array | float, told: Array) -> Array:
    """The same variances, of what rows add to the precisions times the squared prior variances."""
    return np.asarray(prior * (prior / (prior + told + np.finfo(float).tiny)))
