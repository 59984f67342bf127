"""The matrices of a kernel at several sets of rows at once.

A set of a hundred rows takes a kernel longer to be called than to be computed, and threads that
call it often wait for each other.
"""

from __future__ import annotations

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.gp._coregion import Covariance, JointCovariance
from skvbgp.kernels import Constant, Kernel
from skvbgp.kernels._compose import Composite
from skvbgp.kernels._distance import factors, find_origins, squared_distances
from skvbgp.kernels._stationary import Stationary

#: Entries of the matrices of a stack.
_STACK_SIZE = 3 * 2**17


def count_sets(n: int) -> int:
    """How many sets of n rows make a stack; one if there is nothing to be gained."""
    return max(1, _STACK_SIZE // n**2)


def measure_stack(kernel: Covariance, X: Array) -> Array:
    """Matrices (b, n, n) at b sets of rows, (b, n, d)."""
    b, n, _ = X.shape
    if b == 1:  # a large one; only half of it is computed
        return kernel(X[0])[None]
    if isinstance(kernel, JointCovariance):
        inputs, outputs = kernel.coregion.split(X)
        between = outputs @ kernel.coregion.B @ np.swapaxes(outputs, 1, 2)
        return np.asarray(_measure(kernel.kernel, inputs) * between)
    return np.broadcast_to(_measure(kernel, X), (b, n, n))


def _measure(kernel: Kernel, X: Array) -> Array:
    """The same, or what is the same for all entries as (1, 1, 1)."""
    if isinstance(kernel, Composite):
        parts = [_measure(part, X) for part in kernel.kernels]
        return kernel._combine(sorted(parts, key=np.size, reverse=True))  # into the largest
    if isinstance(kernel, Constant):
        return np.full((1, 1, 1), kernel.value)
    if isinstance(kernel, Stationary):
        centred = X - find_origins(X)  # distances are rounded less
        scaled = centred / np.asarray(kernel.length_scale)
        return kernel._radial(squared_distances(*factors(scaled, scaled), own=0))
    return np.stack([kernel(rows) for rows in X])
