"""What several processes say of some rows, and the mixture of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture
from skvbgp._core.order import Index
from skvbgp.base import pick
from skvbgp.gp._conditional import Moments, Scale
from skvbgp.gp._noise_level import NoiseLevel
from skvbgp.gp._process import Process


class OutputNoise(NamedTuple):
    """What rows that are left out say of the noise of one of several outputs."""

    extra: float  # variance beside that of the processes, before calibration
    level: NoiseLevel | None  # where there is more or less


@dataclass(frozen=True)
class Mixture:
    """Processes, and how much the evidence of a neighbourhood tells about them.

    At a place whose neighbours have log evidence E_c under process c, the belief in it is
    proportional to exp(log_weights[c] + temper E_c).
    """

    processes: tuple[Process, ...]
    log_weights: Array  # (C,)
    temper: float
    calibration: float = 1.0  # factor of the mixture's variances
    extra_noise: float = 0.0  # variance of noise beside that of the processes
    noise_level: NoiseLevel | None = None  # where there is more or less noise
    shape: NormalMixture | None = None  # of standardised errors (1, K), if it is not normal
    #: By output, in the place of extra noise and a level of all.
    noises: tuple[OutputNoise, ...] = ()

    @classmethod
    def of(cls, process: Process) -> Mixture:
        return cls.equal((process,))

    @classmethod
    def equal(cls, processes: tuple[Process, ...]) -> Mixture:
        """Processes in equal shares everywhere."""
        return cls(processes, np.zeros(len(processes)), 0.0)

    @property
    def n_outputs(self) -> int:
        """That rows are told apart by, 0 without indicators."""
        coregion = self.processes[0].coregion
        return 0 if coregion is None else coregion.t

    def weigh(self, evidence: Array) -> Array:
        """The belief (n, C) in the processes, from log evidences (n, C)."""
        return np.asarray(softmax(self.log_weights + self.temper * evidence, axis=1))

    def weigh_place(self, scales: Sequence[Scale]) -> Array:
        """The belief (C,) at one place, from what rows say to each process of the scale there."""
        return self.weigh(np.array([[scale.evidence for scale in scales]]))[0]

    def average_belief(self, left_out: Predicted) -> Array:
        """The belief (C,) on average over rows."""
        belief = self.weigh(left_out.parts.evidence)
        return np.asarray(np.average(belief, axis=0, weights=left_out.weight))

    def mix(self, parts: LocalMoments, *, include_noise: bool) -> tuple[Array, Array]:
        """Mean and variance (n,) at every row, from those of the processes."""
        means, variances, belief = self.components(parts, include_noise=include_noise)
        mean = np.sum(belief * parts.mean, axis=1)  # bit by bit that of `average`
        return mean, np.sum(belief * (variances + (means - mean[:, None]) ** 2), axis=1)

    def add_output_noise(self, parts: LocalMoments, output: Index) -> LocalMoments:
        """`parts` with the noise of the outputs (n,) that rows are of."""
        if not self.noises:
            return parts
        mean, noise = self.average(parts), parts.noise.copy()
        for j, own in enumerate(self.noises):
            mine = output == j
            noise[mine] += own.extra
            if own.level is not None:
                noise[mine] *= own.level.factor(mean[mine])[:, None]
        return parts._replace(noise=noise)

    def share_known(self, parts: LocalMoments, variance: Array) -> Array:
        """What known variances (n, 1) are before the factor that all noise is multiplied by."""
        if self.noise_level is None:
            return variance
        return variance / self.noise_level.factor(self.average(parts))[:, None]

    def average(self, parts: LocalMoments) -> Array:
        """The mixture's mean (n,)."""
        return np.asarray(np.sum(self.weigh(parts.evidence) * parts.mean, axis=1))

    def components(self, parts: LocalMoments, *, include_noise: bool) -> tuple[Array, Array, Array]:
        """Means, variances and weights (n, C) of a mixture with the moments of `mix`."""
        belief = self.weigh(parts.evidence)
        mean = np.sum(belief * parts.mean, axis=1)[:, None]
        means = mean + np.sqrt(self.calibration) * (parts.mean - mean)
        variances = self.calibration * parts.variance
        if not include_noise:
            return means, variances, belief
        noise = self.calibration * parts.noise + self.extra_noise
        if self.noise_level is not None:
            noise = noise * self.noise_level.factor(mean)
        return means, variances + noise, belief


class LocalMoments(NamedTuple):
    """What C processes say of some rows, each (n, C); scaled."""

    mean: Array
    variance: Array  # of the latent function
    noise: Array
    evidence: Array  # log evidence of the row's neighbourhood

    @classmethod
    def of_lines(cls, lines: Array) -> LocalMoments:
        """From (n, C, 4), a line of `predict_places` for each row and process."""
        return cls(*np.moveaxis(lines, 2, 0))

    @classmethod
    def join(cls, moments: Sequence[Moments], n: int) -> LocalMoments:
        """Those of single processes at n rows."""
        parts = np.empty((4, n, len(moments)))
        for c, one in enumerate(moments):
            for part, values in zip(parts, one, strict=True):
                part[:, c] = values
        return cls(*parts)

    def split(self) -> list[LocalMoments]:
        """Those of each process, (n, 1)."""
        C = self.mean.shape[1]
        return [LocalMoments(*(part[:, c : c + 1] for part in self)) for c in range(C)]

    def take(self, index: Any) -> LocalMoments:
        """Those of some rows."""
        return LocalMoments(*(part[index] for part in self))

    def observe(self, y: Array, count: Array, noise: Array) -> LocalMoments:
        """Those of rows whose targets (n,) have been observed as often as count (n,) says.

        With noise (n, C) of each observation.
        """
        told = count[:, None] * self.variance
        gain = told / (told + noise + np.finfo(float).tiny)
        mean = self.mean + gain * (y[:, None] - self.mean)
        return self._replace(mean=mean, variance=(1.0 - gain) * self.variance)


class Predicted(NamedTuple):
    """Rows that are left out: what each process says of them, their targets and weights."""

    parts: LocalMoments
    y: Array  # (n,)
    weight: Array | None = None  # (n,), how often each counts; None is once

    def split(self) -> list[Predicted]:
        """The rows as each process predicts them."""
        return [self._replace(parts=parts) for parts in self.parts.split()]

    def take(self, index: Any) -> Predicted:
        """Some of them."""
        return Predicted(self.parts.take(index), self.y[index], pick(self.weight, index))
