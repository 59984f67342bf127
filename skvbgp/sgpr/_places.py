"""Some of the rows, at which the relevance of the inputs is measured."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.owners import Owners
from skvbgp._core.scaling import Coordinates
from skvbgp._core.shards import ShardedColumns
from skvbgp.base import Relevance, find_output

#: Most places that are kept.
_PLACES = 1_000


class Places(NamedTuple):
    """Rows, and how many of all rows each one stands for."""

    X: Array  # (k, d) in the user's units
    weight: Array  # (k,)

    @classmethod
    def none(cls, d: int) -> Self:
        return cls(np.empty((0, d)), np.empty(0))

    @classmethod
    def of(cls, X: Array | ShardedColumns, weight: Array | None) -> Self:
        """Rows in equal distances, or all if they are few; rows may have positive weights (n,)."""
        chosen, counts = _thin(np.ones(len(X)) if weight is None else weight)
        return cls(np.array(X[chosen]), counts)

    def joined(self, new: Places) -> Places:
        """Places among the rows that these are of, and others."""
        chosen, counts = _thin(np.append(self.weight, new.weight))
        return Places(np.concatenate([self.X, new.X])[chosen], counts)

    def faded(self, share: float) -> Places:
        """The same places of rows that count less by a factor."""
        return Places(self.X, share * self.weight)

    def of_outputs(self, among: NDArray[np.bool_]) -> Places:
        """Places of some of t outputs (t,), which the last columns tell; all if there are none."""
        mine = among[find_output(self.X, len(among))]
        return Places(self.X[mine], self.weight[mine]) if mine.any() else self

    def share_out(
        self, coordinates: Coordinates, latent: Any, owners: Owners, n_outputs: int = 0
    ) -> Relevance:
        """Shares of the inputs in what a latent function varies by.

        The last columns, which say which of several outputs a row is of, are no inputs.
        """
        rows = coordinates.scaled(self.X)
        X, outputs = np.split(rows, [rows.shape[1] - n_outputs], axis=1)
        d = X.shape[1]
        mean, each = latent.slopes(rows)
        return Relevance.of_slopes(
            X,
            self.weight,
            mean[:, :d],
            each[..., :d],
            owners=owners[:d],
            predict=lambda X: latent.means(np.hstack([X, outputs])),
        )


def _thin(weight: Array) -> tuple[Index, Array]:
    """Which rows are places, and how many rows each one stands for."""
    n = len(weight)
    if n <= _PLACES:
        return np.arange(n), weight
    total = np.cumsum(weight)
    points = (np.arange(_PLACES) + 0.5) / _PLACES * total[-1]
    chosen = np.minimum(np.searchsorted(total, points, side="right"), n - 1)
    return chosen, np.full(_PLACES, total[-1] / _PLACES)
