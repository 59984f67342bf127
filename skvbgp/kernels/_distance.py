"""Functions of the squared Euclidean distance, and their vector-Jacobian products."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut

# Pairs closer than this, in squared distance relative to their squared norm, are recomputed.
_NEAR = 1e-10
# A mean beyond this may be far from most rows, so that differences from it are rounded too much.
_FAR = 1e3

# Entries, and fewest rows, of a block of rows: its temporary arrays stay in the cache of one core.
_BLOCK = 2**15
_MIN_ROWS = 32
# Rows of a block of a symmetric matrix, of which only the lower triangle of blocks is computed.
_SYMMETRIC_ROWS = 96


def centre(X: Array, Z: Array | None) -> tuple[Array, Array]:
    """Shift both inputs to `choose_origin`'s; ``Z=None`` gives the same array twice."""
    origin = choose_origin(X, Z)
    A = X - origin  # (n, d)
    return A, A if Z is None else Z - origin


def choose_origin(X: Array, Z: Array | None) -> Array:
    """Choose where differences of two inputs are taken from, (d,): at the mean of the second.

    Distances do not change, but their rounding error, which grows with the squared norms, does.
    Where a few rows are far away from all others, the mean is, too: the origin is then the median
    of the input that spreads less, so that such rows take nothing from the others.
    """
    rows = X if Z is None or not len(Z) else Z
    origin: Array = np.einsum("ij->j", rows) / len(rows)
    if _is_far(origin):
        sets = [X] if Z is None else [rows for rows in (Z, X) if len(rows)]
        origin = np.median(min(sets, key=lambda rows: np.ptp(rows, axis=0).max()), axis=0)
    return origin


def find_origins(X: Array) -> Array:
    """Means (b, 1, d) of sets of rows (b, n, d), or medians where one is far away."""
    origins: Array = X.mean(axis=1, keepdims=True)
    return np.median(X, axis=1, keepdims=True) if _is_far(origins) else origins


def _is_far(origins: Array) -> bool:
    return bool(np.vdot(origins, origins) > _FAR**2)


def radial(k: Callable[..., Array], *inputs: tuple[Array, Array]) -> Array:
    """Return k(|a_i - b_j|^2, ...), of shape (n, m), of a distance for each pair of inputs (A, B).

    `k` may overwrite its arguments. If both inputs are the same array, in all pairs, half of the
    entries are mirrored.
    """
    sides, is_symmetric = [factors(A, B) for A, B in inputs], all(A is B for A, B in inputs)

    def evaluate(rows: slice, columns: slice) -> Array:
        own = rows.start if is_symmetric else None
        return k(*(squared_distances(left[rows], right[columns], own) for left, right in sides))

    left, right = sides[0]
    return by_block(evaluate, len(left), len(right), is_symmetric=is_symmetric)


def by_block(
    evaluate: Callable[[slice, slice], Array], n: int, m: int, *, is_symmetric: bool
) -> Array:
    """A matrix (n, m) from its blocks of rows; of a symmetric one half is mirrored."""
    K = np.empty((n, m))
    if not is_symmetric:
        for rows in cut_rows(n, m):
            K[rows] = evaluate(rows, slice(None))
        return K
    for rows, before in cut_triangle(n):
        columns = slice(rows.stop)
        K[rows, columns] = evaluate(rows, columns)
        K[before, rows] = K[rows, before].T
    return K


