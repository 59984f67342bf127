"""Outputs of this family that stay apart (`base._apart`): what they know, and how dense it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp.base import Known, compare_alone, find_joining, pick, tell_output
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


def count_values(rows: Rows, t: int) -> Array:
    """How often values of each output count, (t,)."""
    return np.bincount(tell_output(rows.X, t), rows.weight, t).astype(np.float64)


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


def score_parted(common: State, apart: Sequence[State | None], rng: np.random.RandomState) -> float:
    """Log density of values that are left out, per value, by whoever predicts their output."""
    joins, rows = find_joining(apart), common.rows
    if joins.all():
        return common.score
    count = count_values(rows, len(apart))
    total = sum(
        (one.score - np.log(one.frames.target.unit)) * count[j]
        for j, one in enumerate(apart)
        if one is not None
    )
    among = np.flatnonzero(joins[tell_output(rows.X, len(apart))])
    if len(among):
        some = rng.permutation(among)[:_SCORED]
        total += judge_state(common, rows, some)[1] * count[joins].sum()
    return float(total / count.sum())
