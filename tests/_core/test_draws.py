"""Draws that fill space evenly, and who of several things a draw goes by."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core import draws
from skvbgp._core.draws import choose_by_level, draw_normal, meet_by_level, quasi_normal


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


def test_levels_that_stand_for_things_at_two_places(rng):
    """Of a thousand levels, as many as are counted; pairs that have none anywhere are left out."""
    shares = rng.dirichlet(np.full(4, 100.0), 5)
    shares[:, 1] = 0.0
    shares /= shares.sum(axis=1, keepdims=True)
    owners = choose_by_level((np.arange(1000) + 0.5) / 1000, shares)
    found = {(c, d): share for c, d, share in meet_by_level(shares)}
    assert (0, 3) not in found
    for c in range(4):
        for d in range(c, 4):
            counted = np.mean((owners == c)[:, None] & (owners == d), axis=2)
            assert_allclose(found.get((c, d), np.zeros((5, 5))), counted, atol=2e-3)
    everywhere = [0.2, 0.5, 0.3]
    same = list(meet_by_level(np.tile(everywhere, (6, 1))))
    assert [(c, d) for c, d, _ in same] == [(0, 0), (1, 1), (2, 2)]
    assert_allclose([share[2, 4] for _, _, share in same], everywhere)


def test_quasi_normal_points_are_pairs_that_nobody_can_change_for_others():
    points = quasi_normal(7, 3, seed=2)
    assert_array_equal(points[:3], -points[4:])
    kept = points.copy()
    points += 1.0
    assert_array_equal(quasi_normal(7, 3, seed=2), kept)


def test_very_many_dimensions_have_random_points_beyond_the_first(monkeypatch):
    """SciPy would take memory that is quadratic in them."""
    monkeypatch.setattr(draws, "_EVEN_DIMENSIONS", 3)
    points = quasi_normal(400, 5, seed=3)
    assert_array_equal(points[:200], -points[200:])
    monkeypatch.undo()
    assert_array_equal(points[:, :3], quasi_normal(400, 3, seed=3))
    assert np.all(np.abs(points.std(axis=0) - 1.0) < 0.15)


def test_normal_draws_have_the_moments(rng):
    """Also where standard deviations differ by more than numbers have digits, or one is 0."""
    A = rng.standard_normal((4, 4))
    unit = np.array([1e-9, 1.0, 1e12, 0.0])
    mean, cov = rng.standard_normal(4) * unit, A @ A.T * unit * unit[:, None]
    drawn = draw_normal(mean, cov, 20_000, rng)
    std = np.sqrt(np.diagonal(cov))[:3]
    scaled = (drawn - mean[:, None])[:3] / std[:, None]
    assert_allclose(scaled @ scaled.T / 20_000, cov[:3, :3] / std / std[:, None], atol=0.04)
    assert_array_equal(drawn[3], np.full(20_000, mean[3]))
