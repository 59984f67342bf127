"""What a model says about new rows, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.mixture import NormalMixture
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import Distribution, in_tiles
from skvbgp.decoupled._bound import Evaluation, Gaussians, Model
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._process import Process


@dataclass(frozen=True)
class Posterior:
    """q(f), here of a single function, and the likelihood of y."""

    model: Model
    parameters: Parameters
    q: Gaussians | None
    coordinates: Coordinates
    target: Target

    @cached_property
    def process(self) -> Process:
        """q(f) in scaled units."""
        return Evaluation(self.model, self.parameters, self.q).process

    def moments(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        process, likelihood, noise = self.process, self.model.likelihood, self.parameters.noise

        def tile_moments(X: Array) -> tuple[Array, Array]:
            mean, variance = self._latent(process, X)
            if include_noise:
                mean, variance = likelihood.moments(noise, mean, variance)
            else:
                mean = mean + likelihood.offset
            return self.target.original(mean), variance * self.target.unit**2

        return in_tiles(tile_moments, X)

    def distribution(self, X: Array, include_noise: bool) -> Distribution:
        """Normal, a normal mixture for Student's noise, or that of counts."""
        likelihood = self.model.likelihood
        mean, variance = in_tiles(partial(self._latent, self.process), X)
        given: Distribution = NormalMixture.of_moments(mean + likelihood.offset, variance)
        if include_noise:
            given = likelihood.distribution(self.parameters.noise, mean, variance)
        if isinstance(given, NormalMixture):  # counts are on their own scale
            given = given.rescaled(self.target.mean, self.target.unit)
        return given

    def _latent(self, process: Process, X: Array) -> tuple[Array, Array]:
        """Mean and variance of the scaled f at rows X in the user's units."""
        mean, variance = process.moments(self.coordinates.scaled(X))
        return mean[:, 0], variance[:, 0]

    def joint(self, X: Array, include_noise: bool) -> tuple[Array, Array]:
        means, covariances = self.process.joint(self.coordinates.scaled(X))
        mean, covariance, likelihood = means[:, 0], covariances[0], self.model.likelihood
        if include_noise:
            mean, covariance = likelihood.joint(self.parameters.noise, mean, covariance)
        else:
            mean = mean + likelihood.offset
        return self.target.original(mean), covariance * self.target.unit**2

    def sample(self, f: Array, rng: np.random.RandomState) -> Array:
        """Draws of y given values of f in the user's units, of any shape."""
        likelihood = self.model.likelihood
        scaled = self.target.scaled(f) - likelihood.offset
        return self.target.original(likelihood.sample(self.parameters.noise, scaled, rng))
