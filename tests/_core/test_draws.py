"""Draws that fill space evenly, and who of several things a draw goes by."""

import numpy as np
from numpy.testing import assert_array_equal

from skvbgp._core.draws import choose_by_level, quasi_normal


def test_a_level_is_of_the_thing_in_whose_share_it_lies(rng):
    """Shares of one place or of several; the last ends at one, whatever rounding says."""
    shares = rng.dirichlet(np.ones(4), size=6)
    shares[0] = [0.0, 0.5, 0.5 - 1e-16, 0.0]
    level = np.append(rng.uniform(size=20), 1.0)
    expected = [
        [next((c for c in range(3) if u <= place[: c + 1].sum()), 3) for u in level]
        for place in shares
    ]
    assert_array_equal(choose_by_level(level, shares), expected)
    for place, owners in zip(shares, expected, strict=True):
        assert_array_equal(choose_by_level(level, place), owners)
    assert_array_equal(choose_by_level(level, np.ones((6, 1))), np.zeros((6, 21)))


def test_quasi_normal_points_are_pairs_that_nobody_can_change_for_others():
    points = quasi_normal(7, 3, seed=2)
    assert_array_equal(points[:3], -points[4:])
    kept = points.copy()
    points += 1.0
    assert_array_equal(quasi_normal(7, 3, seed=2), kept)
