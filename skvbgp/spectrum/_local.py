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
        for Phi, W, A in self._weigh(lines, draws, rows, hyper):
            near, scale = self._near_of(W), 2.0 * hyper.signal_variance / Phi.shape[1]  # lambda
            mean = np.einsum("ij,ij->i", W, rows.target[near])
            if full:
                ends = np.arange(0, near.size + 1, near.shape[1])
                sparse = csr_array((W.ravel(), near.ravel(), ends), (len(W), len(rows)))
                noise = hyper.local_noise_variance * (sparse @ sparse.T).toarray()
                yield Phi, mean, scale * (A @ A.T) + noise
            else:
                noise = hyper.local_noise_variance * np.einsum("ij,ij->i", W, W)
                yield Phi, mean, scale * np.einsum("ij,ij->i", A, A) + noise

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
        for (Phi, W, A), weights, e in zip(weighed, s, noise, strict=True):
            values = np.column_stack([rows.target, std * e])[self._near_of(W)]  # (L, k, 1 + q)
            carried = (W[:, None, :] @ values)[:, 0]
            yield Phi, carried[:, 0], A @ weights - carried[:, 1:]

    def _near_of(self, W: Array) -> Index:
        """Indices of the rows that weights W belong to."""
        return np.repeat(self.near, len(W) // len(self.near), axis=0)

    def _weigh(
        self, lines: Lines, draws: Sequence[Array], rows: Rows, hyper: Hyperparameters
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Lines (L, 2 m), weights W (L, k) of the targets in each mean, and A (L, 2 m).

        An error of the mean is A' s - W' noise. Where W is not exact the two still belong
        together: the variance is that of the mean that is returned.
        """
        (n, k), n_features = self.near.shape, 2 * len(draws[0])
        ratio = 0.5 * n_features * hyper.local_noise_variance / hyper.signal_variance
        groups = group_places(rows.X, self.near, n_features)
        if groups is None:
            for R in draws:
                Phi = lines(R)
                yield Phi, *self._weigh_alone(Phi, rows.features(R), ratio)
            return
        step = max(_LEAST_DRAWS, _DRAWS_SIZE // ((n + len(rows)) * n_features))
        for some in (draws[part] for part in cut(len(draws), step)):
            known = np.stack([rows.features(R) for R in some])
            Phi = np.stack([lines(R) for R in some])
            by_place = Phi.reshape(len(some), n, -1, n_features)
            W, A = np.empty((*by_place.shape[:3], k)), np.empty_like(by_place)
            for group in groups:
                at = group.places
                W[:, at], A[:, at] = group.weigh(known, by_place[:, at], ratio)
            yield from zip(Phi, W.reshape(*Phi.shape[:2], k), A.reshape(Phi.shape), strict=True)

    def _weigh_alone(self, Phi: Array, known: Array, ratio: float) -> tuple[Array, Array]:
        """W and A of places that have a matrix each."""
        (n, k), n_features = self.near.shape, Phi.shape[1]
        lines = Phi.reshape(n, len(Phi) // n, n_features)  # (n, p, 2 m)
        W, A = np.empty((*lines.shape[:2], k)), np.empty(lines.shape)
        step = max(1, _STACK_SIZE // (max(1, k) * n_features))
        diagonal = np.arange(min(k, n_features))
        for rows in cut(n, step):
            near, phi = known[self.near[rows]], np.swapaxes(lines[rows], 1, 2)
            transposed = np.swapaxes(near, 1, 2)
            matrix = near @ transposed if k <= n_features else transposed @ near
            matrix[:, diagonal, diagonal] += ratio
            if k <= n_features:
                w = solve_stack(matrix, near @ phi, "covariance of neighbours")
                a = phi - transposed @ w
            else:
                a = solve_stack(matrix, phi, "precision of the weights given neighbours")
                w, a = near @ a, ratio * a
            W[rows], A[rows] = np.swapaxes(w, 1, 2), np.swapaxes(a, 1, 2)
        return W.reshape(len(Phi), k), A.reshape(Phi.shape)


Local = Block | Neighbours
