"""Everything a fitted regressor of this family knows; immutable and picklable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.spectrum._blocks import Blocks
from skvbgp.spectrum._posterior import Gaussian, Structure


@dataclass(frozen=True)
class Hyperparameters:
    """What has a value and no distribution, for scaled X and y.

    Attributes
    ----------
    length_scale : ndarray of shape (d,)
        l of the prior r_i ~ N(0, 1 / (2 pi l)^2).
    signal_variance, noise_variance : float
        sigma_s^2 and sigma_n^2 of the paper's model.
    local_noise_variance : float
        Noise of the local conditional.
    """

    length_scale: Array
    signal_variance: float
    noise_variance: float
    local_noise_variance: float

    def prior(self, structure: Structure) -> Gaussian:
        return Gaussian.prior(structure, self.length_scale, self.signal_variance)


@dataclass(frozen=True)
class State:
    """Data, posterior and hyperparameters, with the frames they are expressed in.

    Attributes
    ----------
    R : ndarray of shape (m, d)
        Where the frequencies start.
    seed : int
        Root of every later random choice.
    n, n_trained : int
        Rows seen, and rows that the hyperparameters were trained on.
    lower_bound : float
        Bound on log p(y), y on its own scale; ``lower_bounds`` has one per pass.
    """

    coordinates: Coordinates
    target: Target
    hyper: Hyperparameters
    R: Array
    seed: int
    q: Gaussian | None = None
    blocks: Blocks | None = None
    n: int = 0
    n_trained: int = 0
    lower_bound: float = -np.inf
    lower_bounds: tuple[float, ...] = ()
    n_iter: int = 1

    @property
    def units(self) -> Array:
        """Units (D,) of alpha: 1 / X for frequencies, those of y for weights."""
        structure = self.q.structure
        units = np.full(structure.size, self.target.unit)
        structure.frequencies(units)[:] = 1.0 / self.coordinates.scale
        return units
