"""The learner: the two phases of training, new rows, and what the public attributes say."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import draw_distinct
from skvbgp._core.owners import Owners, find_first_columns, find_shared
from skvbgp._core.scaling import Coordinates, RunningScale, Target, check_unit
from skvbgp._core.shards import ShardedColumns
from skvbgp._optim.ascent import EndPass, Watch, go_on, no_annealing, report_as
from skvbgp._optim.convergence import note_call
from skvbgp.base import RegressionLearner, Targets, join_rows, merge_targets
from skvbgp.spectrum._bound import Statistics, sum_statistics
from skvbgp.spectrum._gaussian import Structure
from skvbgp.spectrum._posterior import SpectrumPosterior
from skvbgp.spectrum._rows import BlockedRows, DividedRows, Rows
from skvbgp.spectrum._spread import SpreadBlocks, SpreadPosterior
from skvbgp.spectrum._start import (
    choose_hyperparameters,
    draw_frequencies,
    go_on_from,
    start_from_evidence,
)
from skvbgp.spectrum._state import Start, State
from skvbgp.spectrum._training import (
    BlockFit,
    BoundFit,
    Passes,
    add_rows,
    estimate_bound,
    fit_blocks,
    fit_bound,
)

#: Rows of a block for n_blocks="auto": fewer than the features of the default spectrum.
_BLOCK_ROWS = 60
#: max_iter=None: rows that each phase visits; most passes of it, and of a second phase that holds
#: the frequencies.
_VISITED_ROWS = {"blocks": 1_500_000, "bound": 120_000}
_MOST_PASSES, _MOST_PASSES_HELD = 300, 30
#: Where blocks are trained, few rows get one pass for so many of them, but so many at least.
_ROWS_OF_A_PASS, _LEAST_PASSES = 3, 10
#: Most rows whose evidence decides where training starts.
_EVIDENCE_ROWS = 512
#: In a stream: rows that each phase visits for a new one, and Adam's step as a share of a fit's.
_STREAM_VISITS = {"blocks": 36, "bound": 10}
_STREAM_STEP = 0.3
#: First step size of Adam on M and b, as a multiple of the learning rate.
_BOUND_STEP = 2.5
#: Rows that the bound is computed from, after a fit and after an update; of more rows it is an
#: unbiased estimate.
_BOUND_ROWS, _UPDATE_BOUND_ROWS = 100_000, 10_000
#: Up to so many rows, partial_fit trains again whenever their number has doubled.
_RETRAINED_ROWS = 1_000
#: Most entries of alpha whose joint covariance is formed, 0.2 GB a matrix, and most for which it is
#: chosen: beyond, training takes ten times as long and more.
MOST_JOINT, _CHOSEN_JOINT = 5_000, 2_000


@dataclass(frozen=True)
class SpectrumLearner(RegressionLearner):
    """Settings of a sparse spectrum, by the names of the constructor parameters."""

    n_frequencies: int
    gamma: float
    q_form: str
    objective: str
    solver: str
    n_blocks: int | str
    n_neighbors: int | None
    n_samples: int
    length_scale: Any
    signal_variance: float | None
    noise_variance: float | None
    learn_hyperparameters: bool
    max_iter: int | None
    batch_size: int
    learning_rate: float
    tol: float
    normalize_y: bool
    n_jobs: int | None
    owners: Owners = ()  # by column of X: the input that it encodes

    # -- fit -----------------------------------------------------------------------------

    def max_passes(self, y: Targets) -> int:
        n_passes = self._max_passes("bound", len(y))
        return n_passes + self._max_passes("blocks", len(y)) * self._trains_blocks

    def start(
        self, X: Array, y: Targets, rng: np.random.RandomState, before: State | None
    ) -> Start:
        seed = int(rng.randint(np.iinfo(np.int32).max))
        inputs = X.rows.inputs if isinstance(X, ShardedColumns) else RunningScale.of(X, y.weight)
        shared = find_shared(len(inputs.mean), self.owners)
        coordinates = Coordinates(inputs.mean, inputs.unit).keeping(shared)
        scale = coordinates.scale
        check_unit(scale, "X")
        target = Target.of_scale(y.scale, centred=self.normalize_y)
        self._check_size(len(scale))
        if before is not None:
            R, hyper = go_on_from(before, self.n_frequencies, scale, target.unit)
        else:
            given = self.length_scale, self.signal_variance, self.noise_variance
            hyper = choose_hyperparameters(scale, target.unit, *given, self.owners)
            rng = np.random.RandomState(seed)
            if self._starts_from_evidence and len(y) > 1:  # one is its own mean: no function at all
                sample, are_all = Rows.of(X, y), len(y) <= _EVIDENCE_ROWS
                if not are_all:
                    sample = sample.take(draw_distinct(len(y), _EVIDENCE_ROWS, rng))
                sample, m = sample.scaled(coordinates, target), self.n_frequencies
                R, hyper = start_from_evidence(sample, m, hyper, rng, are_all=are_all)
            else:
                R = draw_frequencies(self.n_frequencies, hyper.length_scale, rng)
        is_few = not isinstance(X, ShardedColumns) and len(y) < _RETRAINED_ROWS
        kept = deepcopy((X, y)) if is_few else None  # theirs may change
        return Start(coordinates, target, hyper, R, y.n_rows, seed, kept)

    def train(self, state: Start, X: Array, y: Targets, end_pass: EndPass) -> State:
        n = len(y)
        n_blocks = max(1, round(n / _BLOCK_ROWS)) if self.n_blocks == "auto" else self.n_blocks
        frames, n_blocks = (state.coordinates, state.target), min(int(n_blocks), n)
        rows: DividedRows
        if isinstance(X, ShardedColumns):
            rows = SpreadBlocks.of(X.rows, *frames, n / n_blocks)
        else:
            rows = BlockedRows.of(Rows.of(X, y), *frames, n_blocks)
        if not self._trains_blocks:
            return self._fit_q(state, rows, end_pass)

        def continue_from(reached: BlockFit, end_pass: EndPass = go_on) -> State:
            start = replace(state, R=reached.R, hyper=reached.hyper)
            return self._fit_q(start, rows, end_pass, reached)

        watch = Watch(report_as(continue_from, end_pass))
        reached = fit_blocks(
            state.R,
            state.hyper,
            self._passes("blocks", rows, state.seed),
            learning_rate=self.learning_rate,
            end_pass=watch,
        )
        return continue_from(reached, go_on if watch.stopped else end_pass)

    def _fit_q(
        self, start: Start, rows: DividedRows, end_pass: EndPass, block_fit: BlockFit | None = None
    ) -> State:
        """The posterior around the frequencies, and with objective="bound" these as well."""
        offset = rows.total * float(np.log(start.target.unit))
        adam = block_fit.adam if block_fit else None
        n_passes = block_fit.n_passes if block_fit else 0

        def reach(reached: BoundFit) -> State:
            bounds = tuple(value - offset for value in reached.values)
            return State(
                start.coordinates,
                start.target,
                reached.hyper,
                reached.q,
                rows,
                start.n_seen,
                start.seed,
                lower_bounds=bounds,
                lower_bound=bounds[-1],
                n_iter=n_passes + len(bounds),
                adam=adam,
                bound_adam=reached.adam,
                kept_rows=start.kept_rows,
            )

        state = reach(
            fit_bound(
                self._structure(start.R.shape[1]),
                start.R,
                start.hyper,
                self._passes("bound", rows, start.seed),
                moves_frequencies=self._moves_by_bound,
                learns=self.learn_hyperparameters,
                adam_step_size=self._bound_step,
                end_pass=report_as(reach, end_pass),
            )
        )
        if self.learn_hyperparameters and self.objective == "bound":
            noise = fit_blocks(
                state.q.structure.frequencies(state.q.mean),
                state.hyper,
                self._passes("blocks", rows, start.seed),
                learning_rate=self.learning_rate,
                noise_only=True,
            )
            state = replace(state, hyper=noise.hyper, adam=noise.adam)
        rng = np.random.RandomState(start.seed)
        bound = estimate_bound(state.q, state.hyper, rows, rng, _BOUND_ROWS)
        return replace(state, lower_bound=bound - offset)

    @property
    def _bound_step(self) -> float | None:
        """First step size of Adam on M and b, unless steps are natural."""
        return _BOUND_STEP * self.learning_rate if self.solver == "adam" else None

    @property
    def _trains_blocks(self) -> bool:
        return self.learn_hyperparameters and self.objective == "blocks"

    @property
    def _starts_from_evidence(self) -> bool:
        """Whether the start may come from the data alone."""
        given = (self.length_scale, self.signal_variance, self.noise_variance)
        return self._trains_blocks and all(value is None for value in given)

    @property
    def _moves_by_bound(self) -> bool:
        """Whether the second phase moves the frequencies."""
        uncertain = self.learn_hyperparameters or self.q_form != "point"
        return self.objective == "bound" and uncertain

    def _passes(self, phase: str, rows: DividedRows, seed: int) -> Passes:
        return Passes(
            rows,
            self._max_passes(phase, rows.n),
            rows.n_batches(self.batch_size),
            self.batch_size,
            np.random.RandomState(seed),
            tol=self.tol or None,
        )

    def _max_passes(self, phase: str, n: int) -> int:
        held = phase == "bound" and not self._moves_by_bound
        most = _MOST_PASSES_HELD if held else _MOST_PASSES
        if self._trains_blocks:
            most = min(most, max(_LEAST_PASSES, n // _ROWS_OF_A_PASS))
        return self.max_iter or int(np.clip(round(_VISITED_ROWS[phase] / n), 2, most))

    def _structure(self, d: int) -> Structure:
        if self.q_form != "auto":
            return Structure(self.n_frequencies, d, self.q_form)
        joint = Structure(self.n_frequencies, d, "joint")
        return joint if joint.size <= _CHOSEN_JOINT else replace(joint, posterior="factorised")

    def _check_size(self, d: int) -> None:
        size = self._structure(d).size
        if self.q_form == "joint" and size > MOST_JOINT:
            raise ValueError(
                f'posterior="joint" of {self.n_frequencies} frequencies of {d} features has a '
                f"covariance of {size} x {size}, more than {MOST_JOINT} x {MOST_JOINT}: take "
                'posterior="factorised" or "point", or a smaller n_frequencies.'
            )

    # -- partial_fit -----------------------------------------------------------------------

    def rows_to_restart(self, state: State, X: Array, y: Targets) -> tuple[Array, Targets] | None:
        rows = state.rows
        if state.kept_rows is None or not isinstance(rows, BlockedRows):
            return None
        if rows.n + len(y) < 2 * len(rows.first):  # which training has seen
            return None
        return merge_targets(*join_rows(state.kept_rows, (X, y)))

    def update(self, state: State, X: Array, y: Targets, end_pass: EndPass) -> State:
        rows, sum_rows = self._add(state, X, y)
        rng = np.random.RandomState((state.seed + state.rows.n) % 2**32)
        moves = self._moves_by_bound
        q = add_rows(state.q, state.hyper.noise_variance, sum_rows, rng, moves_frequencies=moves)
        kept = state.kept_rows
        if kept is not None:
            kept = join_rows(kept, (X, y)) if rows.n < _RETRAINED_ROWS else None
        state = replace(state, q=q, rows=rows, kept_rows=kept, n_seen=state.n_seen + y.n_rows)
        if self.learn_hyperparameters:
            state = self._learn_on(state, len(y), rng)
        bound = estimate_bound(state.q, state.hyper, state.rows, rng, _UPDATE_BOUND_ROWS)
        bound -= state.rows.total * float(np.log(state.target.unit))
        bounds = note_call(state.lower_bounds, bound)
        state = replace(state, lower_bound=bound, lower_bounds=bounds)
        end_pass(lambda: state)
        return state

    @staticmethod
    def _add(
        state: State, X: Array | ShardedColumns, y: Targets
    ) -> tuple[DividedRows, Callable[[Structure, Array], Statistics]]:
        """All rows, and `sum_statistics` of the new ones."""
        rows, frames = state.rows, (state.coordinates, state.target)
        if isinstance(X, ShardedColumns):
            assert isinstance(rows, SpreadBlocks)
            spread = SpreadBlocks.of(X.rows, *frames, rows.blocks.block_rows)
            return rows.joined(spread), spread.sum_statistics
        assert isinstance(rows, BlockedRows)
        new = Rows.of(X, y).scaled(*frames)
        weighted = new.as_weighted(state.hyper.noise_variance)
        return rows.add(new), partial(sum_statistics, rows=weighted)

    def _learn_on(self, state: State, n_new: int, rng: np.random.RandomState) -> State:
        """Both phases on mini-batches of all rows, as many as the new rows pay for."""
        q = state.q
        blocks = fit_blocks(
            q.structure.frequencies(q.mean),
            state.hyper,
            self._replay("blocks", state.rows, n_new, rng),
            adam=state.adam,
            learning_rate=_STREAM_STEP * self.learning_rate,
            noise_only=not self._trains_blocks,
        )
        bound = fit_bound(
            q.structure,
            blocks.R,
            blocks.hyper,
            self._replay("bound", state.rows, n_new, rng),
            q=q.at_frequencies(blocks.R),
            moves_frequencies=self._moves_by_bound,
            learns=True,
            adam_step_size=self._bound_step and _STREAM_STEP * self._bound_step,
            adam=state.bound_adam,
        )
        return replace(state, q=bound.q, hyper=bound.hyper, adam=blocks.adam, bound_adam=bound.adam)

    def _replay(
        self, phase: str, rows: DividedRows, n_new: int, rng: np.random.RandomState
    ) -> Passes:
        """The mini-batches that new rows pay for: a fraction of one is drawn, or not."""
        visits = min(_STREAM_VISITS[phase], self._max_passes(phase, rows.n))
        n_visited = min(visits * n_new, _VISITED_ROWS[phase])
        n_steps = int(n_visited / self.batch_size + rng.uniform())
        return Passes(rows, min(1, n_steps), n_steps, self.batch_size, rng, annealing=no_annealing)

    # -- what a state says -----------------------------------------------------------------

    def attributes(self, state: State) -> dict[str, Any]:
        q, hyper, unit = state.q, state.hyper, state.target.unit
        scale = state.coordinates.scale
        first = find_first_columns(len(scale), hyper.owners)
        return {
            "frequencies_": q.structure.frequencies(q.mean) / scale,
            "q_mean_": q.mean * state.units,
            "input_mean_": state.coordinates.offset.copy(),
            "length_scale_": (hyper.length_scale * scale)[first],
            "signal_variance_": hyper.signal_variance * unit**2,
            "noise_variance_": hyper.noise_variance * unit**2,
            "local_noise_variance_": hyper.local_noise_variance * unit**2,
            "lower_bound_": state.lower_bound,
            "lower_bounds_": list(state.lower_bounds),
            "n_iter_": state.n_iter,
            "n_samples_seen_": state.n_seen,
        }

    def posterior(self, state: State) -> SpectrumPosterior:
        kind = SpreadPosterior if isinstance(state.rows, SpreadBlocks) else SpectrumPosterior
        return kind(state, self.gamma, self.n_samples, self.n_neighbors, self.n_jobs)
