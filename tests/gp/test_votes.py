"""Labels as votes of places."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.gp._votes import Votes, count_votes, merge_equal
from tests.oracles import gp_classes as oracle


def test_equal_rows_become_one():
    X = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [-0.0, 1.0]])
    places, counts = merge_equal(X, count_votes(np.array([0, 1, 2, 1]), 3, np.array([1, 2, 3, 4])))
    assert_array_equal(places, [[0.0, 1.0], [1.0, 2.0]])
    assert_array_equal(counts, [[0.0, 6.0, 0.0], [1.0, 0.0, 3.0]])


def test_distinct_rows_are_only_sorted(rng):
    X, counts = rng.standard_normal((20, 2)), rng.random((20, 3))
    places, votes = merge_equal(X, counts)
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
