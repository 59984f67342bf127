"""Class probabilities of new rows: those of several processes, averaged by the belief in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import Coordinates
from skvbgp.base import in_tiles
from skvbgp.gp._class_process import (
    ClassConditional,
    ClassProcess,
    predict_classes_from_neighbours,
)
from skvbgp.gp._near import NearRows
from skvbgp.gp._neighbours import Index, Rows
from skvbgp.gp._votes import Votes


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

    @cached_property
    def votes(self) -> Votes:
        """All rows, in the user's units of X."""
        return Votes.of(self.rows.X, self.rows.y * self.class_weights)

    @cached_property
    def _conditionals(self) -> tuple[ClassConditional, ...]:
        """What all rows say to each process."""
        votes = scale(self.votes, self.coordinates)
        return tuple(process.factorise(votes) for process in self.processes)

    def log_probabilities(self, X: Array) -> Array:
        """Of the classes at rows X, (n, K)."""
        return self.mix(self.measure(X))

    def mix(self, moments: list[tuple[Array, Array]]) -> Array:
        """Log probabilities (n, K) from what each process says, as `measure` returns it."""
        log_frequencies = self.votes.log_frequencies
        parts = [
            process.link.log_probabilities(*given, log_frequencies)
            for process, given in zip(self.processes, moments, strict=True)
        ]
        return mix_log_probabilities(parts, self.belief)

    def measure(self, X: Array) -> list[tuple[Array, Array]]:
        """Means (n, K) and variance (n,) of each process at rows X, in the user's units."""
        if self.is_exact:
            scaled = self.coordinates.scaled(X)
            return [in_tiles(given.moments, scaled) for given in self._conditionals]
        return self._measure_near(X, self.find(X))

    def leave_out(self, index: Index) -> list[tuple[Array, Array]]:
        """The same at known rows, each without itself."""
        if self.is_exact:
            moments = [given.leave_out() for given in self._conditionals]
            return [(mean[index], variance[index]) for mean, variance in moments]
        return self._measure_near(self.rows.X[index], self.find_others(index))

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
    return Votes(coordinates.scaled(votes.X), votes.counts, votes.log_frequencies)


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
