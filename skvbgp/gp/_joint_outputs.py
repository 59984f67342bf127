"""Several outputs that learn from each other: one model of rows that say which output they are of.

A value that was observed is a row: its inputs, the indicator of its output (see `_coregion`) and
the value in units of its output. What was not observed is a row of weight zero, so that the values
of n rows of t outputs are always n t rows, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.pickling import PickledByFields
from skvbgp._optim.ascent import EndPass, report_as
from skvbgp.base import (
    Hidden,
    JointLearner,
    JointPosterior,
    JointStart,
    PartedModel,
    Units,
    find_joining,
    find_output,
    pick,
)
from skvbgp.gp._belief import judge_state, rank_values
from skvbgp.gp._learner import GPLearner
from skvbgp.gp._near import employ
from skvbgp.gp._rows import Chunk, Rows
from skvbgp.gp._state import State

#: Values, each left out, that say how dense those are which the model of all predicts.
_SCORED = 1_000


class JointRows(NamedTuple):
    """Rows of all outputs, in units of these; `ListedRows` locate their values."""

    rows: Rows
    units: Units

    @classmethod
    def of(cls, rows: Rows, units: Units) -> JointRows:
        """Rows whose targets and known variances are in the user's units."""
        chunks: list[Chunk] = []
        for X, y, noise in rows.chunks:
            _, unit = units.find(X)
            chunks.append((X, units.scale(X, y), None if noise is None else noise.scaled(unit)))
        return cls(replace(rows, chunks=tuple(chunks)), units)

    @property
    def original(self) -> Rows:
        """The rows in the user's units."""
        chunks: list[Chunk] = []
        for X, y, noise in self.rows.chunks:
            mean, unit = self.units.find(X)
            if noise is not None:
                noise = replace(noise, variance=noise.variance * unit**2)
            chunks.append((X, mean + unit * y, noise))
        return replace(self.rows, chunks=tuple(chunks))

    @property
    def given(self) -> tuple[Rows, Array]:
        return self.rows, self.rows.y

    def take(self, t: int, j: int) -> tuple[Rows, Array]:
        rows = take_output(self.rows, t, j)
        return rows, rows.y


class ListedRows(NamedTuple):
    """Values that are left out one by one, also where equal ones are one row."""

    rows: Rows
    row: Index  # (n,): by value, the row that it has become
    counts: Array  # (n,)
    number: Index  # (n,), that it was seen as

    @classmethod
    def of(cls, rows: Rows) -> ListedRows:
        """Copies of one value (`discount_copies`) are left out together: they would tell it."""
        noise = rows.discounted
        if noise is None or noise.can_part or rows.origin is None:
            number, row, counts = rows.list_seen()
            return cls(rows, row, counts, number)
        assert rows.weight is not None
        return cls(rows, np.arange(len(rows)), rows.weight, rows.first_seen)

    @property
    def given(self) -> tuple[ListedRows, None]:
        return self, None

    def take(self, t: int, j: int) -> tuple[ListedRows, None]:
        mine = find_output(self.rows.X, t) == j
        among, own = mine[self.row], np.cumsum(mine) - 1
        rows = take_output(self.rows, t, j)
        return ListedRows(rows, own[self.row[among]], self.counts[among], self.number[among]), None

    def locate(self, t: int) -> tuple[Index, Index]:
        """Of n rows of the user's there are always n t."""
        return find_output(self.rows.X, t)[self.row], self.number // t

    def without(self, hidden: Hidden) -> Rows:
        """The rows of all others."""
        rows, kept = self.rows, ~hidden
        weight = np.bincount(self.row[kept], self.counts[kept], len(rows)).astype(np.float64)
        left = weight > 0.0
        noise = pick(rows.noise, left)
        if noise is not None:
            noise = replace(noise, weight=weight[left])
        return Rows().plus(rows.X[left], rows.y[left], noise)


