"""Class probabilities of new rows: those of several processes, averaged by the belief in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from skvbgp._core.blockwise import by_task, in_tiles
from skvbgp._core.linalg import Array, normalise_logs
from skvbgp._core.order import Index, cut
from skvbgp._core.scaling import Coordinates
from skvbgp.base import Gaps
from skvbgp.gp._near import NearRows
from skvbgp.gp._rows import Rows
from skvbgp.gp.classes._inducing import GivenInducing
from skvbgp.gp.classes._link import raise_evidence
from skvbgp.gp.classes._process import ClassModel, KnownPlaces
from skvbgp.gp.classes._votes import Votes
from skvbgp.kernels._uncertain import append_variances

#: Rows that are decided at a time.
_DECIDED_ROWS = 2**13


class KnownVotes(NamedTuple):
    """Votes, in the coordinates of some processes, and what they say to each of these."""

    votes: Votes
    conditionals: tuple[KnownPlaces, ...]


@dataclass(frozen=True)
class ClassPosterior(NearRows):
    """A mixture given the rows; processes predict every place from the k nearest of them.

    What is `inducing` has been given all rows, and follows the processes.
    """

    processes: tuple[ClassModel, ...]
    belief: Array  # (C,) shares of both
    #: X in the user's units, and the votes (n, K). Without `gaps`, variances of entries are those
    #: of all inputs.
    rows: Rows
    coordinates: Coordinates
    weights: Array
    k: int
    n_jobs: int | None = None
    gaps: Gaps | None = None
    inducing: tuple[GivenInducing, ...] = ()
    shift: Array | None = None  # (K,): logarithms of the factors of the classes' odds; None is none
    power: float = 1.0  # of what all say beside the classes' frequencies

    @property
    def parts(self) -> tuple[ClassModel | GivenInducing, ...]:
        """Whatever predicts."""
        return (*self.processes, *self.inducing)

    @cached_property
    def votes(self) -> Votes:
        """All rows, with standard deviations of entries behind these, in the user's units."""
        inputs = self.rows.inputs
        if self.gaps is None:
            std = None if inputs is None else np.sqrt(inputs)
        else:
            std = self.gaps.measure_stds(inputs)
        return Votes.of(append_variances(self.rows.X, std), self.rows.y)

    @cached_property
    def _known(self) -> KnownVotes:
        """What all rows say to each process."""
        return self._conclude("_known", self._factorise())

    def _factorise(self) -> KnownVotes:
        votes, begun = scale_votes(self.votes, self.coordinates), self._begun
        if begun is None or not votes.begin_with(begun.votes):
            return KnownVotes(votes, tuple(one.factorise(votes) for one in self.processes))
        pairs = zip(self.processes, begun.conditionals, strict=True)
        return KnownVotes(votes, tuple(one.extend(given, votes) for one, given in pairs))

    def go_on(self, before: ClassPosterior) -> None:
        """Take over what is known of fewer rows: with few more, that of all is made of it."""
        begun = vars(before).get("_known", before._begun)
        if begun is not None and self.processes is before.processes:
            self._go_on_from(begun, len(begun.votes))

    def decisions(self, X: Array) -> Array:
        """Log probabilities (n, K) of the classes at rows X, which may have missing entries."""
        # some rows at a time: every process says something of each
        return np.concatenate([self._decide(X[rows]) for rows in cut(len(X), _DECIDED_ROWS)])

    def _decide(self, X: Array) -> Array:
        filled, inputs = self._fill(X)
        if inputs is not None and self.gaps is not None:
            filled = append_variances(filled, np.sqrt(inputs) * self.gaps.coordinates.scale)
        return shift_log_odds(self.mix(self._measure(filled)), self.shift)

    def mix(self, moments: list[tuple[Array, Array]]) -> Array:
        """Log probabilities (n, K) from means (n, K) and a variance (n,) by each part."""
        log_frequencies = self.votes.log_frequencies
        log_p = [
            part.link.log_probabilities(*given, log_frequencies)
            for part, given in zip(self.parts, moments, strict=True)
        ]
        mixed = mix_log_probabilities(log_p, self.belief)
        if self.power == 1.0:
            return mixed
        return raise_evidence(mixed, log_frequencies, self.power)

    def _measure(self, X: Array) -> list[tuple[Array, Array]]:
        """Means (n, K) and variance (n,) of each part for a vote at rows X without gaps."""
        scaled = scale_rows(X, self.coordinates)
        moments: list[tuple[Array, Array]] = []
        if self.is_exact:
            moments = [in_tiles(given.moments, scaled) for given in self._known.conditionals]
        elif self.processes:
            moments = self._measure_near(X, self.find(X[:, : len(self.weights)]))
        moments += [given.moments(scaled) for given in self.inducing]
        return [
            (mean, variance + part.covariance.lost(scaled))
            for part, (mean, variance) in zip(self.parts, moments, strict=True)
        ]

    def leave_out(self, index: Index) -> list[tuple[Array, Array]]:
        """Moments of the functions at known rows, each given its neighbours without itself."""
        return self._measure_near(self.votes.X[index], self.find_others(index))

    def _measure_near(self, X: Array, near: Index) -> list[tuple[Array, Array]]:
        """What each process says of rows X given their neighbours (n, k)."""
        shared = (self.processes, self.coordinates, self.votes)
        # (n, C, K + 1)
        moments = by_task(_predict_rows, (X, near), shared=shared, n_jobs=self.n_jobs)
        return [(part[:, :-1], part[:, -1]) for part in np.moveaxis(moments, 1, 0)]


def mix_log_probabilities(parts: list[Array], belief: Array) -> Array:
    """Log probabilities (n, K) of a mixture, none above zero by rounding."""
    mixed = logsumexp(np.stack(parts), axis=0, b=belief[:, None, None])
    return np.minimum(mixed, 0.0)


def shift_log_odds(log_p: Array, shift: Array | None) -> Array:
    """Log probabilities (..., K) of classes whose odds are multiplied by exp(shift), (K,)."""
    return log_p if shift is None else normalise_logs(log_p + shift)


def scale_rows(X: Array, coordinates: Coordinates) -> Array:
    """Rows in the coordinates of the processes, which have variances where X has deviations."""
    d = len(coordinates.scale)
    scaled = coordinates.scaled(X[:, :d])
    variance = None if X.shape[1] == d else (X[:, d:] / coordinates.scale) ** 2
    return append_variances(scaled, variance)


def scale_votes(votes: Votes, coordinates: Coordinates) -> Votes:
    """The same for votes."""
    return replace(votes, X=scale_rows(votes.X, coordinates))


def _predict_rows(
    processes: tuple[ClassModel, ...], coordinates: Coordinates, votes: Votes, X: Array, near: Index
) -> Array:
    """Means and variance of rows by each process, (n, C, K + 1)."""
    result = np.empty((len(X), len(processes), votes.counts.shape[1] + 1))
    for i, (x, index) in enumerate(zip(scale_rows(X, coordinates), near, strict=True)):
        known = scale_votes(votes.part(index), coordinates)
        for c, process in enumerate(processes):
            result[i, c] = process.predict_from_neighbours(known, x)
    return result
