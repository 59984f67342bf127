"""What the latent-variable model as an estimator knows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skvbgp._core.linalg import Array
from skvbgp.base import Labels, is_outgrown
from skvbgp.ep._hybrid_columns import ColumnModel
from skvbgp.ep._hybrid_objective import ColumnSites, HybridData, HybridParameters
from skvbgp.ep._hybrid_training import HybridModel, solve_finally


@dataclass(frozen=True)
class HybridState:
    """The model, and the rows it knows.

    Attributes
    ----------
    model : HybridModel
    X : ndarray of shape (n, d)
    y : Labels or None
    bounds : tuple of float
        Objective after each iteration.
    lower_bound : float
    relevance : ndarray of shape (n_components,)
    """

    model: HybridModel
    X: Array
    y: Labels | None
    bounds: tuple[float, ...]
    lower_bound: float
    relevance: Array

    def is_outgrown(self, X: Array, y: Labels | None) -> bool:
        """Whether with these new rows another map to the latents is to be learned."""
        known, new = (np.empty(0) if rows is None else rows.codes for rows in (self.y, y))
        return is_outgrown(self.X, known, X, new, learns=True)


def solved_state(
    columns: ColumnModel,
    data: HybridData,
    p: HybridParameters,
    sites: ColumnSites,
    X: Array,
    y: Labels | None,
    values: tuple[float, ...],
) -> HybridState:
    """The state at some parameters, with converged sites."""
    solution = solve_finally(data, p, sites)
    if not solution.sites.converged:
        warnings.warn(
            "The sites of EP have not converged: probabilities may be inaccurate.",
            ConvergenceWarning,
            stacklevel=2,
        )
    relevance = solution.latents.mean.var(axis=0) / np.square(p.kernel.length_scale)
    model = HybridModel(columns, p, solution.bound.mean, solution.bound.covariance)
    return HybridState(model, X, y, values, solution.lower_bound, relevance)
