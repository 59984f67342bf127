"""The search for kernels of many rows, of which the nearest ones predict a place.

Every kernel is trained on a few groups of near rows and judged by what it predicts for rows that
are left out, each from its neighbours; of many inputs, the first one also with length scales of a
few, and what is better goes on. Products and sums of the two best kernels follow, and the best one
says how many neighbours pay. Those that help the mixture are trained further, on more groups, and
get their share of belief, of more than 3,000 rows from more rows that are left out. Up to 3,000
rows, all of them compete with neighbours, also with kernels that have one length scale for all
inputs and are trained on random rows. So is, of up to 2,000, the best kernel plus straight lines,
where these explain what it leaves. See :doc:`/theory/gp_learning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.gp._belief import fit_mixture
from skvbgp.gp._coregion import Covariance
from skvbgp.gp._mixture import LocalMoments, Mixture, Predicted
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import Group
from skvbgp.gp._rows import average_weights, size_groups, weigh_inputs
from skvbgp.gp.search._division import divide_inputs
from skvbgp.gp.search._free_inputs import free_inputs, has_many_inputs
from skvbgp.gp.search._sample import HELD_OUT
from skvbgp.gp.search._search import (
    FOLLOWING_ITERATIONS,
    STEEP_ITERATIONS,
    Found,
    Search,
    Training,
    Trial,
)
from skvbgp.gp.search._steep_lines import LEAST_GAIN, find_start_beside, leave_lines
from skvbgp.kernels._candidates import Divide, add_lines

#: Most rows of the groups that kernels are tried on and trained on further, and the same in
#: multiples of all rows.
_TRIAL_ROWS, _FINAL_ROWS = 3_000, 6_000
_TRIAL_COVER, _FINAL_COVER = 1.0, 2.0
#: max_iter=None: iterations of a trial, and of the further training.
_TRIAL_ITERATIONS, _FINAL_ITERATIONS = 15, 12
#: Multiples of the noise that compete with what the further training has found.
_NOISE_FACTORS = (0.3, 10.0)
#: Most neighbours that a trial predicts from, which ranks kernels as more do.
_TRIAL_NEIGHBOURS = 128
#: Rows, of those left out, that tell how many neighbours pay, and the least gain.
_COUNTING_ROWS = 500
_LEAST_COUNT_RISE = 0.01
#: Of more rows, the mixture is learned anew from so many that are left out, each as often as it has
#: neighbours, and from no fewer than those that judge trials.
_MANY, _NEIGHBOURS_OF_ALL = 3_000, 256_000
#: Most rows that may all predict: the time of predictions is cubic in them.
MOST_WITH_ALL = 3_000
#: Up to so many rows, all are one of the numbers of neighbours that compete, for so many processes:
#: the time of each is cubic in the rows.
_TRIED_WITH_ALL = ((2_000, 12), (MOST_WITH_ALL, 6))
#: Length scales of a few of many inputs are learned from at most so many random rows.
_FREE_ROWS = 800
#: Kernels with one length scale, and lines, are trained on at most so many groups of so many random
#: rows.
_FAR_GROUPS, _FAR_ROWS = 3, 400
#: Up to so many rows, lines that near rows cannot see are looked for; more have a global part for
#: these.
_TRIED_WITH_LINES = 2_000
#: Neighbours of processes that win with all rows: a stream that comes to more learns again.
_ALL_NEIGHBOURS = 4_000
#: Most processes of a mixture, most neighbours of all of them together, which bounds the time of a
#: prediction, and what one more has to gain.
_MOST_KEPT = 4
_MOST_READ = 512
_LEAST_RISE = 0.002


class ManyRowsSearch(Search):
    """One search of rows of which some are neighbours."""

    #: Weights (d,) of the inputs in the distance that groups go by, if few of many inputs matter.
    near_weights: Array | None = None

    @property
    def trial_k(self) -> int:
        return min(_TRIAL_NEIGHBOURS, self.rival_k[-1])

    @staticmethod
    def count_trials(n_starts: int, *, grows: bool) -> int:
        freed, combined, isotropic, lines = 1, 5, 2, 1
        trained_further = min(_MOST_KEPT, n_starts + combined * grows)
        return n_starts + (freed + combined + isotropic + lines) * grows + trained_further

    def run(self, starts: list[tuple[str, Process]], *, grows: bool) -> Training[Found]:
        self.groups = self._draw_groups(_TRIAL_ROWS, _TRIAL_COVER)
        self.try_starts(starts[:1], _TRIAL_ITERATIONS, FOLLOWING_ITERATIONS, grows=grows)
        if grows:
            self._try_freed(*starts[0])
        self.try_starts(starts[1:], _TRIAL_ITERATIONS, FOLLOWING_ITERATIONS, grows=grows)
        yield self.best.rank
        if grows and not self.stopped:
            self.try_combined(_TRIAL_ITERATIONS, few=False)
        pool = list(self.trials)
        k = self._count_neighbours(self.best)
        if not self.stopped:
            pool += self._train_further(self._select(pool, _count_kept(k)))
        found = self._mix_best(pool, k, starts[0][1] if grows else None)
        return self._try_missed_lines(found, max(pool, key=attrgetter("rank"))) if grows else found

    def rank(self, mixture: Mixture, left_out: Predicted) -> float:
        """How well rows are predicted, less what hyperparameters learned from them flatter."""
        sizes = [len(process.vector) for process in mixture.processes]
        n_learned = mixture.average_belief(left_out) @ sizes
        return super().rank(mixture, left_out) - float(n_learned) / self.rows.n_values

    def choose_division(self, best: list[Trial]) -> Divide:
        """Of many rows, the division that gains most: few kernels predict, and groups decide."""
        if len(self.rows) <= _MANY:
            return super().choose_division(best)
        process, kernels = best[0].process, [trial.process.kernel for trial in best]
        signs = divide_inputs(process, kernels, self.groups)
        return lambda first, second: [signs] if first is second else [signs, -signs]

    # -- training ----------------------------------------------------------------------------------

    def _draw_groups(self, most: int, cover: float) -> list[Group]:
        n_rows = min(most, cover * self.rows.total)
        return self.rows.draw_groups(n_rows, size_groups(self.rival_k[-1]), self.near_weights)

    def _try_freed(self, name: str, start: Process) -> None:
        """Try the first kernel, of many inputs, with length scales of some; the better one leads.

        Near rows do not say which inputs matter if all count alike in the distance: random ones do,
        and then rows are near by what has been freed.
        """
        if self.stopped or not has_many_inputs(start):
            return
        n_iter, groups = self.max_iter or _TRIAL_ITERATIONS, self.rows.draw_rows(_FREE_ROWS)
        freed = free_inputs(start, groups, max_iter=n_iter, tol=self.tol).process
        if not any(freed.tied):
            return
        before = self.trials, self.groups
        self.near_weights, self.trials = weigh_inputs(freed.covariance, self.rows.d), []
        self.groups = self._draw_groups(_TRIAL_ROWS, _TRIAL_COVER)
        self.try_process(name, freed, FOLLOWING_ITERATIONS)
        if self.trials[0].rank <= before[0][0].rank:
            (self.trials, self.groups), self.near_weights = before, None

    def _train_further(self, chosen: list[Trial]) -> list[Trial]:
        """Trials that are trained on more groups, and these with multiples of their noise.

        More noise is for rows that contradict their neighbours. Less is for those that agree
        with them better than the evidence, which is of one noise everywhere, says.
        """
        self.trials, self.groups = [], self._draw_groups(_FINAL_ROWS, _FINAL_COVER)
        for trial in chosen:
            if self.stopped:
                break
            trained = self.train(trial.process, _FINAL_ITERATIONS)
            process = trained.process
            noises = [factor * process.noise for factor in _NOISE_FACTORS]
            others = [
                trained._replace(process=replace(process, noise=noise))
                for noise in noises
                if process.noise_limits[0] <= noise < 1.0
            ]
            self.add_trials(trial.name, [trained, *others])
            self.end_trial()
        return self.trials

    def _draw_far_groups(self) -> list[Group]:
        """Groups of random rows, which are far apart."""
        n_groups = min(_FAR_GROUPS, -(-len(self.rows) // _FAR_ROWS))
        return [group for _ in range(n_groups) for group in self.rows.draw_rows(_FAR_ROWS)]

    def _try_missed_lines(self, found: Found, best: Trial) -> Found:
        """Try the best kernel plus straight lines, for all rows, if near rows cannot see these."""
        if self.stopped or not self._leaves_lines(best):
            return found
        self.groups = self._draw_far_groups()
        start = find_start_beside(best.process, self.groups, self.rows.d)
        name, _ = add_lines(best.name, best.process.kernel, self.rows.d)
        self.try_process(name, start, STEEP_ITERATIONS)
        with_lines = self._mix_all([*found.trials, self.trials[-1]])
        return with_lines if with_lines.rank > found.rank + LEAST_GAIN else found

    def _leaves_lines(self, trial: Trial) -> bool:
        """Whether straight lines explain errors of rows that are left out."""
        competes = len(self.rival_k) > 1 and self.rows.may_all_predict
        if not competes or len(self.rows) > _TRIED_WITH_LINES:
            return False
        X = self.rows.judged_inputs
        if X is None:
            return False
        return leave_lines(fit_mixture((trial.process,), trial.left_out), trial.left_out, X)

    # -- the mixture -------------------------------------------------------------------------------

    def _count_neighbours(self, trial: Trial) -> int:
        """How many neighbours pay: more are read as long as predictions gain."""
        if len(self.rival_k) == 1:
            return self.rival_k[0]
        process = trial.process
        weights = weigh_inputs(process.covariance, self.rows.d)
        best, best_rank = self.rival_k[0], -np.inf
        for k in self.rival_k:
            if k == self.trial_k:
                left_out = trial.left_out.take(slice(_COUNTING_ROWS))
            else:
                left_out = self.rows.leave_out(Mixture.of(process), weights, k, _COUNTING_ROWS)
            rank = self.rank(fit_mixture((process,), left_out), left_out)
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
        left_out = _stack(trials)
        mixture = fit_mixture(tuple(trial.process for trial in trials), left_out)
        return self.rank(mixture, left_out)

    def _mix_best(self, pool: list[Trial], k: int, start: Process | None) -> Found:
        """The mixture of trials that predicts best, from k neighbours, fewer, or all rows.

        Where all rows may predict, so may kernels with one length scale, from `start`.
        """
        compete = len(self.rival_k) > 1
        counts = {k, min(k, self.trial_k)} if compete else {k}
        found = [self._mix_chosen(self._select(pool, _count_kept(n)), n) for n in sorted(counts)]
        if len(self.rows) > _MANY:
            ahead = max(found, key=attrgetter("rank"))
            n = max(HELD_OUT, _NEIGHBOURS_OF_ALL // ahead.k)
            brings_more = len(self.rows.take_targets(n)[0]) > len(self.rows.take_targets()[0])
            return self._mix_chosen(ahead.trials, ahead.k, n) if brings_more else ahead
        most = next((most for n, most in _TRIED_WITH_ALL if len(self.rows) <= n), 0)
        if most and compete and self.rows.may_all_predict:
            isotropic = list[Trial]()
            if start is not None:  # they would lose by what near rows say
                self.groups = self._draw_far_groups()
                isotropic = self.try_isotropic(start, _TRIAL_ITERATIONS)
            best = sorted(pool, key=attrgetter("rank"), reverse=True)[: most - len(isotropic)]
            found.append(self._mix_all([*best, *isotropic]))
        return max(found, key=attrgetter("rank"))

    def _mix_chosen(self, chosen: list[Trial], k: int, n: int | None = None) -> Found:
        """The mixture of trials from k neighbours, learned from n rows that are left out."""
        weights = self._average_weights(chosen)
        processes = tuple(trial.process for trial in chosen)
        left_out = self.rows.leave_out(Mixture.equal(processes), weights, k, n)
        return self.conclude(chosen, left_out, weights, k)

    def _mix_all(self, pool: list[Trial]) -> Found:
        """The same from all rows, of those that help the mixture."""
        weights, k = self._average_weights(pool), _ALL_NEIGHBOURS
        by_kernel: dict[Covariance, list[Trial]] = {}
        for trial in pool:
            by_kernel.setdefault(trial.process.covariance, []).append(trial)
        tried: list[Trial] = []
        for trials in by_kernel.values():  # in turn: each process has a matrix of all rows
            processes = tuple(trial.process for trial in trials)
            everything = self.rows.leave_out(Mixture.equal(processes), weights, k)
            pairs = zip(trials, everything.split(), strict=True)
            tried += [trial._replace(left_out=left_out) for trial, left_out in pairs]
        chosen = self._select(tried, _MOST_KEPT)
        return self.conclude(chosen, _stack(chosen), weights, k)

    def _average_weights(self, trials: list[Trial]) -> Array:
        return average_weights([trial.process.covariance for trial in trials], self.rows.d)


def _count_kept(k: int) -> int:
    """Most processes that predict from k neighbours."""
    return int(np.clip(_MOST_READ // k, 1, _MOST_KEPT))


def _stack(trials: Sequence[Trial]) -> Predicted:
    """What all of them say of the same rows."""
    parts = zip(*(trial.left_out.parts for trial in trials), strict=True)
    moments = LocalMoments(*(np.hstack(columns) for columns in parts))
    return trials[0].left_out._replace(parts=moments)
