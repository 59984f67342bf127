"""The learner of classes: which kernels are tried, when a stream learns again, the attributes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.copies import number_rows
from skvbgp._core.linalg import Array
from skvbgp._core.owners import count_inputs, find_first_columns, find_shared
from skvbgp._core.parallel import thread_map
from skvbgp._core.scaling import Coordinates, RunningScale
from skvbgp._optim.ascent import EndPass, Watch, report_as
from skvbgp.base import Gaps, Learner, is_outgrown, weigh_classes
from skvbgp.gp._near import RowsState, employ
from skvbgp.gp._rows import LOOKED_AT, Rows, average_weights
from skvbgp.gp._stream import Forgetting
from skvbgp.gp._warp import Warp, WarpedCoordinates, describe_warp
from skvbgp.gp.classes._few_places import FewPlacesSearch
from skvbgp.gp.classes._many_places import ManyPlacesSearch
from skvbgp.gp.classes._posterior import ClassPosterior, scale_rows, shift_log_odds
from skvbgp.gp.classes._process import ClassModel
from skvbgp.gp.classes._shares import Found
from skvbgp.gp.classes._start import make_class_kernels, start_class_process
from skvbgp.gp.classes._votes import Labelled, Votes, find_log_frequencies, merge_places
from skvbgp.gp.search._choice import frame_inputs, is_auto, name_kernels, number_categories
from skvbgp.kernels._by_input import bind_columns, express_by_input, take_inputs
from skvbgp.kernels._uncertain import append_variances

#: n_neighbors="auto": up to so many places all are neighbours, then the number of neighbours.
_EXACT_PLACES, _NEIGHBOURS = 2_000, 256
#: n_inducing="auto": so many of more places than that.
_N_INDUCING = 500
#: Where rows are forgotten: hyperparameters are learned again when so many of them are new.
_NEW_SHARE = 0.25


@dataclass(frozen=True)
class ClassState(RowsState):
    """Rows, kernels and the belief about them."""

    classes: NDArray[Any]
    inputs: RunningScale  # moments of the places, from which the coordinates come
    standardised: bool  # whether these are in units of the places' spread, or those of X
    coordinates: Coordinates
    rows: Rows  # X in the user's units, and the votes (n, K)
    class_weights: Array  # (K,), by which odds are multiplied
    found: Found  # processes and the belief in them
    k: int
    gaps: Gaps
    n_rows: int
    #: Places that the hyperparameters were learned from, and how many rows had then been seen, and
    #: votes.
    n_trained: int
    n_rows_trained: int
    n_votes_trained: float
    n_iter: int
    n_jobs: int | None

    @property
    def n_kernels(self) -> int:
        """Kernels that a warm start goes on from."""
        return len(self.found.list_starts(anew=True))

    @property
    def log_frequencies(self) -> Array:
        """Of the classes, (K,), without their weights."""
        return find_log_frequencies(_count_votes(self.rows))

    @property
    def class_prior(self) -> Array:
        """What is predicted far from all rows, (K,)."""
        return np.exp(shift_log_odds(self.log_frequencies, self.shift))

    @property
    def shift(self) -> Array | None:
        """Logarithms of the classes' weights, (K,); None if all are one."""
        return None if np.all(self.class_weights == 1.0) else np.log(self.class_weights)

    @cached_property
    def posterior(self) -> ClassPosterior:
        """Predictions, with the search structures that they keep."""
        log_frequencies = self.log_frequencies
        return ClassPosterior(
            processes=self.found.processes,
            belief=self.found.belief,
            rows=self.rows,
            coordinates=self.coordinates,
            weights=self.found.weights,
            k=self.k,
            n_jobs=self.n_jobs,
            gaps=self.gaps,
            inducing=tuple(one.given(log_frequencies) for one in self.found.inducing),
            shift=self.shift,
            power=self.found.power,
        )


@dataclass(frozen=True)
class Start:
    """State before training."""

    inputs: RunningScale
    standardised: bool
    coordinates: Coordinates
    gaps: Gaps
    rows: Rows
    candidates: tuple[tuple[str, ClassModel], ...]
    grows: bool
    seed: int
    m: int  # inducing inputs that are tried


