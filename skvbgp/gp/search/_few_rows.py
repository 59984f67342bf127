"""The search for kernels of few rows, all of which are neighbours of any place.

Every kernel is trained on all of them, as is the best one plus straight lines, and the mixture is
over kernels and over draws of their hyperparameters, by evidence. Kernels with one length scale, or
with those of a few of many inputs, take their place where they predict better what has had no part
in training, which also says how wide intervals are. See :doc:`/theory/gp_learning`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from scipy.special import logsumexp

from skvbgp._optim.maximum import Trained, draw_processes
from skvbgp.gp._belief import measure_score, shape_errors, tell_noises, vary_noise, widen
from skvbgp.gp._mixture import Mixture
from skvbgp.gp._process import Process, train_process
from skvbgp.gp._row_noise import Group
from skvbgp.gp.search._folds import LEAST_ROWS, draw_folds, judge_folds
from skvbgp.gp.search._free_inputs import free_inputs, has_many_inputs
from skvbgp.gp.search._search import Found, Search, Training, Trial
from skvbgp.gp.search._steep_lines import LEAST_LEAD
from skvbgp.kernels._candidates import follow

#: max_iter=None: iterations of a trial.
_ITERATIONS = 40
#: If more than this share of y seems to be noise, rows are searched again.
_MUCH_NOISE = 0.25
#: Draws of hyperparameters; kernels and draws that matter, in nats.
_N_DRAWS = 16
_WITHIN = 8.0
#: Draws that are so many nats less important than the maximum or the best one are no posterior.
_DRAWS_WITHIN = 32.0


@dataclass
class FewRowsSearch(Search):
    """One search of rows that are all neighbours."""

    #: The least calibration, and the extra noise, as rows say that have had no part in training.
    calibration: float = 1.0
    extra_noise: float = 0.0

    def __post_init__(self) -> None:
        self.groups = self.rows.take_all()

    @property
    def _n_iter(self) -> int:
        return self.max_iter or _ITERATIONS

    @staticmethod
    def count_trials(n_starts: int, *, grows: bool) -> int:
        followers = n_starts - 1  # of the best kernel from its own start, and of one that is freed
        products, lines, isotropic = 2 + 2, 1 + 1, 2  # of all, and of what is freed
        return n_starts + (2 * followers + products + lines + isotropic) * grows

    def run(self, starts: list[tuple[str, Process]], *, grows: bool) -> Training[Found]:
        self.try_starts(starts, self._n_iter, self._n_iter, grows=grows)
        if grows:
            self._try_alone(dict(starts))
            if not self.stopped:
                self.try_combined(self._n_iter, few=True)
        yield self.best.rank
        if grows:
            self._try_best_with_lines()
            if len(self.rows) >= LEAST_ROWS:
                self._try_isotropic_alone(dict(starts))
        return self._mix_draws()

    # -- trials ------------------------------------------------------------------------------------

    def _try_alone(self, starts: dict[str, Process]) -> None:
        """If most of y seems to be noise, train the best kernel from its own start, too.

        The first one may have ended where all is noise, and those that follow it as well. If that
        is better, the others follow this one.
        """
        best = self._find_most_probable()
        if self.stopped or best.process.noise < _MUCH_NOISE:
            return
        alone = self.train(starts.pop(best.name), self._n_iter)
        if alone.value < best.trained.value + LEAST_LEAD:
            return
        self.trials = []
        self.add_trials(best.name, [alone])
        self._try_followers(starts)

    def _find_most_probable(self) -> Trial:
        return max(self.trials, key=lambda trial: trial.trained.value)

    def _try_followers(self, starts: dict[str, Process]) -> None:
        """Try processes that start from what the first trial has learned."""
        for name, process in starts.items():
            self.try_process(name, self.trials[0].lead(name, process), self._n_iter)

    def _try_best_with_lines(self) -> None:
        """Try the best kernel plus straight lines: alone, it falls back to the mean far away."""
        self.try_lines(self._find_most_probable(), self._n_iter)

    def _try_isotropic_alone(self, starts: dict[str, Process]) -> None:
        """Try kernels with one length scale, or few; keep these, those or all others.

        Rows that have had no part in training decide, by the best of a kind, and the intervals.
        """
        others = list(self.trials)
        best = max((t for t in others if t.name in starts), key=lambda t: t.trained.value)
        start = starts[best.name]
        isotropic = self.try_isotropic(start, self._n_iter)
        folds = draw_folds(self.groups, self.rng)
        freed = self._try_freed(best.name, starts)
        if self.stopped:
            return
        judge = partial(
            judge_folds, groups=self.groups, folds=folds, max_iter=self._n_iter, tol=self.tol
        )
        learn = self._find_way(best, next(iter(starts.items())), start)
        one = judge(start, learn=learn)
        rest = [judge(trial.process) for trial in isotropic]
        verdicts = [(one, others), (max(rest), isotropic)]
        if freed:
            verdicts.append((judge(start, learn=free_inputs), freed))
        (_, self.calibration, self.extra_noise), self.trials = max(verdicts, key=itemgetter(0))

    def _find_way(
        self, best: Trial, first: tuple[str, Process], start: Process
    ) -> Callable[..., Trained[Process]]:
        """How parts of the rows learn what the best trial has: from its own start, if all rows do.

        From there it may end where all is noise, unlike after the first trial.
        """
        if best.name == first[0] or self.stopped:
            return train_process
        alone = self.train(start, self._n_iter)
        if alone.value > best.trained.value - LEAST_LEAD:
            return train_process
        return partial(_train_after, name=best.name, first=first)

    def _try_freed(self, name: str, starts: dict[str, Process]) -> list[Trial]:
        """Try, of many inputs, everything once more with length scales of some, if any gain."""
        first = starts.pop(name)
        if self.stopped or not has_many_inputs(first):
            return []
        trained = free_inputs(first, self.groups, max_iter=self._n_iter, tol=self.tol)
        if not any(trained.process.tied):
            return []
        before, self.trials = self.trials, []
        self.add_trials(name, [trained])
        self._try_followers(starts)
        self.try_combined(self._n_iter, few=True)
        self._try_best_with_lines()
        freed, self.trials = self.trials, before
        return freed

    # -- the mixture -------------------------------------------------------------------------------

    def _mix_draws(self) -> Found:
        """Draws of the hyperparameters of every kernel that matters, weighted by evidence.

        A kernel's evidence is estimated by importance sampling; its draws have equal shares, but
        for those that are hopeless, which leave the maximum if all are.
        """
        top = self._find_most_probable().trained.value
        chosen = [t for t in self.trials if t.trained.value > top - _WITHIN]
        processes, log_weights, trial_of = [], [], []
        groups = chosen[0].process.prepare(self.groups)  # alike for all
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
        return self._conclude_draws(chosen, mixture, [trial_of[j] for j in matter])

    def _conclude_draws(self, chosen: list[Trial], mixture: Mixture, trial_of: list[int]) -> Found:
        """What has been found, with the noise that rows say which are left out."""
        weights, k = np.ones(self.rows.d), self.rival_k[-1]  # all rows are neighbours
        left_out = self.rows.leave_out(mixture, weights, k)
        mixture = replace(mixture, extra_noise=self.extra_noise)
        output, varies = self.rows.output, self.rows.noise_may_vary
        if output is not None:
            mixture = tell_noises(mixture, left_out, output, varies=varies)
            left_out = left_out._replace(parts=mixture.add_output_noise(left_out.parts, output))
        elif varies:
            mixture = vary_noise(mixture, left_out)
        mixture = widen(mixture, left_out, least=self.calibration)
        mixture = shape_errors(mixture, left_out)
        shares = mixture.weigh(left_out.parts.evidence)[0]  # which are the same everywhere
        belief = np.bincount(trial_of, shares, len(chosen)).astype(float)
        score, rank = measure_score(mixture, left_out), self.rank(mixture, left_out)
        return Found(chosen, mixture, trial_of, belief, weights, k, score, rank)


def _train_after(
    process: Process,
    groups: Sequence[Group],
    *,
    name: str,
    first: tuple[str, Process],
    **limits: Any,
) -> Trained[Process]:
    """The more probable of a process from its own start and of one that follows the first trial."""
    before, leader = first
    leader = train_process(leader, groups, **limits).process
    kernel = follow(name, process.kernel, before, leader.kernel)
    starts = process, replace(leader, kernel=kernel)
    return max((train_process(one, groups, **limits) for one in starts), key=attrgetter("value"))
