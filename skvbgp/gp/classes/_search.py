"""What a search for kernels that tell classes apart tries, and the belief in what it finds.

Every kernel is trained on some rows with one length scale for all inputs, the best two also with
one for each. They are compared by the log probability of labels that are left out, plus their log
prior, less one nat for each hyperparameter; by what they say of such labels, they share in
predictions, see `_shares`.

Few places, which all predict any other, are searched otherwise than many, see `_few_places`
and `_many_places`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from skvbgp._core.journal import do_once
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import thread_map
from skvbgp._optim.ascent import EndPass
from skvbgp._optim.maximum import Trained, train
from skvbgp.gp.classes._process import ClassModel
from skvbgp.gp.classes._shares import ALIKE, Combination, Found, Part
from skvbgp.gp.classes._start import free_length_scales, start_alike_process
from skvbgp.gp.classes._votes import Votes

#: max_iter=None: iterations of a trial, and of further training.
TRIAL_ITERATIONS, FINAL_ITERATIONS = 20, 6
#: Most classes that each have a likelihood of labels versus the rest.
_MOST_CLASSES = 10
#: Trials that get one length scale per input.
N_FREED = 2
#: Standard errors that votes left out have to gain where something else may predict.
_LEAST_GAIN = 1.0
#: The likelihood of labels whose length scales are alike.
ALIKE_KERNEL = f"SE, by input{ALIKE}"

#: Kernels and where they start, by name; places that they are trained on, in groups.
Starts = Sequence[tuple[str, ClassModel]]
Groups = Sequence[tuple[Votes]]


class Trial(NamedTuple):
    """A kernel that has been tried."""

    name: str
    trained: Trained[ClassModel]
    score: float  # log probability of labels, penalised

    @property
    def process(self) -> ClassModel:
        return self.trained.process


@dataclass
class ClassSearch(ABC):
    """One search of scaled votes on places of d columns; it is made for one fit."""

    votes: Votes
    d: int
    rng: np.random.RandomState
    max_iter: int | None
    tol: float
    #: Called after every trial, with a function that returns what has been `Found`.
    end_pass: EndPass
    trials: list[Trial] = field(init=False, default_factory=list)
    stopped: bool = field(init=False, default=False)
    held: Votes = field(init=False)  # those that are left out in turn

    @abstractmethod
    def run(self, starts: Starts, *, grows: bool) -> Found:
        """Try processes, and with ``grows`` the best two with one length scale per input."""

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.votes.log_frequencies)

    @property
    def allows_labels(self) -> bool:
        """Whether votes may have a likelihood of labels.

        Of more than two classes there is one of each versus the rest. It takes a row of a weight
        for several that agree, see `VersusRest`.
        """
        return self.n_classes == 2 or (self.votes.are_rows and self.n_classes <= _MOST_CLASSES)

    # -- trials ----------------------------------------------------------------------------------

    def try_models(
        self, starts: Starts, groups: Groups, n_iter: int = TRIAL_ITERATIONS
    ) -> list[Trial]:
        """Train models, and add them to the trials."""
        before = len(self.trials)
        for trial in self.fit(starts, groups, n_iter):
            self.trials.append(trial)
            if not self.stopped:
                self.stopped = self.end_pass(lambda: self.find_shares(rank(self.trials)[:1]))
        return self.trials[before:]

    def fit(self, starts: Starts, groups: Groups, n_iter: int) -> list[Trial]:
        """Train models on groups, so many iterations if `max_iter` says nothing else."""

        def fit(name: str, process: ClassModel) -> Trial:
            trained = train(process, groups, max_iter=self.max_iter or n_iter, tol=self.tol)
            return Trial(name, trained, trained.value - len(process.vector))

        return do_once(lambda: thread_map(fit, starts))

    def try_freed(self, best: Sequence[Trial], groups: Groups) -> list[Trial]:
        """Try kernels with one length scale for each input, if there are several."""
        if self.stopped or self.trials[0].process.n_inputs == 1:
            return []
        starts = [(f"{t.name}, by input", free_length_scales(t.process)) for t in best]
        return self.try_models(starts, groups)

    def start_labels(self, freed: Sequence[Trial]) -> ClassModel:
        """A likelihood of labels, whose length scales start as those of regressions by input.

        Labels of some places say less of which inputs matter.
        """
        model = freed[0].process
        log_scales = np.mean([one.process.vector[: model.n_inputs] for one in freed], axis=0)
        return start_alike_process(self.d, model.process.owners, self.n_classes, log_scales)

    def train_further(self, chosen: Sequence[Trial], groups: Groups) -> None:
        """Go on with trials on other groups, as the only ones."""
        self.trials = []
        self.try_models([(one.name, one.process) for one in chosen], groups, FINAL_ITERATIONS)

    # -- belief ----------------------------------------------------------------------------------

    @abstractmethod
    def make_parts(self, trials: Sequence[Trial]) -> list[Part]:
        """What may share of trials, at their maxima."""

    @abstractmethod
    def charge(self, model: ClassModel) -> float:
        """Nats a vote that hyperparameters have gained by being chosen by votes, one for each."""

    def find_shares(self, trials: Sequence[Trial]) -> Found:
        """The shares of trials."""
        return self.mix(self.make_parts(trials)).found

    def mix(self, parts: list[Part]) -> Combination:
        return Combination.of(parts, self.held.left_out.counts, self.d)

    def gains(self, after: Combination, before: Combination, share: float = 1.0) -> bool:
        """Whether votes that are left out are more probable by a share of a standard error."""
        return after.gains(before, self.held.left_out.counts, _LEAST_GAIN * share)

    def log_probabilities(
        self, processes: Sequence[ClassModel], moments: Sequence[tuple[Array, Array]]
    ) -> list[Array]:
        """Of votes that are left out, by each process."""
        return [
            process.link.log_probabilities(*given, self.votes.log_frequencies)
            for process, given in zip(processes, moments, strict=True)
        ]

    def join_parts(
        self,
        trials: Sequence[Trial],
        processes: Sequence[ClassModel],
        moments: Sequence[tuple[Array, Array]],
    ) -> list[Part]:
        """Parts of single processes, which say this of votes that are left out."""
        parts = self.log_probabilities(processes, moments)
        return [
            Part(trial.name, process, [process], np.ones(1), log_p, self.charge(process))
            for trial, process, log_p in zip(trials, processes, parts, strict=True)
        ]


def list_freed(trials: Sequence[Trial]) -> list[Trial]:
    """Those with one length scale for each input."""
    return [trial for trial in trials if trial.process.shared_scale is not None]


def rank(trials: Sequence[Trial]) -> list[Trial]:
    """The best first."""
    return sorted(trials, key=lambda trial: -trial.score)