@dataclass(frozen=True)
class ClassGPLearner(Learner):
    """Settings of the flagship, by the names of the constructor parameters."""

    kernel: Any
    n_neighbors: int | str
    n_inducing: int | str | None
    learn_hyperparameters: bool
    max_iter: int | None
    tol: float
    class_weight: Any
    forgetting: Forgetting
    n_jobs: int | None
    owners: tuple[int, ...] = ()  # by column of X: the input that it encodes
    n_known: int = 0  # kernels of the fit before, if a warm start may go on from them

    def _count_neighbours(self, n: int) -> int:
        """Neighbours among n places."""
        if not isinstance(self.n_neighbors, str):
            return self.n_neighbors
        return _EXACT_PLACES if n <= _EXACT_PLACES else _NEIGHBOURS

    def max_passes(self, y: Labelled) -> int:
        if not self.learn_hyperparameters:
            return 1
        grows = is_auto(self.kernel)
        n_starts = len(make_class_kernels(1) if grows else name_kernels(self.kernel))
        count = FewPlacesSearch.count_trials  # there are no more of many places
        return max(count(n_starts, grows=grows), count(self.n_known, grows=False))

    # -- fit -------------------------------------------------------------------------------------

    def start(
        self, X: Array, y: Labelled, rng: np.random.RandomState, before: ClassState | None
    ) -> Start:
        seed, d = int(rng.randint(np.iinfo(np.int32).max)), X.shape[1]
        gaps = Gaps.of(X)
        rows = Rows.around(X, y.counts).filled(gaps)
        inputs = RunningScale.of(rows.X)
        standardised = is_auto(self.kernel)
        if before is not None:
            standardised = before.standardised
            known = before.found.list_starts(anew=self.learn_hyperparameters)
            starts = [(name, _rebind(model, d, self.owners)) for name, model in known]
        else:
            n_inputs = count_inputs(d, self.owners)
            pairs = make_class_kernels(n_inputs) if standardised else name_kernels(self.kernel)
            bound = [(name, bind_columns(kernel, d, self.owners)) for name, kernel in pairs]
            starts = [(name, start_class_process(one, d, self.owners)) for name, one in bound]
        grows = before is None and standardised
        coordinates = frame_inputs(inputs, self.owners, standardised=standardised)
        m = self._count_inducing(len(rows))
        return Start(inputs, standardised, coordinates, gaps, rows, tuple(starts), grows, seed, m)

    def _count_inducing(self, n: int) -> int:
        """Inducing inputs that are tried for n places."""
        wanted, obstacles = self.n_inducing, []
        if not self.learn_hyperparameters:
            obstacles.append("learn_hyperparameters=False")
        if self.forgetting.is_used:
            obstacles.append("forgetting")
        if isinstance(wanted, str):
            return _N_INDUCING if n > _EXACT_PLACES and not obstacles else 0
        if wanted and obstacles:
            raise ValueError(f"n_inducing={wanted} is not possible with {obstacles[0]}.")
        return wanted or 0

    def train(self, state: Start, X: Array, y: Labelled, end_pass: EndPass) -> ClassState:
        rows, k = state.rows, self._count_neighbours(len(state.rows))
        votes = _take_votes(rows, state.gaps, state.coordinates)
        class_weights = self._weigh(y.classes, rows)

        def reach(found: Found) -> ClassState:
            return ClassState(
                classes=y.classes,
                inputs=state.inputs,
                standardised=state.standardised,
                coordinates=state.coordinates,
                rows=rows,
                class_weights=class_weights,
                found=found,
                k=k,
                gaps=state.gaps,
                n_rows=y.n_rows,
                n_trained=len(rows),
                n_rows_trained=y.n_rows,
                n_votes_trained=_sum_votes(rows),
                n_iter=max(1, watch.n_passes),
                n_jobs=self.n_jobs,
            )

        watch = Watch(report_as(reach, end_pass))
        if not self.learn_hyperparameters:
            kept = reach(_keep(state, X.shape[1]))
            end_pass(lambda: kept)
            return kept
        rng = np.random.RandomState(state.seed)
        known = votes, X.shape[1], rng, self.max_iter, self.tol, watch
        is_exact = len(votes) <= k
        search = FewPlacesSearch(*known) if is_exact else ManyPlacesSearch(*known, k, state.m)
        return reach(search.run(list(state.candidates), grows=state.grows))

    def _weigh(self, classes: NDArray[Any], rows: Rows) -> Array:
        """Weights (K,) of the classes."""
        return weigh_classes(self.class_weight, classes, _count_votes(rows))

    # -- partial_fit -----------------------------------------------------------------------------

    def rows_to_restart(
        self, state: ClassState, X: Array, y: Labelled
    ) -> tuple[Array, Labelled] | None:
        """Hyperparameters are learned again whenever there are twice as many rows.

        Each is as many as its weight says. And with the first row of a class or the first gap in a
        column, or if the known rows say too little. Where rows are forgotten, see `is_due`.
        """
        if self.forgetting.is_used:
            return None
        if self.learn_hyperparameters:
            n_votes = _sum_votes(state.rows) + float(y.counts.sum())
            has_doubled = n_votes >= 2.0 * state.n_votes_trained
            is_due = has_doubled or self._is_outgrown(state, X, y)
        else:  # rows with gaps are what a fit to all of them would have
            is_due = bool(state.gaps.columns.any())
        if not (is_due or state.gaps.precede(X)):
            return None
        rows = state.rows.emptied(state.gaps).plus(X, y.counts)
        places, counts = merge_places(rows.X, rows.y)
        return places, Labelled(y.classes, counts, state.n_rows + y.n_rows)

    def _is_outgrown(self, state: ClassState, X: Array, y: Labelled) -> bool:
        """Whether rows are a reason to learn again, however few they are."""
        known, seen = state.rows.head(LOOKED_AT), np.flatnonzero(_count_votes(state.rows))
        new = np.flatnonzero(y.counts.any(axis=0))
        before, after = (number_categories(rows, self.owners) for rows in (known, X))
        n_known = max(len(state.rows), int(_sum_votes(state.rows)))
        return is_outgrown(before, seen, after, new, learns=True, n_known=n_known)

    def is_due(self, state: ClassState, X: Array, y: Labelled) -> bool:
        """Whether to learn again from all rows that count, of a stream that forgets.

        A quarter of them is new, or of as many as are remembered.
        """
        memory = min(state.n_trained, self.forgetting.memory)
        has_changed = y.n_rows - state.n_rows_trained >= _NEW_SHARE * memory
        is_other = has_changed or state.gaps.precede(X) or self._is_outgrown(state, X, y)
        return is_other or not self.learn_hyperparameters

    def update(self, state: ClassState, X: Array, y: Labelled, end_pass: EndPass) -> ClassState:
        """State with new rows, or where rows are forgotten, with these for its rows."""
        new = Rows.around(X, y.counts).filled(state.gaps)
        inputs, rows, n_rows = RunningScale.of(new.X), new, y.n_rows
        if not self.forgetting.is_used:
            rows, n_rows = _add_votes(state, new), state.n_rows + n_rows
            is_merged = len(rows) < len(state.rows) + len(new)
            inputs = RunningScale.of(rows.X) if is_merged else state.inputs.merged(inputs)
        coordinates, gaps = state.coordinates, state.gaps
        if not self.learn_hyperparameters:  # as a fit to all rows, whatever the chunks
            coordinates = frame_inputs(inputs, self.owners, standardised=state.standardised)
            gaps = Gaps.of(rows.X)  # of later rows: these have none
        coordinates.scaled(new.X)  # refuses what is too far away
        found = state.found
        if found.inducing:  # there are none where rows are forgotten
            votes = _take_votes(new, state.gaps, state.coordinates)
            told = thread_map(lambda one: one.plus(votes), [(one,) for one in found.inducing])
            found = found._replace(inducing=tuple(told))
        updated = state.with_rows(
            rows,
            found=found,
            inputs=inputs,
            coordinates=coordinates,
            gaps=gaps,
            class_weights=self._weigh(state.classes, rows),
            k=self._count_neighbours(len(rows)),
            n_rows=n_rows,
        )
        end_pass(lambda: updated)
        return updated

    # -- what it says ----------------------------------------------------------------------------

    def posterior(self, state: ClassState) -> ClassPosterior:
        return employ(state.posterior, self.n_jobs)

    def attributes(self, state: ClassState) -> dict[str, Any]:
        listed, coordinates = state.found.list_kernels(), state.coordinates
        kernels = [
            (name, express_by_input(one.kernel, _measure_units(one, coordinates), self.owners))
            for name, one, _ in listed
        ]
        for warp in [one.warp for _, one, _ in listed if isinstance(one.warp, Warp)][:1]:
            coordinates = WarpedCoordinates(coordinates.offset, coordinates.scale, warp)
        first = find_first_columns(len(coordinates.scale), self.owners)
        return {
            "classes_": state.classes,
            "class_prior_": state.class_prior,
            "kernels_": kernels,
            "kernel_posterior_": np.array([share for *_, share in listed]),
            "input_warp_": describe_warp(coordinates)[first],
            "n_inducing_": max((len(one.inducing) for one in state.found.inducing), default=0),
            "log_predictive_probability_": state.found.score,
            "n_iter_": state.n_iter,
            "n_samples_seen_": state.n_rows,
        }


