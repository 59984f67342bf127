r"""The rows that each new one is conditioned on: its neighbours, in the place of a block.

Groups of near places have one matrix K of products of the features of all their neighbours. The
system of a place,

    (K_CC  K_CO) (w_C)   (k_C)
    (K_OC  K_OO) (w_O) = (k_O),

has the neighbours C that all places of the group have, which are eliminated once. What remains is
the system of a place's own neighbours O, whose matrix is a part of K_RR - K_RC K_CC^-1 K_CR with
the others R of the group. Where places have few neighbours in common, they share the products and
have whole systems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from skvbgp._core.linalg import Array, solve_stack
from skvbgp._core.order import Index, cut
from skvbgp.spectrum._block_model import SharedRows
from skvbgp.spectrum._features import Lines
from skvbgp.spectrum._rows import Rows
from skvbgp.spectrum._state import Hyperparameters

#: Features that stay in the cache of a core: of several sets of neighbours, and of several draws
#: for new rows and their neighbours, which are used more often, and of so many at least.
_STACK_SIZE, _DRAWS_SIZE, _LEAST_DRAWS = 2**17, 2**19, 4
#: How often as long as in a product of large matrices an operation takes in small systems, an entry
#: of the system of one place that remains or is whole, and an operation of its own matrix; and the
#: calls of a group.
_SMALL, _ENTRY, _WHOLE, _ALONE, _CALLS = 12.0, 300.0, 200.0, 1.5, 1e5
#: Least places of a piece, for which products with the features of few rows are made, and most
#: entries of whole systems that are looked up: 32 MB of indices.
_PIECE, _MOST_ENTRIES = 32, 2**22
_NAME = "covariance of neighbours"


class Neighbours(NamedTuple):
    """Rows of which each new one is conditioned on some of its own, see `SharedRows`."""

    rows: Rows
    near: Index  # (n*, k) indices of those that each new row is conditioned on, in their order
    places: Index  # which of all known rows they are

    @classmethod
    def of(cls, rows: Rows, near: Index) -> Neighbours:
        """Of known rows, without those that no new one is conditioned on."""
        used, position = np.unique(near, return_inverse=True)
        return cls(rows.take(used), np.sort(position.reshape(near.shape), axis=1), used)

    def condition(
        self, lines: Lines, draws: Sequence[Array], hyper: Hyperparameters, *, full: bool
    ) -> Iterator[tuple[Array, Array, Array]]:
        """As `SharedRows.condition`; the covariance is that of the errors of the means."""
        rows = self.rows.as_weighted(hyper.local_noise_variance)
        for Phi, known, W in self._weigh(lines, draws, rows, hyper):
            # an error of the mean is A' s - W' noise, of whatever W it is the mean
            A, scale = Phi - W @ known, 2.0 * hyper.signal_variance / Phi.shape[1]  # lambda
            if full:
                spread, noise = A @ A.T, (W @ W.T).toarray()
            else:
                own = W.data.reshape(len(Phi), self.near.shape[1])
                spread, noise = (np.einsum("ij,ij->i", part, part) for part in (A, own))
            yield Phi, W @ rows.target, scale * spread + hyper.local_noise_variance * noise

    def draw(
        self,
        lines: Lines,
        draws: Sequence[Array],
        hyper: Hyperparameters,
        s: Sequence[Array],
        noise: Sequence[Array],
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Lines, means, and errors of functions, as `SharedRows.draw`."""
        rows = self.rows.as_weighted(hyper.local_noise_variance)
        std, weighed = np.sqrt(hyper.local_noise_variance), self._weigh(lines, draws, rows, hyper)
        for (Phi, known, W), weights, e in zip(weighed, s, noise, strict=True):
            yield Phi, W @ rows.target, Phi @ weights - W @ (known @ weights + std * e)

    def _weigh(
        self, lines: Lines, draws: Sequence[Array], rows: Rows, hyper: Hyperparameters
    ) -> Iterator[tuple[Array, Array, csr_array]]:
        """Lines (L, 2 m), features of the rows, and the weights (L, n) of these in each mean."""
        (n, k), n_features = self.near.shape, 2 * len(draws[0])
        ratio = 0.5 * n_features * hyper.local_noise_variance / hyper.signal_variance
        groups, step = group_places(rows.X, self.near, n_features), 1
        if isinstance(groups, list):
            step = max(_LEAST_DRAWS, _DRAWS_SIZE // ((n + len(rows)) * n_features))
        for some in (draws[part] for part in cut(len(draws), step)):
            known = np.stack([rows.features(R) for R in some])
            Phi = np.stack([lines(R) for R in some])
            by_place = Phi.reshape(len(some), n, -1, n_features)
            if isinstance(groups, list):
                W = np.empty((*by_place.shape[:3], k))
                for group in groups:
                    W[:, group.places] = group.weigh(known, by_place[:, group.places], ratio)
            else:
                W = groups.weigh(known[0], by_place[0], ratio)[None]
            columns = np.repeat(self.near, by_place.shape[2], axis=0).ravel()
            ends, shape = k * np.arange(Phi.shape[1] + 1), (Phi.shape[1], len(rows))
            for one, features, weights in zip(Phi, known, W, strict=True):
                yield one, features, csr_array((weights.ravel(), columns, ends), shape)


@dataclass(frozen=True)
class NearPlaces:
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
        K = known @ known.mT
        diagonal, line, n_own = np.arange(c + r), np.arange(T)[:, None], self.own.shape[1]
        K[:, diagonal, diagonal] += ratio
        lines = Phi.reshape(S, T * p, -1)
        k = known @ lines.mT
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
        return W.mT


@dataclass(frozen=True)
class Pieces:
    """Places that have the products of features in common, and each a system of its own."""

    near: Index  # (n, k)
    pieces: list[Index]  # places that are near each other

    def weigh(self, known: Array, Phi: Array, ratio: float) -> Array:
        """Weights (n, p, k) as those of a `NearPlaces`, by one draw of the frequencies."""
        (n, p, _), k, u = Phi.shape, self.near.shape[1], len(known)
        W, K = np.empty((n, p, k)), known @ known.T
        K.flat[:: u + 1] += ratio
        for places, rows, own, entries in self._indices:
            lines = Phi.take(places, axis=0).reshape(-1, Phi.shape[2])
            products = (lines @ known.take(rows, axis=0).T).reshape(len(places), p, -1)
            right = np.take_along_axis(products, own[:, None, :], axis=2)
            systems = K.reshape(-1).take(entries)
            W[places] = solve_stack(systems, right.mT, _NAME).mT
        return W

    @cached_property
    def _indices(self) -> list[tuple[Index, Index, Index, Index]]:
        """By piece: places (T,), rows (u,) near to some, which of these are near to each (T, k).

        And where their products (T, k, k) are in the matrix of all known rows, the last of which
        is near to a place.
        """
        indices, n_known = [], 1 + int(self.near.max())
        for places in self.pieces:
            near = self.near[places]
            rows, own = np.unique(near, return_inverse=True)
            entries = n_known * near[:, :, None] + near[:, None, :]
            indices.append((places, rows, own.reshape(near.shape), entries))
        return indices


class Alone(NamedTuple):
    """Places that have a matrix of products each."""

    near: Index  # (n, k)

    def weigh(self, known: Array, Phi: Array, ratio: float) -> Array:
        """Weights (n, p, k) as those of a `NearPlaces`, by one draw of the frequencies."""
        (n, k), n_features = self.near.shape, Phi.shape[2]
        W, by_rows = np.empty((*Phi.shape[:2], k)), k <= n_features
        diagonal = np.arange(min(k, n_features))
        for places in cut(n, max(1, _STACK_SIZE // (max(1, k) * n_features))):
            near, phi = known[self.near[places]], Phi[places].mT
            matrix = near @ near.mT if by_rows else near.mT @ near
            matrix[:, diagonal, diagonal] += ratio
            if by_rows:
                w = solve_stack(matrix, near @ phi, _NAME)
            else:
                w = near @ solve_stack(matrix, phi, "precision of the weights given neighbours")
            W[places] = w.mT
        return W


def group_places(X: Array, near: Index, n_features: int) -> list[NearPlaces] | Pieces | Alone:
    """Groups of near places, or pieces, or each alone: what takes the least time.

    Each place is conditioned on some of the known rows X, ``near`` (n, k) in ascending order. With
    more neighbours than features, the systems are those of the features, each alone.
    """
    n, k = near.shape
    if not 0 < k <= n_features:
        return Alone(near)
    n_levels = int(np.log2(n))
    order = _halve(X[near].mean(axis=1), n_levels)
    used, starts = np.zeros((n, len(X)), dtype=bool), _find_bounds(n, n_levels)[:-1]
    np.put_along_axis(used, near[order], True, axis=1)
    by_some, by_all = np.logical_or.reduceat(used, starts), np.logical_and.reduceat(used, starts)
    costs, finest = {}, max(0, int(np.log2(n / _PIECE)))
    for level in range(n_levels, -1, -1):
        T, u, c = np.diff(_find_bounds(n, level)), by_some.sum(axis=1), by_all.sum(axis=1)
        small = c**3 + 2.0 * c**2 * (u - c + T) + c * (u - c) * (u - c + T)
        large, entries = n_features * u * (u + 2.0 * T), T * (k - c) ** 2
        costs[level] = np.sum(large + _SMALL * small + _ENTRY * entries + _CALLS)
        if level == finest:
            products = n_features * (len(X) ** 2 + 2.0 * (T @ u)) + _CALLS * len(T)
            in_pieces = products + _WHOLE * n * k**2 if n * k**2 <= _MOST_ENTRIES else np.inf
        by_some, by_all = by_some[::2] | by_some[1::2], by_all[::2] & by_all[1::2]
    best = min(costs, key=costs.__getitem__)
    if min(costs[best], in_pieces) > n * k**2 * (_ALONE * n_features + _WHOLE):
        return Alone(near)
    if in_pieces < costs[best]:
        return Pieces(near, np.split(order, _find_bounds(n, finest)[1:-1]))
    pieces = np.split(order, _find_bounds(n, best)[1:-1])
    return [NearPlaces.of(places, near[places]) for places in pieces]


def _find_bounds(n: int, level: int) -> Index:
    """Where the pieces of n places begin and end that are cut in halves so often."""
    return np.asarray(n * np.arange(2**level + 1) // 2**level)


def _halve(X: Array, n_levels: int) -> Index:
    """Order of places X (n, d) in which pieces are near, cut at medians of the widest input."""
    order = np.arange(len(X))
    for level in range(n_levels):
        bounds, Y = _find_bounds(len(X), level), X[order]
        widths = np.maximum.reduceat(Y, bounds[:-1]) - np.minimum.reduceat(Y, bounds[:-1])
        piece = np.repeat(np.arange(2**level), np.diff(bounds))
        value = np.take_along_axis(Y, np.argmax(widths, axis=1)[piece][:, None], axis=1)[:, 0]
        order = order[np.lexsort((value, piece))]
    return order


#: What new rows are conditioned on.
Local = SharedRows | Neighbours
