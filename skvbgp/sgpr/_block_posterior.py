"""Predictions of PIC, from the rows of a new row's block or from all rows exactly."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.blockwise import by_tile, in_tiles, moments_by_block
from skvbgp._core.draws import quasi_normal
from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture, average_moments
from skvbgp._core.partition import cut_by_block
from skvbgp.base import Relevance, Targets, find_known
from skvbgp.sgpr._block_conditional import BlockConditional
from skvbgp.sgpr._block_paths import BlockDraws, BlockFunctions, PathSet
from skvbgp.sgpr._blocks import BlockRows, KeptBlocks
from skvbgp.sgpr._data import Rows
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._noise import ResidualNoise
from skvbgp.sgpr._paths import draw_unit_features, share_points
from skvbgp.sgpr._posterior import ExactPosterior
from skvbgp.sgpr._sharded import gather_data
from skvbgp.sgpr._state import State


class BlockPosterior:
    """Predictions that condition on the rows of the own block, in the user's units.

    The blocks are those that the state keeps; theta has ``n_samples`` draws.
    """

    def __init__(self, state: State, blocks: KeptBlocks, n_samples: int) -> None:
        self.n_samples, self._blocks, self._known = n_samples, blocks, state.remembered
        self._coordinates, self._target = state.model.coordinates, state.target
        self._places, self._seed = state.places, state.seed

    @classmethod
    def of(cls, state: State, blocks: KeptBlocks, n_samples: int) -> BlockPosterior:
        """The one that has served last, or a new one."""
        last = _LAST.get(state)
        if last is None or last.n_samples != n_samples:
            last = _LAST[state] = cls(state, blocks, n_samples)
        return last

    @cached_property
    def _conditional(self) -> BlockConditional:
        d = self._known.parameters.U.shape[1]
        return BlockConditional(self._known, quasi_normal(self.n_samples, d + 1, self._seed))

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        scaled = self._coordinates.scaled(X)
        moments = self.by_block(BlockConditional.marginal_moments, scaled, include_noise)
        return self._target.unscaled(*moments)

    def distribution(self, X: Array, include_noise: bool) -> NormalMixture:
        """One component for each draw of theta."""
        scaled = self._coordinates.scaled(X)
        moments = self.by_block(BlockConditional.components, scaled, include_noise)
        return NormalMixture.of_moments(*self._target.unscaled(*moments))

    def by_block(
        self, function: Callable[..., tuple[Array, ...]], X: Array, *shared: Any
    ) -> tuple[Array, ...]:
        """What ``function(conditional, *shared, X, k, block k)`` makes of scaled rows."""
        return moments_by_block(
            function,
            X,
            self._blocks.lookup(X),
            lambda k: (k, self._rows(k)),
            shared=(self._conditional, *shared),
        )

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d) of the derivatives of f, in its block."""
        scaled = self._coordinates.scaled(X)
        means, variances = self.by_block(BlockConditional.slope_moments, scaled)
        mean, variance = average_moments(means, variances, axis=1)
        return self._target.unscaled_slopes(mean, variance, self._coordinates.scale)

    @property
    def relevance(self) -> Relevance:
        return self._places.share_out(self._coordinates, self, self._known.parameters.owners)

    def slopes(self, X: Array) -> tuple[Array, Array]:
        """Derivatives of the mean of f at scaled rows, (n, d), and given each draw, (S, n, d)."""
        each = np.moveaxis(self.by_block(BlockConditional.mean_slopes, X)[0], 1, 0)
        return each.mean(axis=0), each

    def means(self, X: Array) -> Array:
        """The mean of f at scaled rows, and that given each draw of theta, (1 + S, n)."""
        each = self.by_block(BlockConditional.components, X, False)[0].T
        return np.vstack([each.mean(axis=0), each])

    def draw_functions(self, n: int, rng: np.random.RandomState) -> BlockDraws:
        Lambda, q, sets = self._conditional.Lambda, self._known.q, []
        for i, members in share_points(n, len(Lambda), rng):
            u = q.draw(len(members), rng)
            sets.append(PathSet(members, i, u, draw_unit_features(len(Lambda[i]), rng)))
        functions = BlockFunctions(sets, int(rng.randint(2**31)))
        return BlockDraws(self._coordinates, self._target, self, functions)

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        X = self._coordinates.scaled(X)
        labels = self._blocks.lookup(X)
        n, n_samples, root_S = len(X), self.n_samples, self._known.q.precision_factor_inv.T
        means = np.empty((n_samples, n))
        coefficients = np.empty((n_samples, n, len(root_S)))
        covariance = np.zeros((n, n))
        for k, rows in cut_by_block(labels, n):
            means[:, rows], within, coefficients[:, rows] = self._conditional.moments(
                X[rows], k, self._rows(k), include_noise=include_noise, full=True
            )
            covariance[np.ix_(rows, rows)] = within
        own = labels[:, None] == labels
        for b in coefficients:  # rows of different blocks share u alone
            root = b @ root_S
            covariance += np.where(own, 0.0, root @ root.T) / n_samples
        mean = means.mean(axis=0)
        deviations = means - mean
        covariance += deviations.T @ deviations / n_samples
        return self._target.unscaled(mean, covariance)

    def leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
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
        offset, variance, b = self._conditional.leave_out(k, block)
        mean, more = self._known.without(block).project(b)
        mean += offset
        variance += more
        return average_moments(mean, variance, axis=1)

    def _rows(self, k: int) -> Rows:
        assert isinstance(self._blocks, BlockRows)
        X, targets = self._blocks.X[k], self._blocks.targets[k]
        return gather_data(X, targets, self._coordinates, self._target).rows(slice(None))


