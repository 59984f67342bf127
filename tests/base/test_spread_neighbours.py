"""What a worker finds near to a place among its own rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.scaling import Coordinates
from skvbgp._core.shard import Block, Shard
from skvbgp.base import _spread_neighbours
from skvbgp.base._spread_neighbours import _find_in_shard


@pytest.mark.parametrize("d", [2, 14], ids=["tree", "all distances"])
@pytest.mark.parametrize("k", [1, 5, 60, 90])
def test_a_list_finds_what_a_tree_does(rng, d, k):
    X, x = rng.standard_normal((70, d)), rng.standard_normal((4, d))
    blocks = [Block(rows, rows[:, 0]) for rows in np.split(X, [3, 40])]
    frame, weights = Coordinates(np.ones(d), np.full(d, 3.0)), rng.uniform(0.5, 2.0, d)
    distance = np.linalg.norm((frame.scaled(X) * weights)[None] - x[:, None], axis=2)
    expected = np.argsort(distance, axis=1)[:, :k]
    shard, n_listed = Shard(*blocks), _spread_neighbours._LISTED_PLACES
    for n_places in (4, n_listed):  # together more than are listed
        places = np.resize(x, (n_places, d))
        told, index = _find_in_shard(frame, weights, places, k, shard)
        assert_array_equal(index[:4], expected)
        assert_allclose(told[:4], np.take_along_axis(distance, expected, axis=1), rtol=1e-12)
        (_, kept) = shard._kept["places"]
        assert ("_tree" in vars(kept)) == (n_places > 4 or d > 12)


def test_equally_near_rows_are_told_of_in_their_order():
    X = np.zeros((6, 2))
    shard = Shard(Block(X[:4], X[:4, 0]), Block(X[4:], X[4:, 0]))
    frame = Coordinates(np.zeros(2), np.ones(2))
    assert_array_equal(_find_in_shard(frame, np.ones(2), X[:1] + 1.0, 6, shard)[1][0], np.arange(6))
