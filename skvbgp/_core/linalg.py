"""Factorisations, with the package's one jitter policy.

Everything here goes through NumPy's BLAS. SciPy's wheel brings a second one with threads of
its own, and two pools whose idle threads spin slow each other down: a training step that
alternates between them takes several times as long (measured on two cores). Only what is too
small for threads, the leaves of a triangle's inverse and a solution for a single vector, is left
to SciPy, and the rare eigenvalues that NumPy does not find.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh as scipy_eigh
from scipy.linalg.lapack import dtrtri, dtrtrs
from scipy.special import logsumexp

from skvbgp._core.order import cut_evenly

Array = NDArray[np.float64]

LOG_2PI = math.log(2.0 * math.pi)
#: Relative diagonal loading of the first attempt, and of the last.
JITTER = 1e-8
LAST_JITTER = 1e-2
#: Share of the noise that loading of a diagonal with noise may be, and the least such loading.
_NOISE_SHARE, _LEAST_JITTER = 1e-2, 1e-12
#: Order up to which LAPACK inverts a triangular matrix, and from which its halves are multiplied as
#: triangles.
_INVERSE_LEAF, _INVERSE_HALVES = 64, 256
#: What is left of a direction that adds nothing to those before it, relative to the matrix.
_LEAST_REST = 1e-6
#: Least and most blocks of rows in products with a triangular matrix.
_BLOCK_ROWS, _MOST_BLOCKS = 64, 8


class NotPositiveDefiniteError(ArithmeticError):
    """A covariance matrix could not be factorised, even with a large jitter."""

    @classmethod
    def even_with_jitter(cls, name: str) -> Self:
        return cls(
            f"The {name} is not positive definite, even with {LAST_JITTER:g} of its mean "
            "diagonal added. Its kernel is not a valid covariance function at these inputs."
        )


def jittered_cholesky(
    K: Array, name: str = "covariance matrix", *, jitter: float = JITTER
) -> Array:
    """Lower Cholesky factor of ``K + jitter * mean(diag(K)) * I``; errors call K by its name.

    K (m, m) is symmetric and, up to rounding, positive semi-definite; it is not modified. The
    jitter grows tenfold until the factorisation succeeds, so that the factor is a smooth function
    of ``K`` wherever the first attempt does. A ``K`` that is not finite, or indefinite beyond the
    largest jitter, raises `NotPositiveDefiniteError`.
    """
    scale = float(np.diagonal(K).sum() / max(1, len(K)))
    check_finite(K, name)
    while jitter <= LAST_JITTER:
        loaded = K.copy()
        loaded.flat[:: len(K) + 1] += jitter * scale
        try:
            return np.asarray(np.linalg.cholesky(loaded))
        except np.linalg.LinAlgError:
            jitter *= 10.0
    raise NotPositiveDefiniteError.even_with_jitter(name)


def check_finite(values: Array, name: str) -> None:
    """`NotPositiveDefiniteError` if entries of a matrix, or of its factor, are not finite."""
    if not np.isfinite(values).all():
        raise NotPositiveDefiniteError(
            f"The {name} has entries that are not finite: a hyperparameter has left the "
            "range of double precision. Rescale X or y, or give starting values."
        )


def choose_jitter(noise: Array | float, diagonal: Array) -> Any:
    """The first attempt's jitter for a diagonal (n,) that contains noise, far below the latter.

    A number, or one for each of a stack of diagonals (..., n).
    """
    share = np.min(noise / diagonal, axis=-1)
    return np.minimum(JITTER, np.maximum(_NOISE_SHARE * share, _LEAST_JITTER))


def cholesky(K: Array, name: str = "covariance matrix") -> Array:
    """Lower Cholesky factor of a matrix that is well conditioned by construction.

    Falls back on :func:`jittered_cholesky` where rounding has made it indefinite.
    """
    try:
        return np.asarray(np.linalg.cholesky(K))
    except np.linalg.LinAlgError:
        return jittered_cholesky(K, name)


def exact_cholesky(K: Array, name: str = "covariance matrix") -> Array:
    """Lower Cholesky factor of a matrix with noise, as it is, or `NotPositiveDefiniteError`."""
    try:
        return np.asarray(np.linalg.cholesky(K))
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(f"The noise drowns in the rounding of the {name}.") from None


def solve_stack(K: Array, B: Array, name: str = "covariance matrix") -> Array:
    """Solutions (b, m, p) of ``K[i] x = B[i]``, for b small matrices well conditioned by making.

    One call for all of them: what is small takes longer to be called than to be computed. Falls
    back on :func:`jittered_cholesky` where rounding has made one of them singular.
    """
    try:
        return np.asarray(np.linalg.solve(K, B))
    except np.linalg.LinAlgError:
        factors = [jittered_cholesky(matrix, name) for matrix in K]
        return np.stack([inverse_from_cholesky(L) @ b for L, b in zip(factors, B, strict=True)])


class Bordered(NamedTuple):
    """What a bordered factorisation gives; L L' = C."""

    place: Array  # L^-1 k, (..., n)
    targets: Array  # L^-1 Y', as rows (..., m, n)
    whole: Array  # the factor with its borders, (..., n + 1 + m, n + 1 + m)

    @property
    def factor(self) -> Array:
        """L, (..., n, n)."""
        n = self.place.shape[-1]
        return self.whole[..., :n, :n]

    def solve_place(self, i: int) -> Array:
        """C^-1 k (n,) of one of a stack.

        By the factor with its borders, and zeros for these: LAPACK would copy a part of it.
        """
        n, right = self.place.shape[-1], np.zeros(self.whole.shape[-1])
        right[:n] = self.place[i]
        solved, _ = dtrtrs(self.whole[i].T, right, overwrite_b=True)
        return solved[:n]


