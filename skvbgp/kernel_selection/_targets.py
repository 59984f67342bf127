r"""What the Gaussian processes model: y, or the logarithm of y + c.

The slopes of a monotone transform of y are the Jacobian in the density of y: with it, bounds of
models of y and of its logarithm may be compared. See the theory page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri

from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture, find_quantile
from skvbgp._core.scaling import RunningScale, Target, check_unit
from skvbgp.base import Targets

#: Logarithms of moments of y are cut off here, before their squares overflow; y may be as large.
_LARGEST_LOG = 352.0
#: Variance of a logarithm at which moments of y no longer grow: beyond, they are those of a tail.
_WIDEST_LOG = 1.0
#: What y is above the zero of the logarithm at least, in units of its range: a learned transform.
_MARGINS = (0.01, 0.05, 0.25)
#: What is said where noise of y is to be added to that of a logarithm.
_LOGARITHMS = (
    "y_var, and what missing entries of X add to it, is a variance of y, and the model has learned "
    "logarithms of y, too: have some in the first call, or take transforms=['identity']."
)
#: What users may ask for.
TRANSFORMS = ("identity", "log")


@dataclass(frozen=True)
class PlainTarget(Target):
    """y, less its mean and in units of its standard deviation."""

    transform: ClassVar[str] = "identity"

    @classmethod
    def of(cls, y: Targets, *, normalize: bool) -> Self:
        """The target of these rows."""
        return cls(*_mean_and_unit(y.y, y.weight, normalize))

    def renewed(self, y: Targets, *, normalize: bool) -> PlainTarget:
        """The same transform, for other rows."""
        return self.of(y, normalize=normalize)

    @property
    def kind(self) -> PlainTarget:
        """The transform alone, without the scale."""
        return replace(self, mean=0.0, unit=1.0)

    def forward(self, y: Array) -> Array:
        """The transform of y."""
        return y

    def inverse(self, z: Array) -> Array:
        """y of its transform."""
        return z

    def inverse_slope(self, z: Array) -> Array:
        """Derivative of `inverse`."""
        return np.ones_like(z)

    def slope_moments(
        self, f: tuple[Array, Array], slope: Array, together: Array, variance: Array
    ) -> tuple[Array, Array]:
        """Mean and variance (n, d) of the slopes of y.

        From mean and variance (n,) of the scaled target, and the mean of its slopes, their
        covariance with it and their variance.
        """
        return slope * self.unit, variance * self.unit**2

    def log_density(self, of_transform: NormalMixture, y: Array) -> Array:
        """Log density of y (n,), given the distributions of its transform."""
        return of_transform.log_density(y)

    def cdf(self, of_transform: NormalMixture, y: Array) -> Array:
        """Probability of values up to y (n,), given the distributions of its transform."""
        return of_transform.cdf(y)

    def scaled(self, y: Array) -> Array:
        return super().scaled(self.forward(y))

    def log_jacobian(self, y: Targets) -> float:
        """Sum over the rows, as often as they count, of the log slopes of `scaled`."""
        return -y.total * float(np.log(self.unit))

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Mean and variance of y, of any shape, from those of the scaled target."""
        return self.unscaled(mean, variance)

    def joint(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean (n,) and covariance (n, n) of y, from those of the scaled target."""
        return self.unscaled(mean, covariance)


@dataclass(frozen=True)
class LogTarget(PlainTarget):
    """The logarithm of y + c, less its mean and in units of its standard deviation.

    If it is Gaussian with mean m and variance v, then E y = exp(m + v / 2) - c, and y_i and y_j
    have the covariance E(y_i + c) E(y_j + c) (exp(v_ij) - 1); both with v up to `_WIDEST_LOG`.
    """

    transform: ClassVar[str] = "log"

    shift: float  # c
    margin: float  # the smallest y + c of the known rows, in units of the range of y

    @classmethod
    def with_margin(cls, y: Targets, margin: float, *, normalize: bool) -> Self:
        """The target of these rows."""
        lowest, extent = float(y.y.min()), float(np.ptp(y.y))
        shift = margin * (extent if extent > 0.0 else max(abs(lowest), 1.0)) - lowest
        return cls(*_mean_and_unit(np.log(y.y + shift), y.weight, normalize), shift, margin)

    def renewed(self, y: Targets, *, normalize: bool) -> PlainTarget:
        return self.with_margin(y, self.margin, normalize=normalize)

    def forward(self, y: Array) -> Array:
        if not np.all(y > -self.shift):
            raise ValueError(f"y must exceed {-self.shift:g}, where its logarithm is modelled.")
        return np.log(y + self.shift)

    def inverse(self, z: Array) -> Array:
        return _exp(z) - self.shift

    def inverse_slope(self, z: Array) -> Array:
        return _exp(z)

    def slope_moments(
        self, f: tuple[Array, Array], slope: Array, together: Array, variance: Array
    ) -> tuple[Array, Array]:
        mean, of_log = self.unscaled(*f)
        grows = (of_log < _WIDEST_LOG)[:, None]
        of_log = np.minimum(of_log, _WIDEST_LOG)
        slope, together = self.unit * slope, np.where(grows, self.unit**2 * together, 0.0)
        expected = _exp(mean + 0.5 * of_log)[:, None]
        first = expected * (slope + together)
        square = (slope + 2.0 * together) ** 2 + self.unit**2 * variance
        return first, expected**2 * np.exp(of_log)[:, None] * square - first**2

    def log_density(self, of_transform: NormalMixture, y: Array) -> Array:
        log_y, exists = self._log_where(y)
        return np.where(exists, of_transform.log_density(log_y) - log_y, -np.inf)

    def cdf(self, of_transform: NormalMixture, y: Array) -> Array:
        log_y, exists = self._log_where(y)
        return np.where(exists, of_transform.cdf(log_y), 0.0)

    def scaled_noise(self, variance: Array | None) -> None:
        if variance is not None:
            raise ValueError(_LOGARITHMS)

    def log_jacobian(self, y: Targets) -> float:
        log_y = self.forward(y.y)
        total = float(log_y.sum() if y.weight is None else y.weight @ log_y)
        return super().log_jacobian(y) - total

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        mean, variance = self.unscaled(mean, variance)
        variance = np.minimum(variance, _WIDEST_LOG)
        expected = _exp(mean + 0.5 * variance)
        return expected - self.shift, expected**2 * np.expm1(variance)

    def joint(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        mean, covariance = self.unscaled(mean, covariance)
        shrunk = np.sqrt(_WIDEST_LOG / np.maximum(np.diagonal(covariance), _WIDEST_LOG))
        covariance = shrunk[:, None] * covariance * shrunk
        expected = _exp(mean + 0.5 * np.diagonal(covariance))
        return expected - self.shift, np.outer(expected, expected) * np.expm1(covariance)

    def _log_where(self, y: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Logarithms where they exist, and where that is."""
        exists = y > -self.shift
        return np.log(np.where(exists, y + self.shift, 1.0)), exists


def _mean_and_unit(z: Array, weight: Array | None, normalize: bool) -> tuple[float, float]:
    summary = RunningScale.of(z[:, None], weight)
    check_unit(summary.unit, "y")
    return (float(summary.mean[0]), float(summary.unit[0])) if normalize else (0.0, 1.0)


def _exp(z: Array) -> Array:
    return np.asarray(np.exp(np.minimum(z, _LARGEST_LOG)))


def count_variants(transforms: Iterable[str]) -> int:
    """How many targets transforms of these names have."""
    return sum(1 if name == "identity" else len(_MARGINS) for name in transforms)


def make_targets(transforms: Iterable[str], y: Targets, *, normalize: bool) -> list[PlainTarget]:
    """Targets of the transforms of these names."""
    targets: list[PlainTarget] = []
    for name in transforms:
        if name == "identity":
            targets.append(PlainTarget.of(y, normalize=normalize))
        else:
            targets += [LogTarget.with_margin(y, m, normalize=normalize) for m in _MARGINS]
    return targets


@dataclass(frozen=True)
class TransformedMixture:
    """Predictive distributions of n rows: mixtures of Gaussians of y and of transforms of y."""

    parts: tuple[tuple[PlainTarget, NormalMixture], ...]  # weights add up to 1 over all

    @classmethod
    def of(
        cls, targets: Sequence[PlainTarget], mean: Array, variance: Array, weights: Array
    ) -> TransformedMixture | NormalMixture:
        """Of components (n, K) with weights (K,), given the target of each."""
        kinds = [target.kind for target in targets]
        if all(kind.transform == "identity" for kind in kinds):
            return NormalMixture.of_moments(mean, variance, weights)
        parts = []
        for kind in dict.fromkeys(kinds):
            its = [other == kind for other in kinds]
            part = NormalMixture.of_moments(mean[:, its], variance[:, its], weights[its])
            parts.append((kind, part))
        return cls(tuple(parts))

    def with_noise(self, variance: Array) -> TransformedMixture:
        raise ValueError(_LOGARITHMS)

    def log_density(self, y: Array) -> Array:
        """Log density at y, (n,)."""
        parts = [kind.log_density(part, y) for kind, part in self.parts]
        return np.asarray(logsumexp(parts, axis=0))

    def quantile(self, p: float) -> Array:
        """What is exceeded with probability 1 - p, (n,)."""
        quantiles = [kind.inverse(part.mean + part.std * ndtri(p)) for kind, part in self.parts]
        return find_quantile(self.cdf, p, np.hstack(quantiles))

    def cdf(self, y: Array) -> Array:
        """Probability of values up to y, (n,)."""
        return np.asarray(sum(kind.cdf(part, y) for kind, part in self.parts))
