"""The lower bound of the evidence at a mini-batch, with its gradient."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import reduce
from operator import iadd
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut
from skvbgp._core.owners import Owners, divide_equally
from skvbgp._core.parallel import thread_map
from skvbgp.decoupled._basis import BasisKernel
from skvbgp.decoupled._coupled import CoupledCovariance
from skvbgp.decoupled._direct import DirectCovariance
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._variational_process import (
    Cotangents,
    Gaussians,
    Indices,
    PastProcess,
    Rows,
    Seen,
    VariationalProcess,
    add_up,
    fill,
)

#: Rows of data that one thread works on at a time.
_TILE_ROWS = 512


@dataclass(frozen=True)
class Past:
    """What is known before new rows: about f, and about the noise."""

    process: PastProcess
    noise: Array  # (q,) log parameters of the likelihood
    noise_precision: Array  # (q,) information about each of them

    def log_density_of_noise(self, noise: Array) -> tuple[float, Array]:
        """That of log parameters of the likelihood up to a constant, and its gradient."""
        gradient = self.noise_precision * (self.noise - noise)
        return 0.5 * float(gradient @ (noise - self.noise)), gradient


@dataclass(frozen=True)
class Model:
    """What training does not change."""

    kernel: BasisKernel  # with the hyperparameters that their prior is around
    likelihood: Any
    parametrization: str
    generalized: bool  # whether the points of the bases have multipliers
    prior_variance: float  # of the kernel's log hyperparameters; inf for a flat prior
    own_theta: Owners = ()  # by entry of theta: the hyperparameter that it is, see `_core.owners`

    def log_prior(self, theta: Array) -> tuple[float, Array]:
        """Log density of the log hyperparameters up to a constant, and its gradient.

        Training adds it to the bound. A hyperparameter that is there several times counts once.
        """
        share = divide_equally(len(theta), self.own_theta)
        gradient = share * (self.kernel.theta - theta) / self.prior_variance
        return 0.5 * float(gradient @ (theta - self.kernel.theta)), gradient

    @property
    def is_direct(self) -> bool:
        return self.parametrization == "decoupled"

    def covariance(
        self, parameters: Parameters, q: Gaussians | None, past: PastProcess | None = None
    ) -> CoupledCovariance | DirectCovariance:
        """That of q(f), and what goes with it; the direct one if there is no q(u)."""
        kernel, alpha = self.kernel.with_theta(parameters.theta), parameters.mean_basis
        a = parameters.a0 / kernel.diag(alpha)[:, None]  # preconditioned, A.1
        given = kernel, alpha, a, parameters.cov_basis
        if q is None:
            return DirectCovariance(*given, parameters.L0, past)
        return CoupledCovariance(*given, q, past, orthogonal=self.parametrization == "orthogonal")


class Evaluation:
    """Bound = E_q[log p(y|f)] - KL at some rows, as an estimate of that at all of them.

    There is a q for each function, or none with the directly parametrised covariance. The KL
    divergence is to the past or (None) to the prior.
    """

    def __init__(
        self, model: Model, parameters: Parameters, q: Gaussians | None, past: Past | None = None
    ) -> None:
        self._model, self._parameters = model, parameters
        self._past, before = past, None if past is None else past.process
        self.covariance: Any = model.covariance(parameters, q, before)
        self.q = q
        self._seen: tuple[Rows, list[Seen]] | None = None  # rows, and these by tile

    @property
    def process(self) -> VariationalProcess:
        process: VariationalProcess = self.covariance.process
        return process

    def solved(self, rows: Rows) -> Evaluation:
        """That at the best q(u), given all rows, of a conjugate likelihood and no past.

        It keeps what it has seen of the rows, and need not look again to evaluate them.
        """
        process, tiles = self.process, [rows[tile] for tile in cut(len(rows), _TILE_ROWS)]
        seen = thread_map(process.see, [(tile.X,) for tile in tiles])
        told = self._model.likelihood, self._parameters.noise
        tasks = [(*told, *pair) for pair in zip(tiles, seen, strict=True)]
        parts = thread_map(process.information, tasks)
        other = copy(self)
        other._seen = rows, seen
        other.q = self.covariance.solve(sum(b for b, _ in parts), sum(P for _, P in parts))
        other.covariance = self.covariance.holding(other.q)
        return other

    def as_past(self, n_rows: float) -> Past:
        """What has been learned from some rows, as the past of others in the same bases."""
        precision = n_rows * np.array(self._model.likelihood.noise_information, dtype=float)
        return Past(self.covariance.as_past(), self._parameters.noise, precision)

    def evaluate(
        self, rows: Rows, weight: float, sample: Indices
    ) -> tuple[float, Parameters, Cotangents]:
        """The bound, its gradient and what a natural-gradient step needs.

        The rows (n,) stand for ``weight`` times as many; only with a Gaussian likelihood may
        variances of their noise be known. The sample are points of the mean basis that stand for
        all of them in a' K~ a.
        """
        zeros, process = self._parameters.zeros(), self.process
        tiles = [rows[tile] for tile in cut(len(rows), _TILE_ROWS)]
        seen: list[Seen | None] = [None] * len(tiles)
        if self._seen is not None and self._seen[0] is rows:
            seen = [*self._seen[1]]

        def tell(tile: Rows, seen: Seen | None) -> Cotangents:
            seen = process.see(tile.X) if seen is None else seen
            told = zeros, self._model.likelihood, self._parameters.noise
            return process.data_term(*told, tile, seen, weight)

        tasks: list[tuple[Any, ...]] = [(tell, pair) for pair in zip(tiles, seen, strict=True)]
        if len(sample):
            share = len(process.alpha) / len(sample)
            arguments = zeros, sample, *self.covariance.residual, share
            tasks.append((process.residual_term, arguments))
        parts = thread_map(lambda function, arguments: function(*arguments), tasks)
        c = reduce(iadd, parts)  # the first of data
        gradient, da = self.covariance.backward(zeros, c)
        da = da + c.a
        kernel, alpha = process.kernel, process.alpha
        diag = kernel.diag(alpha)
        dtheta, dalpha = kernel.vjp_diag(alpha, -np.sum(da * process.a, axis=1) / diag)
        gradient = add_up([gradient, c.gradient, fill(zeros, theta=dtheta, alpha=dalpha)])
        gradient.a0[:] = da / diag[:, None]
        value = c.value + self.covariance.negative_kl
        if self._past is not None:
            log_density, slope = self._past.log_density_of_noise(self._parameters.noise)
            value += log_density
            gradient.noise[:] += slope
        return value, gradient, c

    def natural_step(self, c: Cotangents, rate: float) -> Gaussians | None:
        """q(u) after a natural-gradient step; None if the covariance is parametrised directly."""
        return None if self._model.is_direct else self.covariance.natural_step(c, rate)
