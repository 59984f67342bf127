"""Scales of the data: the frame in which kernels act, and lengths, periods and noise in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, find_shared
from skvbgp._core.scaling import RunningScale, check_near, scale_variance
from skvbgp.base import Targets
from skvbgp.kernel_selection._targets import PlainTarget

#: Extent, spacing and spread of the columns of a category, whose categories are at a distance of
#: one: correlations of two are between .004 and .95 where a search for length scales begins.
_CATEGORY = (1.5, 0.15, np.sqrt(0.5))
#: Peaks of the spectrum that periods start from, in each input.
N_PEAKS = 3


class Frame(NamedTuple):
    """Inputs about their mean, in their own units, and the scaled target."""

    origin: Array  # (d,)
    spread: Array  # (d,)
    target: PlainTarget

    def centre(self, X: Array) -> Array:
        with np.errstate(over="ignore"):
            centred = X - self.origin
            check_near(centred / self.spread, "X")
        return centred

    def scale(self, X: Array, y: Targets) -> tuple[Array, Targets]:
        variance = self.target.scaled_noise(y.variance)
        return self.centre(X), replace(y, y=self.target.scaled(y.y), variance=variance)


@dataclass(frozen=True)
class DataScales:
    """What the data tell about lengths before any model has been fitted.

    What y tells goes by how often rows count and how well they are known, and where they are does
    not.
    """

    extent: Array  # (d,) range of each input
    spacing: Array  # (d,) mean distance of neighbours in it
    spread: Array  # (d,) its standard deviation
    #: (d, n_peaks): periods of the highest peaks of y's spectrum along each input, highest first.
    periods: Array
    noise: float  # half the mean squared difference of neighbours: more than the noise variance

    @classmethod
    def of(cls, X: Array, y: Targets, owners: Owners = ()) -> DataScales:
        """Scales of a sample of the rows; y has unit variance.

        Columns that encode a category have those of any category.
        """
        unit = RunningScale.of(X).unit  # (d,)
        weight = weigh_known(y)
        columns = [measure_column(x, y.y, weight) for x in ((X - X[0]) / unit).T]
        extent, spacing, spread, periods, noise = map(np.array, zip(*columns, strict=True))
        extent, spacing, spread = extent * unit, spacing * unit, spread * unit
        shared = find_shared(len(unit), owners)
        extent[shared], spacing[shared], spread[shared] = _CATEGORY
        return cls(extent, spacing, spread, periods * unit[:, None], float(min(noise)))


def weigh_known(y: Targets, unit: float = 1.0) -> Array:
    """Weights (n,) of rows for starting values, before noise is learned.

    A row whose known noise has the variance v, in squares of the ``unit`` that values differ by,
    counts 1 / (1 + v) times as much as one without. Noise that all rows share makes no difference.
    """
    if y.variance is None:
        return y.counts
    spread = 1.0 + scale_variance(y.variance, unit)
    return np.asarray(y.counts * (spread.min() / spread))


def measure_column(x: Array, y: Array, weight: Array) -> tuple[float, float, float, Array, float]:
    order = np.argsort(x, kind="stable")
    x, y, weight = x[order], y[order], weight[order]
    n_distinct = len(np.unique(x))
    if n_distinct < 2:
        deviation = y - np.average(y, weights=weight)
        variance = float(np.average(deviation**2, weights=weight))
        return 1.0, 1.0, 1.0, np.ones(N_PEAKS), variance
    extent = float(x[-1] - x[0])
    pairs = np.minimum(weight[1:], weight[:-1])
    noise = 0.5 * float(np.average(np.diff(y) ** 2, weights=pairs))
    periods = find_periods(x, y, weight)
    return extent, extent / (n_distinct - 1), float(np.std(x)), periods, noise


def find_periods(x: Array, y: Array, weight: Array) -> Array:
    """Periods of the highest peaks of the spectrum of y over any x, highest first.

    A parabola is removed first: a trend would otherwise be the highest peak. Where there are
    too few peaks, periods that divide the range evenly fill up. Rows have positive weights (n,).
    """
    extent = x.max() - x.min()
    z = (x - x.min()) / extent  # (n,)
    trend = np.polynomial.legendre.legvander(2.0 * z - 1.0, min(2, len(z) - 1))
    root = np.sqrt(weight)
    fit = np.linalg.lstsq(root[:, None] * trend, root * y, rcond=None)[0]
    residual = root**2 * (y - trend @ fit)
    nyquist = 0.5 * (len(np.unique(x)) - 1)
    frequency = np.arange(1.5, max(nyquist, 1.75), 0.2)  # cycles in the range of x
    angles = 2.0 * np.pi * np.outer(frequency, z)
    power = (np.cos(angles) @ residual) ** 2 + (np.sin(angles) @ residual) ** 2
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] >= power[2:])) + 1
    peaks = inner[np.argsort(power[inner])[::-1]][:N_PEAKS]
    fallback = np.arange(2.0, 2.0 + N_PEAKS)
    return np.asarray(extent / np.concatenate([frequency[peaks], fallback])[:N_PEAKS])
