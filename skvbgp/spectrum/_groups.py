r"""Weights of neighbours for many places at a time, which share what near ones have in common.

Groups of near places have one matrix K of products of the features of all their neighbours. The
system of a place,

    (K_CC  K_CO) (w_C)   (k_C)
    (K_OC  K_OO) (w_O) = (k_O),

has the neighbours C that all places of the group have, which are eliminated once. What remains is
the system of a place's own neighbours O, whose matrix is a part of K_RR - K_RC K_CC^-1 K_CR with
the others R of the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array, solve_stack
from skvbgp._core.order import Index

#: How often as long as in a product of large matrices an operation takes in small systems, an entry
#: of the system of one place, and an operation of its own matrix; and the calls of a group.
_SMALL, _ENTRY, _ALONE, _CALLS = 12.0, 200.0, 1.5, 1e5
_NAME = "covariance of neighbours"


@dataclass(frozen=True)
class Group:
    """Near places, and which of the known rows they are conditioned on."""

    places: Index  # (T,)
    shared: Index  # (c,) neighbours of all
    others: Index  # (r,) neighbours of some
    own: Index  # (T, k - c): which of the others are those of each
    is_shared: NDArray[np.bool_]  # (T, k): which of its neighbours are the shared ones

    @classmethod
    def of(cls, places: Index, near: Index) -> Self:
        """Places of which these are the neighbours (T, k), each line in ascending order."""
        rows, position, counts = np.unique(near, return_inverse=True, return_counts=True)
        position, in_all = position.reshape(near.shape), counts == len(near)
        is_shared = in_all[position]
        own = (np.cumsum(~in_all) - 1)[position[~is_shared]].reshape(len(near), -1)
        return cls(places, rows[in_all], rows[~in_all], own, is_shared)

    def weigh(self, known: Array, Phi: Array, ratio: float) -> Array:
        """Weights (S, T, p, k) of the targets in means.

        The known rows have features (S, n_known, 2 m), by S draws of the frequencies. Phi (S, T, p,
        2 m) is what is asked about the places: p linear functions of the weights of features. The
        noise adds ``ratio`` to the diagonal of K.
        """
        (S, T, p, _), c, r = Phi.shape, len(self.shared), len(self.others)
        known = known.take(np.concatenate([self.shared, self.others]), axis=1)
        K = known @ np.swapaxes(known, 1, 2)
        diagonal, line, n_own = np.arange(c + r), np.arange(T)[:, None], self.own.shape[1]
        K[:, diagonal, diagonal] += ratio
        lines = Phi.reshape(S, T * p, -1)
        k = known @ np.swapaxes(lines, 1, 2)
        right = np.concatenate([K[:, :, c:], k], axis=2)
        carried = solve_stack(K[:, :c, :c], right[:, :c], _NAME)
        right = right[:, c:] - K[:, c:, :c] @ carried  # (S, r, r + T p)
        entries = r * self.own[:, :, None] + self.own[:, None, :]
        matrix = right[:, :, :r].reshape(S, -1).take(entries, axis=1)
        own = right[:, :, r:].reshape(S, r, T, p)[:, self.own, line]
        own = solve_stack(
            matrix.reshape(S * T, n_own, n_own), own.reshape(S * T, n_own, p), _NAME
        ).reshape(S, T, n_own, p)
        weights = np.zeros((S, r, T, p))
        weights[:, self.own, line] = own
        shared = carried[:, :, r:] - carried[:, :, :r] @ weights.reshape(S, r, T * p)
        W = np.empty((S, T, c + n_own, p))
        W[:, self.is_shared] = np.swapaxes(shared.reshape(S, c, T, p), 1, 2).reshape(S, T * c, p)
        W[:, ~self.is_shared] = own.reshape(S, T * n_own, p)
        return np.swapaxes(W, 2, 3)


def group_places(X: Array, near: Index, n_features: int) -> list[Group] | None:
    """Groups of near places, as large as takes the least time; None where that is each alone.

    Each place is conditioned on some of the known rows X, ``near`` (n, k) in ascending order. With
    more neighbours than features, the systems are those of the features, each alone.
    """
    n, k = near.shape
    if not 0 < k <= n_features:
        return None
    n_levels = int(np.log2(n))
    order = _halve(X[near].mean(axis=1), n_levels)
    used, starts = np.zeros((n, len(X)), dtype=bool), _bounds(n, n_levels)[:-1]
    np.put_along_axis(used, near[order], True, axis=1)
    by_some, by_all = np.logical_or.reduceat(used, starts), np.logical_and.reduceat(used, starts)
    costs = {}
    for level in range(n_levels, -1, -1):
        T, u, c = np.diff(_bounds(n, level)), by_some.sum(axis=1), by_all.sum(axis=1)
        small = c**3 + 2.0 * c**2 * (u - c + T) + c * (u - c) * (u - c + T)
        large, entries = n_features * u * (u + 2.0 * T), T * (k - c) ** 2
        costs[level] = np.sum(large + _SMALL * small + _ENTRY * entries + _CALLS)
        by_some, by_all = by_some[::2] | by_some[1::2], by_all[::2] & by_all[1::2]
    if min(costs.values()) > n * k**2 * (_ALONE * n_features + _ENTRY):
        return None
    pieces = np.split(order, _bounds(n, min(costs, key=costs.__getitem__))[1:-1])
    return [Group.of(places, near[places]) for places in pieces]


def _bounds(n: int, level: int) -> Index:
    """Where the pieces of n places begin and end that are cut in halves so often."""
    return np.asarray(n * np.arange(2**level + 1) // 2**level)


def _halve(X: Array, n_levels: int) -> Index:
    """Order of places X (n, d) in which pieces are near, cut at medians of the widest input."""
    order = np.arange(len(X))
    for level in range(n_levels):
        bounds, Y = _bounds(len(X), level), X[order]
        widths = np.maximum.reduceat(Y, bounds[:-1]) - np.minimum.reduceat(Y, bounds[:-1])
        piece = np.repeat(np.arange(2**level), np.diff(bounds))
        value = np.take_along_axis(Y, np.argmax(widths, axis=1)[piece][:, None], axis=1)[:, 0]
        order = order[np.lexsort((value, piece))]
    return order
