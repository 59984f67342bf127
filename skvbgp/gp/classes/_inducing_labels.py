r"""The functions of classes given many votes with a likelihood of labels, through inducing inputs.

In the terms of `_inducing_inputs`, a class has the function f = m + phi' v + e at a place, with
v ~ N(0, I), and e, of variance k - phi' phi, of each vote's own. With t the variance of a vote's
noise and of e together, it is for the class with the probability Phi((m + phi' v) / t^1/2). Every
vote has a site in m + phi' v, see `_probit_sites`; with T_i and S_i what tau and nu of the votes of
place i sum to,

    A = I + sum_i T_i phi_i phi_i',   w = A^-1 sum_i (S_i - T_i m_i) phi_i

are the precision and the mean of v. All sites are matched at once, again and again. Those of new
votes are matched to what was known when all began, so that these are told in any order.

See :doc:`/theory/gp_class_overlap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.blockwise import in_tiles
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array, tril_times
from skvbgp._core.order import cut
from skvbgp._core.parallel import thread_map
from skvbgp.gp._inducing_inputs import InducingInputs
from skvbgp.gp.classes._inducing import GivenInducing, InducingModel
from skvbgp.gp.classes._probit_process import LabelModel, ProbitLink
from skvbgp.gp.classes._probit_sites import match_votes, measure_moves
from skvbgp.gp.classes._votes import Votes

#: Places of a task at least, and tasks at most: each has sums of its own.
_TILE_PLACES, _MOST_TILES = 1024, 8
#: Matching ends where whole moves would change scores, root mean square, by less.
_TOL, _MAX_ROUNDS = 4e-2, 50
#: Share of a move that is made, at most. It is less after moves that have grown, as together they
#: go too far, and more after others.
_STEP, _LESS, _MORE = 0.5, 0.5, 1.2


class Single(NamedTuple):
    """The sites of a single vote against a function and of one for it, at n places."""

    tau: Array  # (n, 2)
    nu: Array  # (n, 2)

    @classmethod
    def none(cls, n: int) -> Self:
        """Sites that say nothing."""
        return cls(np.zeros((n, 2)), np.zeros((n, 2)))

    def sum(self, counts: Array) -> tuple[Array, Array]:
        """T and S (n,) of votes (n, 2)."""
        return np.sum(counts * self.tau, axis=1), np.sum(counts * self.nu, axis=1)

    def take(self, index: NDArray[np.intp]) -> Single:
        """Those of some places, and none for those of the index -1."""
        known = (index >= 0)[:, None]
        return Single(*(np.where(known, part[index], 0.0) for part in self))


class Said(NamedTuple):
    """What votes say of v."""

    precision: Array  # (m, m): A
    shift: Array  # (m,): the sum of S phi
    drift: Array  # (m,): the sum of T phi m / score, as m follows the frequencies of the classes

    @classmethod
    def none(cls, m: int) -> Self:
        """What is known without votes."""
        return cls(np.eye(m), np.zeros(m), np.zeros(m))

    def plus(self, sums: Sequence[tuple[Array, Array, Array]]) -> Said:
        """With sums over more votes."""
        return Said(*(sum(parts) for parts in zip(self, *sums, strict=True)))

    def given(self, score: float) -> WhitenedGaussian:
        """The distribution of v where the frequencies have this score."""
        return WhitenedGaussian(self.precision, self.shift - score * self.drift)


class Projection(NamedTuple):
    """Places, and what inducing inputs have to do with them."""

    phi: Array  # (m, n)
    prior: Array  # (n,) phi' phi
    rest: Array  # (n,) variances of e
    t: Array  # (n,)
    slope: Array  # (n,) m / score

    @classmethod
    def of(cls, model: LabelModel, inducing: InducingInputs, X: Array) -> Self:
        """That of places X (n, d) or (n, 2 d)."""
        phi = inducing.features(X)
        prior = np.sum(phi**2, axis=0)
        rest = np.maximum(model.covariance.diag(X) - prior, 0.0)
        return cls(phi, prior, rest, rest + model.measure_noise(X), np.sqrt(model.measure_total(X)))

    def measure(self, q: WhitenedGaussian, score: float) -> tuple[Array, Array]:
        """Means and variances (n,) of m + phi' v."""
        variance = np.sum(tril_times(q.precision_factor_inv, self.phi) ** 2, axis=0)
        # rounding may leave nothing of it
        return score * self.slope + q.mean @ self.phi, np.maximum(variance, np.finfo(float).tiny)

    def remove(self, moments: tuple[Array, Array], tau: Array, nu: Array) -> tuple[Array, Array]:
        """Means and variances (n, s) without sites, of which each place has s, one at a time."""
        mean, variance, prior = (part[:, None] for part in (*moments, self.prior))
        left = np.maximum(1.0 - variance * tau, variance / np.maximum(prior, variance))
        return (mean - variance * nu) / left, variance / left

    def match(self, moments: tuple[Array, Array], sites: Single) -> tuple[Single, Array]:
        """Sites with the votes' own moments, given all sites, and the votes' scores (n, 2)."""
        c, v = self.remove(moments, *sites)
        return Single(*match_votes(c, v, self.t)), c / np.sqrt(self.t[:, None] + v)

    def gather(self, sites: Single, counts: Array) -> tuple[Array, Array, Array]:
        """The sums of `Said` over votes (n, 2) with these sites."""
        T, S = sites.sum(counts)
        scaled = self.phi * np.sqrt(T)
        return scaled @ scaled.T, self.phi @ S, self.phi @ (T * self.slope)


