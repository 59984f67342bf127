"""What a model says about new rows, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from skvbgp._core.blockwise import in_tiles
from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture
from skvbgp._core.owners import Owners
from skvbgp._core.parallel import single_blas_thread
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import Distribution, Relevance
from skvbgp.decoupled._bound import Model
from skvbgp.decoupled._coupled import CoupledCovariance
from skvbgp.decoupled._direct import DirectCovariance
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._paths import BasisFeatures, FunctionDraws, Paths, measure_slopes
from skvbgp.decoupled._variational_process import Gaussians, VariationalProcess
from skvbgp.kernels._features import SHARING, PriorPaths


@dataclass(frozen=True)
class Posterior:
    """q(f) and the likelihood of y: of a single function, but for `decisions`."""

    model: Model
    parameters: Parameters
    q: Gaussians | None
    coordinates: Coordinates
    target: Target
    rows: tuple[Array, Array]  # that are kept, and how often they count
    owners: Owners = ()  # by column of X: the input that it encodes

    @cached_property
    def covariance(self) -> CoupledCovariance | DirectCovariance:
        """That of q(f), and what goes with it."""
        return self.model.covariance(self.parameters, self.q)

    @property
    def process(self) -> VariationalProcess:
        """q(f) in scaled units."""
        return self.covariance.process

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        mean, variance = (part[:, 0] for part in self._latent(X))
        likelihood = self.model.likelihood
        if include_noise:
            mean, variance = likelihood.moments(self.parameters.noise, mean, variance)
        else:
            mean = mean + likelihood.offset
        return self.target.unscaled(mean, variance)

    def distribution(self, X: Array, include_noise: bool) -> Distribution:
        """Normal, a normal mixture for Student's noise, or that of counts."""
        likelihood = self.model.likelihood
        mean, variance = (part[:, 0] for part in self._latent(X))
        given: Distribution = NormalMixture.of_moments(mean + likelihood.offset, variance)
        if include_noise:
            given = likelihood.distribution(self.parameters.noise, mean, variance)
        if isinstance(given, NormalMixture):  # counts are on their own scale
            given = given.rescaled(self.target.mean, self.target.unit)
        return given

    def _latent(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, k) of each scaled f at rows X in the user's units."""
        process = self.process
        return in_tiles(lambda X: process.moments(self.coordinates.scaled(X)), X)

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        means, covariances = self.process.joint(self.coordinates.scaled(X))
        mean, covariance, likelihood = means[:, 0], covariances[0], self.model.likelihood
        if include_noise:
            mean, covariance = likelihood.joint(self.parameters.noise, mean, covariance)
        else:
            mean = mean + likelihood.offset
        return self.target.unscaled(mean, covariance)

    def decisions(self, X: Array) -> Array:
        """Scores (n, k) whose normal distribution function is the probability of each sign 1."""
        return np.asarray(self.model.likelihood.score(*self._latent(X)))

    def measure_gradient(self, X: Array) -> tuple[Array, Array]:
        scaled = self.coordinates.scaled(X)
        mean, variance = in_tiles(partial(measure_slopes, self.process), scaled)
        return self.target.unscaled_slopes(mean, variance, self.coordinates.scale)

    @property
    def relevance(self) -> Relevance:
        """Shares (d,) of the inputs in the variation of predictions: there is no other belief.

        Over rows that are kept, or else the points of the mean's basis, or of the covariance's.
        """
        X, counts = self.rows
        some = Relevance.choose_rows(len(X))
        X, counts = self.coordinates.scaled(X[some]), counts[some]
        if not len(X):
            p = self.parameters
            X = p.alpha if len(p.alpha) else p.beta
            counts = np.ones(len(X))
        mean, _ = in_tiles(partial(measure_slopes, self.process), X)

        def predict(X: Array) -> Array:
            return np.repeat(in_tiles(self.process.moments, X)[0].T, 2, axis=0)

        return Relevance.of_slopes(X, counts, mean, mean[None], owners=self.owners, predict=predict)

    def draw_functions(self, n: int, rng: np.random.RandomState) -> FunctionDraws:
        kernel, beta, d = self.process.kernel, self.process.beta, len(self.coordinates.scale)
        sets = []
        with single_blas_thread:
            for start in range(0, n, SHARING):
                members = np.arange(start, min(start + SHARING, n))
                features = BasisFeatures.draw(kernel, d, rng)
                values = features(beta)
                weights = rng.standard_normal((values.shape[1], len(members)))
                coefficients = self.covariance.draw_coefficients(values @ weights, rng)
                sets.append(Paths(members, PriorPaths(features, weights), coefficients))
        offset = self.model.likelihood.offset
        return FunctionDraws(self.coordinates, self.target, offset, self.process, tuple(sets))

    def sample(self, f: Array, rng: np.random.RandomState) -> Array:
        """Draws of y given values of f in the user's units, of any shape."""
        likelihood = self.model.likelihood
        scaled = self.target.scaled(f) - likelihood.offset
        return self.target.original(likelihood.sample(self.parameters.noise, scaled, rng))
