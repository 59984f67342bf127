r"""The processes of all classes given many votes, through inducing inputs.

Near rows know what is peculiar to a place, inducing inputs what many rows have in common. With the
noise t_i of a vote of place i, in the terms of `_inducing_inputs`,

    A = I + sum_i N_i phi_i phi_i' / t_i,   w_c = A^-1 sum_i phi_i (N_ic - N_i pi_c) / t_i.

Both sums are over votes, so that those of new rows are added, in any order. See
:doc:`/theory/gp_classes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.blockwise import in_tiles
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.pickling import PickledByFields
from skvbgp.gp._class_process import ClassProcess
from skvbgp.gp._inducing_inputs import InducingInputs, leave_out_rows
from skvbgp.gp._link import Link
from skvbgp.gp._votes import Votes
from skvbgp.kernels._uncertain import UncertainCovariance


@dataclass(frozen=True)
class InducingClasses(PickledByFields):
    """What votes say of the functions at inducing inputs."""

    process: ClassProcess  # with a link of its own
    inducing: InducingInputs
    #: (1, m, m): the sum of N phi phi' / t over places. (K, m, m): one of the votes of each class,
    #: if the weights of the classes may change.
    information: Array
    shift: Array  # (m, K): the sum of N_c phi / t

    @classmethod
    def start(cls, process: ClassProcess, Z: Array, K: int, *, by_class: bool) -> Self:
        """Without votes; Z (m, d) or (m, 2 d) is scaled."""
        m, inducing = len(Z), InducingInputs(process.covariance, Z)
        return cls(process, inducing, np.zeros((K if by_class else 1, m, m)), np.zeros((m, K)))

    def plus(self, votes: Votes) -> Self:
        """With more votes, whose frequencies do not matter."""
        shares, K = votes.counts / measure_noise(self.process, votes)[:, None], self.shift.shape[1]
        groups = [shares] if len(self.information) == 1 else [shares * own for own in np.eye(K)]
        information, shift = self.information.copy(), self.shift.copy()
        for total, group in zip(information, groups, strict=True):
            rows = group.any(axis=1)
            group = group[rows]
            said, moved = self.inducing.gather(votes.X[rows], group.sum(axis=1), group)
            total += said
            shift += moved
        return replace(self, information=information, shift=shift)

    def given(self, log_frequencies: Array, ratios: Array) -> GivenVotes:
        """What they say where the classes' weights are `ratios` (K,) of what they were.

        These are ones if they may not change.
        """
        shift = self.shift * ratios
        shift -= np.outer(shift.sum(axis=1), np.exp(log_frequencies))
        precision = np.tensordot(ratios[: len(self.information)], self.information, 1)
        precision.flat[:: len(precision) + 1] += 1.0
        return GivenVotes(self.process, self.inducing, WhitenedGaussian(precision, shift))


@dataclass(frozen=True)
class GivenVotes:
    """The processes given votes."""

    process: ClassProcess
    inducing: InducingInputs
    q: WhitenedGaussian  # its mean is w (m, K)

    @property
    def link(self) -> Link:
        """From moments to probabilities."""
        return self.process.link

    @property
    def covariance(self) -> UncertainCovariance:
        """That of the functions."""
        return self.process.covariance

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Means (n*, K) of the classes' functions and their variance (n*,) at rows X."""
        mean, rest, learned = self._measure(X)
        return mean, rest + learned

    def leave_out(self, votes: Votes, is_known: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Means (M, K) and variances (M,) for each vote, left out in turn where a place is known.

        The variances include u of the place.
        """
        mean, rest, learned = self._measure(votes.X)
        noise, out = measure_noise(self.process, votes), votes.left_out
        mean, learned = leave_out_rows(mean, learned, votes.targets, noise / votes.sizes, is_known)
        # what remains at a place says nothing of `rest`: votes know the function through phi
        told, told_learned = out.give_back(mean, learned, noise)
        known = is_known[out.owner]
        mean = np.where(known[:, None], told, mean[out.owner])
        learned = np.where(known, told_learned, learned[out.owner])
        return mean, learned + (rest + self.covariance.lost(votes.X))[out.owner]

    def _measure(self, X: Array) -> tuple[Array, Array, Array]:
        return in_tiles(lambda tile: self.inducing.measure(self.q, tile), X)


def measure_noise(process: ClassProcess, votes: Votes) -> Array:
    """Variances (n,) of the noise of a vote at each place."""
    return np.asarray(process.process.noise + process.covariance.lost(votes.X))
