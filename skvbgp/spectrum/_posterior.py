r"""Proposition 1 of [Hoang2017]_, averaged over draws of alpha (Sec. 4.2).

    mu(alpha) = gamma phi' s + (1 - gamma) phi' Gamma_k^-1 Phi_k y_k,
    sigma^2(alpha) = (1 - gamma^2) noise phi' Gamma_k^-1 phi,

with the noise of the local conditional in Gamma_k. A row's nearest rows may take the place of its
block k. The mean is the average of mu, the variance that of sigma^2 plus the variance of mu.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.blockwise import BLOCK_ROWS, moments_by_block
from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture, average_moments
from skvbgp._core.order import Index, thin
from skvbgp._core.partition import balanced_partition, cut_by_block, group_rows
from skvbgp.base import Relevance, Targets, find_known
from skvbgp.spectrum._block_model import SharedRows
from skvbgp.spectrum._features import feature_slopes, features
from skvbgp.spectrum._gaussian import Gaussian
from skvbgp.spectrum._neighbours import Local, Neighbours
from skvbgp.spectrum._paths import Design, FunctionDraws, count_draws, draw_paths
from skvbgp.spectrum._rows import BlockedRows, Rows
from skvbgp.spectrum._state import Hyperparameters, State

#: Rows of one task that have neighbours of their own, and those where there are enough tasks for
#: many threads: near rows have more in common, the more of them there are.
#: A group may not be cut, as its neighbours are those of all its rows.
_TILE_ROWS, _LARGE_TILE, _MANY_TASKS = 256, BLOCK_ROWS, 16
#: Known rows that say how much of the variance is between draws of alpha.
_SHARE_ROWS = 64

#: The group (n,) of each of some rows, and what a group is conditioned on.
Grouping = tuple[Index, Callable[[int], Local]]


class SpectrumPosterior:
    """What a state says about new rows, by ``n_samples`` draws of alpha.

    The share of the global model is ``gamma``. Each new row is conditioned on ``n_neighbors`` known
    ones, None are those of its block; of ``n_jobs`` workers, each takes blocks, or new rows.
    """

    def __init__(
        self,
        state: State,
        gamma: float,
        n_samples: int,
        n_neighbors: int | None,
        n_jobs: int | None,
    ) -> None:
        self._state, self._n_neighbors, self._n_jobs = state, n_neighbors, n_jobs
        structure = state.q.structure
        z = np.random.RandomState(state.seed).standard_normal((n_samples, structure.size))
        self._mixture = Mixture(_draw(state.q, z), gamma, state.hyper)

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        X = self._state.coordinates.scaled(X)
        return self._in_units(self.by_group(_marginal_moments, X), include_noise)

    def distribution(self, X: Array, include_noise: bool) -> NormalMixture:
        """One component for each draw of alpha."""
        X = self._state.coordinates.scaled(X)
        moments = self._in_units(self.by_group(_components, X), include_noise)
        return NormalMixture.of_moments(*moments)

    def by_group(
        self,
        function: Callable[..., tuple[Array, ...]],
        X: Array,
        shared: tuple[Any, ...] = (),
        own: Callable[[Local], tuple[Any, ...]] = lambda local: (),
        groups: Grouping | None = None,
    ) -> tuple[Array, ...]:
        """What ``function(mixture, *shared, X, local, *own(local))`` makes of scaled rows."""
        size = _LARGE_TILE if len(X) >= _MANY_TASKS * _LARGE_TILE else _TILE_ROWS
        labels, local = groups or self._group(X, size)

        def data_of(group: int) -> tuple[Any, ...]:
            known = local(group)
            return known, *own(known)

        shared = (self._mixture, *shared)
        return moments_by_block(function, X, labels, data_of, shared=shared, n_jobs=self._n_jobs)

    def _in_units(self, moments: tuple[Array, ...], include_noise: bool) -> tuple[Array, Array]:
        mean, variance = moments
        if include_noise:
            variance = variance + self._noise_variance
        return self._state.target.unscaled(mean, variance)

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        """Mean and covariance of all rows.

        Given alpha, blocks are independent, but not rows with neighbours of their own.
        """
        X = self._state.coordinates.scaled(X)
        means, covariance = np.empty((len(self._mixture.draws), len(X))), np.zeros((len(X),) * 2)
        labels, local = self._group(X, len(X))
        for group, rows in cut_by_block(labels, len(X)):
            means[:, rows], within = self._mixture.moments(X[rows], local(group), full=True)
            covariance[np.ix_(rows, rows)] = within
        mean = means.mean(axis=0)
        deviation = means - mean
        covariance = covariance + deviation.T @ deviation / len(means)
        if include_noise:
            covariance.flat[:: len(X) + 1] += self._noise_variance
        return self._state.target.unscaled(mean, covariance)

    def _group(self, X: Array, size: int) -> Grouping:
        """Groups of rows X to predict at a time: one of each, and what a group is conditioned on.

        Those with neighbours of their own come in groups of ``size`` rows, near ones together,
        which share neighbours.
        """
        rows, k = self._state.rows, self._n_neighbors
        assert isinstance(rows, BlockedRows)
        if k is None or self._mixture.is_global:
            starts = rows.starts
            return rows.lookup(X), lambda group: SharedRows(
                rows.block(group), slice(starts[group], starts[group + 1])
            )
        if k >= rows.n:
            return np.zeros(len(X), dtype=np.intp), lambda group: SharedRows(rows.all_rows)
        n_groups, neighbourhoods = -(-len(X) // size), rows.neighbourhoods
        _, labels = balanced_partition(X, n_groups, _find_widest)
        members = group_rows(labels, n_groups)

        def local(group: int) -> Neighbours:
            return Neighbours.of(rows.all_rows, neighbourhoods.find(X[members[group]], k))

        return labels, local

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d) of the derivatives, as long as the neighbours are the same."""
        coordinates = self._state.coordinates
        mean, variance = self.by_group(_slope_moments, coordinates.scaled(X))
        return self._state.target.unscaled_slopes(mean, variance, coordinates.scale)

    @property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs in the variation of predictions, and of each draw's."""
        rows = self._state.rows
        known = rows.take(np.arange(rows.n)[Relevance.choose_rows(rows.n)])
        (each,) = self.by_group(_slopes_by_draw, known.X)
        each = np.swapaxes(each, 0, 1)  # (S, n, d)

        def predict(X: Array) -> Array:
            means = self.by_group(_components, X)[0].T
            return np.vstack([means.mean(axis=0), means])

        slopes, owners = (each.mean(axis=0), each), self._state.hyper.owners
        return Relevance.of_slopes(known.X, known.counts, *slopes, owners=owners, predict=predict)

    def draw_functions(self, n: int, rng: np.random.RandomState) -> FunctionDraws:
        state, q = self._state, self._state.q
        frames = state.coordinates, state.target
        if self._mixture.is_global:  # functions differ in alpha alone, each has its own
            draws = _draw(q, rng.standard_normal((n, q.structure.size)))
            return FunctionDraws(*frames, self, draw_paths(draws, n, self._mixture.hyper, rng))
        rows = self._find_rows("sample_function")
        draws, n_draws = self._mixture.draws, 1
        if n > 1 and len(draws) > 1:
            n_draws = count_draws(n, len(draws), self._measure_between(rows))
        draws = [draws[k] for k in rng.permutation(len(draws))[:n_draws]]
        paths = draw_paths(draws, n, self._mixture.hyper, rng)
        return FunctionDraws(*frames, self, paths, rng.standard_normal((rows.n, n)))

    def _find_rows(self, asked: str) -> BlockedRows:
        """The known rows, for what is asked of rows in memory alone."""
        rows = self._state.rows
        if not isinstance(rows, BlockedRows):
            raise TypeError(f"{asked} needs a model of rows in memory, not of a Dask collection.")
        return rows

    def _measure_between(self, rows: BlockedRows) -> float:
        """Share of the variance of known rows, left out, that is between draws of alpha.

        Their average, over some of the rows.
        """
        index = np.arange(rows.n)[thin(rows.n, _SHARE_ROWS)]
        groups, X = self._group_known(rows, index), rows.all_rows.X[index]
        means, variances = self.by_group(_components, X, groups=groups)
        between = means.var(axis=1)
        return float(np.mean(between / (between + variances.mean(axis=1))))

    def leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
        """Mean and variance (n,) of observations at known rows, each given the others and q."""
        state, rows = self._state, self._find_rows("loo_predict")
        if self._mixture.gamma != 0.0:
            raise ValueError(
                f"loo_predict needs gamma=0; with gamma={self._mixture.gamma}, predictions are "
                "made of the global function as well, of which no row can be taken away."
            )
        known, given = rows.all_rows, Rows.of(X, targets).scaled(state.coordinates, state.target)
        index = find_known(given.X, given.as_targets(), known.X, known.as_targets())
        groups = self._group_known(rows, index)
        moments = self.by_group(_marginal_moments, known.X[index], groups=groups)
        return self._in_units(moments, include_noise=True)

    def _group_known(self, rows: BlockedRows, index: Index) -> Grouping:
        """`_group` of known rows, each conditioned on others than itself."""
        known, k = rows.all_rows, self._n_neighbors
        starts = rows.starts
        groups = cut_by_block(np.searchsorted(starts[1:], index, side="right"), _TILE_ROWS)
        labels = np.empty(len(index), dtype=np.intp)
        for group, (_, members) in enumerate(groups):
            labels[members] = group

        def local(group: int) -> Neighbours:
            block, members = groups[group]
            own = index[members]
            if k is None:
                every = np.arange(starts[block], starts[block + 1])
                near = np.array([every[every != i] for i in own])
            else:
                near = rows.neighbourhoods.find_others(known.X[own], own, min(k, rows.n - 1))
            return Neighbours.of(known, near)

        return labels, local

    @property
    def _noise_variance(self) -> float:
        """Noise of an observation around mu: that of the model at each end of gamma."""
        share, hyper = self._mixture.gamma**2, self._state.hyper
        return share * hyper.noise_variance + (1.0 - share) * hyper.local_noise_variance


