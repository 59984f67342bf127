"""What training starts from."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

from skvbgp.base import (
    _start,
    at_one_place,
    choose_inducing_inputs,
    choose_rows,
    find_constant,
    is_outgrown,
    says_too_little,
)
from skvbgp.base._start import brings_variation


def test_rows_that_are_nearly_equal_are_fewer_inducing_inputs(rng):
    """Without a warning of k-means, which nobody has asked for."""
    X = np.repeat(rng.standard_normal((15, 2)), 2, axis=0)
    X[::2] += 1e-12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        U = choose_inducing_inputs(X, 20, np.random.RandomState(0))
    assert 15 <= len(U) == len(np.unique(U, axis=0)) <= 20


def test_rows_that_a_start_is_made_of(monkeypatch):
    monkeypatch.setattr(_start, "SUBSAMPLE", 10)
    assert choose_rows(10, None) == slice(None)  # few enough: no draw
    rows = choose_rows(30, np.random.RandomState(0))
    assert len(np.unique(rows)) == 10
    assert np.isin(rows, np.arange(30)).all()


@pytest.mark.parametrize("row", [0, 1, 4])
def test_at_one_place(monkeypatch, row):
    monkeypatch.setattr(_start, "_TILE_ROWS", 2)
    X = np.ones((5, 2))
    X[:, 0] = np.nan
    assert at_one_place(X)
    X[row, 1] = 2.0
    assert not at_one_place(X)


def test_says_too_little(rng):
    X = rng.standard_normal((32, 3))
    assert not says_too_little(X, learns=True)
    assert says_too_little(X[:31], learns=True)
    assert not says_too_little(X[:31], learns=False)
    assert says_too_little(np.ones((40, 3)), learns=False)


def test_is_outgrown(rng):
    known, X = rng.standard_normal((2, 40, 3))
    labels = np.arange(40) % 2
    assert not is_outgrown(known, labels, X, labels[:1], learns=True)
    assert is_outgrown(known[:31], labels[:31], X, labels, learns=True)
    assert is_outgrown(known, labels, X, labels + 1, learns=True)
    assert not is_outgrown(known, labels, X, labels + 1, learns=False)
    assert not is_outgrown(known, np.empty(0), X, np.empty(0), learns=True)  # without labels


def test_brings_variation(rng):
    known, X = rng.standard_normal((2, 6, 3))
    assert not brings_variation(known, X)
    known[:, 1:] = [2.0, np.nan]
    known[0, 1] = np.nan
    X[:, 1:] = [2.0, np.nan]
    assert not brings_variation(known, X)
    for j in (1, 2):
        new = X.copy()
        new[3, j] = 1.0
        assert brings_variation(known, new)
        assert brings_variation(known, new, np.arange(3) == j)
        assert not brings_variation(known, new, np.arange(3) != j)
    assert_array_equal(find_constant(known), [False, True, True])


def test_inducing_inputs_are_all_rows_if_these_are_few(rng):
    X = rng.normal(size=(5, 2))
    U = choose_inducing_inputs(np.concatenate([X, X]), 5, np.random.RandomState(0))
    assert_array_equal(U, np.unique(X, axis=0))


def test_inducing_inputs_cover_the_rows(rng):
    """Closer to the rows than random rows are, distinct, and reproducible."""
    X = rng.normal(size=(300, 2))
    U = choose_inducing_inputs(X, 20, np.random.RandomState(0))
    assert U.shape == (20, 2)
    assert len(np.unique(U, axis=0)) == 20

    def distance(U):
        return np.mean(np.min(((X[:, None, :] - U) ** 2).sum(axis=2), axis=1))

    assert distance(U) < distance(X[:20])
    assert_array_equal(choose_inducing_inputs(X, 20, np.random.RandomState(0)), U)


def test_inducing_inputs_are_distinct_where_rows_are_not(rng):
    """Fewer than the places of many rows; k-means has nothing to warn of."""
    X = rng.normal(size=(110, 2))
    few, many = np.repeat(X, 3, axis=0), np.repeat(X, rng.integers(20, 60, 110), axis=0)
    for rows, weight in ((few, None), (few, rng.uniform(0.5, 2.0, 330)), (many, None)):
        U = choose_inducing_inputs(rows, 100, np.random.RandomState(0), weight)
        assert len(np.unique(U, axis=0)) == 100
    once = choose_inducing_inputs(X, 1, np.random.RandomState(0), np.arange(1.0, 111.0))
    twice = choose_inducing_inputs(
        np.vstack([X, X]), 1, np.random.RandomState(0), np.tile(np.arange(1.0, 111.0), 2)
    )
    assert_allclose(once, twice)


def test_inducing_inputs_do_not_depend_on_the_number_of_threads(rng):
    """Bit for bit: training amplifies what rounding does to its start."""
    X = rng.normal(size=(5000, 4))
    found = []
    for n_threads in (1, 2, 3):
        with threadpool_limits(n_threads):
            found.append(choose_inducing_inputs(X, 50, np.random.RandomState(0)))
    assert_array_equal(found[0], found[1])
    assert_array_equal(found[0], found[2])