@dataclass(frozen=True)
class JointState(PickledByFields):
    """The model of all outputs, in their units, and those of outputs that stay apart from it."""

    model: State
    units: Units
    apart: tuple[State | None, ...]  # by output

    @property
    def n_kernels(self) -> int:
        """Kernels that a warm start goes on from, of the model that has most of them."""
        known = (self.model, *self.apart)
        return max(one.n_kernels for one in known if one is not None)

    @cached_property
    def posterior(self) -> JointPosterior:
        apart = tuple(None if one is None else one.posterior for one in self.apart)
        counts = count_values(self.model.rows, len(apart))
        return JointPosterior(PartedModel(self.model.posterior, apart, counts), self.units)

    @property
    def covariance(self) -> Array:
        """Prior covariance (t, t) of the outputs' functions at a place, in the model of all."""
        return self.model.covariance * np.outer(self.units.unit, self.units.unit)

    @property
    def noises(self) -> Array:
        """Variances (t,) of the outputs' noise, scaled."""
        mixture = self.model.mixture
        each = np.array([process.noises for process in mixture.processes])
        noises = np.array(self.model.shares @ each) + mixture.extra_noise
        noises += [noise.extra for noise in mixture.noises] or 0.0
        for j, one in enumerate(self.apart):
            if one is not None:
                noises[j] = one.noise * one.frames.target.unit**2
        return noises

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance (n, t) of the observations, NaN for what was none."""
        rows, t = self.model.rows, len(self.apart)
        mean, variance = self.model.posterior.leave_out_all()
        output = find_output(rows.X, t)
        for j, one in enumerate(self.apart):
            if one is not None:
                mean[output == j], variance[output == j] = one.leave_out_all()
        mean, variance = (rows.give_to_seen(part).reshape(-1, t) for part in (mean, variance))
        return self.units.restore(mean, variance)


@dataclass(frozen=True)
class GPJointLearner(JointLearner):
    """The settings of the model of all outputs, whose rows and targets are in the user's units."""

    single: GPLearner

    @property
    def model(self) -> GPLearner:
        """Settings for the rows of all outputs, of which t are one row of the user's."""
        forgetting = self.single.forgetting.by_rows_of(self.t)
        return replace(self.single, n_outputs=self.t, forgetting=forgetting)

    def max_passes(self, y: Array) -> int:
        n_passes = self.model.max_passes(y)
        if not self.single.learn_hyperparameters:
            return n_passes
        lengths = len(y), min(len(y), self.single.few)  # few rows have a search of their own
        return n_passes + self.t * max(self.single.max_passes(y[:n]) for n in lengths)

    def read(self, X: Rows, y: Array, before: JointState | None) -> JointRows:
        return JointRows.of(X, self.find_units(X.X, X.y, X.weight))

    def conclude(
        self, start: JointStart, model: State, alone: tuple[State | None, ...]
    ) -> JointState:
        rng = np.random.RandomState([start.model.seed, 4])
        apart = self.choose_apart(start, model, alone, rng)
        n_iter = model.n_iter + sum(one.n_iter for one in alone if one is not None)
        score = score_parted(model, apart, rng)
        return JointState(replace(model, n_iter=n_iter, score=score), start.values.units, apart)

    def choose_apart(
        self, start: JointStart, model: State, alone: tuple[Any, ...], rng: np.random.RandomState
    ) -> tuple[Any, ...]:
        """By values as they were given."""
        listed = replace(start, values=ListedRows.of(start.values.rows))
        return super().choose_apart(listed, model, alone, rng)

    def judge(
        self, known: tuple[Any, State], rows: tuple[ListedRows, None], hidden: Hidden
    ) -> Array:
        """By what mixtures are ranked by, at the hyperparameters of all rows."""
        (_, state), (values, _) = known, rows
        some, shared = values.without(hidden).filled(state.frames.gaps), state.shared
        if shared is not None:
            shared = shared.given(some, np.random.RandomState(0).permutation(len(some)))
            some = shared.subtract(some)
        posterior = replace(state, rows=some, shared=shared).posterior
        every, asked = values.rows, values.row[hidden]
        mean, variance = posterior.moments(every.X[asked], include_noise=True)
        if every.noise is not None:
            variance = variance + every.noise.variance[asked]
        return np.asarray(values.counts[hidden] * rank_values(every.y[asked], mean, variance))

    # -- partial_fit -------------------------------------------------------------------------------

    def rows_to_restart(self, state: JointState, X: Rows, y: Array) -> tuple[Rows, Array] | None:
        """As for a single output; hyperparameters that are not learned follow every row."""
        rows = JointRows.of(X, state.units).rows
        if self.model.keeps(state.model):
            return None
        is_due = not self.single.learn_hyperparameters
        found = None if is_due else self.model.rows_to_restart(state.model, rows, rows.y)
        if found is not None:
            rows, _ = found
        elif is_due or self._is_apart_due(state, rows):
            rows = self.model.join(state.model, rows, X.n_seen)
        else:
            return None
        rows = JointRows(rows, state.units).original
        return rows, rows.y

    def _is_apart_due(self, state: JointState, X: Rows) -> bool:
        """Whether an output that stays apart would learn again by itself.

        Where rows are forgotten, the model of all says when, but for gaps that are new.
        """
        for j, one in enumerate(state.apart):
            rows = take_output(X, self.t, j)
            if one is None or not len(rows):
                continue
            if rows.bring_gaps(one.frames.gaps):
                return True
            if self.single.forgetting.is_used:
                continue
            if self.single.rows_to_restart(one, rows, rows.y) is not None:
                return True
        return False

    def update(self, state: JointState, X: Rows, y: Array, end_pass: EndPass) -> JointState:
        rows = JointRows.of(X, state.units).rows

        def conclude(model: State) -> JointState:
            return JointState(model, state.units, self._follow(state.apart, model))

        if len(rows):
            return conclude(
                self.model.update(state.model, rows, rows.y, report_as(conclude, end_pass))
            )
        model = self.model.fade(state.model, X.n_seen, rows)
        if not len(model.rows):
            raise ValueError("All values of y that are not forgotten are missing (NaN).")
        updated = conclude(model)
        end_pass(lambda: updated)
        return updated

    def _follow(self, apart: tuple[State | None, ...], model: State) -> tuple[State | None, ...]:
        """Outputs that stay apart, with those of the rows of all that are theirs.

        One of whose rows none counts any more is predicted by the others.
        """
        rows, followed = model.rows.emptied(model.frames.gaps), list[State | None]()
        for j, one in enumerate(apart):
            own = take_output(rows, self.t, j)
            if one is None or not len(own):
                followed.append(None)
                continue
            own = own.filled(one.frames.gaps)
            if one.shared is not None:  # it stays as it is
                own = one.shared.subtract(own)
            followed.append(one.with_rows(own, k=self.single.count_neighbours(one, own)))
        return tuple(followed)

    # -- what it says ------------------------------------------------------------------------------

    def posterior(self, state: JointState) -> JointPosterior:
        for one in (state.model, *state.apart):
            if one is not None:
                employ(one.posterior, self.single.n_jobs)
        return state.posterior

    def attributes(self, state: JointState) -> dict[str, Any]:
        """Those of the model of all, and what there is for each output as an array."""
        model, units = state.model, state.units
        values = self.model.attributes(model)
        rows = model.rows
        log_units = np.average(rows.X[:, -self.t :] @ np.log(units.unit), weights=rows.weight)
        return values | {
            "noise_variance_": state.noises * units.unit**2,
            "log_predictive_density_": values["log_predictive_density_"] - float(log_units),
            "n_samples_seen_": values["n_samples_seen_"] // self.t,
        }


def take_output(rows: Rows, t: int, j: int) -> Rows:
    """The rows of output j, without indicators."""
    chunks: list[Chunk] = []
    for X, y, noise in rows.chunks:
        mine = find_output(X, t) == j
        if mine.any():
            chunks.append((X[mine, :-t], y[mine], pick(noise, mine)))
    return Rows(tuple(chunks), sum(len(y) for _, y, _ in chunks))


def count_values(rows: Rows, t: int) -> Array:
    """How often values of each output count, (t,)."""
    return np.bincount(find_output(rows.X, t), rows.weight, t).astype(np.float64)


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
    among = np.flatnonzero(joins[find_output(rows.X, len(apart))])
    if len(among):
        some = rng.permutation(among)[:_SCORED]
        total += judge_state(common, rows, some)[1] * count[joins].sum()
    return float(total / count.sum())
