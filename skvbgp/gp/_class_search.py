"""The search for kernels that tell classes apart, and the belief in those that it finds.

Every kernel is trained on some rows with one length scale for all inputs, the best two also with
one for each. They are compared by the log probability of labels that are left out, plus their log
prior, less one nat for each hyperparameter.

Few rows: the best is also tried plus lines, and all share in predictions, see `_class_shares`, and
average over draws of their hyperparameters. As long as all places predict, the best are tried with
inputs in units of their ranges and with warped inputs as well, see `_class_warp`. Many rows: the
best are trained further, and share. Two classes that are not predicted from neighbours are also
tried with a likelihood of labels, see `_probit_process`, and more classes of few rows with one of
each versus the rest, see `_versus_rest`; of the kernels with one length scale the best one then
stays beside those with one for each. What predicts from neighbours has learned from
groups of near places. What it becomes on random ones may be better, or through inducing inputs, see
`_class_inducing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.special import softmax

from skvbgp._core.journal import do_once
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.owners import count_inputs
from skvbgp._core.parallel import thread_map
from skvbgp._core.scaling import Coordinates
from skvbgp._optim.ascent import EndPass
from skvbgp._optim.maximum import Trained, draw_processes, train
from skvbgp.gp._class_inducing import InducingClasses
from skvbgp.gp._class_posterior import ClassPosterior, mix_log_probabilities
from skvbgp.gp._class_process import LABEL_NOISE, ClassModel, ClassProcess
from skvbgp.gp._class_shares import (
    ALIKE,
    INDUCING,
    PROBIT,
    RANGES,
    WARPED,
    Combination,
    Found,
    Part,
    average_votes,
    weigh_inputs,
)
from skvbgp.gp._class_warp import find_ranges, find_warp
from skvbgp.gp._probit_process import AlikeProcess, ProbitProcess
from skvbgp.gp._process import start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._rows import Rows, cut_groups, draw_groups, size_groups
from skvbgp.gp._versus_rest import VersusRest
from skvbgp.gp._votes import Votes
from skvbgp.kernels import Kernel
from skvbgp.kernels._by_input import bind_columns
from skvbgp.kernels._candidates import add_fading_lines, make_anova_kernel, make_leaves

#: Places that an exact process is tried on.
_TRIAL_PLACES = 500
#: Groups of a trial, and of training.
_TRIAL_GROUPS, _FINAL_GROUPS = 10, 20
#: Places that are left out, one at a time, to judge what predicts from neighbours.
_HELD_OUT = 1_000
#: max_iter=None: iterations of a trial, and of further training.
_TRIAL_ITERATIONS, _FINAL_ITERATIONS = 20, 6
#: Trials that get one length scale per input; trials that are trained further, and from neighbours,
#: whose matrices every place has to factorise for every kernel.
_N_FREED, _MOST_KEPT, _MOST_FROM_NEIGHBOURS = 2, 5, 3
#: Trials that are tried with inputs in units of their ranges, and nats that one has to gain.
_N_RANGES, _WORTH_RANGES = 2, 2.0
#: Nats that warped inputs have to gain where not all trials share.
_WORTH_WARPING = 2.0
#: Kernels of either kind that get a probit likelihood.
_N_PROBIT, _PROBIT_ITERATIONS = 2, 10
#: Noise that these start with.
_PROBIT_NOISE = float(np.exp(LABEL_NOISE[0]))
#: Random places of a group that what predicts from neighbours or inducing inputs is trained on once
#: more.
_FAR_PLACES, _FAR_ITERATIONS = 500, 10
#: Places that what predicts through inducing inputs knows.
_MOST_KNOWN = 20_000
#: Standard errors that either has to gain.
_LEAST_GAIN = 1.0
#: Least share of the entropy of frequencies that is left for a probit likelihood to be tried.
_OVERLAP = 0.25
#: Most classes that each have a likelihood versus the rest.
_MOST_CLASSES = 10
#: Draws of the hyperparameters of a kernel, if few places; those that matter, in nats.
_N_DRAWS = 16
_WITHIN = 6.0


class Trial(NamedTuple):
    """A kernel that has been tried."""

    name: str
    trained: Trained[ClassModel]
    score: float  # log probability of labels, penalised

    @property
    def process(self) -> ClassModel:
        return self.trained.process


def make_class_kernels(n_inputs: int) -> list[tuple[str, Kernel]]:
    """Names and kernels of the first round, with one length scale for all inputs."""
    return make_leaves(n_inputs, isotropic=True)


def start_class_process(kernel: Kernel, d: int, owners: tuple[int, ...] = ()) -> ClassProcess:
    """A process of this kernel before training, of d columns; these are of `Process.owners`."""
    process = start_process(kernel, gaussian=True, owners=owners)
    return ClassProcess(replace(process, noise_prior=LABEL_NOISE), d)


def start_alike_process(d: int, owners: tuple[int, ...]) -> AlikeProcess:
    """A squared exponential with a probit likelihood before training, as `EPDTCClassifier` has."""
    n_inputs = count_inputs(d, owners)
    (kernel,) = (one for name, one in make_leaves(n_inputs, isotropic=False) if name == "SE")
    started = start_class_process(bind_columns(kernel, d, owners), d, owners).process
    process = replace(started, noise=_PROBIT_NOISE)
    return AlikeProcess(process, d, float(np.sqrt(n_inputs)))


def start_anova_process(
    d: int, owners: tuple[int, ...], n_classes: int = 2
) -> ProbitProcess | VersusRest:
    """An ANOVA kernel with a probit likelihood before training."""
    kernel = bind_columns(make_anova_kernel(), d, owners)
    return give_probit(start_class_process(kernel, d, owners), n_classes)


def give_probit(model: ClassModel, n_classes: int) -> ProbitProcess | VersusRest:
    """The same model with a probit likelihood, before training."""
    process = replace(model.process, noise=_PROBIT_NOISE)
    make = ProbitProcess if n_classes == 2 else VersusRest
    return make(process, model.d, model.shared_scale, model.warp)


def free_length_scales(process: ClassModel) -> ClassModel:
    """The same process, with one length scale for each input."""
    kernel = process.kernel
    freed = replace(process.process, kernel=replace(kernel, isotropic=False).bind(process.d))
    return replace(process, process=freed, shared_scale=kernel.length_scale)


@dataclass
class ClassSearch:
    """One search.

    `votes` are scaled, `d` is the number of columns, `k` that of neighbours, `m` that of inducing
    inputs, and `max_iter` that of L-BFGS iterations.
    `end_pass` is called after every trial, with a function that returns what has been `Found`.
    """

    votes: Votes
    d: int
    k: int
    rng: np.random.RandomState
    max_iter: int | None
    tol: float
    end_pass: EndPass
    m: int = 0
    trials: list[Trial] = field(default_factory=list)
    stopped: bool = False
    known: Index = field(init=False)  # places, in a random order, that inducing inputs are told of
    held_out: Index = field(init=False)  # of places whose votes are left out in turn
    held: Votes = field(init=False)  # these
    n_grouped: float = field(init=False)  # votes of the groups that kernels were trained on last

    def __post_init__(self) -> None:
        n = len(self.votes)
        self.held_out = self.known = np.arange(n)
        if not self.is_exact:
            order = self.rng.permutation(n)
            self.held_out = np.sort(order[:_HELD_OUT])
            self.known = order[::-1][:_MOST_KNOWN]  # those held out are the last
        self.held = self.votes.part(self.held_out)

    @property
    def is_exact(self) -> bool:
        """Whether all places are neighbours of any other."""
        return len(self.votes) <= self.k

    @property
    def _is_small(self) -> bool:
        """Whether hyperparameters are drawn, as the first trials are of all places."""
        return self.is_exact and len(self.votes) <= _TRIAL_PLACES

    @property
    def _has_gaps(self) -> bool:
        """Whether entries of places are missing."""
        return self.votes.X.shape[1] > self.d

    @staticmethod
    def count(n_starts: int, *, grows: bool) -> int:
        """Largest number of trials."""
        return n_starts + (_N_RANGES + _N_FREED + 3) * grows + _MOST_KEPT + 2 * _N_PROBIT

    def run(self, starts: Sequence[tuple[str, ClassModel]], *, grows: bool) -> Found:
        """Try processes, and with ``grows`` the best two with one length scale per input."""
        groups = self._draw_trial_groups()
        self._try(starts, groups, self.max_iter or _TRIAL_ITERATIONS)
        ranked, n_shared = _rank(self.trials), len(self.trials)
        if grows and self.is_exact and not self.stopped:
            self._try_ranges(ranked[:_N_RANGES], groups)
            n_shared = len(self.trials)
        if grows and starts[0][1].n_inputs > 1 and not self.stopped:
            best = ranked[:_N_FREED]
            freed = [(f"{t.name}, by input", free_length_scales(t.process)) for t in best]
            self._try(freed, groups, self.max_iter or _TRIAL_ITERATIONS)
        chosen = self._choose(n_shared)
        if grows and self.is_exact and not self.stopped:
            chosen = [*chosen, *self._try_warped(_list_freed(chosen) or chosen, *groups[0])]
        if grows and self._is_small and not self.stopped:
            self._try_lines(_list_freed(self.trials) or self.trials)
        if self.stopped:
            return self._judge(chosen)
        if self._is_small:
            parts = self._draw(self.trials)
        else:
            self._train_further(chosen)
            parts = self._make_parts(self.trials)
        mixture = self._mix(parts)
        if not self.is_exact and not self.stopped:
            return self._learn_afar(parts, mixture).found
        if self.stopped or not self._overlap(mixture.found.score):
            return mixture.found
        return self._mix(self._add_probit(parts, chosen)).found

    # -- trials ----------------------------------------------------------------------------------

    def _draw_trial_groups(self) -> list[tuple[Votes]]:
        if self.is_exact:
            index = np.sort(self.rng.permutation(len(self.votes))[:_TRIAL_PLACES])
            return [(self.votes.part(index),)]
        return self._draw_near_groups(_TRIAL_GROUPS)

    def _draw_near_groups(self, n_groups: int) -> list[tuple[Votes]]:
        groups = draw_groups(self.votes.X[:, : self.d], n_groups, size_groups(self.k), self.rng)
        self.n_grouped = float(self.votes.sizes[np.unique(np.concatenate(groups))].sum())
        return [(self.votes.part(index),) for index in groups]

    def _try(
        self, starts: Sequence[tuple[str, ClassModel]], groups: list[tuple[Votes]], max_iter: int
    ) -> None:
        for trial in self._fit(starts, groups, max_iter):
            self.trials.append(trial)
            if not self.stopped:
                self.stopped = self.end_pass(lambda: self._judge(_rank(self.trials)[:1]))

    def _fit(
        self, starts: Sequence[tuple[str, ClassModel]], groups: list[tuple[Votes]], max_iter: int
    ) -> list[Trial]:
        def fit(name: str, process: ClassModel) -> Trial:
            trained = train(process, groups, max_iter=max_iter, tol=self.tol)
            return Trial(name, trained, trained.value - len(process.vector))

        return do_once(lambda: thread_map(fit, starts))

    def _try_ranges(self, trials: list[Trial], groups: list[tuple[Votes]]) -> None:
        """Try trials, the best first, with inputs in units of their ranges, if one gains by it."""
        ranges = find_ranges(self.votes.X[:, : self.d], trials[0].process.process.owners)
        if ranges is None:
            return
        n_before = len(self.trials)
        starts = [(one.name + RANGES, replace(one.process, warp=ranges)) for one in trials]
        self._try(starts, groups, self.max_iter or _TRIAL_ITERATIONS)
        if _rank(self.trials[n_before:])[0].score < trials[0].score + _WORTH_RANGES:
            del self.trials[n_before:]

    def _try_warped(self, trials: list[Trial], votes: Votes) -> list[Trial]:
        """Try the best of some trials, on places, with inputs that are warped.

        It is returned if it is worth more time; of few places always, as shares say what it is.
        """
        warp = None if self._has_gaps else find_warp(votes.X, trials[0].process.process.owners)
        if warp is None:
            return []
        best = _rank(trials)[0]
        start = best.name + WARPED, replace(best.process, warp=warp)
        self._try([start], [(votes,)], self.max_iter or _TRIAL_ITERATIONS)
        warped = self.trials[-1]
        is_worth_it = self._is_small or warped.score > best.score + _WORTH_WARPING
        return [warped] if is_worth_it else []

    def _try_lines(self, trials: list[Trial]) -> None:
        """Try the best of some kernels plus lines: alone, it asks near rows for all slopes."""
        best = _rank(trials)[0]
        name, kernel = add_fading_lines(best.name, best.process.kernel, self.d)
        model = replace(best.process, process=replace(best.process.process, kernel=kernel))
        self._try([(name, model)], [(self.votes,)], self.max_iter or _TRIAL_ITERATIONS)

    def _choose(self, n_shared: int) -> list[Trial]:
        """The trials that have been freed, and the best of those before, which have one scale."""
        most = _MOST_KEPT if self.is_exact else _MOST_FROM_NEIGHBOURS
        shared, freed = self.trials[:n_shared], self.trials[n_shared:]
        return [*_rank(shared)[: most - len(freed)], *freed]

    def _train_further(self, chosen: list[Trial]) -> None:
        """Train trials on all places, or on more groups."""
        self.trials = []
        groups = [(self.votes,)] if self.is_exact else self._draw_near_groups(_FINAL_GROUPS)
        starts = [(trial.name, trial.process) for trial in chosen]
        self._try(starts, groups, self.max_iter or _FINAL_ITERATIONS)

    def _overlap(self, score: float) -> bool:
        """Whether classes are so hard to tell that a likelihood of labels is worth its time."""
        log_frequencies = self.votes.log_frequencies
        entropy = -float(np.exp(log_frequencies) @ log_frequencies)
        return self._may_have_probit(len(log_frequencies)) and -score > _OVERLAP * entropy

    def _may_have_probit(self, n_classes: int) -> bool:
        """Whether there is time for a likelihood of labels, of more classes each versus the rest.

        That takes a row of a weight for several that agree, see `VersusRest`.
        """
        if n_classes == 2:
            return self.is_exact
        return self._is_small and self.votes.are_rows and n_classes <= _MOST_CLASSES

    def _try_probit(self, trials: list[Trial]) -> None:
        """Try kernels with a probit likelihood, those that were freed if any were.

        Of few places only the best, of more also one whose length scales are alike. Beside them an
        ANOVA kernel, if no entries are missing. A row of a weight is one row to them, see `single`:
        as several that agree it would be evidence that nobody has seen.
        """
        freed = _list_freed(trials)
        if self._is_small:
            chosen = _rank(freed or trials)[:1]
        elif freed:
            chosen = _rank(freed)[:_N_PROBIT]
        else:
            chosen = [*trials[:_N_PROBIT], *trials[_N_PROBIT:][-_N_PROBIT:]]
        n_classes, owners = len(self.votes.log_frequencies), chosen[0].process.process.owners
        starts: list[tuple[str, ClassModel]] = [
            (trial.name + PROBIT, give_probit(trial.process, n_classes)) for trial in chosen
        ]
        if freed and not self._is_small:
            alike = start_alike_process(self.d, owners)
            starts.append((f"SE, by input{ALIKE}", alike))
        if freed and not self._has_gaps:
            anova = start_anova_process(self.d, owners, n_classes)
            starts.append((f"ANOVA{PROBIT}", anova))
        self._try(starts, [(self.votes.single,)], self.max_iter or _PROBIT_ITERATIONS)

    # -- belief ----------------------------------------------------------------------------------

    def _add_probit(self, parts: list[Part], chosen: list[Trial]) -> list[Part]:
        """Kernels with a probit likelihood, and the parts that add something beside them.

        Those by input do, if there are any, and the best other one.
        """
        n_tried, freed = len(self.trials), [part for part in parts if part.is_by_input]
        if freed:
            shared = [trial.name for trial in chosen if trial.process.shared_scale is None]
            parts = [*(part for part in parts if part.name in shared[:1]), *freed]
        self._try_probit(chosen if self._is_small else self.trials)
        return [*parts, *self._make_parts(self.trials[n_tried:])]

    def _judge(self, trials: list[Trial]) -> Found:
        """The shares of trials."""
        return self._mix(self._make_parts(trials)).found

    def _mix(self, parts: list[Part]) -> Combination:
        return Combination.of(parts, self.held.left_out.counts, self.d)

    def _make_parts(self, trials: list[Trial], n_votes: float | None = None) -> list[Part]:
        """What may share of trials, at their maxima. Neighbours ask for a link of their own."""
        processes = [trial.process for trial in trials]
        moments = self._leave_out(processes)
        if not self.is_exact:
            known = self.held.left_out.counts, self.votes.log_frequencies
            processes = [
                replace(process, link=process.link.learn(*given, *known))
                for process, given in zip(cast(list[Any], processes), moments, strict=True)
            ]
        parts = self._log_probabilities(processes, moments)
        return [
            Part(trial.name, process, [process], np.ones(1), log_p, self._charge(process, n_votes))
            for trial, process, log_p in zip(trials, processes, parts, strict=True)
        ]

    def _learn_afar(self, parts: list[Part], before: Combination) -> Combination:
        """What the parts become on random places, if that gains by votes left out.

        Near places do not show what is far apart, nor those that are near no others. With inducing
        inputs, where far places speak, kernels are also what they become; without, instead.
        """
        n_inputs = count_inputs(self.d, parts[0].trained.process.owners)
        drawn = cut_groups(self.known, _FAR_PLACES, n_inputs)
        groups = [(self.votes.part(np.sort(places)),) for places in drawn]
        starts, max_iter = [part[:2] for part in parts], self.max_iter or _FAR_ITERATIONS
        trials = self._fit(starts, groups, max_iter)
        n_votes = sum(float(votes.sizes.sum()) for (votes,) in groups)
        if self.m:
            given = [(trial, n_votes) for trial in trials]
            parts = [*parts, *do_once(lambda: thread_map(self._condition, given))]
        else:
            parts = self._make_parts(trials, n_votes)
        return self._prefer(self._mix(parts), before)

    def _prefer(self, after: Combination, before: Combination) -> Combination:
        """What has learned from random places, if this shares, and gains."""
        shares = after.found.inducing or not self.m
        gains = after.gains(before, self.held.left_out.counts, _LEAST_GAIN)
        return after if shares and gains else before

    def _condition(self, trial: Trial, n_votes: float) -> Part:
        """The same kernel through inducing inputs, with the link that this asks for."""
        votes, process = self.votes, cast(ClassProcess, trial.process)
        Z, n_classes = votes.X[self.known[: self.m]], len(votes.log_frequencies)
        start = InducingClasses.start(process, Z, n_classes)
        told = start.plus(votes.part(np.sort(self.known)))
        given = told.given(votes.log_frequencies)
        moments = given.leave_out(self.held, np.isin(self.held_out, self.known))
        link = process.link.learn(*moments, self.held.left_out.counts, votes.log_frequencies)
        log_p = link.log_probabilities(*moments, votes.log_frequencies)
        told = replace(told, process=replace(process, link=link))
        charge = self._charge(process, n_votes)
        return Part(trial.name + INDUCING, process, [told], np.ones(1), log_p, charge)

    def _draw(self, trials: list[Trial]) -> list[Part]:
        """Trials that average over draws, weighted by importance."""
        group = [(self.votes,)]
        seeds = [self.rng.randint(np.iinfo(np.int32).max) for _ in trials]
        drawn = thread_map(
            lambda trial, seed: draw_processes(trial.trained, group, _N_DRAWS, seed)[0],
            zip(trials, seeds, strict=True),
        )
        return [self._average(*each) for each in zip(trials, drawn, strict=True)]

    def _average(self, trial: Trial, drawn: list[tuple[ClassModel, float]]) -> Part:
        """The draws that matter of a trial."""
        top = max(weight for _, weight in drawn)
        kept = [(process, weight) for process, weight in drawn if weight > top - _WITHIN]
        processes, log_weights = (list(column) for column in zip(*kept, strict=True))
        weights = softmax(log_weights)
        parts = self._log_probabilities(processes, self._leave_out(processes))
        log_p = mix_log_probabilities(parts, weights)
        # where classes can be told apart, there is hardly anything to gain by hyperparameters
        loss = -average_votes(log_p, self.held.left_out.counts)
        charge = min(self._charge(trial.process), loss)
        return Part(trial.name, trial.process, processes, weights, log_p, charge)

    def _leave_out(self, processes: Sequence[ClassModel]) -> list[tuple[Array, Array]]:
        """Moments of votes that are left out, by each process."""
        if self.is_exact:
            return [process.leave_out(self.votes) for process in processes]
        regressions = cast(Sequence[ClassProcess], processes)  # `_try_probit` is for exact ones
        X, inputs, noise = *np.split(self.votes.X, [self.d], axis=1), None
        if inputs.size:
            noise = replace(RowNoise.plain(len(inputs)), inputs=inputs)
        posterior = ClassPosterior(
            tuple(processes),
            np.ones(len(processes)),
            Rows.around(X, self.votes.counts, noise),
            Coordinates(np.zeros(self.d), np.ones(self.d)),
            weigh_inputs(processes, self.d),
            self.k,
        )
        return [
            process.give_back(self.held, *given)
            for process, given in zip(regressions, posterior.leave_out(self.held_out), strict=True)
        ]

    def _log_probabilities(
        self, processes: Sequence[ClassModel], moments: list[tuple[Array, Array]]
    ) -> list[Array]:
        """Of votes that are left out, by each process."""
        return [
            process.link.log_probabilities(*given, self.votes.log_frequencies)
            for process, given in zip(processes, moments, strict=True)
        ]

    def _charge(self, model: ClassModel, n_votes: float | None = None) -> float:
        """Nats a vote that hyperparameters have gained by being chosen by votes, one each in all.

        Of many rows, those of the kernel were chosen by groups or ``n_votes`` others, the link by
        what is left out.
        """
        if self.is_exact:
            return model.n_chosen / self.votes.counts.sum()
        n_link = len(cast(ClassProcess, model).link.vector)
        n_kernel, n_votes = model.n_chosen - n_link, n_votes or self.n_grouped
        return n_kernel / n_votes + n_link / self.held.counts.sum()


def _list_freed(trials: list[Trial]) -> list[Trial]:
    """Those with one length scale for each input."""
    return [trial for trial in trials if trial.process.shared_scale is not None]


def _rank(trials: list[Trial]) -> list[Trial]:
    """The best first."""
    return sorted(trials, key=lambda trial: -trial.score)
