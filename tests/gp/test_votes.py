"""Labels as votes of places."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.gp._votes import Votes, count_votes, merge_equal, weigh_classes
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


def test_weights_of_classes():
    classes, counts = np.array(["a", "b", "c"]), np.array([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert_array_equal(weigh_classes(None, classes, counts.sum(axis=0)), 1.0)
    assert_allclose(weigh_classes({"b": 2.0}, classes, counts.sum(axis=0)), [1.0, 2.0, 1.0])
    assert_allclose(weigh_classes("balanced", classes, counts.sum(axis=0)), [4 / 9, 4 / 3, 1.0])
    for bad in ({"d": 1.0}, {"a": 0.0}, {"a": np.nan}, {"a": -1.0}):
        with pytest.raises(ValueError, match="class_weight"):
            weigh_classes(bad, classes, counts.sum(axis=0))
