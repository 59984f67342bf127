"""Where training of straight lines starts, beside a kernel.

Where inputs nearly determine one another, lines that explain y may be so steep that training from
gentle ones ends where they are noise. See :doc:`/theory/gp_learning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from skvbgp._optim.maximum import measure_posterior
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import Group
from skvbgp.kernels._candidates import steepen

#: Multiples of the slopes' variance, and noises.
_STEEP, _HARDLY_NOISE = (1.0, 100.0, 1e4), (1e-8, 1e-4)


def find_steep_start(process: Process, groups: Sequence[Group], least: float) -> Process | None:
    """The best start of lines that explain nearly all, if its density is above `least`.

    `process` has a kernel plus gentle lines.
    """
    starts = [
        replace(process, kernel=steepen(process.kernel, factor), noise=noise)
        for factor in _STEEP
        for noise in _HARDLY_NOISE
    ]
    values = [measure_posterior(start, groups) for start in starts]
    best = int(np.argmax(values))
    return starts[best] if values[best] > least else None
