"""Which draws an expectation is taken over."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.draws import _quasi_normal, quasi_normal
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws, FreshDraws

SHAPE = 4, 3


def test_closed_form_draws_nothing():
    rng = np.random.RandomState(0)
    assert ClosedForm()(SHAPE, rng) is None
    assert rng.randint(2**31) == np.random.RandomState(0).randint(2**31)


def test_common_draws_are_the_same_for_all_rows_and_times():
    draws = np.random.default_rng(0).normal(size=(5, 3))
    rng = np.random.RandomState(0)
    first, second = (CommonDraws(draws)(SHAPE, rng) for _ in range(2))
    assert_array_equal(first, draws[:, None, :])
    assert_array_equal(second, first)
    assert rng.randint(2**31) == np.random.RandomState(0).randint(2**31)


@pytest.mark.parametrize("correlated", [False, True])
def test_fresh_draws(correlated):
    """One for every row, or one for a block; standard normal; new at every call."""
    rule, rng = FreshDraws(correlated), np.random.RandomState(0)
    first, second = rule(SHAPE, rng), rule(SHAPE, rng)
    assert first.shape == (1, 1 if correlated else 4, 3)
    assert np.all(first != second)
    assert_array_equal(first, rule(SHAPE, np.random.RandomState(0)))
    many = np.concatenate([rule(SHAPE, rng).ravel() for _ in range(2_000)])
    n = len(many)
    assert abs(many.mean()) < 5.0 / np.sqrt(n)
    assert abs(np.mean(many**2) - 1.0) < 5.0 * np.sqrt(2.0 / n)


@pytest.mark.parametrize("n_draws", [1, 2, 7, 8, 64])
def test_quasi_normal_comes_in_antithetic_pairs(n_draws):
    points = quasi_normal(n_draws, 3, seed=0)
    assert points.shape == (n_draws, 3)
    half = -(-n_draws // 2)
    assert_array_equal(points[half:], -points[: n_draws - half])
    assert len(np.unique(points[:, 0])) == n_draws
    expected = points.copy()
    points[:] = 0.0  # whoever has asked may write to them
    assert_array_equal(quasi_normal(n_draws, 3, seed=0), expected)
    _quasi_normal.cache_clear()
    assert_array_equal(quasi_normal(n_draws, 3, seed=0), expected)
    points = expected
    assert np.all(points != quasi_normal(n_draws, 3, seed=1))


def test_quasi_normal_moments():
    """Odd moments vanish exactly; the second ones beat sampling's 1 / sqrt(n) = 0.06."""
    points = quasi_normal(256, 3, seed=0)
    assert_allclose(points.mean(axis=0), 0.0, atol=1e-15)
    assert_allclose(points.T @ points / 256, np.eye(3), atol=0.06)
