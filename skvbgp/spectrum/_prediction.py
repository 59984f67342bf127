r"""Proposition 1 of [Hoang2017]_, averaged over draws of alpha (Sec. 4.2).

    mu(alpha) = gamma phi' s + (1 - gamma) phi' Gamma_k^-1 Phi_k y_k,
    sigma^2(alpha) = (1 - gamma^2) noise phi' Gamma_k^-1 phi,

with the noise of the local conditional in Gamma_k. The mean is the average of mu, the variance
that of sigma^2 plus the variance of mu.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import thread_map
from skvbgp.spectrum._features import features
from skvbgp.spectrum._local import LocalConditional
from skvbgp.spectrum._state import State

#: Rows of a block that are predicted at a time.
_TILE_ROWS = 512


class Conditional(NamedTuple):
    """Moments of rows given each draw, scaled."""

    means: Array  # (S, n)
    within: Array  # (n,) or (n, n): average over draws of the variance given the draw


class Predictor:
    """Predictions from one state.

    Parameters
    ----------
    state : State
    gamma : float
        Share of the global model.
    n_samples : int
        Draws of alpha.
    """

    def __init__(self, state: State, gamma: float, n_samples: int) -> None:
        self._state, self._gamma = state, gamma
        structure = state.q.structure
        z = np.random.RandomState(state.seed).standard_normal((n_samples, structure.size))
        self._draws = [
            (structure.frequencies(alpha), alpha[structure.weights]) for alpha in state.q.sample(z)
        ]

    @property
    def noise_variance(self) -> float:
        """Noise of an observation around mu: that of the model at each end of gamma."""
        share = self._gamma**2
        hyper = self._state.hyper
        return share * hyper.noise_variance + (1.0 - share) * hyper.local_noise_variance

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of the latent function at scaled rows, each (n,)."""
        groups = [
            (block, rows[start : start + _TILE_ROWS])
            for block, rows in self._by_block(X)
            for start in range(0, len(rows), _TILE_ROWS)
        ]
        parts = thread_map(
            lambda block, rows: self._conditional(X[rows], block, full=False), groups
        )
        mean, variance = np.empty(len(X)), np.empty(len(X))
        for (_, rows), (means, within) in zip(groups, parts, strict=True):
            mean[rows] = means.mean(axis=0)
            variance[rows] = within + means.var(axis=0)
        return mean, variance

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) and covariance (n, n); given alpha, blocks are independent."""
        means, covariance = np.empty((len(self._draws), len(X))), np.zeros((len(X),) * 2)
        for block, rows in self._by_block(X):
            means[:, rows], within = self._conditional(X[rows], block, full=True)
            covariance[np.ix_(rows, rows)] = within
        deviation = means - means.mean(axis=0)
        return means.mean(axis=0), covariance + deviation.T @ deviation / len(means)

    def _by_block(self, X: Array) -> list[tuple[int, NDArray[np.intp]]]:
        labels = self._state.blocks.lookup(X)
        order = np.argsort(labels, kind="stable")
        names, starts = np.unique(labels[order], return_index=True)
        return list(zip(names.tolist(), np.split(order, starts[1:]), strict=True))

    def _conditional(self, X: Array, block: int, *, full: bool) -> Conditional:
        hyper, gamma = self._state.hyper, self._gamma
        X_block, y_block = self._state.blocks.rows(block)
        means = np.empty((len(self._draws), len(X)))
        within = np.zeros((len(X),) * (2 if full else 1))
        for k, (R, s) in enumerate(self._draws):
            Phi = features(X, R)
            means[k] = gamma * (Phi @ s)
            if gamma**2 == 1.0 and gamma > 0.0:
                continue
            local = LocalConditional(
                features(X_block, R), y_block, hyper.signal_variance, hyper.local_noise_variance
            )
            means[k] += (1.0 - gamma) * local.mean(Phi)
            within += (1.0 - gamma**2) * local.covariance(Phi, full=full)
        return Conditional(means, within / len(self._draws))
