"""When a model has a global part, and how it is learned beside that of near rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.order import Index
from skvbgp._core.owners import count_inputs
from skvbgp._core.scaling import Coordinates, Target
from skvbgp._optim.ascent import EndPass, Watch, report_as
from skvbgp.base import Gaps, pick
from skvbgp.gp._belief import fit_mixture, predict_left_out, rank_mixture
from skvbgp.gp._inducing import GlobalPart
from skvbgp.gp._mixture import LocalMoments, Mixture, Predicted
from skvbgp.gp._process import Process, start_process, train_process
from skvbgp.gp._rows import Rows, cut_groups
from skvbgp.gp._spread import SpreadRows
from skvbgp.gp._state import State
from skvbgp.gp.search._choice import frame_inputs, is_auto
from skvbgp.gp.search._sample import Judges
from skvbgp.gp.search._search import Training, finish
from skvbgp.gp.search._steep_lines import leave_lines, train_lines
from skvbgp.kernels._candidates import make_base_kernels

if TYPE_CHECKING:
    from skvbgp.gp._learner import GPLearner, Start

#: n_inducing="auto": inducing inputs, and rows from which on they are tried.
_N_INDUCING, _LEAST_ROWS = 500, 2_000
#: Rows of a group that hyperparameters of the global part are learned from, and L-BFGS iterations.
_GROUP_SIZE, _MAX_ITER = 800, 20
#: The same where straight lines are added to what has been learned.
_LINES_ITERATIONS = 10
#: Rows that judge, which the global part has not learned from, and the same as a share of all rows.
_HELD_OUT, _HELD_SHARE = 1_000, 0.25
#: What a global part has to gain, in nats a row.
_LEAST_GAIN = 0.01
#: Its kernel, and that of what it leaves if none is given.
_KERNEL = "Matern-5/2"


def is_tried(n_inducing: int | str | None, n: int) -> bool:
    """Whether a model of n rows may have a global part."""
    return n >= _LEAST_ROWS if isinstance(n_inducing, str) else bool(n_inducing)


def choose_inducing(
    learner: GPLearner, outputs: Sequence[Rows], gaps: Gaps, before: State | None
) -> int | str:
    """The number of inducing inputs, or "auto" if predictions of rows left out decide."""
    wanted, rows = learner.n_inducing, outputs[0]
    if not wanted:
        return 0
    may_be = {
        "learn_hyperparameters=False": not learner.learn_hyperparameters,
        "forgetting": learner.forgetting.is_used,
        "output_covariance": learner.n_outputs > 0,
        "output_hyperparameters='shared'": len(outputs) > 1,
        "missing entries of X": bool(gaps.columns.any()),
        "Dask collections": isinstance(rows, SpreadRows),
    }
    obstacles = [name for name, is_there in may_be.items() if is_there]
    if not isinstance(wanted, str):
        if obstacles:
            raise ValueError(f"n_inducing={wanted} is not possible with {obstacles[0]}.")
        return 0 if len(rows) <= learner.few else wanted
    if obstacles or not is_auto(learner.kernel) or len(rows) <= learner.few:
        return 0
    if before is not None:  # warm start: the form stays
        return 0 if before.shared is None else _N_INDUCING
    if not is_tried(wanted, len(rows)) or (learner.may_gather and rows.gathered is not None):
        return 0
    return wanted


class FirstPart(NamedTuple):
    """A global part of rows in a random order, which does not know those that judge."""

    part: GlobalPart
    order: Index  # of all rows
    held: Index  # those that judge, the first ones of these


def learn_first_part(learner: GPLearner, start: Start) -> FirstPart:
    """That of the rows that do not judge; it does not depend on how inputs are warped."""
    rows, wanted = start.rows, start.n_inducing
    order = np.random.RandomState([start.seed, 1]).permutation(len(rows))
    held, others = np.split(order, [min(_HELD_OUT, int(_HELD_SHARE * len(rows)))])
    coordinates = frame_inputs(start.frames.inputs, learner.owners, standardised=True)
    kernel = dict(make_base_kernels(rows.X.shape[1]))[_KERNEL]
    process = start_process(kernel, gaussian=True, owners=learner.owners)
    m = _N_INDUCING if isinstance(wanted, str) else wanted
    frame = coordinates, start.frames.target
    part = learn_part(process, *frame, rows, others, m, learner.tol)
    return FirstPart(part, order, held)


def train_sum(
    learner: GPLearner, start: Start, first: FirstPart, end_pass: EndPass
) -> Training[State]:
    """The state with a global part, or with near rows alone where that does not help."""
    (part, order, held), rows, alone, best = first, start.rows, None, -np.inf
    if isinstance(start.n_inducing, str):
        watch = Watch(end_pass)
        (alone,) = yield from learner.search([start], watch)
        if watch.stopped:
            return alone
        left_out = predict_left_out(alone, rows, held)
        best = _rank(alone.mixture, left_out, alone.frames.target.unit)
    else:
        yield np.nan
    if alone is not None and _rank_part(part, rows, held) < best:
        if not leave_lines(alone.mixture, left_out, part.coordinates.scaled(rows.X[held])):
            return alone
    state = _learn_rest(learner, start, part, held, end_pass)
    if alone is not None:
        state = replace(state, n_iter=alone.n_iter + state.n_iter)
        if _rank_state(state, rows, held) < best + _LEAST_GAIN:
            return replace(alone, n_iter=state.n_iter)
    part = part.given(rows, order)
    return replace(state, shared=part, rows=part.subtract(rows))


def learn_part(
    start: Process,
    coordinates: Coordinates,
    target: Target,
    rows: Rows,
    order: Index,
    m: int,
    tol: float,
) -> GlobalPart:
    """That of rows in a random order, the first of which are the inducing inputs.

    Hyperparameters maximise the evidence of groups of random rows, with straight lines if these
    gain.
    """
    X, y = rows.scaled(coordinates, target)
    known = None if rows.discounted is None else rows.discounted.scaled(target.unit)
    n_inputs = count_inputs(X.shape[1], start.owners)
    drawn = cut_groups(order, _GROUP_SIZE, n_inputs)
    groups = [(X[index], y[index], pick(known, index)) for index in drawn]
    trained = train_process(start, groups, max_iter=_MAX_ITER, tol=tol)
    with_lines = train_lines(trained, groups, X.shape[1], max_iter=_LINES_ITERATIONS, tol=tol)
    process = max(trained, with_lines, key=attrgetter("value")).process
    m = min(m, len(order))
    frame = process, coordinates, target
    empty = GlobalPart(*frame, X[order[:m]], order[:0], WhitenedGaussian.standard(m))
    return empty.given(rows, order)


def _learn_rest(
    learner: GPLearner, start: Start, part: GlobalPart, held: Index, end_pass: EndPass
) -> State:
    """The state of near rows given a global part that has not learned from the rows that judge."""
    rest, candidates = part.subtract(start.rows), start.candidates
    if start.grows:
        candidates = tuple(pair for pair in candidates if pair[0] == _KERNEL)
    frames = learner.reframe(start.frames, *rest.summarise())
    variance = part.moments(rest.X[held])[1] / frames.target.unit**2
    judges = Judges(held, variance)
    start = replace(
        start, frames=frames, rows=rest, candidates=candidates, grows=False, judges=judges
    )
    report = report_as(lambda found: (replace(found[0], shared=part),), end_pass)
    (state,) = finish(learner.search([start], report))
    return replace(state, shared=part)


def _rank_part(part: GlobalPart, rows: Rows, index: Index) -> float:
    """How well a global part predicts some rows that it does not know."""
    mean, variance = part.moments(rows.X[index])
    y, unit = part.target.scaled(rows.y[index]), part.target.unit
    noise = np.full(len(y), part.process.noise)
    if rows.noise is not None:
        noise += rows.noise[index].scaled(unit).variance
    columns = part.target.scaled(mean), variance / unit**2, noise, np.zeros(len(y))
    parts = LocalMoments(*(column[:, None] for column in columns))
    left_out = Predicted(parts, y, pick(rows.weight, index))
    return _rank(fit_mixture((part.process,), left_out), left_out, unit)


def _rank_state(state: State, rows: Rows, index: Index) -> float:
    """How well some rows are predicted, each left out, in units of y."""
    left_out = predict_left_out(state, rows, index)
    return _rank(state.mixture, left_out, state.frames.target.unit)


def _rank(mixture: Mixture, left_out: Predicted, unit: float) -> float:
    return rank_mixture(mixture, left_out) - float(np.log(unit))
