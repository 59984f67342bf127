"""Outputs that stay apart: rows left out are predicted better by a model of their own.

The model of all outputs has one kernel. An output whose function is of another kind loses more by
that than it learns from the others; it has a model that knows its own rows alone, and the others go
on learning from it. See :doc:`/theory/gp`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp.base import Draws, Relevance, pick
from skvbgp.gp._belief import judge_state, rank_values
from skvbgp.gp._gradient import measure_relevance
from skvbgp.gp._rows import Chunk, Rows
from skvbgp.gp._state import State

#: Parts of the rows that are left out in turn, until so many have been.
_PARTS, _JUDGED_ROWS = 5, 500
#: Values of an output that say what it is worth alone.
LEAST_VALUES = 10
#: Values, each left out, that say how dense those are which the model of all predicts.
_SCORED = 1_000


def tell_output(X: Array, t: int) -> NDArray[np.intp]:
    """Which of t outputs each of lengthened rows (n, d + t) is of, (n,)."""
    return np.asarray(np.argmax(X[:, -t:], axis=1))


def take_output(rows: Rows, t: int, j: int) -> Rows:
    """The rows of output j, without indicators."""
    chunks: list[Chunk] = []
    for X, y, noise in rows.chunks:
        mine = tell_output(X, t) == j
        if mine.any():
            chunks.append((X[mine, :-t], y[mine], pick(noise, mine)))
    return Rows(tuple(chunks), sum(len(y) for _, y, _ in chunks))


@dataclass(frozen=True)
class Parted:
    """What t outputs have of lengthened rows: a value by whoever predicts its output."""

    common: Any
    apart: tuple[Any, ...]  # by output: its own, which takes rows without indicators, or None

    @property
    def joins(self) -> NDArray[np.bool_]:
        """Which outputs the model of all predicts, (t,)."""
        return np.array([one is None for one in self.apart])

    def visit(self, X: Array) -> Iterator[tuple[Any, Any, Array]]:
        """What predicts some of rows X, which these are, and as it takes them."""
        t, joins = len(self.apart), self.joins
        output = tell_output(X, t)
        for j in np.flatnonzero(~joins).tolist():
            mine = output == j
            if mine.any():
                yield self.apart[j], mine, X[mine, :-t]
        rest = joins[output]
        if rest.any():
            yield self.common, rest, X[rest]


@dataclass(frozen=True)
class PartedDraws(Parted):
    """Functions of all outputs; those that stay apart have functions of their own."""

    n: int

    def __call__(self, X: Array) -> Array:
        """Values (n_samples, n)."""
        values = np.empty((len(X), self.n))
        for draws, index, rows in self.visit(X):
            values[index] = draws(rows)
        return values

    def gradient(self, X: Array) -> Array:
        """Derivatives (n_samples, d + t, n), zero in the indicators."""
        slopes = np.zeros((*X.shape, self.n))
        for draws, index, rows in self.visit(X):
            slopes[index, : rows.shape[1]] = draws.gradient(rows)
        return slopes


@dataclass(frozen=True)
class PartedModel(Parted):
    """States of the model of all outputs, and of those that stay apart.

    It is a `Posterior` and a `KnownFunction` of lengthened rows. Different models know nothing of
    one another.
    """

    common: State
    apart: tuple[State | None, ...]

    # -- new rows ----------------------------------------------------------------------------------

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        mean, variance = np.empty((2, len(X)))
        for state, index, rows in self.visit(X):
            mean[index], variance[index] = state.posterior.moments(rows, include_noise)
        return mean, variance

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        mean, covariance = np.empty(len(X)), np.zeros((len(X), len(X)))
        for state, index, rows in self.visit(X):
            places = np.arange(len(X))[index]
            part = state.posterior.joint(rows, include_noise)
            mean[index], covariance[np.ix_(places, places)] = part
        return mean, covariance

    def distribution(self, X: Array, include_noise: bool) -> Any:
        """That of rows of one output."""
        ((state, _, rows),) = self.visit(X)
        return state.posterior.distribution(rows, include_noise)

    # -- the function ------------------------------------------------------------------------------

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d + t) of the derivatives, zero in the indicators."""
        mean, variance = np.zeros((2, *X.shape))
        for state, index, rows in self.visit(X):
            part = state.measure_gradient(rows)
            mean[index, : rows.shape[1]], variance[index, : rows.shape[1]] = part
        return mean, variance

    def draw_functions(self, n: int, rng: np.random.RandomState) -> Draws:
        """Functions from the posterior."""
        common = self.common.draw_functions(n, rng)
        apart = (None if one is None else one.draw_functions(n, rng) for one in self.apart)
        return PartedDraws(common, tuple(apart), n)

    @property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs, averaged over the values of all outputs."""
        t, joins = len(self.apart), self.joins
        if joins.all():
            return Relevance(*(part[:-t] for part in self.common.relevance))
        parts = [(one.relevance, one.rows.count) for one in self.apart if one is not None]
        among = np.flatnonzero(joins[tell_output(self.common.rows.X, t)])
        if len(among):
            inputs, _ = self.common.rows.summarise()
            found = measure_relevance(self.common.posterior, inputs.std**2, among)
            count = self.common.rows.count - sum(count for _, count in parts)
            parts.append((Relevance(*(part[:-t] for part in found)), count))
        each, counts = zip(*parts, strict=True)
        shares = np.array(counts) / sum(counts)
        means, stds = np.array(each).swapaxes(0, 1)
        return Relevance(shares @ means, np.sqrt(shares**2 @ stds**2))

    # -- known rows --------------------------------------------------------------------------------

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance of the observations in the order given, NaN for those left out."""
        mean, variance = self.common.posterior.leave_out_all()
        output = tell_output(self.common.rows.X, len(self.apart))
        for j, one in enumerate(self.apart):
            if one is not None:
                mean[output == j], variance[output == j] = one.posterior.leave_out_all()
        return self.common.rows.tell_all(mean), self.common.rows.tell_all(variance)

    @property
    def noises(self) -> Array:
        """Variances (t,) of the outputs' noise."""
        processes = self.common.mixture.processes
        noises = np.array(self.common.shares @ np.array([one.noises for one in processes]))
        for j, one in enumerate(self.apart):
            if one is not None:
                own = one.shares @ [process.noise for process in one.mixture.processes]
                noises[j] = own * one.frames.target.unit**2
        return noises


