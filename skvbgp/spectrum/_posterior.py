r"""Proposition 1 of [Hoang2017]_, averaged over draws of alpha (Sec. 4.2).

    mu(alpha) = gamma phi' s + (1 - gamma) phi' Gamma_k^-1 Phi_k y_k,
    sigma^2(alpha) = (1 - gamma^2) noise phi' Gamma_k^-1 phi,

with the noise of the local conditional in Gamma_k. The mean is the average of mu, the variance
that of sigma^2 plus the variance of mu.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skvbgp._core.blockwise import moments_by_block
from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture
from skvbgp._core.partition import rows_by_block
from skvbgp.spectrum._block_model import BlockModel
from skvbgp.spectrum._features import features
from skvbgp.spectrum._state import Hyperparameters, State


class SpectrumPosterior:
    """What a state says about new rows.

    Parameters
    ----------
    state : State
    gamma : float
        Share of the global model.
    n_samples : int
        Draws of alpha.
    n_jobs : int or None
        Workers, which take blocks.
    """

    def __init__(self, state: State, gamma: float, n_samples: int, n_jobs: int | None) -> None:
        self._state, self._n_jobs = state, n_jobs
        structure = state.q.structure
        z = np.random.RandomState(state.seed).standard_normal((n_samples, structure.size))
        draws = [
            (structure.frequencies(alpha), alpha[structure.weights]) for alpha in state.q.sample(z)
        ]
        self._mixture = _Mixture(draws, gamma, state.hyper)

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Mean and variance of each row, block by block."""
        return self._by_block(_marginal_moments, X, include_noise)

    def distribution(self, X: Array, include_noise: bool) -> NormalMixture:
        """One component for each draw of alpha."""
        return NormalMixture.of_moments(*self._by_block(_components, X, include_noise))

    def _by_block(
        self, function: Callable[..., tuple[Array, Array]], X: Array, include_noise: bool
    ) -> tuple[Array, Array]:
        X, rows = self._state.coordinates.scaled(X), self._state.rows
        mean, variance = moments_by_block(
            function,
            X,
            rows.lookup(X),
            rows.block,
            shared=(self._mixture,),
            n_jobs=self._n_jobs,
        )
        if include_noise:
            variance = variance + self._noise_variance
        return self._state.target.original(mean), variance * self._state.target.unit**2

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Mean and covariance of all rows; given alpha, blocks are independent."""
        X, data = self._state.coordinates.scaled(X), self._state.rows
        means, covariance = np.empty((len(self._mixture.draws), len(X))), np.zeros((len(X),) * 2)
        for k, rows in rows_by_block(data.lookup(X), len(X)):
            means[:, rows], within = self._mixture.moments(X[rows], *data.block(k), full=True)
            covariance[np.ix_(rows, rows)] = within
        mean = means.mean(axis=0)
        deviation = means - mean
        covariance = covariance + deviation.T @ deviation / len(means)
        if include_noise:
            covariance.flat[:: len(X) + 1] += self._noise_variance
        return self._state.target.original(mean), covariance * self._state.target.unit**2

    @property
    def _noise_variance(self) -> float:
        """Noise of an observation around mu: that of the model at each end of gamma."""
        share, hyper = self._mixture.gamma**2, self._state.hyper
        return share * hyper.noise_variance + (1.0 - share) * hyper.local_noise_variance


class _Mixture(NamedTuple):
    """What the predictions of any block need besides the block."""

    draws: list[tuple[Array, Array]]  # S of frequencies R and weights s
    gamma: float
    hyper: Hyperparameters

    def moments(
        self, X: Array, X_block: Array, y_block: Array, *, full: bool
    ) -> tuple[Array, Array]:
        """Rows X of a block, given each draw: means (S, n) and variances (S, n).

        With ``full``, the average over draws of the covariance, (n, n), in their place.
        """
        hyper, gamma = self.hyper, self.gamma
        means = np.empty((len(self.draws), len(X)))
        within = np.zeros((len(X), len(X)) if full else means.shape)
        for k, (R, s) in enumerate(self.draws):
            Phi = features(X, R)
            means[k] = gamma * (Phi @ s)
            if gamma**2 == 1.0 and gamma > 0.0:
                continue
            block = BlockModel(
                features(X_block, R), y_block, hyper.signal_variance, hyper.local_noise_variance
            )
            means[k] += (1.0 - gamma) * block.mean(Phi)
            given = (1.0 - gamma**2) * block.covariance(Phi, full=full)
            within[slice(None) if full else k] += given / (len(self.draws) if full else 1)
        return means, within


def _marginal_moments(
    mixture: _Mixture, X: Array, X_block: Array, y_block: Array
) -> tuple[Array, Array]:
    """Mean and variance of the scaled function at rows of one block, each (n,)."""
    means, variances = mixture.moments(X, X_block, y_block, full=False)
    return means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)


def _components(mixture: _Mixture, X: Array, X_block: Array, y_block: Array) -> tuple[Array, Array]:
    """The same given each draw of alpha, (n, S)."""
    means, variances = mixture.moments(X, X_block, y_block, full=False)
    return means.T, variances.T
