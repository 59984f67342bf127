"""Draws of the function, by pathwise conditioning.

A draw g of the prior, from random features, and draws e of the rows' noise become a draw of the
posterior by the correction that the rows ask for,

    f(x) = g(x) + k(x, X) C^-1 (y - g(X) - e).

See :doc:`/theory/gp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import single_blas_thread, thread_map
from skvbgp.base import reading
from skvbgp.gp._coregion import Coregion
from skvbgp.gp._posterior import NeighbourPosterior
from skvbgp.gp._process import Process, predict_line
from skvbgp.kernels._features import Features, draw_features

#: Frequencies of all processes, and of one at least.
_ALL_FREQUENCIES, _LEAST_FREQUENCIES = 1024, 64
#: Rows of one task, from all rows and from neighbours.
_TILE_ROWS, _NEAR_ROWS = 1024, 64


@dataclass(frozen=True)
class JointFeatures:
    """Features of several outputs: every feature of the inputs times each of B^1/2 z."""

    features: Features
    coregion: Coregion

    def __call__(self, X: Array) -> Array:
        inputs, outputs = self.coregion.split(X)
        parts = outputs @ self.coregion.root
        return (self.features(inputs)[:, :, None] * parts[:, None, :]).reshape(len(X), -1)

    def gradient(self, x: Array) -> Array:
        """Derivatives (F, d + t) of the features at one row x, zero in its indicator."""
        inputs, output = self.coregion.split(x)
        slopes = self.features.gradient(inputs)[:, None, :] * (output @ self.coregion.root)[:, None]
        slopes = slopes.reshape(-1, len(inputs))
        return np.hstack([slopes, np.zeros((len(slopes), len(output)))])


def draw_process_features(
    process: Process, d: int, m: int, rng: np.random.RandomState
) -> Features | JointFeatures:
    """Features of a process of d columns, with m random frequencies for each of its terms."""
    coregion = process.coregion
    if coregion is None:
        return draw_features(process.kernel, d, m, rng)
    return JointFeatures(draw_features(process.kernel, d - coregion.t, m, rng), coregion)


@dataclass(frozen=True)
class PriorDraws:
    """Draws of a process a priori: features, and the weights (F, S) of each of S draws."""

    features: Features | JointFeatures
    weights: Array

    def at(self, X: Array) -> Array:
        """Values (n, S) at scaled rows."""
        tiles = [(X[i : i + _TILE_ROWS],) for i in range(0, len(X), _TILE_ROWS)]
        parts = thread_map(lambda tile: self.features(tile) @ self.weights, tiles)
        return np.concatenate(parts)


@dataclass(frozen=True)
class FunctionDraws:
    """Functions from the posterior of a regressor, as ``sample_function`` draws them.

    Calling it with rows X of shape (n_samples, n_features) gives the values of all functions,
    (n_samples, n), on the scale of y. Each is the same function in every call.
    """

    posterior: NeighbourPosterior
    priors: tuple[PriorDraws, ...]  # by process
    normal: Array  # (n_known, S), of the noise of the known rows
    level: Array  # (S,), where between 0 and 1 each function is in the belief in the processes

    @classmethod
    def draw(
        cls, posterior: NeighbourPosterior, n: int, rng: np.random.RandomState
    ) -> FunctionDraws:
        """Functions n, which differ from another process to process as well."""
        processes, d = posterior.mixture.processes, posterior.rows.X.shape[1]
        m = max(_ALL_FREQUENCIES // len(processes), _LEAST_FREQUENCIES)
        priors = []
        for process in processes:
            features = draw_process_features(process, d, m, rng)
            size = features(np.zeros((1, d))).shape[1]
            priors.append(PriorDraws(features, rng.standard_normal((size, n))))
        normal = rng.standard_normal((len(posterior.rows), n))
        level = (rng.permutation(n) + rng.uniform(size=n)) / n  # as often as it is believed
        return cls(posterior, tuple(priors), normal, level)

    def __call__(self, X: Any) -> Array:
        X, posterior = self._check(X), self.posterior
        with single_blas_thread:
            self._known  # noqa: B018  before the threads need it
            if posterior.is_exact:
                tiles = [(X[i : i + _TILE_ROWS],) for i in range(0, len(X), _TILE_ROWS)]
                parts = thread_map(self._from_all_rows, tiles)
            else:
                near, step = posterior.find(X), _NEAR_ROWS
                pairs = [(X[i : i + step], near[i : i + step]) for i in range(0, len(X), step)]
                parts = thread_map(self._from_neighbours, pairs)
        return posterior.target.original(np.concatenate(parts))

    def gradient(self, X: Any) -> Array:
        """Derivatives of all functions at rows X, (n_samples, n_features, n).

        In units of y over those of each input. The belief in the processes is constant as long
        as the neighbours are the same.
        """
        X, posterior = self._check(X), self.posterior
        with single_blas_thread:
            self._known  # noqa: B018  before the threads need it
            scaled = posterior.coordinates.scaled(X)
            if posterior.is_exact:
                _ = posterior.conditionals, self._corrections
                tasks = [(x, None) for x in scaled]
            else:
                tasks = list(zip(scaled, posterior.find(X), strict=True))
            slopes = thread_map(self._measure_slopes, tasks)
        return np.array(slopes) * (posterior.target.unit / posterior.coordinates.scale[:, None])

    def _check(self, X: Any) -> Array:
        with reading(X):
            X = check_array(X, dtype=np.float64)
        d = self.posterior.rows.X.shape[1]
        if X.shape[1] != d:
            raise ValueError(f"X has {X.shape[1]} features, but the functions have {d}.")
        return np.asarray(X)

    def _measure_slopes(self, x: Array, nearest: Index | None) -> Array:
        """Derivatives (d, S) at a scaled row, given all known rows or its nearest ones."""
        posterior, mixture = self.posterior, self.posterior.mixture
        if nearest is None:
            given, corrections = posterior.conditionals, self._corrections
        else:
            given = posterior.condition_near(nearest)
            corrections = [
                one.L_inv.T @ (one.L_inv @ known[nearest[::-1]])
                for one, known in zip(given, self._known, strict=True)
            ]
        belief = mixture.weigh_place(given)
        owners = self._choose(belief)
        slopes = [one.process.covariance.gradient(x, one.X).T for one in given]  # (d, n) each
        means = np.array([part @ one.weights for part, one in zip(slopes, given, strict=True)])
        mean, factor = belief @ means, np.sqrt(mixture.calibration)
        values = np.empty((len(x), len(owners)))
        for c in np.unique(owners):
            mine = owners == c
            prior = self.priors[c].features.gradient(x).T @ self.priors[c].weights[:, mine]
            deviation = np.sqrt(given[c].spread) * (prior - slopes[c] @ corrections[c][:, mine])
            values[:, mine] = mean[:, None] + factor * ((means[c] - mean)[:, None] + deviation)
        return values

    @cached_property
    def _known(self) -> list[Array]:
        """By process: what the correction is of, g + e at the known rows, (n_known, S)."""
        posterior = self.posterior
        X = posterior.coordinates.scaled(posterior.rows.X)
        noises = [process.spread_noise(posterior.noise) for process in posterior.mixture.processes]
        return [
            prior.at(X) + np.sqrt(np.broadcast_to(noise, len(X)))[:, None] * self.normal
            for prior, noise in zip(self.priors, noises, strict=True)
        ]

    @cached_property
    def _corrections(self) -> list[Array]:
        """By process: C^-1 (g + e), (n_known, S), where all rows are neighbours."""
        return [
            given.L_inv.T @ (given.L_inv @ known)
            for given, known in zip(self.posterior.conditionals, self._known, strict=True)
        ]

    def _from_all_rows(self, X: Array) -> Array:
        scaled = self.posterior.coordinates.scaled(X)
        given = self.posterior.conditionals
        owners = self._choose(self.posterior.mixture.weigh_place(given))
        values = np.empty((len(X), len(self.level)))
        for c in np.unique(owners):
            mine, one = owners == c, given[c]
            k = one.process.covariance(scaled, one.X)
            prior = self.priors[c].features(scaled) @ self.priors[c].weights[:, mine]
            deviation = np.sqrt(one.spread) * (prior - k @ self._corrections[c][:, mine])
            values[:, mine] = (k @ one.weights)[:, None] + deviation
        return values

    def _from_neighbours(self, X: Array, near: Index) -> Array:
        posterior, mixture = self.posterior, self.posterior.mixture
        scaled = posterior.coordinates.scaled(X)
        priors = [prior.features(scaled) @ prior.weights for prior in self.priors]
        places = posterior.known.visit(mixture.processes, X, near)
        values = np.empty((len(X), len(self.level)))
        for i, (index, K, y, noise) in enumerate(places):
            lines, deviations = [], []
            for process, known, prior in zip(mixture.processes, self._known, priors, strict=True):
                line, bordered = predict_line(process, y, K[process.covariance], noise)
                lines.append(line)
                carried = bordered.weigh_rows() @ known[index]
                deviations.append(np.sqrt(line[2] / process.noise) * (prior[i] - carried))
            means, _, _, evidence = np.array(lines).T
            belief = mixture.weigh(evidence[None])[0]
            owners = self._choose(belief)
            mean, factor = belief @ means, np.sqrt(mixture.calibration)
            own = np.array(deviations)[owners, np.arange(len(owners))]
            values[i] = mean + factor * (means[owners] - mean + own)
        return values

    def _choose(self, belief: Array) -> Index:
        """The process of each function, (S,), by the belief (C,) in them."""
        shares = np.cumsum(belief)
        return np.searchsorted(shares[:-1], self.level).astype(np.intp)
