"""Kernels for forecasts of one series, with seasons from its spectrum."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_X_y

from skvbgp._core.linalg import Array
from skvbgp.base import Targets, count_targets, reading
from skvbgp.kernel_selection._scales import weigh_known
from skvbgp.kernel_selection._start import DEVIATIONS_IN_BOUNDS
from skvbgp.kernels import Constant, IntegratedOU, Kernel, Linear, Matern, Periodic, Sum, Wiener

#: Seasons are sums of so many harmonics where they are looked for.
_N_HARMONICS = 4
#: Frequencies that are tried, in each of the smallest steps that the range can tell apart.
_OVERSAMPLING = 4
#: Fewest repetitions of a season.
_FEWEST_CYCLES = 3.0
#: Rates of a level that wanders, per spacing and in units of the noise variance.
_RATES = 10.0 ** np.arange(-4.0, 2.1, 0.5)
#: Kernels in a list, at most.
N_SERIES_KERNELS = 7
#: Variance of a first level of the series; y has 1.
_LEVEL = 100.0

#: Terms of a sum, each with a name.
_Terms = list[tuple[str, Kernel]]


def series_kernels(X: Any, y: Any, sample_weight: Any = None) -> list[tuple[str, Kernel]]:
    """Kernels for forecasts of the series y at times X.

    Sums of a level that wanders, with or without a trend, and of what deviates from it for some
    time: "W" is a Wiener process, "IW" its integral, whose slope wanders, "IOU" a level whose
    slopes last for some time, "LIN" a straight line, "M12" and "M32" are Matern processes. If the
    spectrum of y shows a season, it is added to each: "PER * M32" is a periodic function whose
    shape changes slowly.

    Parameters
    ----------
    X : array-like of shape (n_samples, 1)
        Times, in any order and at any distances.
    y : array-like of shape (n_samples,)
        Values. Kernels are those of y with unit variance.
    sample_weight : float or array-like of shape (n_samples,), default=None
        How often each value counts, as in ``fit``. None is 1.

    Returns
    -------
    kernels : list of (str, Kernel)
        Names, and kernels whose values are starting values and whose bounds are those of a search
        for them.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernel_selection import series_kernels
    >>> t = np.arange(48.0)[:, None]
    >>> y = np.sin(2.0 * np.pi * t[:, 0] / 12.0) + 0.1 * t[:, 0]
    >>> [name for name, _ in series_kernels(t, y)][:2]
    ['LIN + W + PER * M32', 'LIN + W + M32 + PER * M32']
    """
    with reading(X):
        X, y = check_X_y(X, y, y_numeric=True, dtype=np.float64)
    return list_series_kernels(*count_targets(X, y, sample_weight))


def list_series_kernels(X: Array, targets: Targets) -> list[tuple[str, Kernel]]:
    """Kernels for forecasts of a series, whose equal rows are one."""
    if not has_series(X):
        raise ValueError(f"A series has different times, in one column; X has shape {X.shape}.")
    order = np.argsort(X[:, 0], kind="stable")
    summary = targets.scale
    weight = weigh_known(targets, float(summary.unit[0]))[order]
    t, y = X[order, 0], (targets.y[order] - summary.mean) / summary.unit
    extent = t[-1] - t[0]
    trends, period = _list_trends(extent), find_season(t, y, weight)
    if period is not None:
        around = _around(period, 0.02)
        wave = Periodic(1.0, period, length_scale_bounds=_around(1.0, 0.7), period_bounds=around)
        season = wave * _matern(0.3, 2.0 * extent, nu=1.5)  # its shape changes over the range
        trends = [[*trend, ("PER * M32", season)] for trend in trends] + trends[:1]
    return [_add(terms) for terms in trends]


def has_series(X: Array) -> bool:
    """Whether inputs are times, at least two different ones."""
    return X.shape[1] == 1 and bool(np.any(X != X[0]))


def _list_trends(extent: float) -> list[_Terms]:
    """Sums for y of unit variance at times of a range.

    Values have bounds as wide as they are uncertain.
    """
    # a level of which nothing is known, and a slope
    line = Linear(
        extent,
        offset=np.sqrt(_LEVEL),
        offset_bounds="fixed",
        length_scale_bounds=_around(extent, 1.5),
    )
    # a level that wanders by a deviation of y over the range, and a slope that does
    level = Wiener(extent, length_scale_bounds=_around(extent, 2.0))
    slope = Wiener(0.5 * extent, integrated=True, length_scale_bounds=_around(0.5 * extent, 1.5))
    # a slope that lasts for a part of the range, and leaves the level where it has led it
    coast = Constant(0.05, value_bounds=_around(0.05, 2.0)) * IntegratedOU(
        0.1 * extent, length_scale_bounds=_around(0.1 * extent, 1.0)
    )
    base: _Terms = [("LIN", line), ("W", level)]
    return [
        base,
        [*base, ("M32", _matern(0.3, 0.2 * extent, nu=1.5))],
        [*base, ("IOU", coast)],
        [("LIN", line), ("IW", slope), ("W", level)],
        [("W", level)],
        [("M12", _matern(0.5, 0.3 * extent, nu=0.5))],
    ]


def _matern(variance: float, length: float, nu: float) -> Kernel:
    """A level that returns to its mean, or bends, of a variance that is uncertain."""
    amplitude = Constant(variance, value_bounds=_around(variance, 1.5))
    return amplitude * Matern(length, nu=nu, length_scale_bounds=_around(length, 1.0))


def _around(value: float, spread: float) -> tuple[float, float]:
    """Bounds of a positive value whose logarithm has this standard deviation."""
    factor = np.exp(0.5 * DEVIATIONS_IN_BOUNDS * spread)
    return value / factor, value * factor


def _add(terms: _Terms) -> tuple[str, Kernel]:
    """Name and kernel of a sum, with a level if no line has it."""
    names, kernels = zip(*terms, strict=True)
    if "LIN" not in names:
        kernels = (Constant(_LEVEL, value_bounds="fixed"), *kernels)
    return " + ".join(names), Sum(*kernels)


def find_season(t: Array, y: Array, weight: Array) -> float | None:
    """The period of a season in y at times t, in order, or None; values have weights (n,).

    Sums of harmonics are added to a level that wanders: unlike in a plain spectrum, slow changes of
    the level are no peak. The rise of the log evidence, which integrates over their amplitudes and
    the scale of the noise, must exceed the logarithm of the number of periods that are tried.
    """
    extent = t[-1] - t[0]
    highest = 0.5 * (len(np.unique(t)) - 1)  # cycles in the range, of two spacings each
    step = 1.0 / _OVERSAMPLING
    cycles = np.arange(_FEWEST_CYCLES, highest + 1e-9, step)  # (G,)
    if len(cycles) < 2 or not np.any(y):
        return None
    z = (t - t[0]) / extent  # (n,)
    L, whitened = _whiten_level(2.0 * highest * z, y, weight)
    angles = 2.0 * np.pi * np.outer(z, cycles)
    waves = np.hstack([np.cos(angles), np.sin(angles)])  # (n, 2 G)
    waves = solve_triangular(L, waves, lower=True, overwrite_b=True)
    n = float(weight.sum())
    gains = [_gain(waves[:, _list_waves(i, len(cycles))], whitened, n) for i in range(len(cycles))]
    best = int(np.argmax(gains))
    return float(extent / cycles[best]) if gains[best] > np.log(len(cycles)) else None


def _whiten_level(z: Array, y: Array, weight: Array) -> tuple[Array, Array]:
    """Cholesky factor L of a level that wanders, with noise, at its best rate, and L^-1 y.

    z counts spacings. A value of weight w is w copies, see `_core.copies`.
    """
    n = float(weight.sum())
    level = Wiener()((z + 1.0)[:, None])
    best = -np.inf
    for rate in _RATES:
        C = rate * level + _LEVEL / rate
        C.flat[:: len(z) + 1] += 1.0 / weight
        L = np.linalg.cholesky(C)
        residual = solve_triangular(L, y, lower=True)
        noise = float(residual @ residual) / n
        value = -0.5 * n * np.log(noise) - float(np.log(np.diagonal(L)).sum())
        if value > best:
            best, found = value, (L, residual)
    return found


def _list_waves(i: int, n_cycles: int) -> list[int]:
    """Columns of the harmonics of the i-th frequency: cosine, sine, cosine of the next, ..."""
    first = round(_FEWEST_CYCLES * _OVERSAMPLING)  # index of twice the first frequency
    multiples = (first * (h - 1) + h * i for h in range(1, _N_HARMONICS + 1))
    return [j + part for j in multiples if j < n_cycles for part in (0, n_cycles)]


def _gain(waves: Array, y: Array, n: float) -> float:
    """Largest rise of the log evidence over numbers of harmonics, of n copies of the values.

    Amplitudes have Zellner's prior with as much information as one of the values has.
    """
    gram, power, total = waves.T @ waves, waves.T @ y, float(y @ y)
    gram.flat[:: len(gram) + 1] *= 1.0 + 1e-6  # a wave of two spacings has no sine
    gram.flat[:: len(gram) + 1] += np.finfo(float).tiny
    g = float(len(y))
    return max(
        -0.5 * k * np.log1p(g)
        - 0.5 * (n - 1.0) * np.log1p(-g / (1.0 + g) * _share(gram[:k, :k], power[:k], total))
        for k in range(2, len(gram) + 1, 2)
    )


def _share(gram: Array, power: Array, total: float) -> float:
    """What waves explain of a sum of squares."""
    return min(float(power @ np.linalg.solve(gram, power)) / total, 1.0)
