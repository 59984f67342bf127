"""The search for kernels that explain the rows, and the belief in those that it finds.

Many rows: every kernel is trained on a few groups of near rows and judged by what it predicts for
rows that are left out, each from its neighbours. Products and sums of the two best follow, and the
best one says how many neighbours pay. Those that help the mixture are trained further, on more
groups, and get their share of belief, of more than 3,000 rows from more rows that are left out.

Up to 3,000 rows, kernels with one length scale for all inputs, which are trained on random rows,
compete where all rows predict.

Few rows, all of which are neighbours: every kernel is trained on all of them, as is the best one
plus straight lines, and the mixture is over kernels and over draws of their hyperparameters, by
evidence. Kernels with one length scale, or with those of a few of many inputs, take their place
where they predict better what has had no part in training, which also says how wide intervals are.

Of few rows and many, errors of those that are left out say how observations are distributed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from skvbgp._core.linalg import Array
from skvbgp._core.owners import count_inputs
from skvbgp._optim.ascent import EndPass
from skvbgp._optim.maximum import Trained, draw_processes, train
from skvbgp.gp._belief import (
    fit_mixture,
    measure_score,
    rank_mixture,
    shape_errors,
    tell_noises,
    vary_noise,
    widen,
)
from skvbgp.gp._coregion import Covariance
from skvbgp.gp._folds import LEAST_ROWS, draw_folds, judge_folds
from skvbgp.gp._free_inputs import MANY_INPUTS, free_inputs
from skvbgp.gp._posterior import LocalMoments, Mixture
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import Group
from skvbgp.gp._rows import average_weights, size_groups, weigh_inputs
from skvbgp.gp._sample import HELD_OUT, Sample, Samples
from skvbgp.gp._steep_lines import find_steep_start
from skvbgp.kernels._candidates import add_lines, combine, follow, make_isotropic_kernel

#: Most rows of the groups that kernels are tried on and trained on further, and the same in
#: multiples of all rows.
_TRIAL_ROWS, _FINAL_ROWS = 3_000, 6_000
_TRIAL_COVER, _FINAL_COVER = 1.0, 2.0
#: Most neighbours that a trial predicts from, which ranks kernels as more do.
_TRIAL_NEIGHBOURS = 128
#: Rows, of those left out, that tell how many neighbours pay, and the least gain.
_COUNTING_ROWS = 500
_LEAST_COUNT_RISE = 0.01
#: Of more rows, the mixture is learned anew from so many that are left out, each as often as it has
#: neighbours, and from no fewer than those that judge trials.
_MANY, _NEIGHBOURS_OF_ALL = 3_000, 256_000
#: Up to so many rows, all are one of the numbers of neighbours that compete, for so many processes:
#: the time of each is cubic in the rows.
_TRIED_WITH_ALL = ((2_000, 12), (3_000, 6))
#: Kernels with one length scale are trained on at most so many groups of so many random rows.
_ISOTROPIC_GROUPS, _ISOTROPIC_ROWS = 3, 400
#: Neighbours of processes that win with all rows: a stream that comes to more learns again.
_ALL_NEIGHBOURS = 4_000
#: max_iter=None: iterations of a trial, of the further training, and on few rows.
_TRIAL_ITERATIONS, _FINAL_ITERATIONS, _EXACT_ITERATIONS = 15, 12, 40
#: The same of a trial that starts from what the one before it has learned.
_FOLLOWING_ITERATIONS = 8
#: Most processes of a mixture, most neighbours of all of them together, which bounds the time of a
#: prediction, and what one more has to gain.
_MOST_KEPT = 4
_MOST_READ = 512
_LEAST_RISE = 0.002
#: Multiples of the noise that compete with what training has found.
_NOISE_FACTORS = (0.3, 10.0)
#: If more than this share of y seems to be noise, few rows are searched again, and what is found
#: has to be better by so many nats.
_MUCH_NOISE, _LEAST_LEAD = 0.25, 4.0
#: Draws of hyperparameters from few rows; kernels and draws that matter, in nats.
_N_DRAWS = 16
_WITHIN = 8.0
#: Draws that are so many nats less important than the maximum or the best one are no posterior.
_DRAWS_WITHIN = 32.0


class Trial(NamedTuple):
    """A kernel that has been tried."""

    name: str
    trained: Trained[Process]
    parts: LocalMoments  # at the rows that are left out, (h, 1)
    rank: float  # how well they are predicted

    @property
    def process(self) -> Process:
        return self.trained.process


class Found(NamedTuple):
    """Where a search stands, or has ended."""

    trials: list[Trial]  # those that the mixture is made of
    mixture: Mixture
    trial_of: list[int]  # by process of the mixture: number of its trial
    belief: Array  # by trial: its share in predictions, averaged over rows
    weights: Array  # of the inputs in the distance between rows
    k: int  # neighbours
    score: float  # log density of rows that are left out, per row
    rank: float  # what searches are compared by


@dataclass
class Search:
    """One search; it is made for one fit and thrown away."""

    rows: Sample | Samples  # what is seen of all rows
    counts: Sequence[int]  # numbers of neighbours that compete, in rising order
    rng: np.random.RandomState
    max_iter: int | None
    tol: float
    #: Called after every trial, with a function that returns what has been `Found`.
    end_pass: EndPass
    trials: list[Trial] = field(default_factory=list)
    #: The least calibration, and the extra noise, as rows say that have had no part in training.
    calibration: float = 1.0
    extra_noise: float = 0.0
    stopped: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether all rows are neighbours of any place."""
        return len(self.rows) <= self.counts[-1]

    def run(self, starts: list[tuple[str, Process]], *, grows: bool) -> Found:
        """Try processes, and with ``grows`` what sums and products make of the best two."""
        groups = self._draw_groups(_TRIAL_ROWS, _TRIAL_COVER)
        n_iter = self.max_iter or (_EXACT_ITERATIONS if self.is_exact else _TRIAL_ITERATIONS)
        n_first = n_iter
        for name, process in starts:
            if grows and self.trials:
                process = _follow(name, process, self.trials[-1])
                n_first = n_iter if self.max_iter or self.is_exact else _FOLLOWING_ITERATIONS
            self._try(name, process, groups, n_first)
        if grows and self.is_exact:
            self._try_alone(dict(starts), groups, n_iter)
        if grows and not self.stopped:
            for name, process in self._combine():
                self._try(name, process, groups, n_iter)
        if grows and self.is_exact:
            self._try_lines(groups, n_iter)
            if len(self.rows) >= LEAST_ROWS:
                self._try_isotropic_alone(dict(starts), groups, n_iter)
        if self.is_exact:
            return self._mix_draws(groups)
        return self._train_further(starts[0][1] if grows else None)

    @staticmethod
    def count(n_starts: int, *, grows: bool, is_exact: bool) -> int:
        """Largest number of trials."""
        if is_exact:
            return n_starts + (2 * n_starts + 7) * grows
        return n_starts + 7 * grows + min(_MOST_KEPT, n_starts + 5 * grows)

    @property
    def _trial_k(self) -> int:
        """Neighbours that trials predict from."""
        return self.counts[-1] if self.is_exact else min(_TRIAL_NEIGHBOURS, self.counts[-1])

    # -- trials ------------------------------------------------------------------------------------

    def _draw_groups(self, most: int, cover: float) -> list[Group]:
        if self.is_exact:
            return self.rows.take_all()
        n_rows = min(most, cover * self.rows.total)
        return self.rows.draw_groups(n_rows, size_groups(self.counts[-1]))

    def _try(
        self,
        name: str,
        process: Process,
        groups: list[Group],
        max_iter: int,
        noise_factors: Sequence[float] = (),
    ) -> None:
        """Train a process, and judge it and itself with multiples of the noise that it has found.

        More noise is for rows that contradict their neighbours. Less is for those that agree
        with them better than the evidence, which is of one noise everywhere, says.
        """
        if self.stopped:
            return
        trained = train(process, groups, max_iter=max_iter, tol=self.tol)
        least, most = trained.process.noise_limits[0], 1.0
        noises = [factor * trained.process.noise for factor in noise_factors]
        others = [replace(trained.process, noise=one) for one in noises if least <= one < most]
        self._judge(name, [trained, *(trained._replace(process=other) for other in others)])
        self.stopped = self.end_pass(self._summarise)

    def _try_alone(self, starts: dict[str, Process], groups: list[Group], n_iter: int) -> None:
        """If most of y seems to be noise, train the best kernel from its own start, too.

        The first one may have ended where all is noise, and those that follow it as well. If that
        is better, the others follow this one.
        """
        best = max(self.trials, key=lambda trial: trial.trained.value)
        if self.stopped or best.process.noise < _MUCH_NOISE:
            return
        alone = train(starts.pop(best.name), groups, max_iter=n_iter, tol=self.tol)
        if alone.value < best.trained.value + _LEAST_LEAD:
            return
        self.trials = []
        self._judge(best.name, [alone])
        self._try_followers(starts, groups, n_iter)

    def _try_followers(self, starts: dict[str, Process], groups: list[Group], n_iter: int) -> None:
        """Try processes that start from what the first trial has learned."""
        for name, process in starts.items():
            self._try(name, _follow(name, process, self.trials[0]), groups, n_iter)

    def _try_lines(self, groups: list[Group], n_iter: int) -> None:
        """Try the best kernel plus straight lines: alone, it falls back to the mean far away."""
        best = max(self.trials, key=lambda trial: trial.trained.value)
        self._add_lines(best, groups, n_iter)

    def _add_lines(self, trial: Trial, groups: list[Group], n_iter: int) -> None:
        """Try a kernel plus straight lines, which may be steep of few rows."""
        name, kernel = add_lines(trial.name, trial.process.kernel, self.rows.d)
        start, least = replace(trial.process, kernel=kernel), trial.trained.value + _LEAST_LEAD
        steep = find_steep_start(start, groups, least) if self.is_exact else None
        if steep is not None:
            start, n_iter = steep, self.max_iter or _EXACT_ITERATIONS
        self._try(name, start, groups, n_iter)

    def _judge(self, name: str, trained: list[Trained[Process]]) -> None:
        """Add trials of one kernel, whose processes share its matrices."""
        processes = tuple(one.process for one in trained)
        weights = weigh_inputs(processes[0].covariance, self.rows.d)
        everything = self.rows.leave_out(Mixture.equal(processes), weights, self._trial_k)
        for one, parts in zip(trained, everything.split(), strict=True):
            rank = self._rank(self._mix((one.process,), parts), parts)
            self.trials.append(Trial(name, one, parts, rank))

    def _summarise(self) -> Found:
        """What the best trial alone gives."""
        best = max(self.trials, key=lambda trial: trial.rank)
        weights = weigh_inputs(best.process.covariance, self.rows.d)
        return self._conclude([best], best.parts, weights, self._trial_k)

    def _combine(self) -> Iterator[tuple[str, Process]]:
        """Products and sums of the two best trials."""
        best = sorted(self.trials, key=lambda trial: -trial.rank)[:2]
        named = [(trial.name, trial.process.kernel) for trial in best]
        for name, i, kernel in combine(named, self.rng, few=self.is_exact):
            yield name, replace(best[i].process, kernel=kernel)

    # -- many rows ---------------------------------------------------------------------------------

    def _count_neighbours(self, trial: Trial) -> int:
        """How many neighbours pay: more are read as long as predictions gain."""
        if len(self.counts) == 1:
            return self.counts[0]
        process = trial.process
        weights = weigh_inputs(process.covariance, self.rows.d)
        best, best_rank = self.counts[0], -np.inf
        for k in self.counts:
            if k == self._trial_k:
                parts = trial.parts.head(_COUNTING_ROWS)
            else:
                parts = self.rows.leave_out(Mixture.of(process), weights, k, _COUNTING_ROWS)
            rank = self._rank(self._mix((process,), parts), parts)
            if rank < best_rank + _LEAST_COUNT_RISE:
                break
            best, best_rank = k, rank
        return best

    def _select(self, trials: list[Trial], most: int) -> list[Trial]:
        """Trials that help the mixture, the best first."""
        chosen, best = list[Trial](), -np.inf
        while len(chosen) < min(most, len(trials)):
            others = [t for t in trials if all(t is not known for known in chosen)]
            ranks = [self._rank_together([*chosen, trial]) for trial in others]
            if max(ranks) < best + _LEAST_RISE:
                break
            best = max(ranks)
            chosen.append(others[int(np.argmax(ranks))])
        return chosen

    def _rank_together(self, trials: list[Trial]) -> float:
        """How well trials predict together, with the best belief in them."""
        parts = _stack(trials)
        return self._rank(self._mix(tuple(trial.process for trial in trials), parts), parts)

    def _mix(self, processes: tuple[Process, ...], parts: LocalMoments) -> Mixture:
        """The best mixture for rows that are left out."""
        return fit_mixture(processes, parts, *self.rows.hold(len(parts.mean)))

    def _rank(self, mixture: Mixture, parts: LocalMoments) -> float:
        """How well rows are predicted, less what hyperparameters learned from them flatter.

        Few rows have draws of them.
        """
        y, weight = self.rows.hold(len(parts.mean))
        rank = rank_mixture(mixture, parts, y, weight)
        if self.is_exact:
            return rank
        shares = np.average(mixture.weigh(parts.evidence), axis=0, weights=weight)
        n_learned = shares @ [len(process.vector) for process in mixture.processes]
        return rank - float(n_learned) / self.rows.n_values

    def _score(self, mixture: Mixture, parts: LocalMoments) -> float:
        """Log density of rows that are left out, per row."""
        return measure_score(mixture, parts, *self.rows.hold(len(parts.mean)))

    def _train_further(self, start: Process | None) -> Found:
        """The best trials, also as trained on more groups, and the belief in them.

        Where all rows may predict, so may kernels with one length scale, from `start`.
        """
        k = self._count_neighbours(max(self.trials, key=lambda trial: trial.rank))
        pool = list(self.trials)
        if not self.stopped:
            chosen, self.trials = self._select(pool, _count_kept(k)), []
            groups = self._draw_groups(_FINAL_ROWS, _FINAL_COVER)
            for trial in chosen:
                n_iter = self.max_iter or _FINAL_ITERATIONS
                self._try(trial.name, trial.process, groups, n_iter, _NOISE_FACTORS)
            pool += self.trials
        compete = len(self.counts) > 1
        counts = {k, min(k, self._trial_k)} if compete else {k}
        found = [self._mix_chosen(self._select(pool, _count_kept(n)), n) for n in sorted(counts)]
        if len(self.rows) > _MANY:
            ahead = max(found, key=lambda one: one.rank)
            n = max(HELD_OUT, _NEIGHBOURS_OF_ALL // ahead.k)
            return self._mix_chosen(ahead.trials, ahead.k, n)
        most = next((most for n, most in _TRIED_WITH_ALL if len(self.rows) <= n), 0)
        if most and compete and self.rows.may_all_predict:
            isotropic = [] if start is None else self._try_isotropic_by_groups(start)
            best = sorted(pool, key=lambda trial: -trial.rank)[: most - len(isotropic)]
            found.append(self._mix_all([*best, *isotropic]))
        return max(found, key=lambda one: one.rank)

    def _try_isotropic_by_groups(self, process: Process) -> list[Trial]:
        """Try kernels with one length scale, for all rows.

        They are trained on rows that are far apart, and would lose by what near rows say.
        """
        n_groups = min(_ISOTROPIC_GROUPS, -(-len(self.rows) // _ISOTROPIC_ROWS))
        groups = [group for _ in range(n_groups) for group in self.rows.draw_rows(_ISOTROPIC_ROWS)]
        return self._try_isotropic(process, groups, self.max_iter or _TRIAL_ITERATIONS)

    def _try_isotropic(self, process: Process, groups: list[Group], n_iter: int) -> list[Trial]:
        """Try one length scale for all inputs, then straight lines as well."""
        n_before = len(self.trials)
        name, kernel = make_isotropic_kernel(process.kernel)
        self._try(name, replace(process, kernel=kernel), groups, n_iter)
        for trial in self.trials[n_before:]:
            self._add_lines(trial, groups, self.max_iter or _FOLLOWING_ITERATIONS)
        return self.trials[n_before:]

    def _try_isotropic_alone(
        self, starts: dict[str, Process], groups: list[Group], n_iter: int
    ) -> None:
        """Try kernels with one length scale, or few; keep these, those or all others.

        Rows that have had no part in training decide, by the best of a kind, and the intervals.
        """
        others = list(self.trials)
        best = max((t for t in others if t.name in starts), key=lambda t: t.trained.value)
        start = starts[best.name]
        isotropic = self._try_isotropic(start, groups, n_iter)
        folds = draw_folds(groups, self.rng)
        freed = self._try_freed(best.name, starts, groups, n_iter)
        if self.stopped:
            return
        judge = partial(judge_folds, groups=groups, folds=folds, max_iter=n_iter, tol=self.tol)
        one, *rest = map(judge, (start, *(trial.process for trial in isotropic)))
        verdicts = [(one, others), (max(rest), isotropic)]
        if freed:
            verdicts.append((judge(start, learn=free_inputs), freed))
        (_, self.calibration, self.extra_noise), self.trials = max(verdicts, key=itemgetter(0))

    def _try_freed(
        self, name: str, starts: dict[str, Process], groups: list[Group], n_iter: int
    ) -> list[Trial]:
        """Try, of many inputs, everything once more with length scales of some, if any gain."""
        first = starts.pop(name)
        if count_inputs(self.rows.d, first.owners) <= MANY_INPUTS or self.stopped:
            return []
        trained = free_inputs(first, groups, max_iter=n_iter, tol=self.tol)
        if not any(trained.process.tied):
            return []
        before, self.trials = self.trials, []
        self._judge(name, [trained])
        self._try_followers(starts, groups, n_iter)
        for other, process in self._combine():
            self._try(other, process, groups, n_iter)
        self._try_lines(groups, n_iter)
        freed, self.trials = self.trials, before
        return freed

    def _mix_chosen(self, chosen: list[Trial], k: int, n: int | None = None) -> Found:
        """The mixture of trials from k neighbours, learned from n rows that are left out."""
        weights = self._average_weights(chosen)
        processes = tuple(trial.process for trial in chosen)
        parts = self.rows.leave_out(Mixture.equal(processes), weights, k, n)
        return self._conclude(chosen, parts, weights, k)

    def _mix_all(self, pool: list[Trial]) -> Found:
        """The same from all rows."""
        weights, k = self._average_weights(pool), _ALL_NEIGHBOURS
        by_kernel: dict[Covariance, list[Trial]] = {}
        for trial in pool:
            by_kernel.setdefault(trial.process.covariance, []).append(trial)
        tried: list[Trial] = []
        for trials in by_kernel.values():  # in turn: each process has a matrix of all rows
            processes = tuple(trial.process for trial in trials)
            everything = self.rows.leave_out(Mixture.equal(processes), weights, k)
            pairs = zip(trials, everything.split(), strict=True)
            tried += [trial._replace(parts=parts) for trial, parts in pairs]
        chosen = self._select(tried, _MOST_KEPT)
        return self._conclude(chosen, _stack(chosen), weights, k)

    def _average_weights(self, trials: list[Trial]) -> Array:
        return average_weights([trial.process.covariance for trial in trials], self.rows.d)

    def _conclude(self, chosen: list[Trial], parts: LocalMoments, weights: Array, k: int) -> Found:
        """What has been found, if those that are chosen say `parts` of rows that are left out."""
        processes = tuple(trial.process for trial in chosen)
        mixture = self._mix(processes, parts)
        y, weight = self.rows.hold(len(parts.mean))
        shares = np.average(mixture.weigh(parts.evidence), axis=0, weights=weight)
        mixture = shape_errors(mixture, parts, y, weight)
        score, rank = self._score(mixture, parts), self._rank(mixture, parts)
        return Found(chosen, mixture, list(range(len(chosen))), shares, weights, k, score, rank)

    # -- few rows ----------------------------------------------------------------------------------

    def _mix_draws(self, groups: list[Group]) -> Found:
        """Draws of the hyperparameters of every kernel that matters, weighted by evidence.

        A kernel's evidence is estimated by importance sampling; its draws have equal shares, but
        for those that are hopeless, which leave the maximum if all are.
        """
        top = max(trial.trained.value for trial in self.trials)
        chosen = [t for t in self.trials if t.trained.value > top - _WITHIN]
        processes, log_weights, trial_of = [], [], []
        for i, trial in enumerate(chosen):
            seed = self.rng.randint(np.iinfo(np.int32).max)
            drawn, at_maximum = draw_processes(trial.trained, groups, _N_DRAWS, seed)
            importance = np.array([weight for _, weight in drawn])
            evidence = float(logsumexp(importance)) - np.log(len(drawn))
            least = max(importance.max(), at_maximum) - _DRAWS_WITHIN
            kept = [process for process, weight in drawn if weight > least] or [trial.process]
            processes += kept
            log_weights += [evidence - np.log(len(kept))] * len(kept)
            trial_of += [i] * len(kept)
        log_belief = np.array(log_weights) - logsumexp(log_weights)
        matter = np.flatnonzero(log_belief > log_belief.max() - _WITHIN)
        mixture = Mixture(tuple(processes[j] for j in matter), log_belief[matter], 0.0)
        weights = np.ones(self.rows.d)  # all rows are neighbours
        k = self.counts[-1]
        parts = self.rows.leave_out(mixture, weights, k)
        mixture = replace(mixture, extra_noise=self.extra_noise)
        y, weight = self.rows.hold()
        output, varies = self.rows.output, self.rows.noise_may_vary
        if output is not None:
            mixture = tell_noises(mixture, parts, y, weight, output, varies=varies)
            parts = mixture.tell_outputs(parts, output)
        elif varies:
            mixture = vary_noise(mixture, parts, y, weight)
        mixture = widen(mixture, parts, y, weight, least=self.calibration)
        mixture = shape_errors(mixture, parts, y, weight)
        trial_of = [trial_of[j] for j in matter]
        belief = np.bincount(trial_of, mixture.weigh(parts.evidence)[0], len(chosen)).astype(float)
        score, rank = self._score(mixture, parts), self._rank(mixture, parts)
        return Found(chosen, mixture, trial_of, belief, weights, k, score, rank)


def _follow(name: str, process: Process, trial: Trial) -> Process:
    """Start of a process from one that has been trained, with another kernel."""
    kernel = follow(name, process.kernel, trial.name, trial.process.kernel)
    return replace(trial.process, kernel=kernel)


def _count_kept(k: int) -> int:
    """Most processes that predict from k neighbours."""
    return int(np.clip(_MOST_READ // k, 1, _MOST_KEPT))


def _stack(trials: list[Trial]) -> LocalMoments:
    parts = zip(*(trial.parts for trial in trials), strict=True)
    return LocalMoments(*(np.hstack(columns) for columns in parts))