def _find_widest(X: Array, n_before: int) -> Array:
    """The axis (d,) along which rows spread most."""
    return np.eye(X.shape[1])[np.argmax(np.ptp(X, axis=0))]


def _draw(q: Gaussian, z: Array) -> list[tuple[Array, Array]]:
    """Frequencies and weights for each line of standard normal z."""
    structure = q.structure
    return [(structure.frequencies(alpha), alpha[structure.weights]) for alpha in q.sample(z)]


class Mixture(NamedTuple):
    """Draws of alpha, whose predictions are averaged, and what else these need besides rows."""

    draws: list[tuple[Array, Array]]  # S of frequencies R and weights s
    gamma: float
    hyper: Hyperparameters

    @property
    def is_global(self) -> bool:
        """Whether known rows do not matter."""
        return self.gamma == 1.0

    def moments(
        self, X: Array, local: Local, *, full: bool, design: Design = features
    ) -> tuple[Array, Array]:
        """Rows X given each draw: means (S, n) and variances (S, n).

        With ``full``, the average over draws of the covariance, (n, n), in their place. With
        `feature_slopes` for a design, that of the derivatives, (S, n d).
        """
        gamma = self.gamma
        n = X.size if design is feature_slopes else len(X)
        means = np.empty((len(self.draws), n))
        within, lines = np.zeros((n, n) if full else means.shape), partial(design, X)
        if self.is_global:
            means[:] = [lines(R) @ s for R, s in self.draws]
            return means, within
        conditioned = local.condition(lines, [R for R, _ in self.draws], self.hyper, full=full)
        for k, ((_, s), (Phi, mean, given)) in enumerate(zip(self.draws, conditioned, strict=True)):
            means[k] = gamma * (Phi @ s) + (1.0 - gamma) * mean
            given = (1.0 - gamma**2) * given
            within[slice(None) if full else k] += given / (len(self.draws) if full else 1)
        return means, within


def _marginal_moments(mixture: Mixture, X: Array, local: Local) -> tuple[Array, Array]:
    """Mean and variance of the scaled function at rows of one group, each (n,)."""
    return average_moments(*mixture.moments(X, local, full=False))


def _components(mixture: Mixture, X: Array, local: Local) -> tuple[Array, Array]:
    """The same given each draw of alpha, (n, S)."""
    means, variances = mixture.moments(X, local, full=False)
    return means.T, variances.T


def _slopes_by_draw(mixture: Mixture, X: Array, local: Local) -> tuple[Array]:
    """Derivatives of the mean given each draw of alpha, (n, S, d)."""
    means, _ = mixture.moments(X, local, full=False, design=feature_slopes)
    return (np.swapaxes(means.reshape(-1, *X.shape), 0, 1),)


def _slope_moments(mixture: Mixture, X: Array, local: Local) -> tuple[Array, Array]:
    """Mean and variance of the derivatives, each (n, d)."""
    moments = mixture.moments(X, local, full=False, design=feature_slopes)
    mean, variance = average_moments(*moments)
    return mean.reshape(X.shape), variance.reshape(X.shape)