class ExactBlockPosterior(ExactPosterior):
    """Predictions from all rows exactly, with noise that is correlated within a block.

    The function itself is known as if the noise were not predicted with it. The blocks' partition
    says whose noise a new row's is correlated with.
    """

    def __init__(self, state: State, blocks: KeptBlocks, mixture: Mixture) -> None:
        super().__init__(state, mixture)
        self._blocks = blocks

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        return in_tiles(lambda tile: self._tile(self._latent.moments, tile, include_noise), X)

    def predict_mean(self, X: Array, include_noise: bool) -> Array:
        def measure(tile: Array) -> Array:
            return self._latent.mean(*self._locate(tile, include_noise))

        return self._target.original(by_tile(measure, X))

    def distribution(self, X: Array, include_noise: bool) -> NormalMixture:
        """One component for each draw of theta."""
        components = self._latent.components
        moments = in_tiles(lambda tile: self._tile(components, tile, include_noise), X)
        return NormalMixture.of_moments(*moments)

    def _tile(
        self, evaluate: Callable[..., tuple[Array, Array]], X: Array, include_noise: bool
    ) -> tuple[Array, Array]:
        own = self._latent.noise.marginal_variance(X) if include_noise else 0.0
        return self._target.unscaled(*evaluate(*self._locate(X, include_noise), own))

    def _locate(self, X: Array, include_noise: bool) -> tuple[Array, Array | float]:
        """Scaled rows, and how the data's noise varies with what is predicted of them."""
        scaled = self._coordinates.scaled(X)
        if not include_noise:
            return scaled, 0.0
        return scaled, self._noise_cross(X, self._blocks.lookup(scaled))

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        scaled = self._coordinates.scaled(X)
        if not include_noise:
            mean, covariance = self._latent.joint(scaled)
        else:
            labels = self._blocks.lookup(scaled)
            mean, covariance = self._latent.joint(scaled, self._noise_cross(X, labels))
            own = self._latent.noise.covariance(X)
            covariance += np.where(labels[:, None] == labels, own, 0.0)
        return self._target.unscaled(mean, covariance)

    def leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
        return self._target.unscaled(*self._leave_out(X, targets, include_noise=True))

    def _noise_cross(self, X: Array, labels: NDArray[np.intp]) -> Array:
        """Covariance (n_data, n) of the data's noise with that of new rows."""
        noise, data = self._latent.noise, self._latent.X
        assert isinstance(noise, ResidualNoise)
        cross = np.zeros((len(data), len(X)))
        for k, rows in cut_by_block(labels, len(X)):
            block = np.arange(len(data))[self._latent.groups[k]]
            cross[np.ix_(block, rows)] = noise.cross_covariance(X[rows], data[block]).T
        return cross


#: The last posterior of each state, as long as the state lives; it must not refer to the state.
_LAST: WeakKeyDictionary[State, BlockPosterior] = WeakKeyDictionary()
