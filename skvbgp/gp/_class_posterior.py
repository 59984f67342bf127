"""Class probabilities of new rows: those of several processes, averaged by the belief in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates
from skvbgp.base import in_tiles
from skvbgp.gp._class_process import (
    ClassConditional,
    ClassProcess,
    predict_classes_from_neighbours,
)
from skvbgp.gp._gaps import Gaps
from skvbgp.gp._near import NearRows
from skvbgp.gp._neighbours import Rows
from skvbgp.gp._training import draw_normal
from skvbgp.gp._votes import Votes, find_missing_share

#: Draws of what is missing, where training rows had no gaps.
_N_DRAWS = 16


@dataclass(frozen=True)
class ClassPosterior(NearRows):
    """A mixture given the rows; every place is predicted from the k nearest of them.

    Attributes
    ----------
    processes : tuple of ClassProcess
    belief : ndarray of shape (C,)
        Shares of the processes.
    rows : Rows
        X in the user's units, and the votes (n, K).
    class_weights : ndarray of shape (K,)
        Factors of the votes.
    """

    processes: tuple[ClassProcess, ...]
    belief: Array
    rows: Rows
    class_weights: Array
    coordinates: Coordinates
    weights: Array
    k: int
    n_jobs: int | None = None
    gaps: Gaps | None = None

    @cached_property
    def votes(self) -> Votes:
        """All rows, in the user's units of X."""
        return Votes.of(self.rows.X, self.rows.y * self.class_weights, self.rows.inputs)

    @cached_property
    def _conditionals(self) -> tuple[ClassConditional, ...]:
        """What all rows say to each process."""
        votes = scale(self.votes, self.coordinates)
        return tuple(process.factorise(votes) for process in self.processes)

    def log_probabilities(self, X: Array) -> Array:
        """Of the classes at rows X, (n, K).

        Where no training row had a gap in a column, what a missing entry does is not known to the
        processes: probabilities are averaged over draws of it.
        """
        filled, inputs = self._fill(X)
        if inputs is None or self.gaps is None:
            return self.mix(self._measure(filled))
        known = find_missing_share(inputs[:, self.gaps.columns], X.shape)
        other = np.where(self.gaps.columns, 0.0, inputs)
        result = self.mix(self._widen(self._measure(filled), known))
        rows = np.flatnonzero(other.any(axis=1))
        if len(rows):
            std = np.sqrt(other[rows]) * self.gaps.coordinates.scale
            parts = [
                self.mix(self._widen(self._measure(filled[rows] + std * u), known[rows]))
                for u in draw_normal(_N_DRAWS, X.shape[1], np.random.RandomState(0))
            ]
            result[rows] = logsumexp(parts, axis=0) - np.log(_N_DRAWS)
        return result

    def mix(self, moments: list[tuple[Array, Array]]) -> Array:
        """Log probabilities (n, K) from means (n, K) and a variance (n,) by each process."""
        log_frequencies = self.votes.log_frequencies
        parts = [
            process.link.log_probabilities(*given, log_frequencies)
            for process, given in zip(self.processes, moments, strict=True)
        ]
        return mix_log_probabilities(parts, self.belief)

    def _measure(self, X: Array) -> list[tuple[Array, Array]]:
        """Means (n, K) and variance (n,) of each process at rows X without gaps."""
        if self.is_exact:
            scaled = self.coordinates.scaled(X)
            return [in_tiles(given.moments, scaled) for given in self._conditionals]
        return self._measure_near(X, self.find(X))

    def _widen(
        self, moments: list[tuple[Array, Array]], missing: Array
    ) -> list[tuple[Array, Array]]:
        """The same where shares (n,) of the rows are missing."""
        return [
            (mean, variance + process.measure_gaps(missing))
            for process, (mean, variance) in zip(self.processes, moments, strict=True)
        ]

    def leave_out(self, index: Index) -> list[tuple[Array, Array]]:
        """Moments of the functions at known rows, each without itself."""
        if not self.is_exact:
            return self._measure_near(self.rows.X[index], self.find_others(index))
        moments = [given.leave_out() for given in self._conditionals]
        return [(mean[index], variance[index]) for mean, variance in moments]

    def _measure_near(self, X: Array, near: Index) -> list[tuple[Array, Array]]:
        """What each process says of rows X given their neighbours (n, k)."""
        shared = (self.processes, self.coordinates, self.votes)
        moments = self.predict_near(_predict_rows, shared, X, near)  # (n, C, K + 1)
        return [(part[:, :-1], part[:, -1]) for part in np.moveaxis(moments, 1, 0)]


def mix_log_probabilities(parts: list[Array], belief: Array) -> Array:
    """Log probabilities (n, K) of a mixture."""
    return np.asarray(logsumexp(np.stack(parts), axis=0, b=belief[:, None, None]))


def scale(votes: Votes, coordinates: Coordinates) -> Votes:
    """The same votes in the coordinates of the processes."""
    return replace(votes, X=coordinates.scaled(votes.X))


def _predict_rows(
    processes: tuple[ClassProcess, ...],
    coordinates: Coordinates,
    votes: Votes,
    X: Array,
    near: Index,
) -> Array:
    """Means and variance of rows by each process, (n, C, K + 1)."""
    result = np.empty((len(X), len(processes), votes.counts.shape[1] + 1))
    for i, index in enumerate(near):
        x, known = coordinates.scaled(X[i]), scale(votes.part(index), coordinates)
        for c, process in enumerate(processes):
            result[i, c] = predict_classes_from_neighbours(process, known, x)
    return result
