r"""Adam on M and b themselves: the reparameterised gradient of [Hoang2017]_.

With alpha = M z + b the derivatives of a draw's log p(y | alpha) are g in b and g z' in M, where
g = J' v / sigma_n^2 is its gradient in alpha: a sum over rows (Theorem 1 and App. F).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from skvbgp._core.linalg import Array, inverse_from_cholesky, pack_lower, unpack_lower
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp.spectrum._gaussian import Affine, Gaussian, Prior, Structure


@dataclass(frozen=True)
class Reparameterised(Affine):
    """N(mean, M M') by M and b, on the way of Adam."""

    structure: Structure
    mean: Array  # b, (D,)
    M: tuple[Array, ...]  # by group
    adam: AdamState

    @classmethod
    def of(cls, q: Gaussian, adam: AdamState | None = None) -> Self:
        """The same distribution; ``adam`` are the moments to go on with."""
        n_entries = len(_pack(q.structure, q.mean, q.factors))
        return cls(q.structure, q.mean, q.factors, adam or AdamState.zeros(n_entries))

    @property
    def factors(self) -> tuple[Array, ...]:
        return self.M

    def gaussian(self) -> Gaussian:
        """The same distribution, by its precisions."""
        with np.errstate(over="ignore", invalid="ignore"):
            precisions = tuple(map(inverse_from_cholesky, self.M))
        _check_steps(*precisions)
        return Gaussian(self.structure, self.mean, precisions)


def bound_gradient(
    q: Affine, prior: Prior, Z: Array, shifts: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Gradient of the sampled bound in b (D,), and in the lower triangle of M, by group.

    Z (S, D) are draws of z, and ``shifts`` (S, D) the gradients of log p(y | alpha) in alpha at
    alpha = M z + b. The divergence is in closed form. Where q is certain, M has no gradient: zero.
    """
    dM = [np.zeros_like(M) for M in q.factors]
    for k in q.structure.random_groups:
        group, M = q.structure.groups[k], q.factors[k]
        G = shifts[:, group].T @ Z[:, group] / len(Z) - prior.precision[group, None] * M
        dM[k] = np.tril(G)
        dM[k].flat[:: len(M) + 1] += 1.0 / np.diagonal(M)  # of log |M|
    return np.mean(shifts, axis=0) - prior.times_precision(q.mean), tuple(dM)


def adam_step(
    q: Reparameterised,
    prior: Prior,
    gradient: tuple[Array, tuple[Array, ...]],
    step_size: float,
    *,
    moves_frequencies: bool,
) -> Reparameterised:
    """One step of Adam on b, the entries of M below the diagonal, and logs of those on it.

    Steps of b are relative to the standard deviations of the prior, those of an entry of M to
    what its row makes of one, over the root of their number.
    """
    structure, (db, dM) = q.structure, gradient
    b_size = prior.precision**-0.5
    if not moves_frequencies:
        structure.frequencies(b_size)[:] = 0.0
    M_size = [np.repeat(np.sqrt(np.mean(M**2, axis=1, keepdims=True)), len(M), axis=1) for M in q.M]
    x = _pack(structure, q.mean, (_with_diagonal(M, np.log(np.diagonal(M))) for M in q.M))
    slope = _pack(
        structure,
        db,
        (_with_diagonal(G, np.diagonal(G) * np.diagonal(M)) for G, M in zip(dM, q.M, strict=True)),
    )
    sizes = _pack(structure, b_size, (_with_diagonal(size, 1.0) for size in M_size))
    x, adam = adam_ascent(x, slope, q.adam, step_size * sizes)

    M, start = list(q.M), structure.size
    for k in structure.random_groups:
        n = len(M[k])
        stop = start + n * (n + 1) // 2
        moved = unpack_lower(x[start:stop], n)
        M[k], start = _with_diagonal(moved, np.exp(np.diagonal(moved))), stop
    _check_steps(x, *M)
    return Reparameterised(structure, x[: structure.size], tuple(M), adam)


def _check_steps(*reached: Array) -> None:
    """Refuse what steps have led to if it overflows."""
    if not all(np.isfinite(values).all() for values in reached):
        raise ValueError("Adam has diverged on the bound: take a smaller learning_rate.")


def _pack(structure: Structure, vector: Array, matrices: Iterable[Array]) -> Array:
    """A vector (D,) and the lower triangles of the groups that are uncertain, as one vector."""
    by_group = list(matrices)
    return np.concatenate([vector, *(pack_lower(by_group[k]) for k in structure.random_groups)])


def _with_diagonal(matrix: Array, diagonal: Array | float) -> Array:
    """A copy with another diagonal."""
    copy = matrix.copy()
    copy.flat[:: len(copy) + 1] = diagonal
    return copy
