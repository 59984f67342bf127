"""The pass over all rows that gives the memory, on the workers of joblib or on threads."""

from __future__ import annotations

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import LazyTasks, spawn_seeds, spread_each
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.sgpr._bound import Model, Prior
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._draws import DrawRule
from skvbgp.sgpr._memory import Memory, Statistics
from skvbgp.sgpr._noise import ResidualNoise, WhiteNoise
from skvbgp.sgpr._parameters import Parameters

#: Tasks that a pass is cut into, whatever the number of workers: a few, or as many as keep a
#: task to so many rows, because its rows are sent to the worker.
_N_SEGMENTS = 16
_SEGMENT_ROWS = 8192


def remember(
    model: Model,
    parameters: Parameters,
    data: Data,
    draw_rule: DrawRule,
    *,
    rng: np.random.RandomState,
    n_jobs: int | None,
) -> Memory:
    """The memory of all rows: what gives the optimal q(u) and the bound."""
    prior = Prior(parameters)
    segments = data.segments(max(_N_SEGMENTS, -(-len(data) // _SEGMENT_ROWS)))
    seeds = spawn_seeds(rng, len(segments))

    def task(k: int) -> tuple[Array, Array, Array, int]:
        return *data.stacked(segments[k]), int(seeds[k])

    total = Statistics.none(len(prior.L))

    def add(part: Statistics) -> None:
        nonlocal total
        total = total.plus(part)

    spread_each(
        _statistics,
        LazyTasks(len(segments), task),
        add,
        n_jobs=n_jobs,
        shared=(
            data.coordinates,
            data.target,
            model,
            parameters,
            prior,
            model.noise(parameters),
            draw_rule,
        ),
    )
    return Memory.of(prior, total)


def _statistics(
    coordinates: Coordinates,
    target: Target,
    model: Model,
    parameters: Parameters,
    prior: Prior,
    noise: WhiteNoise | ResidualNoise,
    draw_rule: DrawRule,
    X: Array,
    y: Array,
    sizes: Array,
    seed: int,
) -> Statistics:
    """Sums over some groups of rows, one after the other in X and y."""
    data, rng = Data(X, y, coordinates, target), np.random.RandomState(seed)
    total, start = Statistics.none(len(prior.L)), 0
    for size in sizes:
        rows = data.rows(slice(start, start + size))
        group = model.group(parameters, prior, noise, rows, draw_rule(rows, rng))
        targets = np.column_stack([rows.y, np.ones(size)])
        total = total.plus(
            Statistics(
                group.psi,
                group.information(targets),
                targets.T @ group.precision.solve(targets),
                group.precision.log_det,
                group.prior_trace,
                int(size),
            )
        )
        start += size
    return total
