"""Outputs of this family that stay apart (`base._apart`): what they know, and how dense it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp.base import Known, PartedModel, compare_alone, pick, tell_output
from skvbgp.gp._belief import judge_state, rank_values
from skvbgp.gp._rows import Chunk, Rows
from skvbgp.gp._state import State

#: Values, each left out, that say how dense those are which the model of all predicts.
_SCORED = 1_000


def take_output(rows: Rows, t: int, j: int) -> Rows:
    """The rows of output j, without indicators."""
    chunks: list[Chunk] = []
    for X, y, noise in rows.chunks:
        mine = tell_output(X, t) == j
        if mine.any():
            chunks.append((X[mine, :-t], y[mine], pick(noise, mine)))
    return Rows(tuple(chunks), sum(len(y) for _, y, _ in chunks))


@dataclass(frozen=True)
class PartedState(PartedModel):
    """States of the model of all outputs, and of those that stay apart."""

    common: State
    apart: tuple[State | None, ...]

    @classmethod
    def of(cls, common: State, apart: tuple[State | None, ...]) -> Self:
        rows, t = common.rows, len(apart)
        counts = np.bincount(tell_output(rows.X, t), rows.weight, t)
        return cls(common, apart, counts.astype(np.float64))

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


def choose_apart(
    common: State, alone: Sequence[State | None], rng: np.random.RandomState
) -> tuple[State | None, ...]:
    """Those of the outputs' own models that predict values which are left out better."""
    rows, t = common.rows.emptied(common.frames.gaps), len(alone)
    own = [
        None if state is None else Known(state, take_output(rows, t, j))
        for j, state in enumerate(alone)
    ]
    output, row = tell_output(rows.X, t), rows.first_seen // t
    is_better = compare_alone(Known(common, rows), own, output, row, _judge, rng)
    return tuple(state if better else None for state, better in zip(alone, is_better, strict=True))


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


def score_parted(parted: PartedState, rng: np.random.RandomState) -> float:
    """Log density of values that are left out, per value, by whoever predicts their output."""
    if parted.joins.all():
        return parted.common.score
    rows, count = parted.common.rows, parted.counts
    total = sum(
        (one.score - np.log(one.frames.target.unit)) * count[j]
        for j, one in enumerate(parted.apart)
        if one is not None
    )
    among = np.flatnonzero(parted.joins[tell_output(rows.X, len(parted.apart))])
    if len(among):
        some = rng.permutation(among)[:_SCORED]
        total += judge_state(parted.common, rows, some)[1] * count[parted.joins].sum()
    return float(total / count.sum())
