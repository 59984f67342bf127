"""Search for the nearest rows, in the coordinates of one distance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index, cut
from skvbgp._core.parallel import thread_map

#: Most features that a tree of places serves better than all distances do.
_TREE_FEATURES = 12
#: What is added to squared distances of a row, but not of the one before: so much of their median,
#: which is more than they are rounded.
_TIES = 1e-12
#: Rows of which a tree takes longer to make than all distances from a few places.
_MANY_ROWS = 2**18
#: Rows of one task of a search.
_TILE_ROWS = 256


def pays_tree(d: int) -> bool:
    """Whether a tree serves places of so many features better than all distances do."""
    return d <= _TREE_FEATURES


def keep_nearest(distance: Array, index: Index, k: int) -> tuple[Array, Index]:
    """Of rows at distances (n, m), those k that are nearest to each of n places, nearest first.

    Of equally near ones, the first.
    """
    nearest = np.lexsort((index, distance), axis=1)[:, :k]
    return np.take_along_axis(distance, nearest, axis=1), np.take_along_axis(index, nearest, axis=1)


class RowSearch:
    """Rows X (n, d) in the coordinates of one distance, ready to be searched.

    A leaf of a tree has so many rows. Few places are searched for without one, if rows are many.
    """

    def __init__(self, X: Array, leaf_rows: int = 16, *, few_places: bool = False) -> None:
        self._X = X
        has_tree = pays_tree(X.shape[1]) and not (few_places and len(X) > _MANY_ROWS)
        self._tree: Any = cKDTree(X, leafsize=leaf_rows) if has_tree else None
        self._brute: Any = None
        if self._tree is None:
            from sklearn.neighbors import NearestNeighbors  # a tenth of a second to import

            self._brute = NearestNeighbors(algorithm="brute").fit(X)

    def __len__(self) -> int:
        return len(self._X)

    def nearest(self, X: Array, k: int) -> tuple[Array, Index]:
        """Distances and indices (n*, k) of the k nearest rows of each of X."""
        if self._tree is not None:
            distance, index = self._tree.query(X, np.arange(1, k + 1))
        else:
            distance, index = self._brute.kneighbors(X, k)
        return distance, np.asarray(index, dtype=np.intp)


class PlaceSearch(ABC):
    """Nearest ones of known rows, for many places at a time."""

    def find(self, X: Array, k: int) -> Index:
        """Indices (n*, k) of the k nearest rows of each of X, nearest first."""
        tiles = [(X[rows], k) for rows in cut(len(X), _TILE_ROWS)]
        return np.concatenate(thread_map(self._find, tiles))

    def find_others(self, X: Array, index: Index, k: int) -> Index:
        """The same for known rows X of these indices, each without itself."""
        found = self.find(X, k + 1)
        own = found == index[:, None]
        own[~own.any(axis=1), -1] = True  # its equals have taken its place
        return found[~own].reshape(len(index), k)

    @abstractmethod
    def _find(self, X: Array, k: int) -> Index:
        """What `find` says of some places."""


class SmallSearch(PlaceSearch):
    """Nearest ones of few rows X (n, d), quicker than a tree where many are asked for.

    Of equally near ones the first, however the distances are rounded: each row is taken as a little
    farther away than the one before it.
    """

    def __init__(self, X: Array) -> None:
        self._origin = X.mean(axis=0)
        centred = X - self._origin
        squares = np.sum(centred**2, axis=1)
        self._squares = squares + _TIES * np.median(squares) * np.arange(len(X))
        self._factor = -2.0 * centred.T

    def _find(self, X: Array, k: int) -> Index:
        k = min(k, len(self._squares))
        # squared, but for the place's own norm
        distance = (X - self._origin) @ self._factor
        distance += self._squares
        index = np.argpartition(distance, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(distance, index, axis=1), axis=1)
        return np.take_along_axis(index, order, axis=1)


class Neighbourhoods(PlaceSearch):
    """The nearest rows of any place, of chunks (n, d) in the coordinates of one distance.

    Or of searches of such chunks.
    """

    def __init__(self, chunks: list[Array | RowSearch]) -> None:
        self.searches = [one if isinstance(one, RowSearch) else RowSearch(one) for one in chunks]

    def _find(self, X: Array, k: int) -> Index:
        found, first = [], 0
        for search in self.searches:
            distance, index = search.nearest(X, min(k, len(search)))
            found.append((distance, index + first))
            first += len(search)
        if len(found) == 1:
            return found[0][1]
        distance, index = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
        nearest = np.argsort(distance, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(index, nearest, axis=1)
