"""Starting values, limits and priors of the hyperparameters of any kernel, from the data.

A vector x holds the kernel's theta and, last, the logarithm of the noise variance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import draw_distinct
from skvbgp.base import Targets, choose_inducing_inputs
from skvbgp.kernel_selection._categories import ColumnsKernel
from skvbgp.kernel_selection._scales import N_PEAKS, DataScales, Frame
from skvbgp.kernel_selection._state import State
from skvbgp.kernels import Constant, Linear, Periodic
from skvbgp.kernels._compose import leaves
from skvbgp.kernels._leaf import DEFAULT_BOUNDS

#: Probabilities that a period starts from each peak of the spectrum, and (last) from anywhere.
_PEAK_PROBABILITIES = (0.5, 0.2, 0.1, 0.2)

#: How many standard deviations of its prior the bounds of a series' hyperparameter are apart.
DEVIATIONS_IN_BOUNDS = 8.0

#: Rows that starting values are searched with, and inducing inputs of the two steps of it.
SCREENING_ROWS = 1_000
_COARSE_INDUCING = 48
_SCREENING_INDUCING = 128
#: Up to so many rows the screening takes them all as inducing inputs.
_SCREENING_DENSE_ROWS = 256


class _Range(NamedTuple):
    """Where a search looks for a hyperparameter, and its limits."""

    low: Any
    high: Any
    lowest: Any
    highest: Any


#: Leaf, name and value of a hyperparameter, and its logarithmic range.
_Free = tuple[Any, str, Array, _Range]

_NOISE = _Range(1e-3, 1.0, 1e-6, 10.0)
_VARIANCE = _Range(0.03, 3.0, 1e-5, 1e4)


def _find_ranges(leaf: Any, scales: DataScales) -> dict[str, _Range]:
    """Ranges by hyperparameter of an elementary kernel."""
    extent, spacing, spread = scales.extent, scales.spacing, scales.spread
    if isinstance(leaf, Constant):
        return {"value": _VARIANCE}
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
        "variance": _VARIANCE,
    }


def _find_around(value: Array) -> _Range:
    """Range of a hyperparameter of a user's kernel, of which only its value (one or d) is known."""
    return _Range(0.1 * value, 10.0 * value, 1e-3 * value, 1e3 * value)


def _list_free(kernel: ColumnsKernel, scales: DataScales) -> Iterator[_Free]:
    """Leaf, name, value (one entry or d) and logarithmic range of every free hyperparameter.

    Of kernels that columns share, those of the columns.
    """
    for leaf in leaves(kernel.columns):
        ranges = _find_ranges(leaf, scales)
        for name, value in leaf._free():
            # one value shared by inputs of different scales takes the geometric mean of theirs
            logs = (np.log(bound) for bound in ranges.get(name) or _find_around(value))
            shared = (log if np.size(log) in (1, value.size) else log.mean() for log in logs)
            yield leaf, name, value, _Range(*(np.broadcast_to(s, value.shape) for s in shared))


def find_limits(kernel: ColumnsKernel, scales: DataScales) -> Array:
    """Bounds on x, (p + 1, 2): the user's, or from the data where those are the default."""
    pairs = [np.empty((0, 2))]
    for leaf, name, value, span in _list_free(kernel, scales):
        bounds = getattr(leaf, f"{name}_bounds")
        if bounds == DEFAULT_BOUNDS:
            pairs.append(np.column_stack([span.lowest, span.highest]))
        else:
            with np.errstate(divide="ignore"):  # 0 is no lower bound
                pairs.append(np.log(np.broadcast_to(bounds, (value.size, 2))))
    own = kernel.pick(np.concatenate(pairs))
    return np.concatenate([own, np.log([[_NOISE.lowest, _NOISE.highest]])])


def draw_starts(
    kernel: ColumnsKernel, scales: DataScales, n: int, rng: np.random.RandomState
) -> list[Array]:
    """Random x (n of them): periods from the spectrum, others from several decades."""
    free, bounds = list(_list_free(kernel, scales)), find_limits(kernel, scales).T
    starts = []
    for _ in range(n):
        theta = kernel.pick(_draw(free, scales, rng))
        noise = np.log(max(scales.noise, _NOISE.lowest)) + rng.uniform(-3.5, 0.5)
        starts.append(np.clip(np.append(theta, noise), *bounds))
    return starts


def _draw(free: list[_Free], scales: DataScales, rng: np.random.RandomState) -> Array:
    parts = [np.empty(0)]
    for leaf, name, value, span in free:
        share = rng.uniform()  # one for all inputs
        logs = (1.0 - share) * span.low + share * span.high
        if isinstance(leaf, Periodic) and name == "period":
            peak = rng.choice(N_PEAKS + 1, p=_PEAK_PROBABILITIES)
            if peak < N_PEAKS:
                logs = np.log(scales.periods[:, peak])[: value.size]
        parts.append(logs)
    return np.concatenate(parts)


def hyperprior(kernel: ColumnsKernel, scales: DataScales) -> tuple[Array, Array]:
    """Mean and variance of the Gaussian prior of x: the range of the search is two deviations."""
    spans = [(span.low, span.high) for *_, span in _list_free(kernel, scales)]
    sides = zip((np.empty(0), np.empty(0)), *spans, strict=True)
    low, high = (kernel.pick(np.concatenate(side)) for side in sides)
    low, high = np.append(low, np.log(_NOISE.low)), np.append(high, np.log(_NOISE.high))
    return 0.5 * (low + high), np.maximum(0.5 * (high - low), 0.1) ** 2


class Sample(NamedTuple):
    """Rows that starting values are searched with, and inducing inputs; None is Z = X."""

    X: Array  # (n, d)
    y: Targets
    Z_coarse: Array | None  # of the first look at many values, centred as the others
    Z_climb: Array | None
    Z_bound: Array | None  # all that there are: kernels are ranked by this bound

    def scaled(self, frame: Frame) -> Sample:
        """The rows in a frame."""
        X, y = frame.scale(self.X, self.y)
        return self._replace(X=X, y=y)


def draw_sample(state: State, X: Array, y: Targets, *, every_row: bool) -> Sample:
    """All rows, or some of many."""
    rng = np.random.RandomState(state.seed)
    if not every_row and len(X) > SCREENING_ROWS:
        index = draw_distinct(len(X), SCREENING_ROWS, rng)
        X, y = X[index], y[index]
    centred = state.frame.centre(X)
    m = len(X) if state.Z is None else len(state.Z)
    coarse, climb = (
        choose_inducing_inputs(centred / state.scales.spread, min(limit, m), rng, y.weight)
        * state.scales.spread
        for limit in (_COARSE_INDUCING, _SCREENING_INDUCING)
    )
    is_dense = m >= len(X)  # every row is an inducing input
    Z_coarse = None if is_dense and len(X) <= _COARSE_INDUCING else coarse
    Z_climb = None if is_dense and len(X) <= _SCREENING_DENSE_ROWS else climb
    return Sample(X, y, Z_coarse, Z_climb, state.Z)
