r"""The rows that new ones are conditioned on: those of a block, or the nearest ones of each.

What is asked about n* new rows is linear in the weights of features: lines Phi (L, 2 m), of each
row one or, one after the other, several. They depend on the frequencies, of which there are several
draws, and so do the answers: one for each draw, along with its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from skvbgp._core.linalg import Array, solve_stack
from skvbgp._core.order import Index, cut
from skvbgp.spectrum._block_model import BlockModel
from skvbgp.spectrum._groups import group_places
from skvbgp.spectrum._rows import Rows
from skvbgp.spectrum._state import Hyperparameters

#: Features that stay in the cache of a core: of several sets of neighbours, and of several draws
#: for new rows and their neighbours, which are used more often, and of so many at least.
_STACK_SIZE, _DRAWS_SIZE, _LEAST_DRAWS = 2**17, 2**19, 4

#: Lines Phi (L, 2 m) at frequencies R (m, d).
Lines = Callable[[Array], Array]


class Block(NamedTuple):
    """Rows that all of some new ones are conditioned on."""

    rows: Rows
    places: slice = slice(None)  # which of all known rows they are

    def condition(
        self, lines: Lines, draws: Sequence[Array], hyper: Hyperparameters, *, full: bool
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Lines, their means (L,), and variances (L,) or (``full``) covariance, of each draw."""
        noise_variance = hyper.local_noise_variance
        rows = self.rows.as_weighted(noise_variance)
        for R in draws:
            Phi, known = lines(R), rows.features(R)
            model = BlockModel(known, rows.target, hyper.signal_variance, noise_variance)
            yield Phi, model.mean(Phi), model.covariance(Phi, full=full)

    def draw(
        self,
        lines: Lines,
        draws: Sequence[Array],
        hyper: Hyperparameters,
        s: Sequence[Array],
        noise: Sequence[Array],
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Lines, the same means, and errors (L, q) of functions phi' s.

        By their weights s (2 m, q) and the rows' ``noise`` (n, q), in units of its deviation.
        """
        rows = self.rows.as_weighted(hyper.local_noise_variance)
        for R, weights, e in zip(draws, s, noise, strict=True):
            Phi, known = lines(R), rows.features(R)
            values = known @ weights + np.sqrt(hyper.local_noise_variance) * e
            y = np.column_stack([rows.target, values])
            model = BlockModel(known, y, hyper.signal_variance, hyper.local_noise_variance)
            means = model.mean(Phi)
            yield Phi, means[:, 0], Phi @ weights - means[:, 1:]


class Neighbours(NamedTuple):
    """Rows of which each new one is conditioned on some of its own."""

    rows: Rows
    near: Index  # (n*, k) indices of those that each new row is conditioned on, in their order
    places: Index  # which of all known rows they are

    @classmethod
    def of(cls, rows: Rows, near: Index) -> Neighbours:
        """The same without rows that no new one is conditioned on."""
        used, position = np.unique(near, return_inverse=True)
        return cls(rows.take(used), np.sort(position.reshape(near.shape), axis=1), used)

    def condition(
        self, lines: Lines, draws: Sequence[Array], hyper: Hyperparameters, *, full: bool
    ) -> Iterator[tuple[Array, Array, Array]]:
        """The same; the covariance is that of the errors of the means."""
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
        """The same means, and errors of functions, as those of a block are."""
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
        if groups is not None:
            step = max(_LEAST_DRAWS, _DRAWS_SIZE // ((n + len(rows)) * n_features))
        for some in (draws[part] for part in cut(len(draws), step)):
            known = np.stack([rows.features(R) for R in some])
            Phi = np.stack([lines(R) for R in some])
            by_place = Phi.reshape(len(some), n, -1, n_features)
            if groups is None:
                W = self._weigh_alone(by_place[0], known[0], ratio)[None]
            else:
                W = np.empty((*by_place.shape[:3], k))
                for group in groups:
                    W[:, group.places] = group.weigh(known, by_place[:, group.places], ratio)
            columns = np.repeat(self.near, by_place.shape[2], axis=0).ravel()
            ends, shape = k * np.arange(Phi.shape[1] + 1), (Phi.shape[1], len(rows))
            for one, features, weights in zip(Phi, known, W, strict=True):
                yield one, features, csr_array((weights.ravel(), columns, ends), shape)

    def _weigh_alone(self, Phi: Array, known: Array, ratio: float) -> Array:
        """Weights (n, p, k) of places that have a matrix each, of lines (n, p, 2 m)."""
        (n, k), n_features = self.near.shape, Phi.shape[2]
        W = np.empty((*Phi.shape[:2], k))
        step = max(1, _STACK_SIZE // (max(1, k) * n_features))
        diagonal = np.arange(min(k, n_features))
        for rows in cut(n, step):
            near, phi = known[self.near[rows]], np.swapaxes(Phi[rows], 1, 2)
            transposed = np.swapaxes(near, 1, 2)
            matrix = near @ transposed if k <= n_features else transposed @ near
            matrix[:, diagonal, diagonal] += ratio
            if k <= n_features:
                w = solve_stack(matrix, near @ phi, "covariance of neighbours")
            else:
                w = near @ solve_stack(matrix, phi, "precision of the weights given neighbours")
            W[rows] = np.swapaxes(w, 1, 2)
        return W


Local = Block | Neighbours