def factorise_bordered(K: Array, Y: Array, noise: Array) -> Bordered:
    """Factorise C with two borders, the place's k and the targets Y (m, n).

    K (n + 1, n + 1) is the kernel's matrix of n rows and of the place, which is the last. C is that
    of the rows, K[:n, :n] + diag(noise), and k what the place has in common with them. The factor
    of C, bordered by k' and Y, is bordered by (L^-1 k)' and (L^-1 Y')'.

    Of a stack of them, K (b, n + 1, n + 1), Y (b, m, n) and noise (b, n), in one call.
    """
    *stack, m, n = Y.shape
    size = n + 1 + m
    prior = np.diagonal(K, axis1=-2, axis2=-1)
    own = prior[..., :n] + noise
    C = np.zeros((*stack, size, size))  # the lower triangles are read
    diagonal = C.reshape(*stack, -1)[..., :: size + 1]
    jitter = choose_jitter(noise, own)
    while True:
        load = noise + jitter[..., None] * own  # relative to each row's own variance
        C[..., : n + 1, : n + 1] = K
        diagonal[..., :n] += load
        C[..., n + 1 :, :n] = Y
        least = load.min(axis=-1)  # last entries that are large enough
        diagonal[..., n] += least
        last = 1.0 + 2.0 * np.sum(Y**2, axis=(-2, -1)) / least * (1.0 + prior[..., n] / least)
        diagonal[..., n + 1 :] = last[..., None]
        try:  # unlike SciPy's, this lets other threads run meanwhile: most of a prediction's time
            L: Array = np.asarray(np.linalg.cholesky(C))
        except np.linalg.LinAlgError:  # rounding asks for more
            if stack:
                alone = [factorise_bordered(*one) for one in zip(K, Y, noise, strict=True)]
                return Bordered(*map(np.stack, zip(*alone, strict=True)))
            if jitter >= LAST_JITTER:
                raise NotPositiveDefiniteError(
                    "The covariance of neighbours is not positive definite: the kernel is not a "
                    "valid covariance function at these inputs."
                ) from None
            jitter = 10.0 * jitter
        else:
            return Bordered(L[..., n, :n], L[..., n + 1 :, :n], L)


def whiten_bordered(C: Array, y: Array, least: float) -> tuple[float, Array]:
    """Logarithm of the determinant of C = L L' (n, n), and L^-1 y (n,), from one factorisation.

    The factor of C bordered by y is bordered by L^-1 y. Of C the lower triangle is read; its
    eigenvalues are ``least`` at least, or `LinAlgError` may come of it.
    """
    n = len(y)
    bordered = np.zeros((n + 1, n + 1))
    bordered[:n, :n], bordered[n, :n] = C, y
    bordered[n, n] = 1.0 + 2.0 * float(y @ y) / least  # a last entry that is large enough
    L: Array = np.asarray(np.linalg.cholesky(bordered), dtype=np.float64)
    return log_determinant(L[:n, :n]), L[n, :n]


def tril_inverse(L: Array) -> Array:
    """Inverse of a lower triangular matrix, by halves: nearly all of it are products."""
    m = len(L)
    if m <= _INVERSE_LEAF:
        return _invert_small(L)
    k = m // 2
    inverse = np.zeros_like(L)
    inverse[:k, :k] = first = tril_inverse(L[:k, :k])
    inverse[k:, k:] = second = tril_inverse(L[k:, k:])
    if m < _INVERSE_HALVES:
        product = second @ (L[k:, :k] @ first)
    else:
        product = tril_times(second, triu_times(first, L[k:, :k].T).T)
    np.negative(product, out=inverse[k:, :k])
    return inverse


