"""Length scales of a few of many inputs, and one that all the others share.

Few rows do not tell hundreds of length scales, and with a single one a function of a few inputs is
lost among all the others. In between, inputs get a length scale of their own one after the other,
as long as that explains the rows better. See :doc:`/theory/gp_learning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import thread_map
from skvbgp._optim.maximum import Trained, train
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import Group

#: Inputs are freed if there are more than so many, and at most so many of them.
MANY_INPUTS, _MOST_FREE = 20, 10
#: Most iterations after an input has been freed, which starts where it was.
_MAX_ITER = 8


def free_inputs(
    process: Process, groups: Sequence[Group], *, max_iter: int, tol: float
) -> Trained[Process]:
    """A trained process whose inputs share a length scale, but for those that gain by their own.

    `process` has a kernel of the first round before training. The input whose length scale the
    evidence would change most is freed next, if that gains what it costs to say which one it is,
    and a nat for its length scale.
    """
    kernel: Any = process.kernel
    d = len(kernel.kernels[1].length_scale)
    owner = np.array(process.owners or range(d))[:d]
    tied, n_inputs = np.zeros(d, dtype=int), len(np.unique(owner))
    shared = replace(process, tied=tuple(tied.tolist()))
    best = train(shared, groups, max_iter=max_iter, tol=tol)

    def free_next(start: Process, n_iter: int) -> tuple[Trained[Process], Index]:
        slopes = np.bincount(owner, _differentiate(start, groups, d) * (tied == 0))
        freed = np.where(owner == np.argmax(np.abs(slopes)), n_free + 1, tied)
        start = replace(start, tied=tuple(freed.tolist()))
        return train(start, groups, max_iter=n_iter, tol=tol), freed

    for n_free in range(min(_MOST_FREE, n_inputs - 1)):
        least = best.value + np.log(n_inputs - n_free) + 1.0
        trained, freed = free_next(best.process, min(max_iter, _MAX_ITER))
        if n_free == 0 and trained.value < least:
            # where all seems to be noise, nothing has a slope: it is freed before training
            trained, freed = free_next(shared, max_iter)
        if trained.value < least:
            break
        best, tied = trained, freed
    return best


def _differentiate(process: Process, groups: Sequence[Group], d: int) -> Array:
    """Gradient of the evidence in the logarithms of d length scales, as if each had its own."""
    alone = replace(process, tied=tuple(range(d)))
    gradients = thread_map(lambda *group: alone.evidence(*group)[1], groups)
    return np.asarray(sum(gradients)[1 : d + 1])  # behind the amplitude
