"""The nearest rows of a place."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.base import Neighbourhoods, RowSearch, SmallSearch, _neighbours


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("sizes", [[50], [40, 9, 1]])
def test_neighbours_are_the_nearest_rows(rng, d, sizes):
    """With a tree and without, in one chunk and in several."""
    X, places = rng.standard_normal((50, d)), rng.standard_normal((30, d))
    found = Neighbourhoods(np.split(X, np.cumsum(sizes)[:-1])).find(places, 7)
    distance = np.linalg.norm(places[:, None, :] - X, axis=2)
    assert_array_equal(found, np.argsort(distance, axis=1)[:, :7])


def test_the_nearest_of_few_rows(rng):
    """Of equally near ones the first, from a single place and from many; at most all."""
    X, places = rng.standard_normal((50, 3)), rng.standard_normal((300, 3))
    found = SmallSearch(X).find(places, 7)
    assert_array_equal(found, Neighbourhoods([X]).find(places, 7))
    assert SmallSearch(X).find(places, 60).shape == (300, 50)
    grid = np.stack(np.meshgrid(*3 * [np.arange(4.0)]), axis=-1).reshape(-1, 3) + 100.0
    found = SmallSearch(grid).find(grid + 0.5, 20)
    distance = np.linalg.norm(grid[:, None] + 0.5 - grid, axis=2).round(8)
    assert_array_equal(found, np.argsort(distance, axis=1, kind="stable")[:, :20])
    assert_array_equal(SmallSearch(grid).find(grid[5:6] + 0.5, 20), found[5:6])
    outlier = np.vstack([X, [[1e4, 0.0, 0.0]]])
    assert_array_equal(SmallSearch(outlier).find(places, 7), SmallSearch(X).find(places, 7))


def test_few_places_need_no_tree_of_many_rows(rng, monkeypatch):
    X, places = rng.standard_normal((50, 3)), rng.standard_normal((4, 3))
    expected = RowSearch(X).nearest(places, 7)
    monkeypatch.setattr(_neighbours, "_MANY_ROWS", 49)
    monkeypatch.setattr(_neighbours, "cKDTree", None)
    for found, one in zip(RowSearch(X, few_places=True).nearest(places, 7), expected, strict=True):
        assert_allclose(found, one, rtol=1e-10)
