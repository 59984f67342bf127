"""The search for kernels that tell classes of many places apart, predicted from the nearest ones.

Kernels are trained on groups of near places, and the best ones further. What they become on random
places may be better, or through inducing inputs, see `_inducing`. So may a kernel with a likelihood
of labels, see `_inducing_labels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import numpy as np

from skvbgp._core.journal import do_once
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.owners import count_inputs
from skvbgp._core.parallel import thread_map
from skvbgp._core.scaling import Coordinates
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._rows import Rows, cut_groups, draw_groups, size_groups
from skvbgp.gp.classes._inducing import InducingClasses
from skvbgp.gp.classes._inducing_labels import InducingLabels
from skvbgp.gp.classes._posterior import ClassPosterior
from skvbgp.gp.classes._probit_process import LabelModel
from skvbgp.gp.classes._process import ClassModel, ClassProcess
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
from skvbgp.gp.classes._shares import INDUCING, Combination, Found, Part, weigh_by_models

#: Groups of a trial, and of training.
_TRIAL_GROUPS, _FINAL_GROUPS = 10, 20
#: Places that are left out, one at a time.
_HELD_OUT = 1_000
#: Trials that are trained further, whose matrices every place has to factorise for every kernel.
_MOST_KEPT = 3
#: Random places of a group that kernels are trained on once more, and iterations for max_iter=None.
_FAR_PLACES, _FAR_ITERATIONS = 500, 10
#: Places that what predicts through inducing inputs knows.
_MOST_KNOWN = 20_000
#: Random places that a likelihood of labels is trained on, and again if that gains, and
#: iterations for max_iter=None.
_LABELLED = (500, 10), (1_000, 5)


@dataclass
class ManyPlacesSearch(ClassSearch):
    """One search of votes on places of which some are neighbours."""

    k: int  # neighbours
    m: int  # inducing inputs that are tried
    known: Index = field(init=False)  # places, in a random order, that inducing inputs are told of
    held_out: Index = field(init=False)  # places whose votes are left out in turn
    n_grouped: float = field(init=False)  # votes of the groups that kernels were trained on last

    def __post_init__(self) -> None:
        order = self.rng.permutation(len(self.votes))
        self.held_out = np.sort(order[:_HELD_OUT])
        self.known = order[::-1][:_MOST_KNOWN]  # those held out are the last
        self.held = self.votes.part(self.held_out)

    def run(self, starts: Starts, *, grows: bool) -> Found:
        groups = self._draw_near_groups(_TRIAL_GROUPS)
        self.try_models(starts, groups)
        best = rank(self.trials)
        freed = self.try_freed(best[:N_FREED], groups) if grows else []
        chosen = [*best[: _MOST_KEPT - len(freed)], *freed]
        if self.stopped:
            return self.find_shares(chosen)
        self.train_further(chosen, self._draw_near_groups(_FINAL_GROUPS))
        parts = self.make_parts(self.trials)
        mixture = self.mix(parts)
        if not self.stopped:
            mixture = self._tell_labels(*self._learn_afar(parts, mixture))
        return mixture.found

    def _draw_near_groups(self, n_groups: int) -> Groups:
        groups = draw_groups(self.votes.X[:, : self.d], n_groups, size_groups(self.k), self.rng)
        self.n_grouped = float(self.votes.sizes[np.unique(np.concatenate(groups))].sum())
        return [(self.votes.part(index),) for index in groups]

    def _draw_far_groups(self, model: ClassModel) -> Groups:
        n_inputs = count_inputs(self.d, model.process.owners)
        drawn = cut_groups(self.known, _FAR_PLACES, n_inputs)
        groups = [(self.votes.part(np.sort(places)),) for places in drawn]
        self.n_grouped = sum(float(votes.sizes.sum()) for (votes,) in groups)
        return groups

    # -- belief ----------------------------------------------------------------------------------

    def make_parts(self, trials: Sequence[Trial]) -> list[Part]:
        """What may share of trials. Neighbours ask for a link of their own."""
        processes = [cast(ClassProcess, trial.process) for trial in trials]
        moments = self._leave_out(processes)
        known = self.held.left_out.counts, self.votes.log_frequencies
        linked = [
            replace(process, link=process.link.learn(*given, *known))
            for process, given in zip(processes, moments, strict=True)
        ]
        return self.join_parts(trials, linked, moments)

    def charge(self, model: ClassModel) -> float:
        """Those of the kernel were chosen by the groups, those of the link by what is left out."""
        n_link = len(cast(ClassProcess, model).link.vector)
        n_kernel = model.n_chosen - n_link
        return float(n_kernel / self.n_grouped + n_link / self.held.counts.sum())

    def _leave_out(self, processes: Sequence[ClassProcess]) -> list[tuple[Array, Array]]:
        """Moments of votes that are left out, by each process."""
        X, inputs, noise = *np.split(self.votes.X, [self.d], axis=1), None
        if inputs.size:
            noise = replace(RowNoise.plain(len(inputs)), inputs=inputs)
        posterior = ClassPosterior(
            tuple(processes),
            np.ones(len(processes)),
            Rows.around(X, self.votes.counts, noise),
            Coordinates(np.zeros(self.d), np.ones(self.d)),
            weigh_by_models(processes, self.d),
            self.k,
        )
        return [
            process.give_back(self.held, *given)
            for process, given in zip(processes, posterior.leave_out(self.held_out), strict=True)
        ]

    # -- places that are far apart ---------------------------------------------------------------

    def _learn_afar(self, parts: list[Part], before: Combination) -> tuple[list[Part], Combination]:
        """What the parts become on random places, if that gains by votes left out.

        Near places do not show what is far apart, nor those that are near no others. With inducing
        inputs, where far places speak, kernels are also what they become; without, instead.
        """
        groups = self._draw_far_groups(parts[0].trained)
        trials = self.fit([part[:2] for part in parts], groups, _FAR_ITERATIONS)
        if self.m:
            given = [(trial,) for trial in trials]
            parts = [*parts, *do_once(lambda: thread_map(self._condition, given))]
        else:
            parts = self.make_parts(trials)
        return parts, self._prefer(self.mix(parts), before)

    def _prefer(self, after: Combination, before: Combination) -> Combination:
        """What has learned from random places, if this shares, and gains."""
        shares = after.found.inducing or not self.m
        return after if shares and self.gains(after, before) else before

    def _condition(self, trial: Trial) -> Part:
        """The kernel of a trial through inducing inputs, with the link that this asks for."""
        votes, process = self.votes, cast(ClassProcess, trial.process)
        Z, n_classes = votes.X[self.known[: self.m]], len(votes.log_frequencies)
        start = InducingClasses.start(process, Z, n_classes)
        told = start.plus(votes.part(np.sort(self.known)))
        given = told.given(votes.log_frequencies)
        moments = given.leave_out(self.held, np.isin(self.held_out, self.known))
        link = process.link.learn(*moments, self.held.left_out.counts, votes.log_frequencies)
        log_p = link.log_probabilities(*moments, votes.log_frequencies)
        told = replace(told, process=replace(process, link=link))
        charge = self.charge(process)
        return Part(trial.name + INDUCING, process, [told], np.ones(1), log_p, charge)

    # -- likelihoods of labels -------------------------------------------------------------------

    def _tell_labels(self, parts: list[Part], before: Combination) -> Combination:
        """With a likelihood of labels through inducing inputs, if votes left out gain by it."""
        is_possible = self.m and self.allows_labels and self.votes.are_whole
        if not (is_possible and list_freed(self.trials)):
            return before
        found, process = before, self.start_labels(list_freed(self.trials))
        for n, n_iter in _LABELLED:
            votes = self.votes.part(np.sort(self.known[:n])).single
            (trial,) = self.fit([(ALIKE_KERNEL, process)], [(votes,)], n_iter)
            after = self.mix([*parts, do_once(partial(self._match, trial))])
            if not self.gains(after, found):
                break
            found, process = after, trial.process
        if found is before:
            return before
        # several that are calibrated are together less sure than they should be
        return found.calibrate(self.held.left_out.counts, self.votes.log_frequencies)

    def _match(self, trial: Trial) -> Part:
        """A likelihood of labels through inducing inputs."""
        process = cast(LabelModel, trial.process)
        votes = self.votes.part(self.known)
        told, matched = InducingLabels.learn(process, votes.X[: self.m], votes)
        place = np.full(len(self.votes), -1)
        place[self.known] = np.arange(len(self.known))
        own = [sites.take(place[self.held_out]) for sites in matched]
        moments = told.begun.leave_out(self.held, own)
        known = self.held.left_out.counts, votes.log_frequencies
        link = process.link.learn(*moments, *known)
        log_p = link.log_probabilities(*moments, votes.log_frequencies)
        told = replace(told, power=link.power)
        charge = 1.0 / float(self.held.counts.sum())  # what is left out has chosen the power alone
        return Part(trial.name + INDUCING, process, [told], np.ones(1), log_p, charge)
