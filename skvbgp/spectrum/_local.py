r"""The rows that new ones are conditioned on: those of a block, or the nearest ones of each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from skvbgp._core.linalg import Array, solve_stack
from skvbgp._core.order import Index
from skvbgp.spectrum._block_model import BlockModel
from skvbgp.spectrum._rows import Rows
from skvbgp.spectrum._state import Hyperparameters

#: Entries of the features of several sets of neighbours, which stay in the cache of a core.
_STACK_SIZE = 2**17


class Block(NamedTuple):
    """Rows that all of some new ones are conditioned on."""

    rows: Rows
    places: slice = slice(None)  # which of all known rows they are

    def condition(
        self, Phi: Array, R: Array, hyper: Hyperparameters, *, full: bool
    ) -> tuple[Array, Array]:
        """Mean (n*,), and variances (n*,) or (``full``) covariance, of rows with features Phi."""
        noise_variance = hyper.local_noise_variance
        rows = self.rows.as_weighted(noise_variance)
        model = BlockModel(rows.features(R), rows.target, hyper.signal_variance, noise_variance)
        return model.mean(Phi), model.covariance(Phi, full=full)

    def draw(
        self, Phi: Array, R: Array, hyper: Hyperparameters, s: Array, noise: Array
    ) -> tuple[Array, Array]:
        """The same mean, and errors (n*, S) of functions phi' s.

        By their weights s (2 m, S) and the rows' ``noise`` (n, S), in units of its deviation.
        """
        rows = self.rows.as_weighted(hyper.local_noise_variance)
        known = rows.features(R)
        values = known @ s + np.sqrt(hyper.local_noise_variance) * noise
        y = np.column_stack([rows.target, values])
        means = BlockModel(known, y, hyper.signal_variance, hyper.local_noise_variance).mean(Phi)
        return means[:, 0], Phi @ s - means[:, 1:]


class Neighbours(NamedTuple):
    """Rows of which each new one is conditioned on some of its own.

    What is asked about a new row may be several linear functions of s, one after the other in Phi.
    """

    rows: Rows
    near: Index  # (n*, k) indices of those that each new row is conditioned on
    places: Index  # which of all known rows they are

    @classmethod
    def of(cls, rows: Rows, near: Index) -> Neighbours:
        """The same without rows that no new one is conditioned on."""
        used, position = np.unique(near, return_inverse=True)
        return cls(rows.take(used), position.reshape(near.shape), used)

    def condition(
        self, Phi: Array, R: Array, hyper: Hyperparameters, *, full: bool
    ) -> tuple[Array, Array]:
        """The same; the covariance is that of the errors of the means."""
        scale = 2.0 * hyper.signal_variance / Phi.shape[1]  # lambda
        ratio = hyper.local_noise_variance / scale
        rows = self.rows.as_weighted(hyper.local_noise_variance)
        W, A = self._weigh(Phi, rows.features(R), ratio)
        near = self._near_of(W)
        mean = np.einsum("ij,ij->i", W, rows.target[near])
        if full:
            ends = np.arange(0, near.size + 1, near.shape[1])
            sparse = csr_array((W.ravel(), near.ravel(), ends), (len(W), len(self.rows)))
            return mean, scale * (A @ A.T + ratio * (sparse @ sparse.T).toarray())
        squares = np.einsum("ij,ij->i", A, A) + ratio * np.einsum("ij,ij->i", W, W)
        return mean, scale * squares

    def draw(
        self, Phi: Array, R: Array, hyper: Hyperparameters, s: Array, noise: Array
    ) -> tuple[Array, Array]:
        """The same mean, and errors of functions, as those of a block are."""
        ratio = 0.5 * Phi.shape[1] * hyper.local_noise_variance / hyper.signal_variance
        rows = self.rows.as_weighted(hyper.local_noise_variance)
        known = rows.features(R)
        values, noise = known @ s, np.sqrt(hyper.local_noise_variance) * noise
        if self._shares_pairs(known):  # A' s is phi' s - W' values
            W = self._weigh_together(Phi, known, ratio)
            errors, noise = Phi @ s, noise + values
        else:
            W, A = self._weigh(Phi, known, ratio)
            errors = A @ s
        carried = (W[:, None, :] @ np.column_stack([rows.target, noise])[self._near_of(W)])[:, 0]
        return carried[:, 0], errors - carried[:, 1:]

    def _near_of(self, W: Array) -> Index:
        """Indices of the rows that weights W belong to."""
        return np.repeat(self.near, len(W) // len(self.near), axis=0)

    def _weigh(self, Phi: Array, Phi_known: Array, ratio: float) -> tuple[Array, Array]:
        """Weights W (n*, k) of the targets in each mean, and A (n*, 2 m), of n* lines of Phi.

        An error of the mean is A' s - W' noise. Where W is not exact the two still belong
        together: the variance is that of the mean that is returned.
        """
        (n, k), n_features = self.near.shape, Phi.shape[1]
        if self._shares_pairs(Phi_known):
            W = self._weigh_together(Phi, Phi_known, ratio)
            p = len(Phi) // n
            spread = np.zeros((n, p, len(Phi_known)))
            np.put_along_axis(spread, self.near[:, None, :], W.reshape(n, p, k), axis=2)
            return W, Phi - spread.reshape(n * p, len(Phi_known)) @ Phi_known
        lines = Phi.reshape(n, len(Phi) // n, n_features)  # (n, p, 2 m)
        W, A = np.empty((*lines.shape[:2], k)), np.empty(lines.shape)
        step = max(1, _STACK_SIZE // (max(1, k) * n_features))
        for start in range(0, n, step):
            rows = slice(start, start + step)
            Phi_near, phi = Phi_known[self.near[rows]], np.swapaxes(lines[rows], 1, 2)
            transposed = np.swapaxes(Phi_near, 1, 2)
            if k <= n_features:
                matrix = Phi_near @ transposed
                _add_to_diagonals(matrix, ratio)
                w = solve_stack(matrix, Phi_near @ phi, "covariance of neighbours")
                a = phi - transposed @ w
            else:
                matrix = transposed @ Phi_near
                _add_to_diagonals(matrix, ratio)
                a = solve_stack(matrix, phi, "precision of the weights given neighbours")
                w, a = Phi_near @ a, ratio * a
            W[rows], A[rows] = np.swapaxes(w, 1, 2), np.swapaxes(a, 1, 2)
        return W.reshape(len(Phi), k), A.reshape(Phi.shape)

    def _shares_pairs(self, Phi_known: Array) -> bool:
        """Whether new rows have so many neighbours in common that pairs of all of them are few."""
        n, k = self.near.shape
        return k <= Phi_known.shape[1] and len(Phi_known) ** 2 <= n * k**2

    def _weigh_together(self, Phi: Array, Phi_known: Array, ratio: float) -> Array:
        """The weights, from one product for all pairs of neighbours."""
        (n, k), n_known = self.near.shape, len(Phi_known)
        p = len(Phi) // n
        gram, cross = Phi_known @ Phi_known.T, (Phi @ Phi_known.T).reshape(n, p, n_known)
        gram.flat[:: n_known + 1] += ratio
        W = np.empty((n, p, k))
        step = max(1, _STACK_SIZE // max(1, k) ** 2)
        for start in range(0, n, step):
            rows = slice(start, start + step)
            near = self.near[rows]
            own = np.take_along_axis(cross[rows], near[:, None, :], axis=2)
            matrix = gram.take(n_known * near[:, :, None] + near[:, None, :])
            w = solve_stack(matrix, np.swapaxes(own, 1, 2), "covariance of neighbours")
            W[rows] = np.swapaxes(w, 1, 2)
        return W.reshape(n * p, k)


Local = Block | Neighbours


def _add_to_diagonals(stack: Array, value: float) -> None:
    """Add a number to the diagonals of (b, p, p) in place."""
    diagonal = np.arange(stack.shape[1])
    stack[:, diagonal, diagonal] += value
