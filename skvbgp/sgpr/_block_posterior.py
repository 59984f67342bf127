r"""Test conditional of PIC: new rows are correlated with the data of their own block.

For one draw of theta and one block B with noise covariance C_BB, in whitened coordinates
A = k(Lambda X, Z) L^-T and R = k~ - A A' (unit variance), given u

    cov(y_B) = sigma_f^2 R_BB + C_BB,    cov(y*, y_B) = sigma_f^2 R_*B + C_*B,

so that with H = cov(y*, y_B) cov(y_B)^-1 (Appendix F.2 of [Yu2019]_, with the noise of the
new observation correlated with that of its block)

    y* | u, y_B ~ N( H y_B + sigma_f (A_* - H A_B) u,  sigma_f^2 R_** + C_** - H cov(y_B, y*) ).

The latent function f alone leaves out C_*B and C_**.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.blockwise import in_tiles, moments_by_block
from skvbgp._core.draws import quasi_normal
from skvbgp._core.linalg import Array, cholesky, inverse_from_cholesky
from skvbgp._core.mixture import NormalMixture, average_moments
from skvbgp._core.partition import rows_by_block
from skvbgp.base import Targets, find_known
from skvbgp.sgpr._blocks import BlockRows, KeptBlocks
from skvbgp.sgpr._data import Rows
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._left_out import Remembered
from skvbgp.sgpr._likelihood import unit_se
from skvbgp.sgpr._noise import GroupNoise, ResidualNoise
from skvbgp.sgpr._sharded import gather_data
from skvbgp.sgpr._state import State

#: Memory for the factors of recently used blocks.
_CACHE_BYTES = 2**29


class BlockFactors(NamedTuple):
    """What the conditional of one block needs, for every draw of theta."""

    rotated: list[Array]  # S of (n, d)
    A: list[Array]  # S of (n, m)
    inverse: list[Array]  # S of (n, n): cov(y_B)^-1

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for arrays in self for array in arrays)


class FactorCache:
    """The most recently used blocks' factors, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[int, BlockFactors] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, block: int) -> BlockFactors | None:
        with self._lock:
            if block not in self._entries:
                return None
            self._entries.move_to_end(block)
            return self._entries[block]

    def put(self, block: int, factors: BlockFactors) -> None:
        with self._lock:
            self._entries[block] = factors
            total = sum(entry.n_bytes for entry in self._entries.values())
            while total > self._max_bytes and len(self._entries) > 1:
                total -= self._entries.popitem(last=False)[1].n_bytes

    def __getstate__(self) -> dict[str, int]:
        return {"_max_bytes": self._max_bytes}  # factors are rebuilt, not pickled

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__init__(state["_max_bytes"])  # type: ignore[misc]


