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
    """The posterior, and the rows it knows."""

    posterior: HybridPosterior
    X: Array  # (n, d)
    y: Labels  # of no class, if rows have no labels; and how often the rows count
    values: tuple[float, ...]  # objective after each iteration
    lower_bound: float
    relevance: Array  # (n_components,)

    @property
    def classes(self) -> NDArray[Any]:
        return self.y.classes