def extend_inverse(L_inv: Array, B: Array, D: Array) -> Array:
    """Inverse of the lower Cholesky factor of ``[[C, B], [B.T, D]]``, of which C's is known.

    With G = L^-1 B, the factor goes on by G' and M, where M M' = D - G' G is what D is given C. So
    does its inverse by -M^-1 G' L^-1 and M^-1. D (k, k), with noise, may be too much for rounding:
    `NotPositiveDefiniteError`.
    """
    n, G = len(L_inv), L_inv @ B
    M_inv = tril_inverse(exact_cholesky(D - G.T @ G))
    inverse = np.zeros((n + len(D), n + len(D)))
    inverse[:n, :n], inverse[n:, n:] = L_inv, M_inv
    inverse[n:, :n] = -M_inv @ (G.T @ L_inv)
    return inverse


def _invert_small(L: Array) -> Array:
    """`tril_inverse` of one that SciPy inverts before a thread could help."""
    if not len(L):
        return L.copy()
    inverse, info = dtrtri(L.T)  # what is lower in C's order is upper in Fortran's
    if info:
        raise np.linalg.LinAlgError("A triangular matrix has a zero on its diagonal.")
    return inverse.T


def tril_times(L: Array, A: Array) -> Array:
    """``L @ A`` of a lower triangular L, in little more than half of the operations.

    In the memory order of A, so that the transpose of a product is as good as the product.
    """
    product = np.empty_like(A)
    for rows in _cut(len(L)):
        np.matmul(L[rows, : rows.stop], A[: rows.stop], out=product[rows])
    return product


def triu_times(L: Array, A: Array) -> Array:
    """``L.T @ A`` of a lower triangular L, in the same way."""
    product = np.empty_like(A)
    for rows in _cut(len(L)):
        np.matmul(L[rows.start :, rows].T, A[rows.start :], out=product[rows])
    return product


def tril_gram(L: Array) -> Array:
    """``L.T @ L`` of a lower triangular L, in little more than a third of the operations."""
    gram = np.empty_like(L)
    for rows in _cut(len(L)):
        own, before = L[rows.start :, rows], slice(rows.start)
        np.matmul(own.T, L[rows.start :, before], out=gram[rows, before])
        gram[before, rows] = gram[rows, before].T
        gram[rows, rows] = own.T @ own  # symmetric to the last digit
    return gram


def outer_factors(u: Array, v: Array) -> tuple[Array, Array]:
    """Factors (n, k') and (k', m) of ``u @ v.T``, of few columns.

    NumPy leaves the product of single ones to a loop of its own, which is slower than BLAS is with
    a column of zeros besides.
    """
    k = u.shape[1]
    left, right = np.zeros((len(u), max(k, 2))), np.zeros((max(k, 2), len(v)))
    left[:, :k], right[:k] = u, v.T
    return left, right


def symmetric_product(A: Array, B: Array) -> Array:
    """``A @ B.T`` that is known to be symmetric, in little more than half of the operations.

    It is, to the last digit.
    """
    product = np.empty((len(A), len(B)))
    for rows in _cut(len(A)):
        np.matmul(A[rows], B[: rows.stop].T, out=product[rows, : rows.stop])
        product[: rows.start, rows] = product[rows, : rows.start].T
        own = product[rows, rows]
        product[rows, rows] = 0.5 * (own + own.T)
    return product


def tril_congruence(L: Array, S: Array) -> Array:
    """``L @ S @ L.T`` of a lower triangular and a symmetric matrix, in half of the operations."""
    return _congruence(L, S, [(rows, slice(rows.stop)) for rows in _cut(len(L))])


def triu_congruence(L: Array, S: Array) -> Array:
    """``L.T @ S @ L`` of a lower triangular and a symmetric matrix, in half of the operations."""
    return _congruence(L.T, S, [(rows, slice(rows.start, None)) for rows in _cut(len(L))[::-1]])


def _congruence(T: Array, S: Array, blocks: list[tuple[slice, slice]]) -> Array:
    """``T @ S @ T.T`` from blocks of T's rows, each with the columns in which it is not zero.

    These become more from block to block. What is on one side of the diagonal is mirrored.
    """
    result = np.empty_like(S)
    for k, (rows, filled) in enumerate(blocks):
        TS = T[rows, filled] @ S[filled]
        for others, their_filled in blocks[: k + 1]:
            result[rows, others] = TS[:, their_filled] @ T[others, their_filled].T
            result[others, rows] = result[rows, others].T
    return result


