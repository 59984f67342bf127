"""The matrices of a kernel at several sets of rows at once.

A set of a hundred rows takes a kernel longer to be called than to be computed.
"""

from __future__ import annotations

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels import Constant, Kernel
from skvbgp.kernels._compose import Composite
from skvbgp.kernels._stationary import Stationary

#: Entries of the matrices of a stack, which stay in the cache of a core.
_STACK_SIZE = 2**17
#: Pairs closer than this, in squared distance relative to their squared norm, are recomputed.
_NEAR = 1e-10


def count_sets(n: int) -> int:
    """How many sets of n rows make a stack; one if there is nothing to be gained."""
    return max(1, _STACK_SIZE // n**2)


def measure_stack(kernel: Kernel, X: Array) -> Array:
    """Matrices (b, n, n) at b sets of rows, (b, n, d)."""
    b, n, _ = X.shape
    if b == 1:  # a large one; only half of it is computed
        return kernel(X[0])[None]
    return np.broadcast_to(_measure(kernel, X), (b, n, n))


def _measure(kernel: Kernel, X: Array) -> Array:
    """The same, or what is the same for all entries as (1, 1, 1)."""
    if isinstance(kernel, Composite):
        parts = [_measure(part, X) for part in kernel.kernels]
        return kernel._combine(sorted(parts, key=np.size, reverse=True))  # into the largest
    if isinstance(kernel, Constant):
        return np.full((1, 1, 1), kernel.value)
    if isinstance(kernel, Stationary):
        centred = X - X.mean(axis=1, keepdims=True)  # distances are rounded less
        return kernel._radial(_square_distances(centred / np.asarray(kernel.length_scale)))
    return np.stack([kernel(rows) for rows in X])


def _square_distances(A: Array) -> Array:
    """|a_i - a_j|^2 within each set, (b, n, n), from differences where terms cancel."""
    b, n, _ = A.shape
    norms = np.einsum("bij,bij->bi", A, A)[..., None]
    ones = np.ones_like(norms)
    right = np.concatenate([ones, norms, -2.0 * A], axis=2)
    r2: Array = np.concatenate([norms, ones, A], axis=2) @ right.transpose(0, 2, 1)
    diagonal = r2.reshape(b, -1)[:, :: n + 1]
    diagonal[:] = np.inf
    near, i, j = np.nonzero(r2 < _NEAR * norms)
    r2[near, i, j] = np.sum((A[near, i] - A[near, j]) ** 2, axis=1)
    diagonal[:] = 0.0
    return r2
