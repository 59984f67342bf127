"""Where training of straight lines starts, beside a kernel.

Where inputs nearly determine one another, lines that explain y may be so steep that training from
gentle ones ends where they are noise. See :doc:`/theory/gp_learning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from skvbgp._optim.maximum import measure_posterior
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import Group
from skvbgp.kernels._candidates import steepen

#: Multiples of the slopes' variance, and noises, that starts have.
_STEEP, _NOISES = (1.0, 100.0, 1e4), (1e-8, 1e-4, 1e-2, 0.1)
#: Nats that steep lines have to be better by, before training, than a kernel without lines.
_LEAST_LEAD = 4.0


def find_steep_start(process: Process, groups: Sequence[Group], known: float) -> Process | None:
    """The best start of lines that explain most, if its density is far above what is `known`.

    `process` has a kernel plus gentle lines.
    """
    starts = [
        replace(process, kernel=steepen(process.kernel, factor), noise=noise)
        for factor, noise in product(_STEEP, _NOISES)
    ]
    values = [measure_posterior(start, groups) for start in starts]
    best = int(np.argmax(values))
    return starts[best] if values[best] > known + _LEAST_LEAD else None
