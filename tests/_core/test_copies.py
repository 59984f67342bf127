"""Equal rows: found whatever their order, and their density by that of one row."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skvbgp._core import copies
from skvbgp._core.copies import (
    extra_log_dets,
    find_equal,
    join_origins,
    make_keys,
    noise_log_density,
    own_gradient,
    rotate_copies,
)
from tests.derivatives import numerical_gradient


def test_the_density_of_copies_is_that_of_one_and_the_factor():
    t, weight, y, f = np.array([0.3, 2.0]), np.array([3.0, 1.0]), np.array([1.2, -0.4]), 0.7
    copies = np.sum(weight * stats.norm.logpdf(y, f, np.sqrt(t)))
    one = np.sum(stats.norm.logpdf(y, f, np.sqrt(t / weight)))
    factor = -0.5 * (np.sum(weight - 1.0) * np.log(2.0 * np.pi) + extra_log_dets(t, weight).sum())
    assert_allclose(copies, one + factor, rtol=1e-12)


def test_rotated_copies_have_the_density_of_all(rng):
    """Of two functions, with one noise."""
    repetitions, t = np.array([1, 3, 2]), 0.4
    y, root = rng.standard_normal((3, 2)), rng.standard_normal((3, 3))
    K, index = root @ root.T, np.repeat(np.arange(3), repetitions)
    normal = stats.multivariate_normal
    repeated = normal(cov=K[np.ix_(index, index)] + t * np.eye(6)).logpdf(y[index].T).sum()
    rotated, scales, n_others = rotate_copies(y, repetitions.astype(float))
    one = normal(cov=scales * K + t * np.eye(3)).logpdf(rotated.T).sum()
    assert n_others == 6
    assert_allclose(one + noise_log_density(n_others, np.log(t)), repeated, rtol=1e-12)


def test_gradient():
    t, weight, slope = np.array([0.3, 2.0]), np.array([3.0, 0.2]), np.array([1.5, -0.7])

    def value(t):
        return slope @ np.sin(t / weight) - 0.5 * extra_log_dets(t, weight).sum()

    analytic = own_gradient(t, weight, slope * np.cos(t / weight))
    assert_allclose(analytic, numerical_gradient(value, t), rtol=1e-7)
    assert own_gradient(t, None, slope) is slope


@pytest.mark.parametrize("tile", [2**14, 7])  # rows that are compared at a time
def test_equal_rows_are_found_in_any_order(monkeypatch, rng, tile):
    monkeypatch.setattr(copies, "_TILE_ROWS", tile)
    X, y = rng.integers(0, 2, (40, 2)).astype(float), rng.integers(0, 3, (40, 2))
    order = rng.permutation(40)
    first, owner = find_equal(X, y)
    assert len(first) == len(np.unique(np.column_stack([X, y]), axis=0)) < 40
    assert_array_equal(X[first][owner], X)
    assert_array_equal(y[first][owner], y)
    assert_array_equal(first[owner] <= np.arange(40), True)
    again, _ = find_equal(X[order], y[order])
    assert_array_equal(X[order][again], X[first])
    assert_array_equal(y[order][again], y[first])
    other, _ = find_equal(X, y, np.arange(40.0))  # another column tells them apart
    assert len(other) == 40


def test_more_rows_than_the_limit_are_taken_as_distinct_and_not_read(monkeypatch, rng):
    monkeypatch.setattr(copies, "_TILE_ROWS", 8)

    class Unread(np.ndarray):
        def __getitem__(self, rows):
            assert rows.stop <= 8
            return np.asarray(self)[rows]

    X = rng.normal(size=(100, 2))
    X[5:] = X[0]
    for found in find_equal(X.view(Unread), limit=4):
        assert_array_equal(found, np.arange(100))
    assert len(find_equal(X, limit=5)[0]) == 5


def test_zeros_of_both_signs_are_equal_and_so_are_missing_entries():
    values = np.array([0.0, -0.0, 1.0, np.nan, -np.nan])
    assert len(set(make_keys(values).tolist())) == 3


def test_keys_do_not_depend_on_the_order_in_memory(rng):
    X, y = rng.normal(size=(6, 2)), rng.normal(size=(6, 2))
    keys = make_keys(np.asfortranarray(X), np.asfortranarray(y))
    assert_array_equal(keys, make_keys(X, y))


def test_rows_that_are_gone_stay_so_behind_others():
    found = join_origins(np.array([0, -1, 0]), 1, np.array([-1, 1, 0]), 2)
    assert_array_equal(found, [0, -1, 0, -1, 2, 1])
