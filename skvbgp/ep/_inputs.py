"""Rows of inputs whose entries may be uncertain or missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.column_gaussian import ColumnGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, count_inputs, find_shared
from skvbgp._core.scaling import Coordinates, check_unit


@dataclass(frozen=True)
class Inputs:
    """q(x_i) = N(mean_i, diag(variance_i))."""

    mean: Array  # (n, d) NaN where an entry is missing, until `InputModel.condition`
    variance: Array  # (n, d) 0 where an entry is certain

    def __len__(self) -> int:
        return len(self.mean)

    @cached_property
    def uncertain(self) -> NDArray[np.bool_]:
        """Whether a row has an uncertain entry, (n,)."""
        return np.asarray(np.any(self.variance > 0.0, axis=1))

    @property
    def table(self) -> Array:
        """All that is known of every row, (n, d) or, with uncertain entries, (n, 2 d)."""
        return np.hstack([self.mean, self.variance]) if self.uncertain.any() else self.mean

    def rows(self, index: slice | NDArray[Any]) -> Inputs:
        return Inputs(self.mean[index], self.variance[index])

    def copy(self) -> Inputs:
        return Inputs(self.mean.copy(), self.variance.copy())

    def joined(self, other: Inputs) -> Inputs:
        return Inputs(
            np.concatenate([self.mean, other.mean]), np.concatenate([self.variance, other.variance])
        )


@dataclass(frozen=True)
class InputModel:
    """What a missing entry may be, and in which units.

    A missing entry has the joint Gaussian's conditional mean and variance given the seen entries
    of its row; `Refinement` is what training makes of them.
    """

    #: (n_features,): columns with at least one entry; the others are left out of the model.
    seen: NDArray[np.bool_]
    coordinates: Coordinates  # location and spread of the columns that are seen
    gaussian: ColumnGaussian  # of the columns in these coordinates
    #: By column that is seen: which of the inputs seen it encodes, see `_core.owners`. What encodes
    #: a category is in the coordinates as it is.
    owners: Owners = ()

    @property
    def n_seen(self) -> int:
        """Number d of columns in the model."""
        return int(self.seen.sum())

    @cached_property
    def frame(self) -> Coordinates:
        """The coordinates in units of the distance of typical rows.

        Half of the squared distance of two independent rows is the sum of the columns' variances.
        """
        n_inputs = count_inputs(self.n_seen, self.owners)
        return replace(self.coordinates, scale=self.coordinates.scale * np.sqrt(n_inputs))

    @classmethod
    def of(cls, X: Array, weight: Array | None = None, owners: Owners = ()) -> InputModel:
        """Learn from rows (n, n_features) with missing entries, and maybe with weights (n,).

        The owners are those of all columns.
        """
        seen = np.asarray(~np.isnan(X).all(axis=0))
        if not seen.any():
            raise ValueError("All entries of X are missing.")
        if owners:
            owners = tuple(np.unique(np.array(owners)[seen], return_inverse=True)[1].tolist())
        coordinates = Coordinates.of_seen(X[:, seen], weight)
        coordinates = coordinates.keeping(find_shared(int(seen.sum()), owners))
        check_unit(coordinates.scale, "X")
        gaussian = ColumnGaussian.fit(coordinates.scaled(X[:, seen]), weight=weight)
        return cls(seen, coordinates, gaussian, owners)

    def find_missing(self, inputs: Inputs) -> NDArray[np.bool_]:
        """Which entries of the columns seen are missing, (n, d)."""
        return np.isnan(inputs.mean[:, self.seen])

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
