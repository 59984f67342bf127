"""Rows of inputs whose entries may be uncertain or missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.column_gaussian import ColumnGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.scaling import Coordinates, check_unit


@dataclass(frozen=True)
class Inputs:
    """q(x_i) = N(mean_i, diag(variance_i)).

    Attributes
    ----------
    mean : ndarray of shape (n, d)
        NaN where an entry is missing, until `InputModel.complete`.
    variance : ndarray of shape (n, d)
        0 where an entry is certain.
    """

    mean: Array
    variance: Array

    def __len__(self) -> int:
        return len(self.mean)

    @cached_property
    def uncertain(self) -> NDArray[np.bool_]:
        """Whether a row has an uncertain entry, (n,)."""
        return np.asarray(np.any(self.variance > 0.0, axis=1))

    def rows(self, index: slice | NDArray[Any]) -> Inputs:
        return Inputs(self.mean[index], self.variance[index])

    def append(self, other: Inputs) -> Inputs:
        return Inputs(
            np.concatenate([self.mean, other.mean]), np.concatenate([self.variance, other.variance])
        )


@dataclass(frozen=True)
class InputModel:
    """What a missing entry may be, and in which units.

    A missing entry has the joint Gaussian's conditional mean m and variance v given the seen
    entries of its row. Training refines them to N(m + shift sqrt(v), exp(log_spread) v), with
    one shift and one spread for a column, which also hold for new rows.

    Attributes
    ----------
    seen : ndarray of shape (n_features,)
        Columns with at least one entry; the others are left out of the model.
    coordinates : Coordinates
        Location and spread of the columns that are seen.
    gaussian : ColumnGaussian
        Of the columns in these coordinates.
    shift, log_spread : ndarray of shape (d,)
    """

    seen: NDArray[np.bool_]
    coordinates: Coordinates
    gaussian: ColumnGaussian
    shift: Array
    log_spread: Array

    @property
    def n_seen(self) -> int:
        """Number d of columns in the model."""
        return len(self.shift)

    @classmethod
    def of(cls, X: Array) -> InputModel:
        """Learn from rows (n, n_features) with missing entries."""
        seen = np.asarray(~np.isnan(X).all(axis=0))
        if not seen.any():
            raise ValueError("All entries of X are missing.")
        coordinates = Coordinates.of_seen(X[:, seen])
        check_unit(coordinates.scale, "X")
        gaussian = ColumnGaussian.fit(coordinates.scaled(X[:, seen]))
        return cls(seen, coordinates, gaussian, *np.zeros((2, int(seen.sum()))))

    def condition(self, inputs: Inputs) -> Inputs:
        """Rows over the columns seen, missing entries as the joint Gaussian has them."""
        X, variance = inputs.mean[:, self.seen], inputs.variance[:, self.seen]
        missing = np.isnan(X)
        if not missing.any():
            return Inputs(X, variance)
        mean, conditional = self.gaussian.moments(self.coordinates.scaled(X))
        return Inputs(
            np.where(missing, self.coordinates.original(mean), X),
            np.where(missing, self.coordinates.scale**2 * conditional, variance),
        )

    def refine(self, conditional: Inputs, missing: Array) -> Inputs:
        """The same with the shift and the spread that training has found."""
        v = np.where(missing, conditional.variance, 0.0)
        return Inputs(
            conditional.mean + self.shift * np.sqrt(v),
            conditional.variance + np.expm1(self.log_spread) * v,
        )

    def refine_vjp(
        self, conditional: Inputs, missing: Array, d_mean: Array, d_variance: Array
    ) -> tuple[Array, Array]:
        """Gradients in shift and log spread (d,) from those in the refined moments (n, d)."""
        v = np.where(missing, conditional.variance, 0.0)
        d_log_spread = np.exp(self.log_spread) * np.sum(d_variance * v, axis=0)
        return np.sum(d_mean * np.sqrt(v), axis=0), d_log_spread

    def complete(self, inputs: Inputs) -> Inputs:
        """Rows over the columns seen, without missing entries."""
        return self.refine(self.condition(inputs), np.isnan(inputs.mean[:, self.seen]))

    def with_refinement(self, shift: Array, log_spread: Array) -> InputModel:
        return replace(self, shift=shift, log_spread=log_spread)

    def kl(self, n_missing: Array) -> tuple[float, Array, Array]:
        """KL of the missing entries, counted by column (d,), to their conditional Gaussians.

        Also its gradients in the shift and in the log spread.
        """
        spread = np.exp(self.log_spread)
        terms = spread + self.shift**2 - 1.0 - self.log_spread
        return (
            0.5 * float(n_missing @ terms),
            n_missing * self.shift,
            0.5 * n_missing * (spread - 1.0),
        )
