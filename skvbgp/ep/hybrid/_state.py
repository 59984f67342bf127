"""What the latent-variable model as an estimator knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp.base import Labels
from skvbgp.ep.hybrid._columns import ColumnModel
from skvbgp.ep.hybrid._objective import HybridParameters
from skvbgp.ep.hybrid._posterior import HybridPosterior


@dataclass(frozen=True)
class HybridStart:
    """What training begins with."""

    columns: ColumnModel
    parameters: HybridParameters


@dataclass(frozen=True)
class HybridState:
    """The posterior, and the rows it knows.

    Attributes
    ----------
    posterior : HybridPosterior
    X : ndarray of shape (n, d)
    y : Labels
        Of no class, if rows have no labels; and how often the rows count.
    values : tuple of float
        Objective after each iteration.
    lower_bound : float
    relevance : ndarray of shape (n_components,)
    """

    posterior: HybridPosterior
    X: Array
    y: Labels
    values: tuple[float, ...]
    lower_bound: float
    relevance: Array

    @property
    def classes(self) -> NDArray[Any]:
        return self.y.classes