class BlockConditional:
    """Predictive moments of rows of one block, mixed over draws of theta.

    Parameters
    ----------
    known : Remembered
    draws : ndarray of shape (S, d + 1)
        Standard normal points; the last column belongs to sigma_f.
    """

    def __init__(self, known: Remembered, draws: Array) -> None:
        self._model, p, self._prior, noise, self._q, _ = known
        assert isinstance(noise, ResidualNoise)
        self._noise, self._cache = noise, FactorCache(_CACHE_BYTES)
        self._Lambda = [p.draw_Lambda(e[:-1]) for e in draws]  # S of (d,)
        self._sigma_f = [p.draw_sigma_f(e[-1]) for e in draws]

    def factors(self, block: Rows) -> BlockFactors:
        """Factors of a block of scaled data."""
        X = self._model.coordinates.original(block.X)
        C = GroupNoise.of(self._noise, X, block).covariance
        rotated = [block.X * lam for lam in self._Lambda]
        A = [self._prior.whiten_rows(x) for x in rotated]
        inverse = []
        for x, a, sigma_f in zip(rotated, A, self._sigma_f, strict=True):
            residual = unit_se(x, x) - a @ a.T
            L = cholesky(sigma_f**2 * residual + C, "covariance of a block")
            inverse.append(inverse_from_cholesky(L))
        return BlockFactors(rotated, A, inverse)

    def recall_factors(self, k: int, block: Rows) -> BlockFactors:
        """The factors of block k, made only if they are not known from a call before."""
        factors = self._cache.get(k)
        if factors is None:
            factors = self.factors(block)
            self._cache.put(k, factors)
        return factors

    def moments(
        self, X: Array, block: Rows, factors: BlockFactors, *, include_noise: bool, full: bool
    ) -> tuple[Array, Array, list[Array]]:
        """Moments of scaled rows X of the block, given each draw of theta.

        Returns
        -------
        mean : ndarray of shape (S, n)
        variance : ndarray of shape (S, n), or (n, n) if ``full``
            The (co)variance; only its average over draws if ``full``.
        coefficients : list of S ndarrays of shape (n, m)
            b of each draw: what correlates the rows with those of other blocks.
        """
        original = self._model.coordinates.original
        X_original = original(X)
        noise_cross: Array | float = 0.0
        noise_own: Array | float = 0.0
        if include_noise:
            noise_cross = self._noise.cross_covariance(X_original, original(block.X))
            own_of = self._noise.covariance if full else self._noise.marginal_variance
            noise_own = own_of(X_original)
        means, variances, coefficients = [], [], []
        total = 0.0
        for lam, sigma_f, x_block, A_block, inverse in zip(
            self._Lambda, self._sigma_f, *factors, strict=True
        ):
            x = X * lam
            A = self._prior.whiten_rows(x)  # (n, m)
            second = sigma_f**2
            cross = second * (unit_se(x, x_block) - A @ A_block.T) + noise_cross  # (n, n_B)
            H = cross @ inverse
            b = sigma_f * (A - H @ A_block)
            means.append(H @ block.y + b @ self._q.mean)
            coefficients.append(b)
            root = b @ self._q.precision_factor_inv.T  # b' S b = |root|^2
            if full:
                own = second * (unit_se(x, x) - A @ A.T)
                total = total + (own + noise_own - H @ cross.T + root @ root.T)
            else:
                own = second * (1.0 - np.sum(A**2, axis=1))
                given = own + noise_own - np.sum(H * cross, axis=1)
                variances.append(given + np.sum(root**2, axis=1))
        spread = np.asarray(total) / len(means) if full else np.array(variances)
        return np.array(means), spread, coefficients

    def leave_out(self, block: Rows, factors: BlockFactors) -> tuple[Array, Array, Array]:
        """Observations at a block's rows, each given the others of it and each draw of theta.

        Returns
        -------
        offset : ndarray of shape (n, S)
            Of their means, which are offset + b' u.
        variance : ndarray of shape (n, S)
            Given u.
        coefficients : ndarray of shape (n, S, m)
            b.
        """
        X = self._model.coordinates.original(block.X)
        C = GroupNoise.of(self._noise, X, block).covariance
        more = self._noise.marginal_variance(X) - np.diagonal(C)  # than the copies of a row have
        offsets, variances, coefficients = [], [], []
        for sigma_f, A, inverse in zip(self._sigma_f, factors.A, factors.inverse, strict=True):
            variance = 1.0 / np.diagonal(inverse)
            H = variance[:, None] * inverse
            offsets.append(block.y - H @ block.y)
            variances.append(variance + more)
            coefficients.append(sigma_f * (H @ A))
        return (
            np.stack(offsets, axis=1),
            np.stack(variances, axis=1),
            np.stack(coefficients, axis=1),
        )


class BlockPosterior:
    """Predictions that condition on the rows of the own block, in the user's units.

    Parameters
    ----------
    state : State
    blocks : KeptBlocks
        The rows that the state keeps.
    n_samples : int
        Draws of theta.
    """

    def __init__(self, state: State, blocks: KeptBlocks, n_samples: int) -> None:
        self.n_samples = n_samples
        self._blocks, self._known = blocks, state.remembered
        self._coordinates, self._target = state.model.coordinates, state.target
        draws = quasi_normal(n_samples, state.parameters.U.shape[1] + 1, state.seed)
        self._conditional = BlockConditional(self._known, draws)

    @classmethod
    def of(cls, state: State, blocks: KeptBlocks, n_samples: int) -> BlockPosterior:
        """The one that has served last, or a new one."""
        last = _LAST.get(state)
        if last is None or last.n_samples != n_samples:
            last = _LAST[state] = cls(state, blocks, n_samples)
        return last

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        return self._by_block(_marginal_moments, X, include_noise)

    def distribution(self, X: Array, include_noise: bool) -> NormalMixture:
        """One component for each draw of theta."""
        return NormalMixture.of_moments(*self._by_block(_components, X, include_noise))

    def _by_block(
        self, function: Callable[..., tuple[Array, Array]], X: Array, include_noise: bool
    ) -> tuple[Array, Array]:
        X = self._coordinates.scaled(X)
        mean, variance = moments_by_block(
            function,
            X,
            self._blocks.lookup(X),
            lambda k: (k, self._rows(k)),
            shared=(self._conditional, include_noise),
        )
        return self._target.unscaled(mean, variance)

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        X = self._coordinates.scaled(X)
        labels = self._blocks.lookup(X)
        n, n_samples, root_S = len(X), self.n_samples, self._known.q.precision_factor_inv.T
        means = np.empty((n_samples, n))
        coefficients = np.empty((n_samples, n, len(root_S)))
        covariance = np.zeros((n, n))
        for k, rows in rows_by_block(labels, n):
            block = self._rows(k)
            factors = self._conditional.recall_factors(k, block)
            means[:, rows], within, coefficients[:, rows] = self._conditional.moments(
                X[rows], block, factors, include_noise=include_noise, full=True
            )
            covariance[np.ix_(rows, rows)] = within
        own = labels[:, None] == labels
        for b in coefficients:  # rows of different blocks share u alone
            root = b @ root_S
            covariance += np.where(own, 0.0, root @ root.T) / n_samples
        covariance += np.cov(means, rowvar=False, bias=True)
        return self._target.unscaled(means.mean(axis=0), covariance)

    def leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
        """Mean and variance (n,) of observations at known rows, each given all the others."""
        assert isinstance(self._blocks, BlockRows)
        index = find_known(X, targets, *self._blocks.rows)
        sizes = [len(rows) for rows in self._blocks.X]
        ends, found = np.cumsum(sizes), np.empty((2, sum(sizes)))
        for k in np.unique(np.searchsorted(ends, index, side="right")):
            found[:, ends[k] - sizes[k] : ends[k]] = self._leave_out_of(int(k))
        mean, variance = found[:, index]
        return self._target.unscaled(mean, variance)

    def _leave_out_of(self, k: int) -> tuple[Array, Array]:
        """Scaled moments of each row of block k."""
        block = self._rows(k)
        factors = self._conditional.recall_factors(k, block)
        offset, variance, b = self._conditional.leave_out(block, factors)
        mean, more = self._known.without(block).project(b)
        mean += offset
        variance += more
        return average_moments(mean, variance, axis=1)

    def _rows(self, k: int) -> Rows:
        assert isinstance(self._blocks, BlockRows)
        X, targets = self._blocks.X[k], self._blocks.targets[k]
        return gather_data(X, targets, self._coordinates, self._target).rows(slice(None))


