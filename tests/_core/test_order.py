"""Random orders, stored or computed."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skvbgp._core import order
from skvbgp._core.order import draw_distinct, draw_first, shuffle_parts, thin


@pytest.fixture(params=[True, False], ids=["stored", "computed"])
def _kind(request, monkeypatch):
    monkeypatch.setattr(order, "_STORED_ROWS", 2**22 if request.param else 0)


@pytest.mark.usefixtures("_kind")
@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 1000])
def test_every_number_comes_once(n):
    parts = list(shuffle_parts(n, min(n, 7), np.random.RandomState(0)))
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    sizes = [len(part) for part in parts]
    assert sizes == [len(part) for part in np.array_split(np.arange(n), min(n, 7))]


@pytest.mark.usefixtures("_kind")
def test_orders_are_uniform():
    """Each place of a number and each distance of neighbours is as probable as another."""
    n, rng = 11, np.random.RandomState(0)
    orders = np.array([np.concatenate(list(shuffle_parts(n, 1, rng))) for _ in range(1000)])
    for values in (orders[:, 0], orders[:, -1], (orders[:, 1] - orders[:, 0]) % n):
        counts = np.bincount(values, minlength=n)
        expected = np.full(n, 1000 / n)
        if counts[0] == 0:  # a distance
            counts, expected = counts[1:], np.full(n - 1, 1000 / (n - 1))
        assert np.sum((counts - expected) ** 2 / expected) < 35.0  # 1 in 10,000


def test_first_ones_are_those_of_a_permutation(monkeypatch):
    first = draw_first(50, 10, np.random.RandomState(0))
    assert_array_equal(first, np.random.RandomState(0).permutation(50)[:10])
    monkeypatch.setattr(order, "_STORED_ROWS", 0)
    computed = [draw_first(50, size, np.random.RandomState(0)) for size in (10, 50)]
    assert_array_equal(computed[0], computed[1][:10])
    assert_array_equal(np.sort(computed[1]), np.arange(50))


@pytest.mark.parametrize(("n", "expected"), [(0, []), (3, [0, 1, 2]), (4, [0, 2]), (7, [0, 3, 6])])
def test_some_of_many_rows(n, expected):
    assert_array_equal(np.arange(n)[thin(n, 3)], expected)


def test_a_seed_gives_an_order():
    part, again = (draw_distinct(2**23 + 5, 1000, np.random.RandomState(seed)) for seed in (3, 3))
    other = draw_distinct(2**23 + 5, 1000, np.random.RandomState(4))
    assert_array_equal(part, again)
    assert len(np.intersect1d(part, other)) < 10
    assert len(np.unique(part)) == 1000
    assert_array_equal(part, np.sort(part))
    assert abs(np.mean(part) / 2**22 - 1.0) < 0.1
