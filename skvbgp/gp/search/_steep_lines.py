"""Straight lines beside a kernel: where their training starts, and what they gain.

Where inputs nearly determine one another, lines that explain y may be so steep that training from
gentle ones ends where they are noise, and so that near rows, which hardly differ, see none. See
:doc:`/theory/gp_learning` and :doc:`/theory/gp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from skvbgp._core.linalg import Array, eigh
from skvbgp._optim.maximum import Trained, measure_posterior
from skvbgp.gp._mixture import Mixture, Predicted
from skvbgp.gp._process import Process, train_process
from skvbgp.gp._row_noise import Group
from skvbgp.kernels._candidates import add_lines, steepen

#: Multiples of the slopes' variance, and noises, that starts have.
_STEEP, _NOISES = (1.0, 100.0, 1e4), (1e-8, 1e-4, 1e-2, 0.1)
#: Shares of its noise that a kernel keeps, the rest of which lines may be.
_SHARES = (1.0, 0.1, 0.01)
#: Nats that what has another start has to be better by: steep lines, before training, than a kernel
#: without lines, and what is searched again than what was found.
LEAST_LEAD = 4.0
#: What lines have to explain of errors, and to gain, in nats a row.
LEAST_GAIN = 0.01


def find_steep_start(process: Process, groups: Sequence[Group], known: float) -> Process | None:
    """The best start of lines that explain most, if its density is far above what is `known`.

    `process` has a kernel plus gentle lines.
    """
    starts = [
        replace(process, kernel=steepen(process.kernel, factor), noise=noise)
        for factor, noise in product(_STEEP, _NOISES)
    ]
    best, value = _find_best(starts, groups)
    return best if value > known + LEAST_LEAD else None


def find_start_beside(process: Process, groups: Sequence[Group], d: int) -> Process:
    """The best start of lines of d inputs beside a kernel as it is."""
    starts = [
        replace(
            process,
            kernel=add_lines("", process.kernel, d, factor)[1],
            noise=max(share * process.noise, process.noise_limits[0]),
        )
        for factor, share in product(_STEEP, _SHARES)
    ]
    return _find_best(starts, groups)[0]


def _find_best(starts: Sequence[Process], groups: Sequence[Group]) -> tuple[Process, float]:
    values = [measure_posterior(start, groups) for start in starts]
    best = int(np.argmax(values))
    return starts[best], values[best]


def train_lines(
    known: Trained[Process], groups: Sequence[Group], d: int, *, max_iter: int, tol: float
) -> Trained[Process]:
    """What becomes of a trained process with straight lines of d inputs."""
    kernel = add_lines("", known.process.kernel, d)[1]
    gentle = replace(known.process, kernel=kernel)
    steep = find_steep_start(gentle, groups, known.value)
    return train_process(steep or gentle, groups, max_iter=max_iter, tol=tol)


def leave_lines(mixture: Mixture, left_out: Predicted, X: Array) -> bool:
    """Whether straight lines of rows X (n, d) explain the errors of their predictions."""
    parts, y, weight = left_out
    mean, variance = mixture.mix(parts, include_noise=True)
    n = len(X) if weight is None else weight.sum()
    return measure_gain(X, y - mean, variance, weight) > LEAST_GAIN * n


def measure_gain(X: Array, y: Array, variance: Array, weight: Array | None = None) -> float:
    """Nats by which y is more likely if there are lines of the rows X (n, d) in it, at best.

    y and the variances (n,) of its noise are scaled. Rows count as often as their weights (n,) say.
    """
    if weight is not None:
        variance = variance / weight
    A = X / np.sqrt(variance)[:, None]
    values, V = eigh(A.T @ A)
    c2 = (V.T @ (A.T @ (y / np.sqrt(variance)))) ** 2
    slopes = np.array(_STEEP)[:, None] / X.shape[1]
    gain = c2 / (1.0 / slopes + values) - np.log1p(slopes * np.maximum(values, 0.0))
    return float(0.5 * gain.sum(axis=1).max())
