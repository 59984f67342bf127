"""VBPIC: predictions that condition on the data of the new row's own block."""

from __future__ import annotations

import numpy as np

from skvbgp._core.blockwise import moments_by_block
from skvbgp._core.linalg import Array
from skvbgp._core.partition import rows_by_block
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
    With ``include_noise=False`` it is that of the latent function alone, whose standard
    deviation may be larger: rows of the block tell the sum of the two better than either.
    """,
    default_noise_kernel="a squared exponential with one length scale per input",
    blocks=True,
)
class VBPICRegressor(BlockRegressor):
    _keeps_data = True

    def _moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        state = self._state
        if state.exact is not None:
            return super()._moments(X, include_noise)
        local = _Local(state, self.n_samples)
        blocks = state.blocks
        mean, variance = moments_by_block(
            _marginal_moments,
            X,
            local.labels(X),
            lambda block: (block, blocks.X[block], blocks.y[block]),
            shared=(local, include_noise),
        )
        return state.target.original(mean), variance * state.target.unit**2

    def _joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        state = self._state
        if state.exact is not None:
            return super()._joint(X, include_noise)
        local = _Local(state, self.n_samples)
        labels = local.labels(X)
        n, m = len(X), len(state.parameters.U)
        means = np.empty((self.n_samples, n))
        coefficients = np.empty((self.n_samples, n, m))
        covariance = np.zeros((n, n))
        for block, rows in rows_by_block(labels, n):
            means[:, rows], within, b = local.moments(
                block, X[rows], state.blocks.X[block], state.blocks.y[block],
                include_noise=include_noise, full=True,
            )  # fmt: skip
            covariance[np.ix_(rows, rows)] = within
            coefficients[:, rows] = b
        own = labels[:, None] == labels
        for b in coefficients:  # rows of different blocks share u alone
            root = b @ state.q.precision_factor_inv.T
            covariance += np.where(own, 0.0, root @ root.T) / self.n_samples
        covariance += np.cov(means, rowvar=False, bias=True)
        return state.target.original(means.mean(axis=0)), covariance * state.target.unit**2


def _marginal_moments(
    local: _Local, include_noise: bool, X: Array, block: int, X_block: Array, y_block: Array
) -> tuple[Array, Array]:
    """Mean and variance of scaled observations of rows of one block, each (n,)."""
    means, within, _ = local.moments(
        block, X, X_block, y_block, include_noise=include_noise, full=False
    )
    return means.mean(axis=0), np.maximum(within, 0.0) + means.var(axis=0)


class _Local:
    """A state without its blocks, ready to predict in any of them with a number of draws."""

    def __init__(self, state: State, n_samples: int) -> None:
        if n_samples not in state.local_cache:
            draws = quasi_normal(n_samples, state.parameters.U.shape[1] + 1, state.seed)
            predictor = BlockPredictor(
                state.model, state.parameters, state.prior, state.noise, state.q, draws
            )
            state.local_cache[n_samples] = predictor, FactorCache(_CACHE_BYTES)
        self._predictor, self._cache = state.local_cache[n_samples]
        self._coordinates, self._target = state.model.coordinates, state.target
        self._partition, self._unit = state.blocks.partition, state.blocks.unit

    def labels(self, X: Array) -> Array:
        return self._partition.lookup(self._coordinates.scaled(X) * self._unit)

    def moments(
        self,
        block: int,
        X: Array,
        X_block: Array,
        y_block: Array,
        *,
        include_noise: bool,
        full: bool,
    ) -> tuple[Array, Array, list[Array]]:
        """Moments of rows X of a block with the given data, see BlockPredictor."""
        scaled = self._coordinates.scaled
        rows = Rows(scaled(X_block), self._target.scaled(y_block))
        return self._predictor.moments(
            scaled(X), rows, self._factors(block, rows), include_noise=include_noise, full=full
        )

    def _factors(self, block: int, rows: Rows) -> BlockFactors:
        factors = self._cache.get(block)
        if factors is None:
            factors = self._predictor.factors(rows)
            self._cache.put(block, factors)
        return factors
