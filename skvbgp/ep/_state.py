"""What is known of the classes: of two, one problem, or each one versus the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp.base import Labels
from skvbgp.ep._bound import Parameters, ScalePrior
from skvbgp.ep._inputs import Inputs
from skvbgp.ep._posterior import LatentPosterior
from skvbgp.ep._sites import Sites


@dataclass(frozen=True)
class Start:
    """What training begins with."""

    parameters: Parameters
    hyperprior: ScalePrior | None
    seed: int


@dataclass(frozen=True)
class State:
    """What training ends with: the rows, their sites and the posterior."""

    start: Start  # with the learned parameters
    n_iter: int
    inputs: Inputs  # (n, n_features) as they were given
    y: Labels
    sites: tuple[Sites, ...]  # of g, for each problem
    latent_sites: tuple[Sites, ...]  # of f
    log_evidence: Array  # (k,)
    posterior: LatentPosterior
    exclusion: float  # of the other classes, see `_core.exclusion`; 0 for two classes

    @property
    def classes(self) -> NDArray[Any]:
        return self.y.classes
