r"""More than two classes, each versus the rest with a probit likelihood, of the same kernel.

With Phi(z_c) what the process of two classes, c and the rest, says of c,

    p_c = Phi(z_c) / sum_b Phi(z_b),

so that far from all places these are the frequencies. Hyperparameters maximise half of the sum of
the log evidences of all such pairs: with two classes both are the same. To evidence a row of a
weight is several rows that agree, so that this is for rows that count one each.

See `_probit_process`, and :doc:`/theory/gp_class_overlap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri_exp

from skvbgp._core.linalg import Array
from skvbgp.gp.classes._probit_process import (
    AlikeProcess,
    LabelModel,
    Mode,
    ProbitConditional,
    ProbitProcess,
)
from skvbgp.gp.classes._votes import Votes, pair_votes


@dataclass(frozen=True)
class VersusRest(LabelModel):
    """Hyperparameters of one model, whose functions are those of the classes."""

    @cached_property
    def pair(self) -> ProbitProcess:
        """The process of a class and the rest."""
        return ProbitProcess(self.process, self.d, self.shared_scale, self.warp)

    def split(self, counts: Array) -> list[Array]:
        return [pair_votes(counts, c) for c in range(counts.shape[1])]

    def measure_scores(self, log_frequencies: Array) -> Array:
        return np.asarray(ndtri_exp(log_frequencies))

    def factorise(self, votes: Votes) -> VersusRestConditional:
        K = self.covariance(votes.X)
        return VersusRestConditional(self, tuple(self.pair.factorise(p, K) for p in votes.pairs))

    def extend(self, given: VersusRestConditional, votes: Votes) -> VersusRestConditional:
        told = zip(given.pairs, votes.pairs, strict=True)
        return VersusRestConditional(self, tuple(self.pair.extend(*each) for each in told))

    def leave_out(self, votes: Votes) -> tuple[Array, Array]:
        out, K, lost = votes.left_out, self.covariance(votes.X), self.covariance.lost(votes.X)
        rest = out.count_rest(votes.log_frequencies)
        moments = [
            self.pair.match(pair, K).leave_out(out.owner, own)
            for pair, own in zip(votes.pairs, self.split(rest), strict=True)
        ]
        mean, variance = self.join_moments(moments, lost[out.owner])
        return mean, variance + lost[out.owner]

    def log_evidence(self, votes: Votes) -> float:
        K = self.covariance(votes.X)
        return 0.5 * sum(Mode.find(self.pair, pair, K).log_evidence for pair in votes.pairs)

    def evidence(self, votes: Votes) -> tuple[float, Array]:
        value, gradient = self.pair.sum_evidence(votes.pairs)
        return 0.5 * value, 0.5 * gradient

    def predict_from_neighbours(self, votes: Votes, x: Array) -> Array:
        told = [self.pair.predict_from_neighbours(pair, x) for pair in votes.pairs]
        moments = [(one[1:2], one[2:]) for one in told]
        mean, variance = self.join_moments(moments, self.covariance.lost(x[None]))
        return np.append(mean[0], variance)

    def join_moments(
        self, moments: Sequence[tuple[Array, Array]], lost: Array
    ) -> tuple[Array, Array]:
        # the average variance, and means with which the scores stay as they are
        mean, variance = (np.column_stack(part) for part in zip(*moments, strict=True))
        joint, noise = variance.mean(axis=1), self.process.noise + lost
        return mean * np.sqrt((noise + joint)[:, None] / (noise[:, None] + variance)), joint


@dataclass(frozen=True)
class AlikeVersusRest(VersusRest):
    """A `VersusRest` with length scales by input that are alike, see `AlikeProcess`."""

    shared_scale: float
    log_ratios: Array | float = 0.0

    @cached_property
    def pair(self) -> AlikeProcess:
        known = self.process, self.d, self.shared_scale, self.warp
        return AlikeProcess(*known, self.log_ratios)

    def log_prior(self) -> tuple[float, Array]:
        return self.pair.log_prior()


@dataclass(frozen=True)
class VersusRestConditional:
    """The process given places."""

    process: VersusRest
    pairs: tuple[ProbitConditional, ...]

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Means (n*, K) of the classes' functions and a variance (n*,) at rows X."""
        moments = [(mean[:, 1], variance) for mean, variance in (p.moments(X) for p in self.pairs)]
        return self.process.join_moments(moments, self.process.covariance.lost(X))
