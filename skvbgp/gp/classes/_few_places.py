"""The search for kernels that tell classes of few places apart, which all predict any other.

The best kernels are also tried with inputs in units of their ranges and with warped inputs, see
`_warp`. Of very few places, the best one is tried plus lines, and all share in predictions
and average over draws of their hyperparameters; of others, the best are trained further. Where two
classes overlap, or are of very few places, kernels are tried with a likelihood of labels, see
`_probit_process`, and more classes of very few places that overlap with one of each versus the
rest, see `_versus_rest`; of the kernels with one length scale the best one then stays beside those
with one for each. A border may be sharp: then one kernel is tried with such likelihoods on the
places of the first trials, and all places are told to it where it gains there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import softmax

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import thread_map
from skvbgp._optim.maximum import draw_processes
from skvbgp.gp.classes._posterior import mix_log_probabilities
from skvbgp.gp.classes._process import ClassModel
from skvbgp.gp.classes._search import (
    ALIKE_KERNEL,
    N_FREED,
    ClassSearch,
    Groups,
    Starts,
    Trial,
    list_freed,
    rank,
)
from skvbgp.gp.classes._shares import (
    PROBIT,
    RANGES,
    WARPED,
    Combination,
    Found,
    Part,
    average_votes,
)
from skvbgp.gp.classes._start import give_probit, start_alike_process, start_anova_process
from skvbgp.gp.classes._votes import Votes
from skvbgp.gp.classes._warp import find_ranges, find_warp
from skvbgp.kernels._candidates import add_fading_lines

#: Places that kernels are tried on: of no more, hyperparameters are drawn.
_TRIAL_PLACES = 500
#: Trials that are trained further.
_MOST_KEPT = 5
#: Trials that are tried with inputs in units of their ranges, and nats that one has to gain.
_N_RANGES, _WORTH_RANGES = 2, 2.0
#: Nats that warped inputs have to gain where not all trials share.
_WORTH_WARPING = 2.0
#: Kernels of either kind that get a probit likelihood, and its iterations for max_iter=None.
_N_PROBIT, _PROBIT_ITERATIONS = 2, 10
#: Least share of the entropy of frequencies that is left where classes overlap.
_OVERLAP = 0.25
#: Most classes whose borders may be sharp.
_MOST_SHARP = 5
#: Nats a vote of as many hyperparameters as leave no loss even of labels drawn by lot.
_MOST_FLATTERED = 0.25
#: Draws of the hyperparameters of a kernel; those that matter, in nats.
_N_DRAWS = 16
_WITHIN = 6.0


@dataclass
class FewPlacesSearch(ClassSearch):
    """One search of votes on places that are all neighbours."""

    tried_on: Votes = field(init=False)  # those on the places of the first trials

    def __post_init__(self) -> None:
        self.held = self.votes

    @staticmethod
    def count_trials(n_starts: int, *, grows: bool) -> int:
        """Largest number of trials."""
        warped, lines, alike = 1, 1, 1
        grown = _N_RANGES + N_FREED + warped + lines + alike
        return n_starts + grown * grows + _MOST_KEPT + 2 * _N_PROBIT

    @property
    def _is_small(self) -> bool:
        """Whether hyperparameters are drawn, as the first trials are of all places."""
        return len(self.votes) <= _TRIAL_PLACES

    @property
    def _has_gaps(self) -> bool:
        """Whether entries of places are missing."""
        return self.votes.X.shape[1] > self.d

    def run(self, starts: Starts, *, grows: bool) -> Found:
        chosen = self._try_all(starts, grows=grows)
        if self.stopped:
            return self.find_shares(chosen)
        if self._is_small:
            parts = self._draw(self.trials)
        else:
            self.train_further(chosen, [(self.votes,)])
            parts = self.make_parts(self.trials)
        mixture = self.mix(parts)
        return mixture.found if self.stopped else self._tell_labels(parts, chosen, mixture).found

    def _try_all(self, starts: Starts, *, grows: bool) -> list[Trial]:
        """Try processes and what comes of them, and return those that are worth more time."""
        index = np.sort(self.rng.permutation(len(self.votes))[:_TRIAL_PLACES])
        self.tried_on = self.votes.part(index)
        groups = [(self.tried_on,)]
        self.try_models(starts, groups)
        if not grows:
            return rank(self.trials)[:_MOST_KEPT]
        best = rank(self.trials)
        self._try_ranges(best[:_N_RANGES], groups)
        shared = rank(self.trials)
        freed = self.try_freed(best[:N_FREED], groups)
        chosen = [*shared[: _MOST_KEPT - len(freed)], *freed]
        chosen += self._try_warped(list_freed(chosen) or chosen, groups)
        if self._is_small:
            self._try_lines(list_freed(self.trials) or self.trials)
        return chosen

    # -- inputs, and lines -----------------------------------------------------------------------

    def _try_ranges(self, trials: list[Trial], groups: Groups) -> None:
        """Try trials, the best first, with inputs in units of their ranges, if one gains by it."""
        owners = trials[0].process.process.owners
        ranges = None if self.stopped else find_ranges(self.votes.X[:, : self.d], owners)
        if ranges is None:
            return
        before = list(self.trials)
        starts = [(one.name + RANGES, replace(one.process, warp=ranges)) for one in trials]
        tried = self.try_models(starts, groups)
        if rank(tried)[0].score < trials[0].score + _WORTH_RANGES:
            self.trials = before

    def _try_warped(self, trials: list[Trial], groups: Groups) -> list[Trial]:
        """Try the best of some trials with inputs that are warped.

        It is returned if it is worth more time; of few places always, as shares say what it is.
        """
        if self.stopped or self._has_gaps:
            return []
        best, ((votes,),) = rank(trials)[0], groups
        warp = find_warp(votes.X, trials[0].process.process.owners)
        if warp is None:
            return []
        (warped,) = self.try_models(
            [(best.name + WARPED, replace(best.process, warp=warp))], groups
        )
        is_worth_it = self._is_small or warped.score > best.score + _WORTH_WARPING
        return [warped] if is_worth_it else []

    def _try_lines(self, trials: list[Trial]) -> None:
        """Try the best of some kernels plus lines: alone, it asks near rows for all slopes."""
        if self.stopped:
            return
        best = rank(trials)[0]
        name, kernel = add_fading_lines(best.name, best.process.kernel, self.d)
        model = replace(best.process, process=replace(best.process.process, kernel=kernel))
        self.try_models([(name, model)], [(self.votes,)])

    # -- likelihoods of labels -------------------------------------------------------------------

    def _tell_labels(
        self, parts: list[Part], chosen: list[Trial], before: Combination
    ) -> Combination:
        """With likelihoods of labels, where classes overlap or votes left out gain by these."""
        if not self.allows_labels:
            return before
        two, overlap = self.n_classes == 2, self._overlap(before.found.score)
        if (two and self._is_small) or (overlap and (two or self._is_small)):
            told = self._add_probit(parts, chosen)
            after = self.mix(told)
            if overlap or self.gains(after, before):
                parts, before = told, after
            if not self._is_small:
                return before
        tried = self._try_sharp(chosen)
        if not tried:
            return before
        after = self.mix([*parts, *self.make_parts(tried)])
        return after if self.gains(after, before) else before

    def _try_sharp(self, chosen: list[Trial]) -> list[Trial]:
        """Try a likelihood of labels on the places of the first trials.

        It is returned if votes left out there gain what would be a standard error of all: what
        all places say takes its time.
        """
        freed = list_freed(chosen)
        if self.stopped or not freed or self.n_classes > _MOST_SHARP:
            return []
        start = self.start_labels(freed)
        few = replace(self, votes=self.tried_on)
        tried = self.try_models([(ALIKE_KERNEL, start)], [(few.votes.single,)], _PROBIT_ITERATIONS)
        told = few.make_parts(chosen)
        before, after = few.mix(told), few.mix([*told, *few.make_parts(tried)])
        share = float(np.sqrt(len(few.votes) / len(self.votes)))
        return tried if few.gains(after, before, share) else []

    def _overlap(self, score: float) -> bool:
        """Whether classes are hard to tell by what regressions score."""
        log_frequencies = self.votes.log_frequencies
        entropy = -float(np.exp(log_frequencies) @ log_frequencies)
        return -score > _OVERLAP * entropy

    def _add_probit(self, parts: list[Part], chosen: list[Trial]) -> list[Part]:
        """Kernels with a probit likelihood, and the parts that add something beside them.

        Those by input do, if there are any, and the best other one.
        """
        freed = [part for part in parts if part.is_by_input]
        if freed:
            shared = [trial.name for trial in chosen if trial.process.shared_scale is None]
            parts = [*(part for part in parts if part.name in shared[:1]), *freed]
        tried = self._try_probit(chosen if self._is_small else self.trials)
        return [*parts, *self.make_parts(tried)]

    def _try_probit(self, trials: list[Trial]) -> list[Trial]:
        """Try kernels with a probit likelihood, those that were freed if any were.

        Of few places only the best, of more also one whose length scales are alike. Beside them an
        ANOVA kernel. A row of a weight is one row to them, see `single`: as several that agree it
        would be evidence that nobody has seen.
        """
        freed = list_freed(trials)
        if self._is_small:
            chosen = rank(freed or trials)[:1]
        elif freed:
            chosen = rank(freed)[:_N_PROBIT]
        else:
            chosen = [*trials[:_N_PROBIT], *trials[_N_PROBIT:][-_N_PROBIT:]]
        n_classes, owners = self.n_classes, chosen[0].process.process.owners
        starts: list[tuple[str, ClassModel]] = [
            (trial.name + PROBIT, give_probit(trial.process, n_classes)) for trial in chosen
        ]
        if freed and not self._is_small:
            starts.append((ALIKE_KERNEL, start_alike_process(self.d, owners, n_classes)))
        if freed:
            starts.append((f"ANOVA{PROBIT}", start_anova_process(self.d, owners, n_classes)))
        return self.try_models(starts, [(self.votes.single,)], _PROBIT_ITERATIONS)

    # -- belief ----------------------------------------------------------------------------------

    def make_parts(self, trials: Sequence[Trial]) -> list[Part]:
        processes = [trial.process for trial in trials]
        return self.join_parts(trials, processes, self._leave_out(processes))

    def charge(self, model: ClassModel) -> float:
        return float(model.n_chosen / self.votes.counts.sum())

    def _leave_out(self, processes: Sequence[ClassModel]) -> list[tuple[Array, Array]]:
        """Moments of votes that are left out, by each process."""
        return [process.leave_out(self.votes) for process in processes]

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
        parts = self.log_probabilities(processes, self._leave_out(processes))
        log_p = mix_log_probabilities(parts, weights)
        charge = self.charge(trial.process)
        if charge < _MOST_FLATTERED:
            # where classes can be told apart, there is hardly anything to gain by hyperparameters
            charge = min(charge, -average_votes(log_p, self.held.left_out.counts))
        return Part(trial.name, trial.process, processes, weights, log_p, charge)