def _rebind(model: ClassModel, d: int, owners: tuple[int, ...]) -> ClassModel:
    """The same model of d other columns, which encode the same inputs."""
    if owners == model.process.owners:
        return model
    known, now = (
        find_first_columns(*each) for each in ((model.d, model.process.owners), (d, owners))
    )
    kernel, warp = take_inputs(model.kernel, known), model.warp
    if warp is not None:
        warp = warp.moved(known, now, find_shared(d, owners))
    process = replace(model.process, kernel=bind_columns(kernel, d, owners), owners=owners)
    return replace(model, process=process, d=d, warp=warp)


def _measure_units(model: ClassModel, coordinates: Coordinates) -> Array:
    """Units of the kernel's inputs in those of X, (d,): of what is warped, at the mean."""
    scale = coordinates.scale
    return scale if model.warp is None else scale / model.warp.slope(np.zeros(len(scale)))


def _take_votes(rows: Rows, gaps: Gaps, coordinates: Coordinates) -> Votes:
    """Votes of rows `filled`, scaled."""
    places = append_variances(rows.X, gaps.measure_stds(rows.inputs))
    return Votes.of(scale_rows(places, coordinates), rows.y)


def _add_votes(state: ClassState, new: Rows) -> Rows:
    """Known rows and new ones, all `filled`: votes of a known place are added to its own."""
    rows, numbers = state.rows.joined(new), number_rows(new.X)
    if not any(np.isin(number_rows(X), numbers).any() for X, *_ in state.rows.chunks):
        return rows
    places, counts = merge_places(rows.emptied(state.gaps).X, rows.y)
    if len(places) == len(rows):
        return rows
    return Rows.around(places, counts).filled(state.gaps)


def _sum_votes(rows: Rows) -> float:
    """How many rows there are, each as often as it counts."""
    return float(_count_votes(rows).sum())


def _count_votes(rows: Rows) -> Array:
    """Votes (K,) of all places; the chunks are not joined."""
    return np.sum([counts.sum(axis=0) for _, counts, _ in rows.chunks], axis=0)


def _keep(start: Start, d: int) -> Found:
    """The hyperparameters where they start, in equal shares."""
    names, processes = zip(*start.candidates, strict=True)
    C = len(processes)
    weights = average_weights([process.kernel for process in processes], d)
    belief = np.full(C, 1.0 / C)
    return Found(names, processes, processes, (), tuple(range(C)), belief, weights, float("nan"))
