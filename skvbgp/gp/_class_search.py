"""The search for kernels that tell classes apart, and the belief in those that it finds.

Every kernel is trained on some rows with one length scale for all inputs, the best two also with
one for each. They are judged by the log probability of labels that are left out, plus their log
prior, less one nat for each hyperparameter.

Few rows: predictions average over draws of the hyperparameters of all that matter. Many rows:
those that matter are trained further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from skvbgp._core.journal import do_once
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import thread_map
from skvbgp._core.scaling import Coordinates
from skvbgp._optim.ascent import EndPass
from skvbgp.gp._class_posterior import ClassPosterior, mix_log_probabilities
from skvbgp.gp._class_process import LABEL_NOISE, ClassProcess
from skvbgp.gp._link import Link
from skvbgp.gp._neighbours import Rows, average_weights, draw_groups, size_groups
from skvbgp.gp._process import start_process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._training import Trained, draw_normal, draw_processes, train
from skvbgp.gp._votes import Votes
from skvbgp.kernels import Kernel
from skvbgp.kernels._candidates import make_leaves

#: Places that an exact process is tried on.
_TRIAL_PLACES = 500
#: Groups of a trial, and of training.
_TRIAL_GROUPS, _FINAL_GROUPS = 10, 20
#: Places that are left out, one at a time, to judge what predicts from neighbours.
_HELD_OUT = 1_000
#: max_iter=None: iterations of a trial, and of further training.
_TRIAL_ITERATIONS, _FINAL_ITERATIONS = 20, 6
#: Trials that get one length scale per input; trials that are trained further.
_N_FREED, _MOST_KEPT = 2, 3
#: Kernels and draws that matter, in nats; draws of the hyperparameters of a kernel, if few places.
_WITHIN = 6.0
_N_DRAWS = 16
#: Least belief that is worth the time of one more kernel in predictions.
_LEAST_SHARE = 0.05


class Trial(NamedTuple):
    """A kernel that has been tried."""

    name: str
    trained: Trained[ClassProcess]
    score: float  # log probability of labels, penalised

    @property
    def process(self) -> ClassProcess:
        return self.trained.process


class Found(NamedTuple):
    """Where a search stands, or has ended."""

    names: tuple[str, ...]  # of kernels
    trained: tuple[ClassProcess, ...]  # by kernel; others may be draws around these
    processes: tuple[ClassProcess, ...]
    owners: tuple[int, ...]  # by process: the index of its kernel
    belief: Array  # (C,), by process
    weights: Array  # (d,), of the inputs in the distance
    score: float  # log probability of a label that is left out, on average

    def list_kernels(self) -> list[tuple[str, ClassProcess, float]]:
        """Name, trained process and share of every kernel."""
        shares = np.bincount(self.owners, self.belief, len(self.names)).tolist()
        return list(zip(self.names, self.trained, shares, strict=True))


def make_class_kernels(d: int) -> list[tuple[str, Kernel]]:
    """Names and kernels of the first round, with one length scale for all inputs."""
    return make_leaves(d, isotropic=True)


def start_class_process(kernel: Kernel, d: int) -> ClassProcess:
    """A process of this kernel and d inputs before training."""
    process = replace(start_process(kernel, gaussian=True), noise_prior=LABEL_NOISE)
    return ClassProcess(process, Link(), d)


def free_length_scales(process: ClassProcess) -> ClassProcess:
    """The same process, with one length scale for each input."""
    kernel: Any = process.process.kernel
    freed = replace(process.process, kernel=replace(kernel, isotropic=False).bind(process.d))
    return replace(process, process=freed, shared_scale=kernel.length_scale)


@dataclass
class ClassSearch:
    """One search.

    `votes` are scaled, `d` is the number of inputs, `k` that of neighbours, and `max_iter` that of
    L-BFGS iterations.
    `end_pass` is called after every trial, with a function that returns what has been `Found`.
    """

    votes: Votes
    d: int
    k: int
    rng: np.random.RandomState
    max_iter: int | None
    tol: float
    end_pass: EndPass
    trials: list[Trial] = field(default_factory=list)
    stopped: bool = False
    held_out: Index = field(init=False)  # of places whose votes are left out in turn
    held: Votes = field(init=False)  # these

    def __post_init__(self) -> None:
        n = len(self.votes)
        self.held_out = np.arange(n)
        if not self.is_exact:
            self.held_out = np.sort(self.rng.permutation(n)[:_HELD_OUT])
        self.held = self.votes.part(self.held_out)

    @property
    def is_exact(self) -> bool:
        """Whether all places are neighbours of any other."""
        return len(self.votes) <= self.k

    @staticmethod
    def count(n_starts: int, *, grows: bool) -> int:
        """Largest number of trials."""
        return n_starts + _N_FREED * grows + _MOST_KEPT

    def run(self, starts: list[tuple[str, ClassProcess]], *, grows: bool) -> Found:
        """Try processes, and with ``grows`` the best two with one length scale per input."""
        groups = self._draw_trial_groups()
        self._try(starts, groups, self.max_iter or _TRIAL_ITERATIONS)
        if grows and self.d > 1 and not self.stopped:
            best = sorted(self.trials, key=lambda trial: -trial.score)[:_N_FREED]
            freed = [(f"{t.name}, by input", free_length_scales(t.process)) for t in best]
            self._try(freed, groups, self.max_iter or _TRIAL_ITERATIONS)
        if self.stopped:
            return self._judge(self._select(len(self.trials)))
        if self.is_exact and len(self.votes) <= _TRIAL_PLACES:
            # an integral over the prior has a penalty of its own
            return self._draw(self._select(len(self.trials), lambda trial: trial.trained.value))
        self._train_further()
        return self._judge(self._select(len(self.trials)))

    # -- trials ----------------------------------------------------------------------------------

    def _draw_trial_groups(self) -> list[tuple[Votes]]:
        if self.is_exact:
            index = np.sort(self.rng.permutation(len(self.votes))[:_TRIAL_PLACES])
            return [(self.votes.part(index),)]
        return self._draw_near_groups(_TRIAL_GROUPS)

    def _draw_near_groups(self, n_groups: int) -> list[tuple[Votes]]:
        groups = draw_groups(self.votes.X[:, : self.d], n_groups, size_groups(self.k), self.rng)
        return [(self.votes.part(index),) for index in groups]

    def _try(
        self, starts: list[tuple[str, ClassProcess]], groups: list[tuple[Votes]], max_iter: int
    ) -> None:
        def fit(name: str, process: ClassProcess) -> Trial:
            trained = train(process, groups, max_iter=max_iter, tol=self.tol)
            return Trial(name, trained, trained.value - len(process.vector))

        for trial in do_once(lambda: thread_map(fit, starts)):
            self.trials.append(trial)
            if not self.stopped:
                self.stopped = self.end_pass(lambda: self._judge(self._select(1)))

    def _select(
        self, most: int, score: Callable[[Trial], float] = lambda trial: trial.score
    ) -> list[Trial]:
        """The best trials, those that matter."""
        ordered = sorted(self.trials, key=score, reverse=True)[:most]
        return [trial for trial in ordered if score(trial) > score(ordered[0]) - _WITHIN]

    def _train_further(self) -> None:
        """Train the best trials on all places, or on more groups."""
        chosen = self._select(_MOST_KEPT)
        self.trials = []
        groups = [(self.votes,)] if self.is_exact else self._draw_near_groups(_FINAL_GROUPS)
        starts = [(trial.name, trial.process) for trial in chosen]
        self._try(starts, groups, self.max_iter or _FINAL_ITERATIONS)

    # -- belief ----------------------------------------------------------------------------------

    def _judge(self, trials: list[Trial]) -> Found:
        """The belief in trials, in proportion to what they say of votes that are left out.

        Neighbours ask for a link of their own.
        """
        processes = [trial.process for trial in trials]
        moments, counts = self._leave_out(processes), self.held.left_out.counts
        if not self.is_exact:
            known = counts, self.votes.log_frequencies
            processes = [
                replace(process, link=process.link.learn(*given, *known))
                for process, given in zip(processes, moments, strict=True)
            ]
        parts = self._log_probabilities(processes, moments)
        scores = [
            float(np.vdot(counts, part)) + process.log_prior()[0] - len(process.vector)
            for process, part in zip(processes, parts, strict=True)
        ]
        belief = softmax(scores)
        kept = np.flatnonzero(belief >= _LEAST_SHARE)
        trials, processes = [trials[i] for i in kept], [processes[i] for i in kept]
        belief, parts = belief[kept] / belief[kept].sum(), [parts[i] for i in kept]
        return self._mix(trials, processes, processes, list(range(len(kept))), belief, parts)

    def _draw(self, trials: list[Trial]) -> Found:
        """Draws of the hyperparameters of every trial, weighted by importance.

        So is the belief in a kernel: the average weight of its draws estimates the integral of
        the log probability's exponential over the prior.
        """
        group = [(self.votes,)]
        normals = [draw_normal(_N_DRAWS, len(t.process.vector), self.rng) for t in trials]
        drawn = thread_map(
            lambda trial, normal: draw_processes(trial.trained, group, normal),
            zip(trials, normals, strict=True),
        )
        everything = [
            (process, weight, owner)
            for owner, pairs in enumerate(drawn)
            for process, weight in pairs
        ]
        top = max(weight for _, weight, _ in everything)
        kept = [entry for entry in everything if entry[1] > top - _WITHIN]
        processes, log_belief, owners = (list(column) for column in zip(*kept, strict=True))
        used, numbers = np.unique(owners, return_inverse=True)
        parts = self._log_probabilities(processes, self._leave_out(processes))
        chosen = [trials[i] for i in used]
        trained = [trial.process for trial in chosen]
        return self._mix(chosen, trained, processes, numbers.tolist(), softmax(log_belief), parts)

    def _leave_out(self, processes: list[ClassProcess]) -> list[tuple[Array, Array]]:
        """Moments of votes that are left out, by each process."""
        X, inputs, noise = *np.split(self.votes.X, [self.d], axis=1), None
        if inputs.size:
            noise = replace(RowNoise.plain(len(inputs)), inputs=inputs)
        posterior = ClassPosterior(
            tuple(processes),
            np.ones(len(processes)),
            Rows().plus(X, self.votes.counts, noise),
            np.ones(self.votes.counts.shape[1]),
            Coordinates(np.zeros(self.d), np.ones(self.d)),
            self._weigh_inputs(processes),
            self.k,
        )
        return [
            process.give_back(self.held, *moments)
            for process, moments in zip(processes, posterior.leave_out(self.held_out), strict=True)
        ]

    def _log_probabilities(
        self, processes: list[ClassProcess], moments: list[tuple[Array, Array]]
    ) -> list[Array]:
        """Of votes that are left out, by each process."""
        return [
            process.link.log_probabilities(*given, self.votes.log_frequencies)
            for process, given in zip(processes, moments, strict=True)
        ]

    def _weigh_inputs(self, processes: list[ClassProcess]) -> Array:
        return average_weights([process.kernel for process in processes], self.d)

    def _mix(
        self,
        trials: list[Trial],
        trained: list[ClassProcess],
        processes: list[ClassProcess],
        owners: list[int],
        belief: Array,
        parts: list[Array],
    ) -> Found:
        counts = self.held.left_out.counts
        score = float(np.vdot(counts, mix_log_probabilities(parts, belief))) / float(counts.sum())
        names = tuple(trial.name for trial in trials)
        weights = self._weigh_inputs(processes)
        rest = tuple(owners), belief, weights, score
        return Found(names, tuple(trained), tuple(processes), *rest)
