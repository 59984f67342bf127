"""Starting values, limits and priors of the hyperparameters of any kernel, from the data.

A vector x holds the kernel's theta and, last, the logarithm of the noise variance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import RunningScale
from skvbgp.kernels import Constant, Kernel, Linear, Periodic
from skvbgp.kernels._compose import Composite
from skvbgp.kernels._leaf import DEFAULT_BOUNDS

#: Peaks of the spectrum that periods start from, in each input.
_N_PEAKS = 3
#: How often each is taken, and (last) any other period.
_PEAK_PROBABILITIES = (0.5, 0.2, 0.1, 0.2)


@dataclass(frozen=True)
class DataScales:
    """What the data tell about lengths before any model has been fitted.

    Attributes
    ----------
    extent, spacing, spread : ndarray of shape (d,)
        Range of each input, mean distance of neighbours in it, standard deviation.
    periods : ndarray of shape (d, n_peaks)
        Periods of the highest peaks of y's spectrum along each input, highest first.
    noise : float
        Half the mean squared difference of neighbours: more than the noise variance.
    """

    extent: Array
    spacing: Array
    spread: Array
    periods: Array
    noise: float

    @classmethod
    def of(cls, X: Array, y: Array) -> DataScales:
        """Scales of a sample of the rows; y has unit variance."""
        unit = RunningScale.of(X).unit  # (d,)
        columns = [_column_scales(x, y) for x in ((X - X[0]) / unit).T]
        extent, spacing, spread, periods, noise = map(np.array, zip(*columns, strict=True))
        return cls(
            extent * unit, spacing * unit, spread * unit, periods * unit[:, None], float(min(noise))
        )


def _column_scales(x: Array, y: Array) -> tuple[float, float, float, Array, float]:
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    n_distinct = len(np.unique(x))
    if n_distinct < 2:
        return 1.0, 1.0, 1.0, np.ones(_N_PEAKS), float(np.var(y))
    extent = float(x[-1] - x[0])
    noise = 0.5 * float(np.mean(np.diff(y) ** 2))
    return extent, extent / (n_distinct - 1), float(np.std(x)), spectral_periods(x, y), noise


def spectral_periods(x: Array, y: Array, n_peaks: int = _N_PEAKS) -> Array:
    """Periods of the highest peaks of the spectrum of y over any x, highest first.

    A parabola is removed first: a trend would otherwise be the highest peak. Where there are
    too few peaks, periods that divide the range evenly fill up.
    """
    extent = x.max() - x.min()
    z = (x - x.min()) / extent  # (n,)
    trend = np.polynomial.legendre.legvander(2.0 * z - 1.0, min(2, len(z) - 1))
    residual = y - trend @ np.linalg.lstsq(trend, y, rcond=None)[0]
    nyquist = 0.5 * (len(np.unique(x)) - 1)
    frequency = np.arange(1.5, max(nyquist, 1.75), 0.2)  # cycles in the range of x
    angles = 2.0 * np.pi * np.outer(frequency, z)
    power = (np.cos(angles) @ residual) ** 2 + (np.sin(angles) @ residual) ** 2
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] >= power[2:])) + 1
    peaks = inner[np.argsort(power[inner])[::-1]][:n_peaks]
    fallback = np.arange(2.0, 2.0 + n_peaks)
    return np.asarray(extent / np.concatenate([frequency[peaks], fallback])[:n_peaks])


def leaves(kernel: Kernel) -> Iterator[Any]:
    """Elementary kernels in the order of theta."""
    if isinstance(kernel, Composite):
        for part in kernel.kernels:
            yield from leaves(part)
    else:
        yield kernel


class _Range(NamedTuple):
    """Where a search looks for a hyperparameter, and its limits."""

    low: Any
    high: Any
    lowest: Any
    highest: Any


_NOISE = _Range(1e-3, 1.0, 1e-6, 10.0)


def _ranges(leaf: Any, scales: DataScales) -> dict[str, _Range]:
    """Ranges by hyperparameter of an elementary kernel."""
    extent, spacing, spread = scales.extent, scales.spacing, scales.spread
    if isinstance(leaf, Constant):
        return {"value": _Range(0.03, 3.0, 1e-5, 1e4)}
    if isinstance(leaf, Linear):
        return {
            "length_scale": _Range(0.3 * spread, 5.0 * spread, 1e-2 * spread, 1e3 * spread),
            "offset": _Range(0.1, 3.0, 1e-3, 1e2),
        }
    if isinstance(leaf, Periodic):
        shortest = 2.0 * spacing
        return {
            "length_scale": _Range(0.3, 3.0, 0.1, 30.0),
            "period": _Range(shortest, np.maximum(0.5 * extent, shortest), shortest, 2.0 * extent),
        }
    return {
        "length_scale": _Range(2.0 * spacing, 2.0 * extent, 0.5 * spacing, 20.0 * extent),
        "alpha": _Range(0.1, 10.0, 0.1, 100.0),
        "noise_level": _NOISE,
    }


def _free(kernel: Kernel, scales: DataScales) -> Iterator[tuple[Any, str, Array, _Range]]:
    """Leaf, name, value (one entry or d) and logarithmic range of every free hyperparameter."""
    for leaf in leaves(kernel):
        ranges = _ranges(leaf, scales)
        for name, value in leaf._free():
            # one value shared by inputs of different scales takes the geometric mean of theirs
            logs = (np.log(bound) for bound in ranges[name])
            shared = (log if np.size(log) in (1, value.size) else log.mean() for log in logs)
            yield leaf, name, value, _Range(*(np.broadcast_to(s, value.shape) for s in shared))


def limits(kernel: Kernel, scales: DataScales) -> Array:
    """Bounds on x, (p + 1, 2): the user's, or from the data where those are the default."""
    pairs = []
    for leaf, name, value, span in _free(kernel, scales):
        bounds = getattr(leaf, f"{name}_bounds")
        if bounds == DEFAULT_BOUNDS:
            pairs.append(np.column_stack([span.lowest, span.highest]))
        else:
            with np.errstate(divide="ignore"):  # 0 is no lower bound
                pairs.append(np.log(np.broadcast_to(bounds, (value.size, 2))))
    return np.concatenate([*pairs, np.log([[_NOISE.lowest, _NOISE.highest]])])


def draw_start(kernel: Kernel, scales: DataScales, rng: np.random.RandomState) -> Array:
    """Random x: periods from the spectrum, lengths and variances from several decades."""
    parts = []
    for _, name, value, span in _free(kernel, scales):
        share = rng.uniform()  # one for all inputs
        logs = (1.0 - share) * span.low + share * span.high
        if name == "period":
            peak = rng.choice(_N_PEAKS + 1, p=_PEAK_PROBABILITIES)
            if peak < _N_PEAKS:
                logs = np.log(scales.periods[:, peak])[: value.size]
        parts.append(logs)
    noise = np.log(max(scales.noise, _NOISE.lowest)) + rng.uniform(-3.5, 0.5)
    return np.clip(
        np.append(np.concatenate([np.empty(0), *parts]), noise), *limits(kernel, scales).T
    )


def hyperprior(kernel: Kernel, scales: DataScales) -> tuple[Array, Array]:
    """Mean and variance of the Gaussian prior of x: the range of the search is two deviations."""
    spans = [(span.low, span.high) for *_, span in _free(kernel, scales)]
    spans.append((np.log([_NOISE.low]), np.log([_NOISE.high])))
    low, high = (np.concatenate(side) for side in zip(*spans, strict=True))
    return 0.5 * (low + high), np.maximum(0.5 * (high - low), 0.1) ** 2