@lru_cache  # with few columns, to cut them would take longer than a product
def _cut(m: int) -> tuple[slice, ...]:
    """Blocks of rows of about equal sizes."""
    return tuple(cut_evenly(m, min(max(m // _BLOCK_ROWS, 1), _MOST_BLOCKS)))


def pack_lower(S: Array) -> Array:
    """The lower triangle of a matrix (m, m), row by row: m (m + 1) / 2 numbers."""
    return S[_lower(len(S))]


def unpack_symmetric(triangle: Array) -> Array:
    """The symmetric matrix of such numbers."""
    m = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    S = np.empty((m, m))
    S[_lower(m)] = S.T[_lower(m)] = triangle
    return S


def unpack_lower(triangle: Array, m: int) -> Array:
    """The lower triangular matrix (m, m) of such numbers."""
    L = np.zeros((m, m))
    L[_lower(m)] = triangle
    return L


@lru_cache(maxsize=8)  # of the sizes in use: that of 1,000 rows takes a megabyte, and streams grow
def _lower(m: int) -> NDArray[np.bool_]:
    """Where an (m, m) matrix is lower triangular."""
    return np.tri(m, dtype=bool)


def inverse_from_cholesky(L: Array) -> Array:
    """Inverse of ``L @ L.T``."""
    return tril_gram(tril_inverse(L))


def log_determinant(L: Array) -> float:
    """Logarithm of the determinant of ``L @ L.T``."""
    return 2.0 * float(np.sum(np.log(np.diagonal(L))))


def cholesky_vjp(LtdL: Array, L_inv: Array) -> Array:
    """Symmetric cotangent (m, m) of ``K`` from that of its Cholesky factor, whose inverse is L_inv.

    ``LtdL`` is ``L.T @ dL`` for the cotangent ``dL`` of the lower factor; its upper triangle is
    ignored. (The product is often cheaper to form than ``dL`` itself.)
    """
    Phi = np.tril(LtdL)
    Phi.flat[:: len(Phi) + 1] *= 0.5
    Phi += Phi.T
    Phi *= 0.5
    return triu_congruence(L_inv, Phi)


def eigh(K: Array, *, upper: bool = False) -> tuple[Array, Array]:
    """Eigenvalues (n,), the lowest first, and eigenvectors (n, n) of a symmetric matrix.

    One triangle of it is read. NumPy's way, to divide and conquer, may fail where entries beside
    the diagonal are next to nothing; another takes longer and has no trouble with them.
    """
    try:
        values, V = np.linalg.eigh(K, UPLO="U" if upper else "L")
    except np.linalg.LinAlgError:
        if not np.isfinite(K).all():
            raise
        values, V = scipy_eigh(K, lower=not upper, driver="evr")
    return np.asarray(values), np.asarray(V)


def find_extremes(
    multiply: Callable[[Array], Array], start: Array, n_steps: int
) -> tuple[Array, Array]:
    """Eigenvalues (k,) and eigenvectors (p, k) of a symmetric matrix, in rising order.

    By Lanczos' iteration from `start` (p,), with at most so many products of the matrix and a
    vector. Those at both ends converge first; those in between are of what the matrix is within the
    space that these products span.
    """
    q = start / np.linalg.norm(start)
    Q, diagonal, beside = [q], list[float](), list[float]()
    while True:
        rest = multiply(Q[-1])
        diagonal.append(float(Q[-1] @ rest))
        basis = np.array(Q)  # (k, p)
        for _ in range(2):  # once leaves rounding errors, which grow
            rest = rest - (basis @ rest) @ basis
        left = float(np.linalg.norm(rest))
        if len(Q) == min(n_steps, len(q)) or left < _LEAST_REST * np.abs(diagonal).max():
            break
        beside.append(left)
        Q.append(rest / left)
    values, V = eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return values, basis.T @ V


def stack_pairs(pairs: Iterable[tuple[Array, Array]], axis: int = -1) -> tuple[Array, Array]:
    """The first and the second ones of pairs, each in one array."""
    first, second = zip(*pairs, strict=True)
    return np.stack(first, axis=axis), np.stack(second, axis=axis)


def normalise_logs(logs: Array) -> Array:
    """Logarithms (..., K) of shares that add up to one."""
    return logs - logsumexp(logs, axis=-1, keepdims=True)
