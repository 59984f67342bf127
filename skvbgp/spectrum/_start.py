"""What training starts from: frequencies and hyperparameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.base import as_vector
from skvbgp.spectrum._state import Hyperparameters, State

#: Smallest scale of the mixture: no frequency starts further out than 1 / _SMALLEST_SCALE
#: standard deviations of the normal one.
_SMALLEST_SCALE = 0.02


def draw_frequencies(m: int, length_scale: Array, rng: np.random.RandomState) -> Array:
    """Frequencies from a mixture of scales, (m, d).

    Every coordinate is that of the squared exponential spectrum N(0, 1 / (2 pi l)^2) times a
    random scale, the inverse of a half-normal variable: a Cauchy variable, that is, the spectrum
    of exponential kernels exp(-|x - x'| / l), cut off far out. Each size of structure in the data
    finds some frequencies close to what it needs.
    """
    normal = rng.standard_normal((m, len(length_scale)))
    scale = np.maximum(np.abs(rng.standard_normal(normal.shape)), _SMALLEST_SCALE)
    return normal / scale / (2.0 * np.pi * length_scale)


def choose_hyperparameters(
    scale: Array,
    unit: float,
    length_scale: Any,
    signal_variance: float | None,
    noise_variance: float | None,
) -> Hyperparameters:
    """Hyperparameters as the user gives them, or (None) from the units of X and y."""
    d = len(scale)
    lengths = np.full(d, np.sqrt(d))
    if length_scale is not None:
        lengths = as_vector(length_scale, d, "length_scale", positive=True) / scale
    # one division after the other: the square of the unit may be too large a number
    signal = 1.0 if signal_variance is None else signal_variance / unit / unit
    noise = 0.1 if noise_variance is None else noise_variance / unit / unit
    values = np.array([*lengths, signal, noise])
    if not (np.all(values > 1e-100) and np.all(values < 1e100) and signal < 1e14 * noise):
        raise ValueError(
            "The starting length_scale, signal_variance or noise_variance is out of range "
            "for these data: it is too far from their spread, or the noise is too small for "
            "the signal. Rescale X or y, or leave it to the data."
        )
    return Hyperparameters(lengths, signal, noise, noise)


def go_on_from(before: State, m: int, scale: Array, unit: float) -> tuple[Array, Hyperparameters]:
    """Frequencies and hyperparameters of the fit before, on the data's scale."""
    structure = before.q.structure
    if (structure.m, structure.d) != (m, len(scale)):
        raise ValueError(
            f"warm_start: the fit before had {structure.m} frequencies of {structure.d} "
            f"features, but now there are {m} of {len(scale)}."
        )
    stretch, ratio = scale / before.coordinates.scale, (before.target.unit / unit) ** 2
    hyper = before.hyper
    return structure.frequencies(before.q.mean) * stretch, Hyperparameters(
        hyper.length_scale / stretch,
        hyper.signal_variance * ratio,
        hyper.noise_variance * ratio,
        hyper.local_noise_variance * ratio,
    )
