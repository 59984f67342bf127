"""VBPIC: predictions that condition on the data of the new row's own block."""

from __future__ import annotations

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import thread_map
from skvbgp.sgpr._blocks import BlockFactors, BlockPredictor, FactorCache
from skvbgp.sgpr._data import Rows
from skvbgp.sgpr._docs import documented
from skvbgp.sgpr._draws import quasi_normal
from skvbgp.sgpr._pitc import BlockRegressor
from skvbgp.sgpr._state import State

#: Memory for the factors of recently used blocks.
_CACHE_BYTES = 2**29


@documented(
    """Variational Bayesian sparse Gaussian process with local blocks (VBPIC).

    The rows are divided into blocks by location. Across blocks the inducing inputs carry
    the information; within a block rows are correlated directly, through the Gaussian
    process and through a noise kernel's residual. A new row is predicted from the
    inducing inputs and from the data of its own block, which are kept [Yu2019]_.

    `predict` gives the distribution of the *observation*: the noise of a new row is
    correlated with that of its block, so its conditional mean is part of the prediction.
    With ``include_noise=False`` it is that of the latent function alone.
    """,
    default_noise_kernel="a squared exponential with one length scale per input",
    blocks=True,
)
class VBPICRegressor(BlockRegressor):
    _keeps_data = True

    def _moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        state = self._state
        local = _Local(state, self.n_samples)
        labels = local.labels(X)
        groups = [(block, np.flatnonzero(labels == block)) for block in np.unique(labels)]
        parts = thread_map(
            lambda block, rows: local.moments(X[rows], block, include_noise, full=False), groups
        )
        mean, variance = np.empty(len(X)), np.empty(len(X))
        for (_, rows), (means, within, _) in zip(groups, parts, strict=True):
            mean[rows] = means.mean(axis=0)
            variance[rows] = np.maximum(within, 0.0) + means.var(axis=0)
        return state.target.original(mean), variance * state.target.unit**2

    def _joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        state = self._state
        local = _Local(state, self.n_samples)
        labels = local.labels(X)
        n, m = len(X), len(state.parameters.U)
        means = np.empty((self.n_samples, n))
        coefficients = np.empty((self.n_samples, n, m))
        covariance = np.zeros((n, n))
        for block in np.unique(labels):
            rows = np.flatnonzero(labels == block)
            means[:, rows], within, b = local.moments(X[rows], block, include_noise, full=True)
            covariance[np.ix_(rows, rows)] = within
            coefficients[:, rows] = b
        own = labels[:, None] == labels
        for b in coefficients:  # rows of different blocks share u alone
            root = b @ state.q.precision_factor_inv.T
            covariance += np.where(own, 0.0, root @ root.T) / self.n_samples
        covariance += np.cov(means, rowvar=False, bias=True)
        return state.target.original(means.mean(axis=0)), covariance * state.target.unit**2


class _Local:
    """The blocks of a state, ready to predict with a number of draws."""

    def __init__(self, state: State, n_samples: int) -> None:
        self._state = state
        if n_samples not in state.local_cache:
            draws = quasi_normal(n_samples, state.parameters.U.shape[1] + 1, state.seed)
            predictor = BlockPredictor(
                state.model, state.parameters, state.prior, state.noise, state.q, draws
            )
            state.local_cache[n_samples] = predictor, FactorCache(_CACHE_BYTES)
        self._predictor, self._cache = state.local_cache[n_samples]

    def labels(self, X: Array) -> Array:
        blocks = self._state.blocks
        return blocks.partition.lookup(self._state.model.coordinates.scaled(X) * blocks.unit)

    def moments(
        self, X: Array, block: int, include_noise: bool, *, full: bool
    ) -> tuple[Array, Array, list[Array]]:
        """Moments of rows X of one block, see BlockPredictor."""
        state = self._state
        scaled = state.model.coordinates.scaled
        rows = Rows(scaled(state.blocks.X[block]), state.target.scaled(state.blocks.y[block]))
        return self._predictor.moments(
            scaled(X), rows, self._factors(block, rows), include_noise=include_noise, full=full
        )

    def _factors(self, block: int, rows: Rows) -> BlockFactors:
        factors = self._cache.get(block)
        if factors is None:
            factors = self._predictor.factors(rows)
            self._cache.put(block, factors)
        return factors
