"""The rows that a model knows, and which of them are near."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import thread_map
from skvbgp.kernels import Kernel
from skvbgp.kernels._compose import Composite

Index = NDArray[np.intp]

#: Most features that a tree of places serves better than all distances do.
_TREE_FEATURES = 12
#: Rows of one task of a search.
_TILE_ROWS = 256


def weigh_inputs(kernel: Kernel, d: int) -> Array:
    """Weights (d,) of the inputs in the distance that a kernel goes by.

    The inverse squared length scales of its parts add up; a kernel without any weighs all inputs
    equally.
    """
    leaves = [kernel]
    while any(isinstance(leaf, Composite) for leaf in leaves):
        leaves = [
            part
            for leaf in leaves
            for part in (leaf.kernels if isinstance(leaf, Composite) else (leaf,))
        ]
    scales = [leaf.length_scale for leaf in leaves if hasattr(leaf, "length_scale")]
    if not scales:
        return np.ones(d)
    return np.sqrt(sum(np.broadcast_to(np.asarray(scale), (d,)) ** -2.0 for scale in scales))


class Places:
    """Rows in the coordinates of one distance, ready to be searched.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    """

    def __init__(self, X: Array) -> None:
        self._X = X
        self._tree: Any = cKDTree(X) if X.shape[1] <= _TREE_FEATURES else None
        self._brute: Any = None
        if self._tree is None:
            from sklearn.neighbors import NearestNeighbors  # a tenth of a second to import

            self._brute = NearestNeighbors(algorithm="brute").fit(X)

    def nearest(self, X: Array, k: int) -> tuple[Array, Index]:
        """Distances and indices (n*, k) of the k nearest rows of each of X."""
        if self._tree is not None:
            distance, index = self._tree.query(X, np.arange(1, k + 1))
        else:
            distance, index = self._brute.kneighbors(X, k)
        return distance, np.asarray(index, dtype=np.intp)


@dataclass(frozen=True)
class Rows:
    """All rows of a model, in chunks whose sizes fall at least by half.

    A chunk has a search structure of its own, so that neither adding a row nor searching depends
    much on how many there are; chunks of similar size are merged.

    Attributes
    ----------
    chunks : tuple of pairs of ndarrays (n, d) and (n,)
        X and y in the user's units.
    """

    chunks: tuple[tuple[Array, Array], ...] = field(default=())

    def plus(self, X: Array, y: Array) -> Self:
        """The rows followed by others."""
        chunks = [*self.chunks, (np.array(X), np.array(y))]
        while len(chunks) > 1 and len(chunks[-2][1]) < 2 * len(chunks[-1][1]):
            (X_last, y_last), (X_before, y_before) = chunks.pop(), chunks.pop()
            chunks.append((np.concatenate([X_before, X_last]), np.concatenate([y_before, y_last])))
        return replace(self, chunks=tuple(chunks))

    def __len__(self) -> int:
        return sum(len(y) for _, y in self.chunks)

    @cached_property
    def X(self) -> Array:
        """(n, d), the chunks one after the other."""
        parts = [X for X, _ in self.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @cached_property
    def y(self) -> Array:
        """(n,)."""
        parts = [y for _, y in self.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def __getstate__(self) -> dict[str, Any]:
        return {"chunks": self.chunks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class Neighbourhoods:
    """The nearest rows of any place, in one distance.

    Parameters
    ----------
    chunks : list of ndarray (n, d)
        Rows in the coordinates of the distance, by chunk.
    """

    def __init__(self, chunks: list[Array]) -> None:
        self._places = [Places(X) for X in chunks]
        self._sizes = [len(X) for X in chunks]

    def find(self, X: Array, k: int) -> Index:
        """Indices (n*, k) of the k nearest rows of each of X, nearest first."""
        tiles = [(X[i : i + _TILE_ROWS], k) for i in range(0, len(X), _TILE_ROWS)]
        return np.concatenate(thread_map(self._find, tiles))

    def find_others(self, X: Array, index: Index, k: int) -> Index:
        """The same for known rows X of these indices, each without itself."""
        found = self.find(X, k + 1)
        own = found == index[:, None]
        own[~own.any(axis=1), -1] = True  # its equals have taken its place
        return found[~own].reshape(len(index), k)

    def _find(self, X: Array, k: int) -> Index:
        found, first = [], 0
        for places, size in zip(self._places, self._sizes, strict=True):
            distance, index = places.nearest(X, min(k, size))
            found.append((distance, index + first))
            first += size
        if len(found) == 1:
            return found[0][1]
        distance, index = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
        nearest = np.argsort(distance, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(index, nearest, axis=1)


def draw_groups(X: Array, n_groups: int, size: int, rng: np.random.RandomState) -> list[Index]:
    """Groups of rows: each the nearest ones of a random row, in the distance of X's coordinates."""
    size = min(size, len(X))
    if size == len(X):
        return [np.arange(len(X))]
    centres = rng.choice(len(X), min(n_groups, len(X)), replace=False)
    _, index = Places(X).nearest(X[centres], size)
    return list(index)
