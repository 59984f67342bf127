"""What training starts from: frequencies and hyperparameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, count_inputs, spread_inputs
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.base import ExactRows, as_vector, find_maximum
from skvbgp.kernels import RBF, Matern
from skvbgp.spectrum._block_model import evidence_gradient
from skvbgp.spectrum._rows import Rows
from skvbgp.spectrum._state import VARIANCE_LIMITS, Hyperparameters, State

#: Smallest scale of the mixture: no frequency starts further out than 1 / _SMALLEST_SCALE
#: standard deviations of the normal one.
_SMALLEST_SCALE = 0.02
#: Mean and standard deviation of the normal prior of the noise's logarithm, which VBGP has, too.
_NOISE_PRIOR = (np.log(0.05), 1.0)
#: The same of few rows, which many inputs interpolate, whose noise may be next to nothing.
_VAGUE_NOISE_PRIOR = (float(np.log(0.05)), 3.0)
#: Iterations of the search for two variances, and the relative rise at which it stops.
_MAX_ITER, _TOL = 40, 1e-5


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
    owners: Owners = (),
) -> Hyperparameters:
    """Hyperparameters as the user gives them, or (None) from the units of X and y."""
    d = count_inputs(len(scale), owners)
    lengths = np.full(len(scale), np.sqrt(d))
    if length_scale is not None:
        given = as_vector(length_scale, d, "length_scale", positive=True)
        lengths = spread_inputs(given, owners) / scale
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
    return Hyperparameters(lengths, signal, noise, noise, owners)


def start_from_evidence(
    rows: Rows, m: int, before: Hyperparameters, rng: np.random.RandomState, *, are_all: bool
) -> tuple[Array, Hyperparameters]:
    """Frequencies (m, d) and hyperparameters for the smoothness that some rows speak for.

    The rows are scaled. Where an exact process is more probable with a squared exponential than
    with an exponential, they are those of the squared exponential; where it is not, frequencies
    are heavy-tailed, and hyperparameters those of ``before``. If the rows ``are_all`` that there
    are, they then say what the variances are, too.
    """
    owners = before.owners
    exact = ExactRows(rows.X, rows.y, rows.weight, rows.variance, owners=owners)
    smooth = find_maximum(RBF(before.length_scale), exact)
    rough = find_maximum(Matern(before.length_scale, nu=0.5), exact)
    if rough.value > smooth.value:
        R = draw_frequencies(m, before.length_scale, rng)
        return R, find_variances(rows, R, before) if are_all else before
    x = find_maximum(RBF(before.length_scale), exact, _VAGUE_NOISE_PRIOR).x
    signal, noise, length_scale = float(np.exp(x[0])), float(np.exp(x[-1])), np.exp(x[1:-1])
    R = rng.standard_normal((m, len(length_scale))) / (2.0 * np.pi * length_scale)
    return R, Hyperparameters(length_scale, signal, noise, noise, owners)


def find_variances(rows: Rows, R: Array, before: Hyperparameters) -> Hyperparameters:
    """The variances at which scaled rows are most probable with frequencies R, the rest as before.

    Few rows get few steps of Adam, which would leave the variances near where they start. The
    noise has a prior: more features than rows may come close to all of them.
    """
    mean, std = _NOISE_PRIOR

    def objective(x: Array) -> tuple[float, Array]:
        evidence = evidence_gradient(rows, R, *np.exp(x))
        z = (x[1] - mean) / std
        slopes = evidence.log_signal_variance, evidence.log_noise_variance - z / std
        return evidence.value - 0.5 * z**2, np.array(slopes)

    start = np.log([before.signal_variance, before.noise_variance])
    bounds = np.tile(np.log(VARIANCE_LIMITS), (2, 1))
    found = lbfgs_ascent(objective, start, max_iter=_MAX_ITER, tol=_TOL, bounds=bounds)
    signal, noise = np.exp(found.x)
    return replace(
        before,
        signal_variance=float(signal),
        noise_variance=float(noise),
        local_noise_variance=float(noise),
    )


def go_on_from(before: State, m: int, scale: Array, unit: float) -> tuple[Array, Hyperparameters]:
    """Frequencies and hyperparameters of the fit before, on the data's scale."""
    structure = before.q.structure
    if structure.m != m:
        raise ValueError(
            f"warm_start: the fit before had {structure.m} frequencies, but now there are {m}."
        )
    stretch, ratio = scale / before.coordinates.scale, (before.target.unit / unit) ** 2
    hyper = before.hyper
    return structure.frequencies(before.q.mean) * stretch, Hyperparameters(
        hyper.length_scale / stretch,
        hyper.signal_variance * ratio,
        hyper.noise_variance * ratio,
        hyper.local_noise_variance * ratio,
        hyper.owners,
    )
