"""The shares of kernels in the predictions of classes, and the belief that is made of them.

Every kernel says something of votes that are left out; by that they share, see `learn_shares`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.gp._rows import average_weights
from skvbgp.gp.classes._inducing import InducingModel
from skvbgp.gp.classes._link import learn_power, raise_evidence
from skvbgp.gp.classes._posterior import mix_log_probabilities
from skvbgp.gp.classes._process import ClassModel, ClassProcess

#: Ends of names: of kernels with a probit likelihood, of those whose length scales are alike, too,
#: and of those that predict through inducing inputs; of warped inputs, or in units of their ranges,
#: which may be before these.
PROBIT, ALIKE, INDUCING = ", probit", ", alike, probit", ", inducing"
WARPED, RANGES = ", warped", ", ranges"
#: Least belief that is worth the time of one more kernel in predictions.
_LEAST_SHARE = 0.05
#: Votes that the prior of the shares gives to each kernel.
_PRIOR_VOTES = 0.5
#: Largest number of iterations for the shares, which end when none changes by more than this.
_SHARE_ITERATIONS, _SHARE_TOL = 500, 1e-6


class Part(NamedTuple):
    """A kernel that may share in predictions."""

    name: str
    trained: ClassModel
    processes: Sequence[ClassModel | InducingModel]  # these predict
    weights: Array  # of the processes
    log_p: Array  # (M, K), of votes that are left out
    charge: float  # nats a vote that it has gained because votes have chosen its hyperparameters

    @property
    def is_by_input(self) -> bool:
        """Whether it has a length scale for each input."""
        return self.trained.shared_scale is not None

    @property
    def is_inducing(self) -> bool:
        """Whether it predicts through inducing inputs."""
        return isinstance(self.processes[0], InducingModel)


class Found(NamedTuple):
    """Where a search stands, or has ended."""

    names: tuple[str, ...]  # of kernels
    trained: tuple[ClassModel, ...]  # by kernel; others may be draws around these
    processes: tuple[ClassModel, ...]
    inducing: tuple[InducingModel, ...]
    kernel_of: tuple[int, ...]  # by process, those through inducing inputs last: its kernel
    belief: Array  # (C,), of the same
    weights: Array  # (d,), of the inputs in the distance
    score: float  # log probability of a label that is left out, on average
    power: float = 1.0  # of what all say together beside the classes' frequencies

    def list_kernels(self) -> list[tuple[str, ClassModel, float]]:
        """Name, trained process and share of every kernel."""
        shares = np.bincount(self.kernel_of, self.belief, len(self.names)).tolist()
        return list(zip(self.names, self.trained, shares, strict=True))

    def list_starts(self, *, anew: bool) -> list[tuple[str, ClassModel]]:
        """Name and process of every kernel, as they are or, for a search, as regressions."""
        found: dict[str, ClassModel] = {}
        kernels = list(zip(self.names, self.trained, strict=True))
        if not anew:  # near places would match sites anew for every prediction
            near = [k for k in kernels if isinstance(k[1], ClassProcess) or INDUCING not in k[0]]
            kernels = near or kernels
        for name, model in kernels:
            name = name.removesuffix(INDUCING)
            if anew and not isinstance(model, ClassProcess):
                name = name.removesuffix(ALIKE).removesuffix(PROBIT)
                model = ClassProcess(model.process, model.d, model.shared_scale, model.warp)
            found.setdefault(name, model)
        return list(found.items())


class Combination(NamedTuple):
    """Kernels in their shares, and what they say together."""

    found: Found
    log_p: Array  # (M, K), of votes that are left out

    @classmethod
    def of(cls, parts: list[Part], counts: Array, d: int) -> Combination:
        """Those parts that are worth their time, in their shares.

        `counts` (M, K) says how often each label was left out, and `d` is the number of columns.
        """
        parts = sorted(parts, key=attrgetter("is_inducing"))  # as `Found` has them
        near = [part.trained for part in parts if not part.is_inducing]
        weights = weigh_by_models(near, d)  # as they were judged
        charges = [part.charge for part in parts]
        shares = learn_shares([part.log_p for part in parts], counts, charges)
        kept = np.flatnonzero(shares >= min(_LEAST_SHARE, 1.0 / len(shares)))
        parts, shares = [parts[i] for i in kept], shares[kept] / shares[kept].sum()
        log_p = mix_log_probabilities([part.log_p for part in parts], shares)
        processes = [process for part in parts for process in part.processes]
        found = Found(
            tuple(part.name for part in parts),
            tuple(part.trained for part in parts),
            tuple(one for one in processes if not isinstance(one, InducingModel)),
            tuple(one for one in processes if isinstance(one, InducingModel)),
            tuple(k for k, part in enumerate(parts) for _ in part.processes),
            np.concatenate(
                [share * part.weights for share, part in zip(shares, parts, strict=True)]
            ),
            weights,
            average_votes(log_p, counts),
        )
        return cls(found, log_p)

    def calibrate(self, counts: Array, log_frequencies: Array) -> Combination:
        """The combination with the power by which votes ask that are left out."""
        power = learn_power(self.log_p, counts, log_frequencies)
        log_p = raise_evidence(self.log_p, log_frequencies, power)
        score = average_votes(log_p, counts)
        return Combination(self.found._replace(power=power, score=score), log_p)

    def gains(self, before: Combination, counts: Array, least: float) -> bool:
        """Whether it says more of votes left out than another, by so many standard errors."""
        votes = counts > 0.0
        gain = (self.log_p - before.log_p)[votes]
        weight = counts[votes] / counts.sum()
        error = np.sqrt(np.sum(weight**2 * (gain - weight @ gain) ** 2))
        return bool(weight @ gain > least * error)


def average_votes(log_p: Array, counts: Array) -> float:
    """Log probability (M, K) of a label that is left out, on average; `counts` says how often."""
    return float(np.vdot(counts, log_p)) / float(counts.sum())


def weigh_by_models(processes: Sequence[ClassModel], d: int) -> Array:
    """Weights of the inputs in the distance: length scales by input know more of these."""
    freed = [process for process in processes if process.shared_scale is not None]
    return average_weights([process.kernel for process in freed or processes], d)


def learn_shares(parts: Sequence[Array], counts: Array, charges: Sequence[float]) -> Array:
    """Shares (C,) of kernels in predictions, from what they say of votes that are left out.

    With log p_ck what kernel c says of vote k, left out, and h_c what it has gained a vote because
    votes have chosen its hyperparameters, the shares w of N votes maximise

        sum_k log sum_c w_c exp(log p_ck - h_c) + 1/2 sum_c log w_c.

    The last sum is a Dirichlet prior, worth half a vote for each kernel. The objective is concave,
    and expectation maximisation ascends it. See :doc:`/theory/gp_class_kernels`.

    The parts are log probabilities (M, K) of the classes, by each kernel, `counts` (M, K) says how
    often each label was left out, and `charges` are h, in nats a vote.
    """
    votes = counts > 0.0
    weight = counts[votes] / counts.sum()
    log_p = np.stack([part[votes] for part in parts]) - np.array(charges)[:, None]  # (C, votes)
    p = np.exp(log_p - log_p.max(axis=0))
    prior = _PRIOR_VOTES / counts.sum()
    shares = np.full(len(p), 1.0 / len(p))
    for _ in range(_SHARE_ITERATIONS):
        before = shares
        joint = shares[:, None] * p
        owned = (joint / joint.sum(axis=0)) @ weight
        shares = (owned + prior) / (1.0 + len(p) * prior)
        if np.max(np.abs(shares - before)) < _SHARE_TOL:
            break
    return shares
