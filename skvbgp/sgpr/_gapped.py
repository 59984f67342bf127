"""Noise of independent rows, and more of it in those whose inputs are not all known.

To first order the function differs there by its slope times what is not known, and what is a matter
of the place is as it is far from all that is known, see :ref:`sgpr-gaps`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.base import SLOPE, SLOPE_LIMITS, SLOPE_SPREAD
from skvbgp.kernels._pairs import Pairs
from skvbgp.sgpr._noise import Model, Noise, NoiseGradients, Pull, Structure, Variance
from skvbgp.sgpr._parameters import Parameters


@dataclass(frozen=True)
class Gapped(Structure):
    """Independent noise, and more of it in rows with missing entries.

    The parameters are those of the former, and the logarithms of the slopes.
    """

    whole: Structure  # the noise of rows without gaps
    gap_columns: tuple[int, ...] = ()  # inputs that have gaps in training rows
    #: Factor between exp of a slope's parameter and a covariance of the scaled target.
    scale: float = 1.0
    has_prior: bool = True  # whether the logarithms of the slopes have a normal prior

    @property
    def theta(self) -> Array:
        slopes = np.full(len(self.gap_columns), np.log(SLOPE / self.scale))
        return np.append(self.whole.theta, slopes)

    @property
    def bounds(self) -> Array:
        return np.concatenate(
            [self.whole.bounds, np.tile(SLOPE_LIMITS, (len(self.gap_columns), 1))]
        )

    def rescale(self, factor: float) -> Gapped:
        return replace(self, whole=self.whole.rescale(factor), scale=self.scale * factor)

    def settled(self) -> Gapped:
        return replace(self, whole=self.whole.settled(), has_prior=False)

    def log_prior(self, theta: Array) -> tuple[float, Array]:
        theta, slopes = self._split(theta)
        value, gradient = self.whole.log_prior(theta)
        if not self.has_prior:
            return value, np.append(gradient, np.zeros(len(slopes)))
        away = (slopes + np.log(self.scale / SLOPE)) / SLOPE_SPREAD
        constant = len(slopes) * np.log(2.0 * np.pi * SLOPE_SPREAD**2)
        value -= 0.5 * float(constant + away @ away)
        return value, np.append(gradient, -away / SLOPE_SPREAD)

    def noise(self, noise_variance: Variance, theta: Array, U: Array) -> GappedNoise:
        theta, slopes = self._split(theta)
        return GappedNoise(self.whole.noise(noise_variance, theta, U), self.scale * np.exp(slopes))

    def attributes(self, theta: Array, unit: float) -> dict[str, Any]:
        return self.whole.attributes(self._split(theta)[0], unit)

    def _split(self, theta: Array) -> tuple[Array, Array]:
        """Parameters of the noise of whole rows, and of the slopes."""
        n = len(theta) - len(self.gap_columns)
        return theta[:n], theta[n:]


class GappedNoise(Noise):
    """Noise of rows, some of which have ``gaps``, variances (n, g) of what is missing.

    Besides that of ``whole`` rows, by mean squared slopes (g,) of the function.
    """

    def __init__(self, whole: Noise, slopes: Array) -> None:
        self.noise_variance = whole.noise_variance
        self._whole, self.slopes = whole, slopes

    def marginal_variance(self, X: Array) -> Array:
        return self._whole.marginal_variance(X)

    def far_variance(self, X: Array) -> Array:
        return self._whole.far_variance(X)

    def evaluate(
        self, X: Array, gaps: Array | None = None, pairs: Pairs | None = None
    ) -> tuple[Array, Pull]:
        C, pull = self._whole.evaluate(X, gaps, pairs)
        missing = np.zeros((len(X), len(self.slopes))) if gaps is None else gaps

        def pull_back(dC: Array) -> NoiseGradients:
            return self._with_slopes(pull(dC), self.slopes * (dC @ missing))

        return C + missing @ self.slopes, pull_back

    def complete(self, gradients: NoiseGradients) -> NoiseGradients:
        n = len(gradients.theta) - len(self.slopes)
        whole = self._whole.complete(gradients._replace(theta=gradients.theta[:n]))
        return self._with_slopes(whole, gradients.theta[n:])

    @staticmethod
    def _with_slopes(gradients: NoiseGradients, slopes: Array) -> NoiseGradients:
        return gradients._replace(theta=np.append(gradients.theta, slopes))


def admit_gaps(
    model: Model, parameters: Parameters, columns: tuple[int, ...]
) -> tuple[Model, Parameters]:
    """Model and parameters of independent noise that have slopes of these inputs, too."""
    structure = model.structure
    known = structure.gap_columns
    new = tuple(j for j in columns if j not in known)
    if not new:
        return model, parameters
    if not isinstance(structure, Gapped):
        structure = Gapped(structure)
    structure = replace(structure, gap_columns=(*known, *new))
    theta = np.append(parameters.noise_theta, structure.theta[-len(new) :])
    return replace(model, structure=structure), replace(parameters, noise_theta=theta)
