"""Orders in which expectation propagation visits its sites."""

from __future__ import annotations

from dataclasses import dataclass

from skvbgp._core.linalg import Array
from skvbgp.ep._features import SparsePrior
from skvbgp.ep._sites import Fixpoint, Sites, parallel_ep


@dataclass(frozen=True)
class Schedule:
    """How EP is run."""

    name: str
    max_iter: int
    damping: float

    def run(self, t: Array, prior: SparsePrior, sites: Sites, tol: float) -> Fixpoint:
        return parallel_ep(t, prior, sites, max_iter=self.max_iter, damping=self.damping, tol=tol)
