"""Length scales of a few of many inputs, and one that all the others share.

Few rows do not tell hundreds of length scales, and with a single one a function of a few inputs is
lost among all the others. In between, inputs get a length scale of their own one after the other,
as long as that explains the rows better. See :doc:`/theory/gp_learning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array, tril_gram
from skvbgp._core.order import Index
from skvbgp._core.owners import count_inputs
from skvbgp._core.parallel import thread_map
from skvbgp._optim.maximum import Trained, measure_posterior
from skvbgp.gp._process import Process, train_process
from skvbgp.gp._row_noise import Group, RowNoise

#: Inputs are freed if there are more than so many, and at most so many of them.
_MANY_INPUTS, _MOST_FREE = 20, 10
#: Most iterations after an input has been freed.
_MAX_ITER = 8
#: Frequencies of the waves by which inputs are found, and length scales that one may start with
#: beside that which it has had.
_FREQUENCIES, _LENGTHS = (0.5, 1.0, 2.0), (10.0, 3.0, 1.0)


def has_many_inputs(process: Process) -> bool:
    """Whether a process, with a kernel of the first round, has inputs to be freed."""
    kernel: Any = process.kernel
    d = np.size(kernel.kernels[1].length_scale)  # columns that say an output are behind
    return count_inputs(d, process.owners[:d]) > _MANY_INPUTS


def free_inputs(
    process: Process, groups: Sequence[Group], *, max_iter: int, tol: float
) -> Trained[Process]:
    """A trained process whose inputs share a length scale, but for those that gain by their own.

    `process` has a kernel of the first round before training. The input is freed next of which
    there are waves in y that the process expects least, if that gains what it costs to say which
    one it is, and a nat for its length scale.
    """
    kernel: Any = process.kernel
    d = len(kernel.kernels[1].length_scale)
    owner = np.array(process.owners or range(d))[:d]
    tied, n_inputs = np.zeros(d, dtype=int), len(np.unique(owner))
    shared = replace(process, tied=tuple(tied.tolist()))
    best = train_process(shared, groups, max_iter=max_iter, tol=tol)

    def free_next(start: Process, n_iter: int) -> tuple[Trained[Process], Index]:
        excess = measure_waves(start, groups, owner).max(axis=0)
        excess[owner[tied > 0]] = 0.0
        chosen = owner == np.argmax(excess)
        freed = np.where(chosen, n_free + 1, tied)
        start = replace(start, tied=tuple(freed.tolist()))
        starts = [start, *(_set_length(start, chosen, length) for length in _LENGTHS)]
        start = max(starts, key=lambda one: measure_posterior(one, groups))
        return train_process(start, groups, max_iter=n_iter, tol=tol), freed

    for n_free in range(min(_MOST_FREE, n_inputs - 1)):
        least = best.value + np.log(n_inputs - n_free) + 1.0
        trained, freed = free_next(best.process, min(max_iter, _MAX_ITER))
        if n_free == 0 and trained.value < least:
            # where all seems to be noise, all waves are expected: it is freed before training
            trained, freed = free_next(shared, max_iter)
        if trained.value < least:
            break
        best, tied = trained, freed
    return best


def _set_length(process: Process, columns: NDArray[np.bool_], length: float) -> Process:
    """The process with this length scale of those of d columns."""
    theta = process.kernel.theta.copy()
    theta[1 : len(columns) + 1][columns] = np.log(length)  # behind the amplitude
    return replace(process, kernel=process.kernel.with_theta(theta))


def measure_waves(process: Process, groups: Sequence[Group], owner: Index) -> Array:
    """How much larger waves of each input are in y than the process expects, (waves, inputs).

    The columns (d,) of an input have the same owner; their waves add up. Where a column hardly ever
    differs, its wave is that of single rows, and may be large by chance: ratios are between those
    of an average input as well, so that it has to be one of all rows.
    """
    parts = thread_map(partial(_measure_waves, process, owner), groups)
    squares, expected = np.sum(parts, axis=0)
    average = expected.mean(axis=1, keepdims=True) + np.finfo(float).tiny
    return np.asarray((squares + average) / (expected + average))


def _measure_waves(
    process: Process, owner: Index, X: Array, y: Array, known: RowNoise | None = None
) -> Array:
    """Squares of waves in y, and what is expected of them, (2, waves, inputs)."""
    K, columns = process.covariance(X), X[:, : len(owner)]
    given = process.factorise(X, y, known, K)
    each = given.split_outputs()
    scales = [process.estimate_scale(*one.summary[:2]) for one in each]
    found = sum(np.outer(a.weights / s, a.weights) for a, s in zip(each, scales, strict=True))
    waves = [wave(w * columns) for w, wave in product(_FREQUENCIES, (np.cos, np.sin))]
    parts = [
        [np.einsum("ij,ij->j", wave, KA @ wave) for wave in waves]
        for KA in (K * found, K * (len(each) * tril_gram(given.L_inv)))
    ]
    return np.array([[np.bincount(owner, one) for one in part] for part in parts])
