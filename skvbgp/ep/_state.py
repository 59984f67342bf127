"""What is known of one problem of two classes."""

from __future__ import annotations

from dataclasses import dataclass

from skvbgp._core.linalg import Array
from skvbgp.ep._bound import Parameters
from skvbgp.ep._default_kernel import ScalePrior
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
    t: Array  # (n,)
    sites: Sites  # of g
    latent_sites: Sites  # of f
    log_evidence: float
    posterior: LatentPosterior
