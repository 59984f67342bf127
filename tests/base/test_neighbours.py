"""The nearest rows of a place."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skvbgp.base import Neighbourhoods


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("sizes", [[50], [40, 9, 1]])
def test_neighbours_are_the_nearest_rows(rng, d, sizes):
    """With a tree and without, in one chunk and in several."""
    X, places = rng.standard_normal((50, d)), rng.standard_normal((30, d))
    found = Neighbourhoods(np.split(X, np.cumsum(sizes)[:-1])).find(places, 7)
    distance = np.linalg.norm(places[:, None, :] - X, axis=2)
    assert_array_equal(found, np.argsort(distance, axis=1)[:, :7])