@dataclass(frozen=True)
class InducingLabels(InducingModel):
    """What votes with a likelihood of labels say, by function."""

    process: LabelModel
    begun: GivenLabels  # given the votes that were learned from
    said: tuple[Said, ...]  # by all votes
    power: float = 1.0  # of the link

    @classmethod
    def learn(cls, process: LabelModel, Z: Array, votes: Votes) -> tuple[Self, list[Single]]:
        """With votes whose sites are matched to one another, and these, by function."""
        inducing = InducingInputs(process.covariance, Z)
        scores = process.measure_scores(votes.log_frequencies)
        tiles = cut(len(votes), max(_TILE_PLACES, -(-len(votes) // _MOST_TILES)))
        places = thread_map(
            lambda X: Projection.of(process, inducing, X), [(votes.X[tile],) for tile in tiles]
        )
        matched = [
            _match(places, [counts[tile] for tile in tiles], score)
            for counts, score in zip(process.split(votes.counts), scores, strict=True)
        ]
        said, sites = zip(*matched, strict=True)
        begun = GivenLabels.of(process, inducing, said, scores)
        return cls(process, inducing, begun, said), list(sites)

    def plus(self, votes: Votes) -> Self:
        said = self.said
        for rows in cut(len(votes), _MOST_TILES * _TILE_PLACES):
            some = votes.part(rows)
            tiles = [(some.part(tile),) for tile in cut(len(some), _TILE_PLACES)]
            sums = zip(*thread_map(self.begun.hear, tiles), strict=True)
            said = tuple(one.plus(more) for one, more in zip(said, sums, strict=True))
        return replace(self, said=said)

    def given(self, log_frequencies: Array) -> GivenLabels:
        scores = self.process.measure_scores(log_frequencies)
        return GivenLabels.of(self.process, self.inducing, self.said, scores, self.power)


@dataclass(frozen=True)
class GivenLabels(GivenInducing):
    """The functions given votes with a likelihood of labels."""

    process: LabelModel
    functions: tuple[WhitenedGaussian, ...]
    scores: Array  # (F,) of the classes' frequencies
    power: float

    @classmethod
    def of(
        cls,
        process: LabelModel,
        inducing: InducingInputs,
        said: Sequence[Said],
        scores: Array,
        power: float = 1.0,
    ) -> Self:
        """From what votes say, by function."""
        functions = [one.given(score) for one, score in zip(said, scores, strict=True)]
        return cls(process, inducing, tuple(functions), scores, power)

    @property
    def link(self) -> ProbitLink:
        return ProbitLink(self.process.process.noise, self.power)

    def moments(self, X: Array) -> tuple[Array, Array]:
        def predict(tile: Array) -> tuple[Array, Array]:
            places = self._project(tile)
            return self._join(places, self._measure(places), tile)

        return in_tiles(predict, X)

    def hear(self, votes: Votes) -> list[tuple[Array, Array, Array]]:
        """The sums of `Said` over new votes, by function."""
        places, nothing = self._project(votes.X), Single.none(len(votes))
        heard = zip(self._measure(places), self.process.split(votes.counts), strict=True)
        return [
            places.gather(places.match(moments, nothing)[0], counts) for moments, counts in heard
        ]

    def leave_out(self, votes: Votes, matched: Sequence[Single]) -> tuple[Array, Array]:
        """Means (M, K) and variances (M,) for each vote, left out in turn.

        From the sites of votes at the places, by function, which say nothing where a place is not
        known. The variances include u of the place.
        """
        out, X = votes.left_out, votes.X[votes.left_out.owner]
        gone = votes.counts[out.owner] - out.count_rest(votes.log_frequencies)
        places, moments = self._project(X), []
        known = zip(self._measure(places), matched, self.process.split(gone), strict=True)
        for given, sites, counts in known:
            tau, nu = sites.take(out.owner).sum(counts)
            mean, variance = places.remove(given, tau[:, None], nu[:, None])
            moments.append((mean[:, 0], variance[:, 0]))
        mean, variance = self._join(places, moments, X)
        return mean, variance + self.covariance.lost(X)

    def _project(self, X: Array) -> Projection:
        return Projection.of(self.process, self.inducing, X)

    def _measure(self, places: Projection) -> list[tuple[Array, Array]]:
        """Moments (n,) of m + phi' v, by function."""
        return [places.measure(*known) for known in zip(self.functions, self.scores, strict=True)]

    def _join(
        self, places: Projection, moments: Sequence[tuple[Array, Array]], X: Array
    ) -> tuple[Array, Array]:
        """Moments of the classes' functions at rows X, e and all."""
        whole = [(mean, variance + places.rest) for mean, variance in moments]
        return self.process.join_moments(whole, self.covariance.lost(X))


def _match(places: list[Projection], counts: list[Array], score: float) -> tuple[Said, Single]:
    """What the votes (n, 2) of some tiles of places say of a function, and their sites."""
    nothing, step, last = Said.none(len(places[0].phi)), _STEP, np.inf
    q = nothing.given(score)
    sites = [Single.none(len(some)) for some in counts]
    before = [np.full(some.shape, np.inf) for some in counts]
    n_votes = sum(np.count_nonzero(some) for some in counts)
    for _ in range(_MAX_ROUNDS):
        _ = q.mean  # once, not in each thread
        known = zip(places, counts, sites, before, strict=True)
        moved = thread_map(_move, [(q, score, step, *tile) for tile in known])
        sites, before, sums, squares = (list(part) for part in zip(*moved, strict=True))
        told = nothing.plus(sums)
        q, move = told.given(score), float(np.sqrt(sum(squares) / n_votes)) / step
        if move < _TOL:
            break
        step = min(_STEP, step * (_LESS if move > last else _MORE))
        last = move
    return told, Single(*map(np.concatenate, zip(*sites, strict=True)))


def _move(
    q: WhitenedGaussian,
    score: float,
    step: float,
    places: Projection,
    counts: Array,
    sites: Single,
    before: Array,
) -> tuple[Single, Array, tuple[Array, Array, Array], float]:
    """Sites a step further, scores of votes, sums over them, and the squares of scores' moves."""
    matched, scores = places.match(places.measure(q, score), sites)
    sites = Single(*(old + step * (new - old) for old, new in zip(sites, matched, strict=True)))
    squares = float(np.sum(measure_moves(scores, before) ** 2, where=counts > 0.0))
    return sites, scores, places.gather(sites, counts), squares
