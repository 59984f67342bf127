r"""Proposition 1 of [Hoang2017]_, averaged over draws of alpha (Sec. 4.2).

    mu(alpha) = gamma phi' s + (1 - gamma) phi' Gamma_k^-1 Phi_k y_k,
    sigma^2(alpha) = (1 - gamma^2) noise phi' Gamma_k^-1 phi,

with the noise of the local conditional in Gamma_k. The mean is the average of mu, the variance
that of sigma^2 plus the variance of mu.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.blockwise import moments_by_block
from skvbgp._core.linalg import Array
from skvbgp._core.partition import rows_by_block
from skvbgp.spectrum._features import features
from skvbgp.spectrum._local import LocalConditional
from skvbgp.spectrum._state import Hyperparameters, State


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
        self._state = state
        structure = state.q.structure
        z = np.random.RandomState(state.seed).standard_normal((n_samples, structure.size))
        draws = [
            (structure.frequencies(alpha), alpha[structure.weights]) for alpha in state.q.sample(z)
        ]
        self._local = _Local(draws, gamma, state.hyper)

    @property
    def noise_variance(self) -> float:
        """Noise of an observation around mu: that of the model at each end of gamma."""
        share = self._local.gamma**2
        hyper = self._state.hyper
        return share * hyper.noise_variance + (1.0 - share) * hyper.local_noise_variance

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of the latent function at scaled rows, each (n,)."""
        blocks = self._state.blocks
        return moments_by_block(
            _marginal_moments, X, blocks.lookup(X), blocks.rows, shared=(self._local,)
        )

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) and covariance (n, n); given alpha, blocks are independent."""
        means, covariance = np.empty((len(self._local.draws), len(X))), np.zeros((len(X),) * 2)
        labels = self._state.blocks.lookup(X)
        for block, rows in rows_by_block(labels, len(X)):
            data = self._state.blocks.rows(block)
            means[:, rows], within = self._local.conditional(X[rows], *data, full=True)
            covariance[np.ix_(rows, rows)] = within
        deviation = means - means.mean(axis=0)
        return means.mean(axis=0), covariance + deviation.T @ deviation / len(means)


class _Local(NamedTuple):
    """What the conditional of any block needs besides the block."""

    draws: list[tuple[Array, Array]]  # S of frequencies R and weights s
    gamma: float
    hyper: Hyperparameters

    def conditional(self, X: Array, X_block: Array, y_block: Array, *, full: bool) -> Conditional:
        """Moments of rows X of a block with the given data."""
        hyper, gamma = self.hyper, self.gamma
        means = np.empty((len(self.draws), len(X)))
        within = np.zeros((len(X),) * (2 if full else 1))
        for k, (R, s) in enumerate(self.draws):
            Phi = features(X, R)
            means[k] = gamma * (Phi @ s)
            if gamma**2 == 1.0 and gamma > 0.0:
                continue
            local = LocalConditional(
                features(X_block, R), y_block, hyper.signal_variance, hyper.local_noise_variance
            )
            means[k] += (1.0 - gamma) * local.mean(Phi)
            within += (1.0 - gamma**2) * local.covariance(Phi, full=full)
        return Conditional(means, within / len(self.draws))


def _marginal_moments(
    local: _Local, X: Array, X_block: Array, y_block: Array
) -> tuple[Array, Array]:
    """Mean and variance of the scaled function at rows of one block, each (n,)."""
    means, within = local.conditional(X, X_block, y_block, full=False)
    return means.mean(axis=0), within + means.var(axis=0)