def radial_vjp(
    log_k_vjp: Callable[[Array, Array], tuple[Array, float]],
    A: Array,
    B: Array,
    K: Array,
    dK: Array,
) -> tuple[Array, Array, float]:
    """Pull the cotangent dK (n, m) of K = k(|a_i - b_j|^2) back to A (n, d), B (m, d) and a scalar.

    ``log_k_vjp(r2, dlog)`` pulls the cotangent of log k back to r^2 and to the kernel's shape
    hyperparameter, if it has one; it may overwrite both arguments. With `W` the cotangent of r^2,
    dA_i = 2 sum_j W_ij (a_i - b_j) and dB_j = 2 sum_i W_ij (b_j - a_i), as matrix products.
    """
    left, right = factors(A, B)
    dA, dB, dshape = np.zeros_like(A), np.zeros_like(B), 0.0
    if A is B:  # both cotangents of a pair go to its entry below the diagonal
        for rows, before in cut_triangle(len(A)):
            r2 = squared_distances(left[rows], right[: rows.stop], own=rows.start)
            dlog = dK[rows, : rows.stop].copy()
            dlog[:, before] += dK[before, rows].T
            dlog *= K[rows, : rows.stop]
            W, dshape_rows = log_k_vjp(r2, dlog)
            dA[rows] += 2.0 * (W.sum(axis=1)[:, None] * A[rows] - W @ B[: rows.stop])
            dB[: rows.stop] += 2.0 * (W.sum(axis=0)[:, None] * B[: rows.stop] - W.T @ A[rows])
            dshape += dshape_rows
        return dA, dB, dshape
    for rows in cut_rows(*K.shape):
        r2 = squared_distances(left[rows], right)
        W, dshape_rows = log_k_vjp(r2, dK[rows] * K[rows])
        dA[rows] = 2.0 * (W.sum(axis=1)[:, None] * A[rows] - W @ B)
        dB += 2.0 * (W.sum(axis=0)[:, None] * B - W.T @ A[rows])
        dshape += dshape_rows
    return dA, dB, dshape


def cut_rows(n: int, m: int) -> list[slice]:
    """Cut the rows of an (n, m) array into blocks small enough for the cache."""
    return cut(n, max(_MIN_ROWS, _BLOCK // max(1, m)))


def cut_triangle(n: int) -> Iterator[tuple[slice, slice]]:
    """Cut the rows of an (n, n) array into blocks, each with the rows before it."""
    for start in range(0, n, _SYMMETRIC_ROWS):
        yield slice(start, min(start + _SYMMETRIC_ROWS, n)), slice(0, start)


def factors(A: Array, B: Array) -> tuple[Array, Array]:
    """Return [|a|^2, 1, a], (..., n, d + 2), and [1, |b|^2, -2 b], (..., m, d + 2).

    Their product is the matrix of |a_i|^2 + |b_j|^2 - 2 a_i . b_j = |a_i - b_j|^2, of each set of
    rows if A (..., n, d) and B (..., m, d) are stacks of sets.
    """
    shape = A.shape[-1] + 2
    left, right = np.ones((*A.shape[:-1], shape)), np.ones((*B.shape[:-1], shape))
    left[..., 0], left[..., 2:] = np.einsum("...j,...j->...", A, A), A
    right[..., 1] = left[..., 0] if A is B else np.einsum("...j,...j->...", B, B)
    np.multiply(-2.0, B, out=right[..., 2:])
    return left, right


def squared_distances(left: Array, right: Array, own: int | None = None) -> Array:
    """Return |a_i - b_j|^2, (..., n, m), from its two `factors`.

    Where the three terms cancel the distance is computed again from the differences, so that every
    result is accurate and non-negative, and exactly 0 between equal points. ``own`` is the column
    of the first row itself, if the rows are among the columns, one after the other.
    """
    r2: Array = left @ right.swapaxes(-1, -2)
    if own is not None:  # not to be searched for
        diagonal = r2.reshape(*r2.shape[:-2], -1)[..., own :: r2.shape[-1] + 1]
        diagonal[...] = np.inf
    near = np.flatnonzero(r2 < _NEAR * left[..., :1])  # among them all the negative ones
    if len(near):
        *sets, rows, columns = np.unravel_index(near, r2.shape)
        a: Array = left[*sets, rows]
        minus_2b: Array = right[*sets, columns]
        differences = a[:, 2:] + 0.5 * minus_2b[:, 2:]
        r2.flat[near] = np.einsum("ij,ij->i", differences, differences)
    if own is not None:
        diagonal[...] = 0.0
    return r2
