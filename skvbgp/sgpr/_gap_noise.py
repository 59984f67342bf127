"""White noise, and more of it in rows whose inputs are not all known.

To first order the function differs there by its slope times what is not known, see
:ref:`sgpr-gaps`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.sgpr._bound import Model
from skvbgp.sgpr._noise import NoiseGradients, White, WhiteNoise
from skvbgp.sgpr._parameters import Parameters

#: Median of the prior of mean squared slopes, for a target of unit variance and inputs of unit
#: spread; standard deviation and limits of their logarithms.
_SLOPE, _SPREAD = 0.3, 1.0
_LIMITS = np.log([1e-4, 1e3])


@dataclass(frozen=True)
class GapWhite(White):
    """Independent noise of one variance, and of more in rows with missing entries.

    Attributes
    ----------
    gap_columns : tuple of int
        Inputs that have gaps in training rows.
    scale : float
        Factor between exp of a parameter and a covariance of the scaled target.
    has_prior : bool
        Whether the logarithms of the slopes have a normal prior.
    """

    gap_columns: tuple[int, ...] = ()
    scale: float = 1.0
    has_prior: bool = True

    @property
    def theta(self) -> Array:
        return np.full(len(self.gap_columns), np.log(_SLOPE / self.scale))

    @property
    def bounds(self) -> Array:
        return np.tile(_LIMITS, (len(self.gap_columns), 1))

    def rescale(self, factor: float) -> GapWhite:
        return replace(self, scale=self.scale * factor)

    def settled(self) -> GapWhite:
        return replace(self, has_prior=False)

    def log_prior(self, theta: Array) -> tuple[float, Array]:
        if not self.has_prior:
            return super().log_prior(theta)
        away = (theta + np.log(self.scale / _SLOPE)) / _SPREAD
        constant = len(theta) * np.log(2.0 * np.pi * _SPREAD**2)
        return -0.5 * float(constant + away @ away), -away / _SPREAD

    def noise(self, noise_variance: float, theta: Array, U: Array) -> GapNoise:
        return GapNoise(noise_variance, self.scale * np.exp(theta))


class GapNoise(WhiteNoise):
    """Noise of rows, some of which have ``gaps``, variances (n, g) of what is missing.

    Parameters
    ----------
    noise_variance : float
        sigma_n^2, of rows without gaps.
    slopes : ndarray of shape (g,)
        Mean squared slopes of the function.
    """

    def __init__(self, noise_variance: float, slopes: Array) -> None:
        super().__init__(noise_variance)
        self.slopes = slopes

    def gap_variance(self, gaps: Array) -> Array:
        """What the noise of rows has more, (n,)."""
        return np.asarray(gaps @ self.slopes)

    def vjp(self, X: Array, dC: Array) -> NoiseGradients:
        return super().vjp(X, dC)._replace(theta=np.zeros(len(self.slopes)))

    def add_gap_gradient(self, gradients: NoiseGradients, dC: Array, gaps: Array) -> NoiseGradients:
        """The gradients, with that of ``sum(dC * gap_variance(gaps))``."""
        return gradients._replace(theta=gradients.theta + self.slopes * (dC @ gaps))


def admit_gaps(
    model: Model, parameters: Parameters, columns: tuple[int, ...]
) -> tuple[Model, Parameters]:
    """Model and parameters of white noise that have slopes of these inputs, too."""
    structure = model.structure
    known = structure.gap_columns
    new = tuple(j for j in columns if j not in known)
    if not new:
        return model, parameters
    if not isinstance(structure, GapWhite):
        structure = GapWhite()
    structure = replace(structure, gap_columns=(*known, *new))
    theta = np.append(parameters.noise_theta, structure.theta[len(known) :])
    return replace(model, structure=structure), replace(parameters, noise_theta=theta)