class ExactBlockPosterior:
    """Predictions from all rows exactly, with noise that is correlated within a block.

    Parameters
    ----------
    state : State
    blocks : KeptBlocks
        Their partition says whose noise a new row's is correlated with.
    mixture : Mixture
    """

    def __init__(self, state: State, blocks: KeptBlocks, mixture: Mixture) -> None:
        self._blocks, self._mixture, self._kept_rows = blocks, mixture, state.kept_rows
        self._coordinates, self._target = state.model.coordinates, state.target

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        return in_tiles(lambda tile: self._tile(self._mixture.moments, tile, include_noise), X)

    def distribution(self, X: Array, include_noise: bool) -> NormalMixture:
        """One component for each draw of theta."""

        def components(tile: Array) -> tuple[Array, Array]:
            means, variances = self._tile(self._mixture.components, tile, include_noise)
            return means.T, variances.T

        return NormalMixture.of_moments(*in_tiles(components, X))

    def _tile(
        self, evaluate: Callable[..., tuple[Array, Array]], X: Array, include_noise: bool
    ) -> tuple[Array, Array]:
        scaled = self._coordinates.scaled(X)
        if not include_noise:
            mean, variance = evaluate(scaled)
        else:
            cross = self._noise_cross(X, self._blocks.lookup(scaled))
            own = self._mixture.noise.marginal_variance(X)
            mean, variance = evaluate(scaled, cross, own)
        return self._target.unscaled(mean, variance)

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        scaled = self._coordinates.scaled(X)
        if not include_noise:
            mean, covariance = self._mixture.joint(scaled)
        else:
            labels = self._blocks.lookup(scaled)
            mean, covariance = self._mixture.joint(scaled, self._noise_cross(X, labels))
            own = self._mixture.noise.covariance(X)
            covariance += np.where(labels[:, None] == labels, own, 0.0)
        return self._target.unscaled(mean, covariance)

    def leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
        """Mean and variance (n,) of observations at known rows, each given all the others."""
        assert self._kept_rows is not None
        index = find_known(X, targets, *self._kept_rows)
        mean, variance = self._mixture.leave_out(include_noise=True)
        return self._target.unscaled(mean[index], variance[index])

    def _noise_cross(self, X: Array, labels: NDArray[np.intp]) -> Array:
        """Covariance (n_data, n) of the data's noise with that of new rows."""
        noise, data = self._mixture.noise, self._mixture.X
        assert isinstance(noise, ResidualNoise)
        cross = np.zeros((len(data), len(X)))
        for k, rows in rows_by_block(labels, len(X)):
            block = np.arange(len(data))[self._mixture.groups[k]]
            cross[np.ix_(block, rows)] = noise.cross_covariance(X[rows], data[block]).T
        return cross


#: The last posterior of each state, as long as the state lives; it must not refer to the state.
_LAST: WeakKeyDictionary[State, BlockPosterior] = WeakKeyDictionary()


def _marginal_moments(
    conditional: BlockConditional, include_noise: bool, X: Array, k: int, block: Rows
) -> tuple[Array, Array]:
    """Mean and variance of scaled rows X of block k, each (n,)."""
    return average_moments(*_components(conditional, include_noise, X, k, block), axis=1)


def _components(
    conditional: BlockConditional, include_noise: bool, X: Array, k: int, block: Rows
) -> tuple[Array, Array]:
    """The same given each draw of theta, (n, S)."""
    factors = conditional.recall_factors(k, block)
    means, variances, _ = conditional.moments(
        X, block, factors, include_noise=include_noise, full=False
    )
    return means.T, np.maximum(variances, 0.0).T
