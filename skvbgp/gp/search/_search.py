"""What a search for kernels tries, how it judges that, and what it has found.

Few rows, all of which are neighbours of any place, are searched otherwise than many, see
`_few_rows` and `_many_rows`. Of both, errors of rows that are left out say how observations are
distributed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._optim.ascent import EndPass
from skvbgp._optim.maximum import Trained
from skvbgp.gp._belief import fit_mixture, measure_score, rank_mixture, shape_errors
from skvbgp.gp._mixture import Mixture, Predicted
from skvbgp.gp._process import Process, train_process
from skvbgp.gp._row_noise import Group
from skvbgp.gp._rows import weigh_inputs
from skvbgp.gp.search._sample import Sample, Samples
from skvbgp.gp.search._steep_lines import find_steep_start
from skvbgp.kernels._candidates import (
    Divide,
    add_lines,
    combine,
    divide_at_random,
    follow,
    make_isotropic_kernel,
)

#: max_iter=None: iterations of a trial that starts from what another one has learned.
FOLLOWING_ITERATIONS = 8
#: The same of lines that do not start from what has been learned.
STEEP_ITERATIONS = 40


T = TypeVar("T")

#: What yields once, after the first stage, how well rows are predicted that are left out (what
#: searches are compared by; NaN says nothing), and returns what has been learned after the second.
Training = Generator[float, None, T]


def finish(training: Training[T]) -> T:
    """What a training comes to that has begun or has not."""
    try:
        while True:
            next(training)
    except StopIteration as end:
        result: T = end.value
        return result


class Trial(NamedTuple):
    """A kernel that has been tried."""

    name: str
    trained: Trained[Process]
    left_out: Predicted  # what it says of rows, (h, 1)
    rank: float  # how well they are predicted

    @property
    def process(self) -> Process:
        return self.trained.process

    def lead(self, name: str, process: Process) -> Process:
        """Start of a process with another kernel, from what this one has learned."""
        kernel = follow(name, process.kernel, self.name, self.process.kernel)
        return replace(self.process, kernel=kernel)


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
class Search(ABC):
    """One search; it is made for one fit and thrown away."""

    rows: Sample | Samples  # what is seen of all rows
    rival_k: Sequence[int]  # numbers of neighbours that compete, in rising order
    rng: np.random.RandomState
    max_iter: int | None
    tol: float
    #: Called after every trial, with a function that returns what has been `Found`.
    end_pass: EndPass
    trials: list[Trial] = field(default_factory=list)
    stopped: bool = False
    groups: list[Group] = field(init=False)  # of rows, that trials are trained on

    @abstractmethod
    def run(self, starts: list[tuple[str, Process]], *, grows: bool) -> Training[Found]:
        """Try processes, and with ``grows`` what sums and products make of the best two.

        After the first stage, the rank of the best trial says how good the search may be.
        """

    @staticmethod
    @abstractmethod
    def count_trials(n_starts: int, *, grows: bool) -> int:
        """Largest number of trials."""

    @property
    def trial_k(self) -> int:
        """Neighbours that trials predict from."""
        return self.rival_k[-1]

    @property
    def best(self) -> Trial:
        """The trial that predicts best."""
        return max(self.trials, key=attrgetter("rank"))

    # -- trials ------------------------------------------------------------------------------------

    def try_starts(
        self, starts: Iterable[tuple[str, Process]], n_iter: int, n_following: int, *, grows: bool
    ) -> None:
        """Try processes; with ``grows``, each from what the one before it has learned."""
        for name, process in starts:
            if grows and self.trials:
                process, n_iter = self.trials[-1].lead(name, process), n_following
            self.try_process(name, process, n_iter)

    def try_combined(self, n_iter: int, *, few: bool) -> None:
        """Try products and sums of the two best trials, or with ``few`` only some products."""
        best = sorted(self.trials, key=lambda trial: -trial.rank)[:2]
        named = [(trial.name, trial.process.kernel) for trial in best]
        for name, i, kernels in combine(named, self.choose_division(best), few=few):
            starts = [replace(best[i].process, kernel=kernel) for kernel in kernels]
            self.try_processes(name, starts, n_iter)

    def choose_division(self, best: list[Trial]) -> Divide:
        """How inputs are divided among the factors of the two best trials' products."""
        return divide_at_random(self.rng)

    def try_isotropic(self, process: Process, n_iter: int) -> list[Trial]:
        """Try one length scale for all inputs, then straight lines as well."""
        n_before = len(self.trials)
        name, kernel = make_isotropic_kernel(process.kernel)
        self.try_process(name, replace(process, kernel=kernel), n_iter)
        for trial in self.trials[n_before:]:
            self.try_lines(trial, FOLLOWING_ITERATIONS)
        return self.trials[n_before:]

    def try_lines(self, trial: Trial, n_iter: int) -> None:
        """Try a kernel plus straight lines, which may be steep."""
        if self.stopped:
            return
        name, kernel = add_lines(trial.name, trial.process.kernel, self.rows.d)
        start = replace(trial.process, kernel=kernel)
        steep = find_steep_start(start, self.groups, trial.trained.value)
        if steep is None:
            self.try_process(name, start, n_iter)
        else:
            self.try_process(name, steep, STEEP_ITERATIONS)

    def try_process(self, name: str, process: Process, n_iter: int) -> None:
        """Train a process, and judge it."""
        self.try_processes(name, [process], n_iter)

    def try_processes(self, name: str, starts: Sequence[Process], n_iter: int) -> None:
        """Train processes of one kernel, and judge what is most probable."""
        if not self.stopped:
            trained = [self.train(start, n_iter) for start in starts]
            self.add_trials(name, [max(trained, key=lambda one: one.value)])
            self.end_trial()

    def train(self, process: Process, n_iter: int) -> Trained[Process]:
        """Train on the groups, so many iterations if `max_iter` says nothing else."""
        return train_process(process, self.groups, max_iter=self.max_iter or n_iter, tol=self.tol)

    def add_trials(self, name: str, trained: Sequence[Trained[Process]]) -> None:
        """Add trials of one kernel, whose processes share its matrices."""
        processes = tuple(one.process for one in trained)
        weights = weigh_inputs(processes[0].covariance, self.rows.d)
        everything = self.rows.leave_out(Mixture.equal(processes), weights, self.trial_k)
        for one, left_out in zip(trained, everything.split(), strict=True):
            rank = self.rank(fit_mixture((one.process,), left_out), left_out)
            self.trials.append(Trial(name, one, left_out, rank))

    def end_trial(self) -> None:
        self.stopped = self.end_pass(self._summarise)

    def _summarise(self) -> Found:
        """What the best trial alone gives."""
        best = self.best
        weights = weigh_inputs(best.process.covariance, self.rows.d)
        return self.conclude([best], best.left_out, weights, self.trial_k)

    # -- mixtures ----------------------------------------------------------------------------------

    def rank(self, mixture: Mixture, left_out: Predicted) -> float:
        """How well rows are predicted that are left out."""
        return rank_mixture(mixture, left_out)

    def conclude(self, chosen: list[Trial], left_out: Predicted, weights: Array, k: int) -> Found:
        """What has been found, if those that are chosen say this of rows that are left out."""
        mixture = fit_mixture(tuple(trial.process for trial in chosen), left_out)
        shares = mixture.average_belief(left_out)
        mixture = shape_errors(mixture, left_out)
        score, rank = measure_score(mixture, left_out), self.rank(mixture, left_out)
        return Found(chosen, mixture, list(range(len(chosen))), shares, weights, k, score, rank)
