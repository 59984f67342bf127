"""Everything a fitted regressor of this family knows; immutable and picklable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners
from skvbgp._core.scaling import Coordinates, Target
from skvbgp._optim.adam import AdamState
from skvbgp.base import Targets
from skvbgp.spectrum._gaussian import Gaussian, Prior, Structure
from skvbgp.spectrum._rows import DividedRows

#: Limits of the variances of a scaled target.
VARIANCE_LIMITS = (1e-6, 1e4)


@dataclass(frozen=True)
class Hyperparameters:
    """What has a value and no distribution, for scaled X and y."""

    length_scale: Array  # (d,) l of the prior r_i ~ N(0, 1 / (2 pi l)^2)
    signal_variance: float  # sigma_s^2 of the paper's model
    noise_variance: float  # sigma_n^2 of it
    local_noise_variance: float  # noise of the local conditional
    #: By column of X: the input that it encodes; those of an input share its length scale.
    owners: Owners = ()

    def prior(self, structure: Structure) -> Prior:
        return Prior.of(structure, self.length_scale, self.signal_variance)


@dataclass(frozen=True)
class Start:
    """What training begins with."""

    coordinates: Coordinates
    target: Target
    hyper: Hyperparameters
    R: Array  # (m, d) frequencies
    n_seen: int  # rows of the user's
    seed: int  # root of every later random choice
    kept_rows: tuple[Array, Targets] | None  # the rows as they were given, if they are few


@dataclass(frozen=True)
class State:
    """Data, posterior and hyperparameters, with the frames they are expressed in."""

    coordinates: Coordinates
    target: Target
    hyper: Hyperparameters
    q: Gaussian
    rows: DividedRows
    n_seen: int  # rows of the user's, of which equal ones are one of `rows`
    seed: int  # root of every later random choice
    #: Bounds on log p(y), y on its own scale: one per pass and update.
    lower_bounds: tuple[float, ...]
    lower_bound: float  # the last one, over more draws
    n_iter: int
    adam: AdamState | None  # of the first phase
    bound_adam: AdamState | None  # of the second, with solver="adam"
    #: The rows as they were given, while a stream may begin again with them.
    kept_rows: tuple[Array, Targets] | None = None

    @property
    def units(self) -> Array:
        """Units (D,) of alpha: 1 / X for frequencies, those of y for weights."""
        structure = self.q.structure
        units = np.full(structure.size, self.target.unit)
        structure.frequencies(units)[:] = 1.0 / self.coordinates.scale
        return units
