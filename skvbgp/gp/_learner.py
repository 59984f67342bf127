"""The learner: which kernels are tried, when a stream learns again, and the public attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import itemgetter
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, add_inputs, find_first_columns, find_shared
from skvbgp._core.scaling import Coordinates, RunningScale, Target
from skvbgp._optim.ascent import EndPass, Watch, report_as
from skvbgp.base import Gaps, RegressionLearner
from skvbgp.gp._cells import try_cells
from skvbgp.gp._mixture import Mixture
from skvbgp.gp._near import employ
from skvbgp.gp._posterior import NeighbourPosterior
from skvbgp.gp._process import Process, start_process
from skvbgp.gp._rows import Rows, average_weights
from skvbgp.gp._spread import SpreadRows, SpreadSample, settle
from skvbgp.gp._state import Frames, State, keep_warp
from skvbgp.gp._stream import Forgetting, doubt, is_restart_due
from skvbgp.gp._sum import FirstPart, choose_inducing, is_tried, learn_first_part, train_sum
from skvbgp.gp._warm_start import list_learned, move_warp
from skvbgp.gp._warp import WARP_KERNEL, WARP_ROWS, WarpedCoordinates, describe_warp, learn_warp
from skvbgp.gp.search._choice import frame_inputs, is_auto, name_kernels
from skvbgp.gp.search._few_rows import FewRowsSearch
from skvbgp.gp.search._many_rows import MOST_WITH_ALL, ManyRowsSearch
from skvbgp.gp.search._sample import Judges, PlacesSample, Sample, join_samples
from skvbgp.gp.search._search import Found, Search, Training, finish
from skvbgp.kernels import Kernel, White
from skvbgp.kernels._by_input import bind_columns, express_by_input
from skvbgp.kernels._candidates import make_base_kernels
from skvbgp.kernels._compose import leaves

#: n_neighbors="auto": numbers that compete. Up to the last one, all rows are neighbours.
_COUNTS = (64, 128, 256, 400)
#: Straight inputs are left if warped ones are so many nats a row ahead after the first stage.
_CLEAR_LEAD = 0.15
#: How far a warp may be behind in the density of rows that are left out, if ranks are for it.
_LARGEST_LAG = 0.1


@dataclass(frozen=True)
class Start:
    """State before training."""

    frames: Frames
    rows: Rows
    candidates: tuple[tuple[str, Process], ...]
    grows: bool
    seed: int
    n_inducing: int | str = 0  # "auto": rows that are left out decide
    gathers: bool = False  # whether the rows of a place are one
    judges: Judges | None = None  # rows that are left out; None are random ones

    @property
    def known(self) -> Rows:
        """The rows that are learned from."""
        return self.rows.at_places if self.gathers else self.rows


@dataclass(frozen=True)
class GPLearner(RegressionLearner):
    """Settings of the flagship, by the names of the constructor parameters."""

    kernel: Any
    n_neighbors: int | str
    learn_hyperparameters: bool
    max_iter: int | None
    tol: float
    normalize_y: bool
    n_jobs: int | None
    owners: Owners = ()  # by column of X: the input that it encodes
    forgetting: Forgetting = Forgetting()
    n_outputs: int = 0  # the last columns of X, which say which output a row is of
    n_inducing: int | str | None = None
    n_known: int = 0  # kernels of the fit before, if a warm start may go on from them

    @property
    def rival_k(self) -> tuple[int, ...]:
        """Numbers of neighbours that compete."""
        return _COUNTS if isinstance(self.n_neighbors, str) else (self.n_neighbors,)

    @property
    def few(self) -> int:
        """Up to so many rows, all are neighbours of any place."""
        return self.rival_k[-1]

    @property
    def may_merge(self) -> bool:
        """Whether a row may stand for several: white noise in a kernel is another in each."""
        if is_auto(self.kernel):
            return True
        kernels = [kernel for _, kernel in name_kernels(self.kernel)]
        return not any(isinstance(leaf, White) for kernel in kernels for leaf in leaves(kernel))

    @property
    def may_gather(self) -> bool:
        """Whether the rows of a place may be one: of one output, without noise of their own."""
        return self.may_merge and not self.n_outputs

    def max_passes(self, y: Array) -> int:
        if not self.learn_hyperparameters:
            return 1
        grows = is_auto(self.kernel)
        n_starts = len(make_base_kernels(1) if grows else name_kernels(self.kernel))
        anew = self._count_trials(len(y), n_starts, grows=grows)
        anew *= 2 if grows else 1  # with warped inputs as well
        return max(anew, self._count_trials(len(y), self.n_known, grows=False))

    def _count_trials(self, n: int, n_starts: int, *, grows: bool) -> int:
        """Largest number of trials of a fit to n rows."""
        kinds = {self._choose_search(n)}
        if self.may_gather:  # many rows may be at few places
            kinds.add(FewRowsSearch)
        count = max(kind.count_trials(n_starts, grows=grows) for kind in kinds)
        if n <= self.few or not is_tried(self.n_inducing, n):
            return count
        n_rest = ManyRowsSearch.count_trials(1 if grows else n_starts, grows=False)
        return n_rest + (count if isinstance(self.n_inducing, str) else 0)

    def _choose_search(self, n: int) -> type[Search]:
        """The kind of search for the kernels of n rows."""
        return FewRowsSearch if n <= self.few else ManyRowsSearch

    def make_rows(
        self, X: Array, y: Array, weight: Array, variance: Array, is_weighted: bool
    ) -> Rows:
        """Rows with weights and known variances (n,) of their noise."""
        if is_weighted and not self.may_merge:
            raise ValueError(
                "sample_weight and forgetting need kernels without White: the noise is learned."
            )
        return Rows.of(X, y, weight, variance, merges=self.may_merge)

    # -- fit ---------------------------------------------------------------------------------------

    def start(self, X: Rows, y: Array, rng: np.random.RandomState, before: State | None) -> Start:
        return self.start_outputs([X], rng, before)[0]

    def start_outputs(
        self, X: Sequence[Rows], rng: np.random.RandomState, before: State | None
    ) -> list[Start]:
        """States of outputs that share the hyperparameters, and the units of the inputs.

        The scale of one exact process is that of its kernel; several outputs each have another.
        """
        seed = int(rng.randint(np.iinfo(np.int32).max))
        gaps = reduce(Rows.joined, X).learn_gaps(self.n_outputs)
        outputs = [rows.filled(gaps) for rows in X]
        inputs, targets = zip(*(rows.summarise() for rows in outputs), strict=True)
        together = reduce(RunningScale.merged, inputs)
        d = len(together.mean) - self.n_outputs
        n_inducing = choose_inducing(self, outputs, gaps, before)
        gathers = self.may_gather and not n_inducing
        if self.learn_hyperparameters:  # else a stream is a fit to all rows, whatever the calls
            gathers = gathers and any(rows.gathered is not None for rows in outputs)
        known = [rows.at_places if gathers else rows for rows in outputs]
        is_exact = max(map(len, known)) <= self.few
        gaussian = (is_exact and len(outputs) == 1) or not self.learn_hyperparameters
        standardised = is_auto(self.kernel) if before is None else before.frames.standardised
        begin = partial(
            start_process,
            gaussian=gaussian,
            one_scale=is_exact,
            n_gaps=int(gaps.columns.sum()),
            owners=add_inputs(self.owners, self.n_outputs),
            n_outputs=self.n_outputs,
        )
        listed = self._list_kernels(d, before)
        candidates = tuple((name, begin(kernel, tied=tied)) for name, kernel, tied in listed)
        grows = is_auto(self.kernel) and before is None
        each = [self.frame(together, scale, gaps, standardised) for scale in targets]
        if before is not None:
            frame = move_warp(before, d, self.owners, self.n_outputs)
            each = [keep_warp(frames, frame) for frames in each]
        starts = [
            Start(frames, rows, candidates, grows, seed, n_inducing, gathers)
            for frames, rows in zip(each, outputs, strict=True)
        ]
        is_free = grows and self.learn_hyperparameters and not any(gaps.columns)
        return self._warp(starts) if is_free else starts

    def _list_kernels(
        self, d: int, before: State | None
    ) -> list[tuple[str, Kernel, tuple[int, ...]]]:
        """Kernels that are tried first, by name, and which of d inputs share a length scale."""
        if before is not None:
            return list_learned(before, d, self.owners, self.n_outputs)
        if is_auto(self.kernel):
            return [(name, kernel, ()) for name, kernel in make_base_kernels(d)]
        given = name_kernels(self.kernel)
        return [(name, bind_columns(kernel, d, self.owners), ()) for name, kernel in given]

    def _warp(self, starts: list[Start]) -> list[Start]:
        """States with inputs that are warped, if that helps: one way for all outputs."""
        first, known = starts[0], starts[0].frames.coordinates
        rng, process = np.random.RandomState([first.seed, 2]), dict(first.candidates)[WARP_KERNEL]
        if len(starts) == 1:  # random rows are far apart, and have one scale
            process = replace(process, dof=np.inf)
        rows = join_samples([self._take_sample(start, rng) for start in starts])
        d = len(known.scale) - self.n_outputs
        warp = learn_warp(
            process,
            rows.draw_rows(WARP_ROWS),
            np.flatnonzero(~find_shared(d, self.owners)),
            is_exact=len(rows) <= self.few,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        if warp is None:
            return starts
        return _move(starts, WarpedCoordinates(known.offset, known.scale, warp))

    def frame(
        self, inputs: RunningScale, targets: RunningScale, gaps: Gaps, standardised: bool
    ) -> Frames:
        """The units of rows with these moments."""
        owners = add_inputs(self.owners, self.n_outputs)
        coordinates = frame_inputs(inputs, owners, standardised=standardised)
        target = Target.of_scale(targets, centred=self.normalize_y)
        if self.n_outputs:  # rows of several outputs are in units of each
            D = len(coordinates.scale)
            coordinates = coordinates.keeping(np.arange(D) >= D - self.n_outputs)
            target = Target(0.0, 1.0)
        return Frames(inputs, targets, coordinates, target, gaps, standardised)

    def reframe(self, frames: Frames, inputs: RunningScale, targets: RunningScale) -> Frames:
        """Frames in units of other moments of the rows."""
        return keep_warp(self.frame(inputs, targets, frames.gaps, frames.standardised), frames)

    def train(self, state: Start, X: Rows, y: Array, end_pass: EndPass) -> State:
        """What explains the rows; of those on workers, each is where places will look for it."""
        watch = Watch(report_as(itemgetter(0), end_pass))
        (learned,) = self.train_outputs([state], watch)
        if not watch.stopped:
            learned = try_cells(self, learned, np.random.RandomState([state.seed, 3]))
        settle(learned.rows, learned.frames.coordinates, learned.weights)
        return learned

    def train_outputs(self, starts: Sequence[Start], end_pass: EndPass) -> tuple[State, ...]:
        """The states of outputs; with warped inputs, only if they say more of rows left out."""
        known, watch = starts[0].frames.coordinates, Watch(end_pass)
        part = learn_first_part(self, starts[0]) if starts[0].n_inducing else None  # of one output
        warped = self._train(starts, part, watch)
        if not (isinstance(known, WarpedCoordinates) and starts[0].grows):
            return finish(warped)
        straight = self._train(_move(starts, Coordinates(known.offset, known.scale)), part, watch)
        chosen = _find_better(straight, warped, watch)
        return tuple(replace(one, n_iter=watch.n_passes) for one in chosen)

    def _train(
        self, starts: Sequence[Start], part: FirstPart | None, end_pass: EndPass
    ) -> Training[tuple[State, ...]]:
        if part is None:
            return (yield from self.search(starts, end_pass))
        return ((yield from train_sum(self, starts[0], part, end_pass)),)

    def search(self, starts: Sequence[Start], end_pass: EndPass) -> Training[tuple[State, ...]]:
        """The states of outputs, with the kernels that explain near rows of all of them."""
        if not self.learn_hyperparameters:
            kept = tuple(map(self.keep, starts))
            yield np.nan
            end_pass(lambda: kept)
            return kept

        def reach(found: Found) -> tuple[State, ...]:
            learned = {
                "names": tuple(trial.name for trial in found.trials),
                "kernels": tuple(trial.process.kernel for trial in found.trials),
                "mixture": found.mixture,
                "kernel_of": tuple(found.trial_of),
                "belief": found.belief,
                "weights": found.weights,
                "k": found.k,
                "n_iter": max(1, watch.n_passes),
                "score": found.score,
                "rank": found.rank,
            }
            return tuple(self._make_state(start, **learned) for start in starts)

        watch, first = Watch(report_as(reach, end_pass)), starts[0]
        rng = np.random.RandomState(first.seed)
        rows = join_samples([self._take_sample(start, rng) for start in starts])
        kind = self._choose_search(len(rows))
        search = kind(rows, self.rival_k, rng, self.max_iter, self.tol, watch)
        found = yield from search.run(list(first.candidates), grows=first.grows)
        return reach(found)

    def _take_sample(self, start: Start, rng: np.random.RandomState) -> Sample:
        """What a search sees of the rows."""
        rows, frames = start.known, start.frames
        unit = frames.target.unit
        given = (
            *rows.scaled(frames.coordinates, frames.target),
            rng,
            None if rows.discounted is None else rows.discounted.scaled(unit),
            self.n_outputs,
            start.judges,
        )
        gathered = start.rows.gathered if start.gathers else None
        if gathered is not None:
            return PlacesSample(*given, members=gathered.members.scaled(unit))
        return SpreadSample(*given) if isinstance(rows, SpreadRows) else Sample(*given)

    def keep(self, start: Start) -> State:
        """The state of hyperparameters that stay where they start, in equal shares."""
        names, processes = zip(*start.candidates, strict=True)
        C = len(processes)
        return self._make_state(
            start,
            names=names,
            kernels=tuple(process.kernel for process in processes),
            mixture=Mixture.equal(processes),
            kernel_of=tuple(range(C)),
            belief=np.full(C, 1.0 / C),
            weights=average_weights([p.covariance for p in processes], start.rows.X.shape[1]),
            k=self.few,
            n_iter=1,
            score=float("nan"),
            rank=float("nan"),
            is_learned=False,
        )

    def _make_state(self, start: Start, **learned: Any) -> State:
        """The state of rows, and what has been learned from them."""
        rows = start.rows
        return State(
            frames=start.frames,
            rows=rows,
            count_trained=rows.count,
            n_seen_trained=rows.n_seen,
            n_jobs=self.n_jobs,
            gathers=start.gathers,
            **learned,
        )

    # -- partial_fit -------------------------------------------------------------------------------

    def rows_to_restart(self, state: State, X: Rows, y: Array) -> tuple[Rows, Array] | None:
        """Hyperparameters are learned again if that is due, and with the first gap in a column.

        If they are not learned, rows with gaps are what a fit to all of them would have.
        """
        if self.keeps(state):
            return None
        gaps = state.frames.gaps
        is_due = bool(gaps.columns.any())
        if self.learn_hyperparameters:
            is_due = is_restart_due(self, state, X)
        if not (is_due or X.bring_gaps(gaps)):
            return None
        settle(X, state.frames.coordinates, state.weights)
        rows = self.join(state, X, X.n_seen)
        return rows, rows.y

    def keeps(self, state: State) -> bool:
        """Whether what has been learned, with its units, stays."""
        return state.is_learned and not self.learn_hyperparameters

    def join(self, state: State, X: Rows | None, n: int, kept: int | None = None) -> Rows:
        """Known rows and new ones, of a chunk of n rows, to train with."""
        rows = self._remember(state.observed.emptied(state.frames.gaps), X, n, kept)
        return rows.merged() if self.may_merge else rows

    def _remember(self, known: Rows, X: Rows | None, n: int, kept: int | None) -> Rows:
        """Known rows and new ones, as far as they count; of one output, one does in any case."""
        return self.forgetting.join(known, X, n, kept, least=0 if self.n_outputs else 1)

    def fade(self, state: State, n: int, X: Rows | None = None, kept: int | None = None) -> State:
        """State after n rows in which this output was not observed; X are their inputs, if kept."""
        rows, frames = self._remember(state.rows, X, n, kept), state.frames
        is_fit = not (self.learn_hyperparameters or self.keeps(state))
        if is_fit and self.forgetting.is_used:  # as a fit to what is left
            empty = rows.emptied(frames.gaps)
            gaps = empty.learn_gaps(self.n_outputs)
            rows, mixture = empty.filled(gaps), state.mixture
            n_gaps = int(gaps.columns.sum())  # fewer than before, maybe; all slopes are equal
            processes = tuple(replace(p, slopes=p.slopes[:1] * n_gaps) for p in mixture.processes)
            frames = self.reframe(replace(frames, gaps=gaps), *rows.summarise())
            mixture = replace(mixture, processes=processes)
            return state.with_rows(rows, frames=frames, mixture=mixture)
        return state.with_rows(rows, frames=frames)

    def update(
        self,
        state: State,
        X: Rows,
        y: Array,
        end_pass: EndPass,
        n: int | None = None,
        kept: int | None = None,
    ) -> State:
        """State after a chunk of n rows, of which X were observed; None is all of them."""
        gaps = state.frames.gaps
        doubts = doubt(self, state, X)
        X = X.filled(gaps)
        settle(X, state.frames.coordinates, state.weights)
        if state.shared is not None:  # it stays as it is
            X = state.shared.subtract(X)
        new_inputs, new_targets = X.summarise()
        inputs = state.frames.inputs.merged(new_inputs)
        targets = state.frames.targets.merged(new_targets)
        frames = replace(state.frames, inputs=inputs, targets=targets)
        rows = self._remember(state.rows, X, X.n_seen if n is None else n, kept)
        # as a fit to all rows, whatever the chunks
        if not (self.learn_hyperparameters or self.keeps(state)):
            if self.forgetting.is_used:
                inputs, targets = rows.summarise()
            frames = replace(frames, gaps=rows.learn_gaps(self.n_outputs))  # of later rows
            frames = self.reframe(frames, inputs, targets)
        X.scaled(frames.coordinates, frames.target)  # refuses what is too far away
        if X.noise is not None:
            X.noise.scaled(frames.target.unit)
        k = self.count_neighbours(state, rows)
        state = state.with_rows(rows, frames=frames, k=k, doubts=doubts)
        end_pass(lambda: state)
        return state

    def count_neighbours(self, state: State, rows: Rows) -> int:
        """Neighbours of places that these rows predict, which were all if there were fewer."""
        n = len(replace(state, rows=rows).known)
        if n <= state.k:
            return state.k
        # where hyperparameters are not learned at once, processes of few rows go on with all
        is_few = len(self.rival_k) > 1 and all(p.is_uniform for p in state.mixture.processes)
        learns_later = self.keeps(state) or (self.forgetting.is_used and self.learn_hyperparameters)
        if learns_later and is_few and n <= MOST_WITH_ALL:
            return n
        return min(state.k, self.few)

    # -- what it says ------------------------------------------------------------------------------

    def posterior(self, state: State) -> NeighbourPosterior:
        return employ(state.posterior, self.n_jobs)

    def attributes(self, state: State) -> dict[str, Any]:
        target = state.frames.target
        coordinates = state.frames.coordinates
        scale = coordinates.measure_units(coordinates.offset[None])[0]
        scale = scale[: len(scale) - self.n_outputs]
        kernels = [express_by_input(kernel, scale, self.owners) for kernel in state.kernels]
        return {
            "kernels_": list(zip(state.names, kernels, strict=True)),
            "kernel_posterior_": state.belief,
            "n_neighbors_": min(state.n_neighbors, len(state.known)),
            "input_warp_": describe_warp(coordinates)[find_first_columns(len(scale), self.owners)],
            "noise_variance_": state.noise * target.unit**2,
            "log_predictive_density_": state.score - float(np.log(target.unit)),
            "n_inducing_": 0 if state.shared is None else len(state.shared.Z),
            "n_iter_": state.n_iter,
            "n_samples_seen_": state.rows.n_seen,
        }


def _move(starts: Sequence[Start], coordinates: Coordinates) -> list[Start]:
    """The same states in other coordinates."""
    frames = [replace(start.frames, coordinates=coordinates) for start in starts]
    return [replace(start, frames=one) for start, one in zip(starts, frames, strict=True)]


def _find_better(
    straight: Training[tuple[State, ...]], warped: Training[tuple[State, ...]], watch: Watch
) -> tuple[State, ...]:
    """What the better training comes to; straight inputs are left where they are clearly behind."""
    ranks = list[float]()
    for training in (straight, warped):
        ranks.append(next(training))
        if watch.stopped:
            return finish(training)
    if ranks[1] > ranks[0] + _CLEAR_LEAD:
        return finish(warped)
    without = finish(straight)
    if watch.stopped:
        return without
    with_warp = finish(warped)
    return with_warp if _is_ahead(with_warp[0], without[0]) else without


def _is_ahead(warped: State, straight: State) -> bool:
    """Whether rows that are left out are more likely with warped inputs.

    Or nearly as likely, and more so by ranks, in which a few of them do not decide.
    """
    lead = warped.score - straight.score
    return lead > 0.0 or (lead > -_LARGEST_LAG and warped.rank > straight.rank)
