"""The matrices of a kernel at several sets of rows at once.

A set of a hundred rows takes a kernel longer to be called than to be computed, and threads that
call it often wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.gp._coregion import Covariance, JointCovariance
from skvbgp.kernels import Constant
from skvbgp.kernels._compose import Composite
from skvbgp.kernels._distance import factors, find_origins, squared_distances
from skvbgp.kernels._stationary import Stationary

#: Entries of the matrices of a stack.
_STACK_SIZE = 3 * 2**17
#: Blocks of rows of which matrices are made: what is above them is not computed.
_BLOCKS = 4


def count_sets(n: int) -> int:
    """How many sets of n rows make a stack; one if there is nothing to be gained."""
    return max(1, _STACK_SIZE // n**2)


def measure_stack(kernel: Covariance, X: Array) -> Array:
    """Matrices (b, n, n) at b sets of rows, (b, n, d), of which the lower triangles are to be read.

    That of a single set is whole.
    """
    b, n, _ = X.shape
    if b == 1:  # a large one; only half of it is computed
        return kernel(X[0])[None]
    measure, K = _prepare(kernel, X), np.zeros((b, n, n))
    for start in range(0, n, -(-n // _BLOCKS)):
        rows = slice(start, min(start + -(-n // _BLOCKS), n))
        K[:, rows, : rows.stop] = measure(rows)
    return K


def _prepare(kernel: Covariance, X: Array) -> Callable[[slice], Array]:
    """What gives some rows of the matrices, with all columns up to the last of these rows.

    Or what is the same for all entries as (1, 1, 1).
    """
    if isinstance(kernel, JointCovariance):
        inputs, outputs = kernel.coregion.split(X)
        measure = _prepare(kernel.kernel, inputs)
        left, right = outputs @ kernel.coregion.B, np.swapaxes(outputs, 1, 2)
        return lambda rows: measure(rows) * (left[:, rows] @ right[:, :, : rows.stop])
    if isinstance(kernel, Composite):
        parts = [_prepare(part, X) for part in kernel.kernels]

        def combine(rows: slice) -> Array:
            blocks = sorted((part(rows) for part in parts), key=np.size, reverse=True)
            return kernel._combine(blocks)  # into the largest

        return combine
    if isinstance(kernel, Constant):
        value = np.full((1, 1, 1), kernel.value)
        return lambda rows: value.copy()
    if isinstance(kernel, Stationary):
        centred = X - find_origins(X)  # distances are rounded less
        scaled = centred / np.asarray(kernel.length_scale)
        left, right = factors(scaled, scaled)
        return lambda rows: kernel._radial(
            squared_distances(left[:, rows], right[:, : rows.stop], own=rows.start)
        )
    whole = np.stack([kernel(rows) for rows in X])
    return lambda rows: whole[:, rows, : rows.stop].copy()
