"""Equal rows: found whatever their order, and their density by that of one row."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skvbgp._core.copies import extra_log_dets, make_keys, merge_copies, own_gradient
from tests.derivatives import numerical_gradient


def test_the_density_of_copies_is_that_of_one_and_the_factor():
    t, weight, y, f = np.array([0.3, 2.0]), np.array([3.0, 1.0]), np.array([1.2, -0.4]), 0.7
    copies = np.sum(weight * stats.norm.logpdf(y, f, np.sqrt(t)))
    one = np.sum(stats.norm.logpdf(y, f, np.sqrt(t / weight)))
    factor = -0.5 * (np.sum(weight - 1.0) * np.log(2.0 * np.pi) + extra_log_dets(t, weight).sum())
    assert_allclose(copies, one + factor, rtol=1e-12)


def test_gradient():
    t, weight, slope = np.array([0.3, 2.0]), np.array([3.0, 0.2]), np.array([1.5, -0.7])

    def value(t):
        return slope @ np.sin(t / weight) - 0.5 * extra_log_dets(t, weight).sum()

    analytic = own_gradient(t, weight, slope * np.cos(t / weight))
    assert_allclose(analytic, numerical_gradient(value, t), rtol=1e-7)
    assert own_gradient(t, None, slope) is slope


def test_equal_rows_are_found_in_any_order(rng):
    X, y = rng.integers(0, 2, (20, 2)).astype(float), rng.integers(0, 2, 20).astype(float)
    weight, order = rng.uniform(size=20), rng.permutation(20)
    first, owner, total = merge_copies(X, y, weight)
    assert_array_equal(X[first][owner], X)
    assert_array_equal(y[first][owner], y)
    assert_allclose(total.sum(), weight.sum())
    again, _, total_again = merge_copies(X[order], y[order], weight[order])
    assert_array_equal(X[order][again], X[first])
    assert_allclose(total_again, total)
    other, _, _ = merge_copies(X, y, weight, np.arange(20.0))  # another column tells them apart
    assert len(other) == 20 > len(first)


def test_zeros_of_both_signs_are_equal():
    assert len(set(make_keys(np.array([0.0, -0.0, 1.0])).tolist())) == 2
