"""Which inputs the factors of a product are to divide among them, before it is trained.

See :doc:`/theory/gp_learning`, "Where products start".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from skvbgp._core.linalg import Array, find_extremes
from skvbgp._optim.maximum import log_posterior
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import Group
from skvbgp.kernels import Kernel
from skvbgp.kernels._candidates import count_length_scales, multiply

#: Step of the differences, in logarithms of length scales.
_STEP = 0.05
#: Most products of the curvature and a vector.
_MOST_STEPS = 12


def divide_inputs(process: Process, kernels: Sequence[Kernel], groups: Sequence[Group]) -> Array:
    """Signs (d,) by which the length scales of two factors are to be moved apart.

    The log posterior of the groups is curved upwards most in this direction, from factors whose
    length scales are what has been learned: of equal ones it has no slope there.
    """
    first, second = kernels
    d = count_length_scales(first)

    def start(apart: Array) -> Process:
        return replace(process, kernel=multiply(first, second, apart))

    moves = [start(_STEP * e).vector - start(-_STEP * e).vector for e in np.eye(d)]
    derivative = np.array(moves) / (2.0 * _STEP)  # (d, p), of the vector

    def measure_slope(apart: Array) -> Array:
        return np.asarray(derivative @ log_posterior(start(apart), groups)[1])

    there = measure_slope(np.zeros(d))

    def curve(v: Array) -> Array:
        return (measure_slope(_STEP * v) - there) / _STEP

    anywhere = np.random.RandomState(0).standard_normal(d)  # any direction that is no special one
    values, V = find_extremes(curve, anywhere, _MOST_STEPS)
    return np.where(V[:, np.argmax(values)] < 0.0, -1.0, 1.0)
