r"""The processes of all classes given many votes, through inducing inputs.

Near rows know what is peculiar to a place, inducing inputs what many rows have in common. With the
noise t_i of a vote of place i, in the terms of `_inducing_inputs`,

    A = I + sum_i N_i phi_i phi_i' / t_i,   w_c = A^-1 sum_i phi_i (N_ic - N_i pi_c) / t_i.

Both sums are over votes, so that those of new rows are added, in any order. See
:doc:`/theory/gp_classes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.blockwise import in_tiles
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.pickling import PickledByFields
from skvbgp.gp._inducing_inputs import InducingInputs, leave_out_rows
from skvbgp.gp.classes._process import ClassLink, ClassModel, ClassProcess
from skvbgp.gp.classes._votes import Votes
from skvbgp.kernels._uncertain import UncertainCovariance


@dataclass(frozen=True)
class InducingModel(PickledByFields, ABC):
    """What votes say of the functions at inducing inputs."""

    process: ClassModel
    inducing: InducingInputs

    @abstractmethod
    def plus(self, votes: Votes) -> Self:
        """With more votes, whose frequencies do not matter."""

    @abstractmethod
    def given(self, log_frequencies: Array) -> GivenInducing:
        """What they say where the classes have these frequencies (K,)."""


@dataclass(frozen=True)
class GivenInducing(ABC):
    """The functions given votes."""

    process: ClassModel
    inducing: InducingInputs

    @property
    def link(self) -> ClassLink:
        """From moments to probabilities."""
        return self.process.link

    @property
    def covariance(self) -> UncertainCovariance:
        """That of the functions."""
        return self.process.covariance

    @abstractmethod
    def moments(self, X: Array) -> tuple[Array, Array]:
        """Means (n*, K) of the classes' functions and their variance (n*,) at rows X."""


@dataclass(frozen=True)
class InducingClasses(InducingModel):
    """An `InducingModel` of labels that are regressed on places."""

    process: ClassProcess  # with a link of its own
    information: Array  # (m, m): the sum of N phi phi' / t over places
    shift: Array  # (m, K): the sum of N_c phi / t

    @classmethod
    def start(cls, process: ClassProcess, Z: Array, K: int) -> Self:
        """Without votes; Z (m, d) or (m, 2 d) is scaled."""
        m, inducing = len(Z), InducingInputs(process.covariance, Z)
        return cls(process, inducing, np.zeros((m, m)), np.zeros((m, K)))

    def plus(self, votes: Votes) -> Self:
        shares = votes.counts / self.process.measure_noise(votes.X)[:, None]
        said, moved = self.inducing.gather(votes.X, shares.sum(axis=1), shares)
        return replace(self, information=self.information + said, shift=self.shift + moved)

    def given(self, log_frequencies: Array) -> GivenVotes:
        shift = self.shift - np.outer(self.shift.sum(axis=1), np.exp(log_frequencies))
        q = WhitenedGaussian.of_information(self.information, shift)
        return GivenVotes(self.process, self.inducing, q)


@dataclass(frozen=True)
class GivenVotes(GivenInducing):
    """The processes given votes."""

    q: WhitenedGaussian  # its mean is w (m, K)

    def moments(self, X: Array) -> tuple[Array, Array]:
        mean, rest, learned = self._measure(X)
        return mean, rest + learned

    def leave_out(self, votes: Votes, is_known: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Means (M, K) and variances (M,) for each vote, left out in turn where a place is known.

        The variances include u of the place.
        """
        mean, rest, learned = self._measure(votes.X)
        noise, out = self.process.measure_noise(votes.X), votes.left_out
        mean, learned = leave_out_rows(mean, learned, votes.targets, noise / votes.sizes, is_known)
        # what remains at a place says nothing of `rest`: votes know the function through phi
        told, told_learned = out.give_back(mean, learned, noise)
        known = is_known[out.owner]
        mean = np.where(known[:, None], told, mean[out.owner])
        learned = np.where(known, told_learned, learned[out.owner])
        return mean, learned + (rest + self.covariance.lost(votes.X))[out.owner]

    def _measure(self, X: Array) -> tuple[Array, Array, Array]:
        return in_tiles(lambda tile: self.inducing.measure(self.q, tile), X)