# -- who predicts an output better -----------------------------------------------------------------


def choose_apart(
    common: State, alone: Sequence[State | None], rng: np.random.RandomState
) -> tuple[State | None, ...]:
    """Those of the outputs' own models that predict values which are left out better.

    By more than a standard error of what they gain: outputs that cannot be told to lose by it learn
    from each other, as was asked for. Where every row has all outputs, rows are left out. Where
    some values are missing, half of the rows lose a single value: such values are predicted as well
    as new rows.
    """
    rows, t = common.rows.emptied(common.frames.gaps), len(alone)
    output, own = tell_output(rows.X, t), [take_output(rows, t, j) for j in range(t)]
    total, squares = np.zeros((2, t))
    for hidden in _hide(rows.first_seen // t, t, rng):
        together = _judge(common, rows, hidden)
        for j, state in enumerate(alone):
            mine = hidden[output == j]
            if state is not None and mine.any():
                gains = _judge(state, own[j], mine) - together[output[hidden] == j]
                total[j] += gains.sum()
                squares[j] += gains @ gains
    is_better = total > np.sqrt(squares)
    return tuple(state if better else None for state, better in zip(alone, is_better, strict=True))


def _hide(
    row_of: NDArray[np.intp], t: int, rng: np.random.RandomState
) -> Iterator[NDArray[np.bool_]]:
    """Values (n,) that are left out together, of rows that are numbered."""
    _, row_of, sizes = np.unique(row_of, return_inverse=True, return_counts=True)
    n, u = len(sizes), rng.random(len(row_of))
    last = np.zeros(n)
    np.maximum.at(last, row_of, u)
    whole = np.ones(n, dtype=bool) if np.all(sizes == t) else rng.random(n) < 0.5
    is_hidden = whole[row_of] | (u == last[row_of])
    order, size = rng.permutation(n), min(-(-n // _PARTS), _JUDGED_ROWS)
    for start in range(0, min(n, _PARTS * size, _JUDGED_ROWS), size):
        chosen = np.zeros(n, dtype=bool)
        chosen[order[start : start + size]] = True
        yield chosen[row_of] & is_hidden


def _judge(state: State, rows: Rows, hidden: NDArray[np.bool_]) -> Array:
    """Log densities of hidden values, which mixtures are ranked by, given the other rows.

    The hyperparameters are those of all rows. Each density counts as often as its row.
    """
    kept, noise = ~hidden, rows.noise
    known = Rows().plus(rows.X[kept], rows.y[kept], pick(noise, kept)).filled(state.frames.gaps)
    shared = state.shared
    if shared is not None:
        shared = shared.given(known, np.arange(len(known)))
        known = shared.subtract(known)
    posterior = replace(state, rows=known, shared=shared).posterior
    mean, variance = posterior.moments(rows.X[hidden], include_noise=True)
    if noise is None:
        return rank_values(rows.y[hidden], mean, variance)
    density = rank_values(rows.y[hidden], mean, variance + noise.variance[hidden])
    return np.asarray(noise.weight[hidden] * density)


def score_parted(model: PartedModel, rng: np.random.RandomState) -> float:
    """Log density of values that are left out, per value, by whoever predicts their output."""
    if model.joins.all():
        return model.common.score
    rows, t = model.common.rows, len(model.apart)
    output = tell_output(rows.X, t)
    count = np.bincount(output, rows.weight, t)
    total = sum(
        (one.score - np.log(one.frames.target.unit)) * count[j]
        for j, one in enumerate(model.apart)
        if one is not None
    )
    among = np.flatnonzero(model.joins[output])
    if len(among):
        some = rng.permutation(among)[:_SCORED]
        total += judge_state(model.common, rows, some)[1] * count[model.joins].sum()
    return float(total / count.sum())
