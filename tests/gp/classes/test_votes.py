"""Labels as votes of places."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.gp.classes._votes import LeftOut, Votes, count_votes, find_units, merge_places
from tests.derivatives import numerical_gradient
from tests.oracles import gp_classes as oracle


def test_equal_rows_become_one():
    X = np.array([[1.0, 2.0], [-0.0, 1.0], [1.0, 2.0], [0.0, 1.0]])
    places, counts = merge_places(X, count_votes(np.array([0, 1, 2, 1]), 3, np.array([1, 2, 3, 4])))
    assert_array_equal(places, [[0.0, 1.0], [1.0, 2.0]])
    assert not np.signbit(places).any()
    assert_array_equal(counts, [[0.0, 6.0, 0.0], [1.0, 0.0, 3.0]])


def test_distinct_rows_are_only_sorted(rng):
    X, counts = rng.standard_normal((20, 2)), rng.random((20, 3))
    places, votes = merge_places(X, counts)
    order = np.lexsort(X.T[::-1])
    assert_array_equal(places, X[order])
    assert_array_equal(votes, counts[order])


def test_targets_are_centred_shares(rng):
    votes = Votes.of(rng.standard_normal((6, 2)), rng.integers(1, 4, (6, 3)).astype(float))
    frequencies = oracle.find_frequencies(votes.counts)
    assert_allclose(np.exp(votes.log_frequencies), frequencies)
    shares = votes.counts / votes.counts.sum(axis=1, keepdims=True)
    assert_allclose(votes.targets, shares - frequencies)
    assert_allclose(votes.part([1, 3]).targets, votes.targets[[1, 3]])


@pytest.mark.parametrize(
    ("votes", "units"),
    [
        ([[1, 0], [0, 1], [3, 2]], [1, 1]),
        ([[0.6, 0], [0, 5], [1.8, 10]], [0.6, 5]),  # of classes that are balanced
        ([[258, 293], [1083, 346]], [1, 1]),  # no row is alone at its place
        ([[4, 0], [0, 7], [4, 0]], [4, 7]),
    ],
)
def test_votes_of_a_single_row(votes, units):
    assert_allclose(find_units(np.array(votes, dtype=float)), units)


def test_rows_that_count_once(rng):
    """Whatever rows of a class weigh. Of other weights they stay as they are."""
    X, counts = rng.standard_normal((3, 2)), np.array([[1.0, 0], [0, 1], [3, 2]])
    one = Votes.of(X, counts)
    assert one.single is one
    for units in ([5, 1], [0.6, 5], [2, 2]):
        single = Votes.of(X, counts * units).single
        assert_array_equal(single.counts, counts)
        assert_array_equal(single.log_frequencies, one.log_frequencies)
        assert single.are_rows
    other = Votes.of(X, counts * [[0.5], [1.3], [0.7]])
    assert other.single is other


@pytest.mark.parametrize(
    "votes",
    [
        [[0.5, 0], [1.3, 2]],  # of any weight
        [[1, 0], [2, 0], [0, 3], [0, 1]],  # copies
        [[1, 0], [2, 0], [0, 4], [1, 1]],  # mostly copies
    ],
)
def test_rows_that_cannot_be_told_apart(votes):
    assert find_units(np.array(votes, dtype=float)) is None


def test_slopes_of_what_remains(rng):
    """Of the moments, by all that they depend on."""
    owner = np.array([0, 0, 1, 2, 2, 2])
    sizes = np.array([2.0, 1.0, 0.0, 0.5, 3.0, 1.0])
    targets, shift = rng.standard_normal((2, 6, 2)) * (sizes > 0)[:, None]
    out = LeftOut(owner, np.ones((6, 2)), sizes, targets, shift)
    mean, variance, noise = rng.standard_normal((3, 2)), rng.uniform(0.2, 2.0, 3), np.full(3, 0.3)
    d_mean, d_variance = rng.standard_normal((6, 2)), rng.standard_normal(6)

    def project(x):
        given = out.give_back(x[:6].reshape(3, 2), x[6:9], x[9:])
        return float(np.vdot(d_mean, given[0]) + d_variance @ given[1])

    slopes = out.give_back_vjp(mean, variance, noise, d_mean, d_variance)
    point = np.concatenate([mean.ravel(), variance, noise])
    numeric = numerical_gradient(project, point)
    assert_allclose(
        np.concatenate([part.ravel() for part in slopes]), numeric, rtol=1e-6, atol=1e-7
    )
    assert_allclose(out.give_back(mean, variance, noise)[0][2], mean[1])
