"""Draws of the function, by pathwise conditioning.

A draw g of the prior, from random features, and draws e of the rows' noise become a draw of the
posterior by the correction that the rows ask for,

    f(x) = g(x) + k(x, X) C^-1 (y - g(X) - e).

See :doc:`/theory/gp`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from skvbgp._core.block_cache import BlockCache
from skvbgp._core.blockwise import by_tile, in_tiles
from skvbgp._core.draws import choose_by_level, draw_levels
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, cut
from skvbgp._core.parallel import single_blas_thread, thread_map
from skvbgp.base import pick
from skvbgp.gp._mixture import LocalMoments
from skvbgp.gp._neighbours import predict_places
from skvbgp.gp._prior_draws import PriorDraws

if TYPE_CHECKING:
    from skvbgp.gp._posterior import NeighbourPosterior

#: Rows of one task, from neighbours.
_NEAR_ROWS = 256


@dataclass(frozen=True)
class FunctionDraws:
    """Functions from the posterior of one output.

    Calling it with rows X of shape (n_samples, n_features) gives the values of all functions,
    (n_samples, n), on the scale of y. Each is the same function in every call.
    """

    posterior: NeighbourPosterior
    priors: tuple[PriorDraws, ...]  # by process, of the functions that go by it somewhere
    members: tuple[Index, ...]  # which these are
    normal: Array  # (n_known, S), of the noise of the known rows
    level: Array  # (S,), where between 0 and 1 each function is in the belief in the processes

    @classmethod
    def draw(
        cls, posterior: NeighbourPosterior, n: int, rng: np.random.RandomState
    ) -> FunctionDraws:
        """Functions n, which differ from another process to process as well."""
        mixture, d = posterior.mixture, posterior.rows.X.shape[1]
        level = draw_levels(n, rng)  # as often as it is believed
        # by level, so that those of a set go by the same process nearly everywhere
        members = [np.argsort(level)] * len(mixture.processes)
        if posterior.is_uniform:
            with single_blas_thread:
                scales = [given.scale for given in posterior.conditionals]
                owners = choose_by_level(level, mixture.weigh_place(scales))
            members = [np.flatnonzero(owners == c) for c in range(len(mixture.processes))]
        among = sum(len(mine) > 0 for mine in members)
        priors = tuple(
            PriorDraws.draw(process, d, len(mine), rng, among)
            for process, mine in zip(mixture.processes, members, strict=True)
        )
        normal = rng.standard_normal((len(posterior.rows), n))
        return cls(posterior, priors, tuple(members), normal, level)

    def __call__(self, X: Array) -> Array:
        return self.posterior.target.original(self._map(FunctionDraws._evaluate, X))

    def gradient(self, X: Array) -> Array:
        """Derivatives of all functions at rows X, (n_samples, n_features, n).

        In units of y over those of each input. The belief in the processes is constant as long
        as the neighbours are the same.
        """
        unit = self.posterior.target.unit / self.posterior.coordinates.measure_units(X)
        return np.asarray(self._map(FunctionDraws._differentiate, X) * unit[:, :, None])

    def _map(self, measure: Callable[[FunctionDraws, Array], Array], X: Array) -> Array:
        """What a method says of rows X, by the same functions from what predicts each."""

        def measure_part(posterior: NeighbourPosterior, known: Any, X: Array) -> tuple[Array]:
            return (measure(self._restrict(posterior, known), X),)

        with single_blas_thread:
            self._known  # noqa: B018  before the threads need it
            return self.posterior.by_part(measure_part, X)[0]

    def _evaluate(self, X: Array) -> Array:
        """Scaled values (n, S) at rows X."""
        posterior = self.posterior
        if not posterior.is_exact:
            near = posterior.find(X)
            pairs = [(X[rows], near[rows]) for rows in cut(len(X), _NEAR_ROWS)]
            return np.concatenate(thread_map(self._from_neighbours, pairs))
        scaled, around = posterior.coordinates.scaled(X), posterior.find_near(X)
        _ = self._corrections  # before the threads need it

        def measure(rows: Index) -> tuple[Array]:
            return (self._from_all(scaled[rows], pick(around, rows)),)

        return in_tiles(measure, np.arange(len(scaled)))[0]

    def _differentiate(self, X: Array) -> Array:
        """Scaled derivatives (n, d, S)."""
        scaled, near = self.posterior.coordinates.scaled(X), self.posterior.find_near(X)
        if self.posterior.is_exact:
            _ = self._corrections
        tasks = [(x, pick(near, i)) for i, x in enumerate(scaled)]
        return np.array(thread_map(self._measure_slopes, tasks))

    def _restrict(self, posterior: NeighbourPosterior, known: Any) -> FunctionDraws:
        """The same functions where a posterior of some known rows says what they are.

        What these correct everywhere is kept for the next call.
        """
        if posterior is self.posterior:
            return self
        key = known.tobytes() if posterior.is_exact else None
        kept = None if key is None else self._parts.get(key)
        if kept is not None:
            return kept
        draws = replace(self, posterior=posterior)
        vars(draws)["_known"] = [[values[known] for values in sets] for sets in self._known]
        if key is not None:
            posterior.factorise_in_blocks()
            corrections = draws._corrections
            draws = replace(draws, posterior=posterior.without_factors())
            vars(draws)["_corrections"] = corrections
            self._parts.put(key, draws)
        return draws

    @cached_property
    def _parts(self) -> BlockCache[FunctionDraws]:
        """By the known rows of a part that all predict."""
        return BlockCache()

    @property
    def n_bytes(self) -> int:
        """What is kept of them where all rows are neighbours."""
        return sum(each.nbytes for each in self._corrections)

    def _measure_slopes(self, x: Array, near: Index | None) -> Array:
        """Derivatives (d, S) at a scaled row, from what is near to it (k,), nearest first."""
        posterior, mixture = self.posterior, self.posterior.mixture
        if posterior.is_exact:
            pairs, corrections = posterior.condition_on_all(near), self._corrections
        else:
            assert near is not None
            pairs = posterior.condition_on_near(near)
            corrections = [
                one.factor.solve(self._join_known(c, near[::-1]))
                for c, (one, _) in enumerate(pairs)
            ]
        given, scales = zip(*pairs, strict=True)
        belief = mixture.weigh_place(scales)
        owners = choose_by_level(self.level, belief)
        slopes = [one.process.covariance.gradient(x, one.X).T for one in given]  # (d, n) each
        means = np.array([part @ one.weights for part, one in zip(slopes, given, strict=True)])
        values = np.empty((len(x), len(owners)))
        for c in np.unique(owners):
            own = owners[self.members[c]] == c
            error = self.priors[c].gradient(x) - slopes[c] @ corrections[c]
            values[:, self.members[c][own]] = np.sqrt(scales[c].spread) * error[:, own]
        return self._spread_out(belief, means.T, owners, values)

    @cached_property
    def _known(self) -> list[list[Array]]:
        """By process and set of functions: what is corrected, g + e at the known rows, (n, s).

        An array for each set, as products with some columns of one would copy these.
        """
        posterior = self.posterior
        X = posterior.coordinates.scaled(posterior.rows.X)
        known = []
        for process, prior, own in zip(
            posterior.mixture.processes, self.priors, self.members, strict=True
        ):
            noise = np.broadcast_to(process.spread_noise(posterior.noise), len(X))
            std, normal = np.sqrt(noise)[:, None], self.normal[:, own]
            known.append(
                [
                    by_tile(functions, X) + std * normal[:, columns]
                    for functions, columns in zip(prior.sets, prior.columns, strict=True)
                ]
            )
        return known

    @cached_property
    def _corrections(self) -> list[Array]:
        """By process: C^-1 (g + e), (n_known, its own), where all rows are neighbours."""
        return [
            given.factor.solve(self._join_known(c, slice(None)))
            for c, given in enumerate(self.posterior.conditionals)
        ]

    def _join_known(self, c: int, rows: Index | slice) -> Array:
        """What is corrected at some known rows, of all functions of a process, (n, its own)."""
        none = np.empty((len(self.posterior.rows), 0))
        return np.hstack([values[rows] for values in (none, *self._known[c])])

    def _from_all(self, scaled: Array, near: Index | None) -> Array:
        """Values (n, S) at scaled rows, from all known ones, of which near ones (n, k) or all say
        the scale.
        """
        given, scales = zip(*self.posterior.condition_on_all(near), strict=True)
        mixture = self.posterior.mixture
        belief = mixture.weigh(np.column_stack([np.atleast_1d(one.evidence) for one in scales]))
        owners = choose_by_level(self.level, belief)  # (1, S), or (n, S) of each row
        values = np.empty((len(scaled), len(self.level)))
        means = np.zeros((len(given), len(scaled)))
        for c, (one, own) in enumerate(zip(given, self.members, strict=True)):
            if not len(own) and mixture.calibration == 1.0:
                continue  # then the mixture's mean does not matter
            k = one.process.covariance(scaled, one.X)
            means[c] = k @ one.weights
            wanted = np.broadcast_to(owners[:, own] == c, (len(scaled), len(own)))
            error, its = self.priors[c].evaluate(scaled, wanted), wanted.any(axis=0)
            if its.all():  # without copies
                error -= k @ self._corrections[c]
            else:
                error[:, its] -= k @ self._corrections[c][:, its]
            error *= np.sqrt(np.reshape(scales[c].spread, (-1, 1)))
            values[:, own] = np.where(wanted, error, values[:, own])
        return self._spread_out(belief, means.T, owners, values)

    def _from_neighbours(self, X: Array, near: Index) -> Array:
        posterior, mixture = self.posterior, self.posterior.mixture
        n, n_processes = len(X), len(mixture.processes)
        lines = np.empty((n, n_processes, 4))
        owners = np.empty((n, len(self.level)), dtype=np.intp)
        weights = np.empty((n_processes, *near.shape))  # C^-1 k, where functions go by a process
        for places, sets in posterior.known.visit(mixture.processes, X, near):
            given = [
                predict_places(process, sets.matrices[process.covariance], sets.y, sets.noise)
                for process in mixture.processes
            ]
            lines[places] = np.stack([line for line, _ in given], axis=1)
            belief = mixture.weigh(LocalMoments.of_lines(lines[places]).evidence)
            owners[places] = choose_by_level(self.level, belief)
            for c, (_, bordered) in enumerate(given):
                for i in np.flatnonzero((owners[places] == c).any(axis=1)).tolist():
                    weights[c, places.start + i] = bordered.solve_place(i)
        parts = LocalMoments.of_lines(lines)
        values, scaled = np.empty(owners.shape), posterior.coordinates.scaled(X)
        for c, (prior, known) in enumerate(zip(self.priors, self._known, strict=True)):
            own = self.members[c]
            wanted = owners[:, own] == c
            for s, columns, rows in prior.visit(wanted):
                entries = weights[c, rows].ravel(), near[rows, ::-1].ravel()
                ends = np.arange(0, entries[0].size + 1, near.shape[1])
                sparse = csr_array((*entries, ends), (len(rows), len(known[s])))
                error = prior.sets[s](scaled[rows]) - sparse @ known[s]
                at = np.ix_(rows, own[columns])
                values[at] = np.where(wanted[rows, columns], error, values[at])
        spread = parts.noise / np.array([process.noise for process in mixture.processes])
        values *= np.sqrt(np.take_along_axis(spread, owners, axis=1))
        return self._spread_out(mixture.weigh(parts.evidence), parts.mean, owners, values)

    def _spread_out(self, belief: Array, means: Array, owners: Index, values: Array) -> Array:
        """Functions (n, S) from their deviations from the means (n, C) of their processes.

        Calibrated as the mixture is, about its mean. Belief and owners are the same for all rows
        or those of each.
        """
        factor = np.sqrt(self.posterior.mixture.calibration)
        mean = np.sum(belief * means, axis=1)[:, None]
        own = np.take_along_axis(means, np.broadcast_to(owners, values.shape), axis=1)
        return np.asarray(mean + factor * ((own - mean) + values))
