"""Which rows count, and how often; weights of classes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.base import (
    Targets,
    _weights,
    as_weights,
    count_rows,
    count_targets,
    join_rows,
    merge_equal,
    merge_targets,
    weigh_classes,
)


def make_rows(n=8):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 2)), rng.integers(0, 2, n)


def chosen(X, y, weight):
    rows, counts, n_copies, _ = count_rows(X, y, weight)
    return X[rows], y[rows], counts, n_copies


@pytest.mark.parametrize("weight", [None, 1.0, np.ones(8)], ids=["none", "number", "array"])
def test_rows_that_count_once_and_differ_are_taken_as_they_are(weight):
    counted = count_rows(*make_rows(), weight)
    assert counted == (slice(None), None, 0, None)


def test_weights_are_repetitions():
    X, y = make_rows()
    weight = np.array([2, 0, 1, 3, 1, 0, 5, 1])
    index = np.random.default_rng(1).permutation(np.repeat(np.arange(8), weight))
    *weighted, n_copies = chosen(X, y, weight)
    *repeated, n_repeated = chosen(X[index], y[index], None)
    for one, other in zip(weighted, repeated, strict=True):
        assert_array_equal(one, other)
    assert len(weighted[0]) == 6
    assert (n_copies, n_repeated) == (0, 7)


def test_an_error_about_negative_weights_has_the_smallest():
    with pytest.raises(
        ValueError, match=r"^sample_weight must not be negative; the smallest is -2\.$"
    ):
        as_weights(np.arange(-2.0, 10_000.0), 10_002)


def test_a_row_of_weight_zero_is_left_out():
    X, y = make_rows()
    rows, weight, _, origin = count_rows(X, y, [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    assert_array_equal(rows, [0, 2, 3, 5, 6, 7])
    assert_array_equal(origin, [0, -1, 1, 2, -1, 3, 4, 5])
    assert weight is None


def test_every_row_knows_what_it_has_become():
    X, y = make_rows()
    index = np.array([3, 0, 3, 7, 1, 0])
    weight = np.array([1.0, 2.0, 1.0, 0.0, 1.0, 0.5])
    rows, _, _, origin = count_rows(X[index], y[index], weight)
    assert origin[3] == -1
    known = np.arange(6) != 3
    assert_array_equal(X[index][rows][origin[known]], X[index][known])


def test_rows_with_other_targets_stay_apart():
    X, _ = make_rows(1)
    X_kept, y_kept, weight, _ = chosen(np.tile(X, (5, 1)), np.array([0, 1, 1, 0, 1]), None)
    assert len(X_kept) == 2
    assert_array_equal(weight[np.argsort(y_kept)], [2.0, 3.0])


@pytest.mark.parametrize("weight", [None, np.ones(20)])
def test_distinct_rows_with_equal_targets_stay_in_their_order(rng, weight):
    X, y = rng.normal(size=(20, 2)), np.repeat(rng.normal(size=10), 2)
    X[2] = X[0]  # of another target
    assert merge_equal(X, y, weight) == (slice(None), None, 0, None)


def test_negative_zeros_are_zeros():
    _, targets = count_targets(np.array([[0.0], [-0.0]]), np.array([-0.0, 0.0]))
    assert_array_equal(targets.weight, [2.0])


@pytest.mark.parametrize("by_target", [False, True])  # whether y alone tells them apart, unread
def test_many_distinct_rows_stay_in_their_order_with_their_weights(monkeypatch, by_target):
    monkeypatch.setattr(_weights, "SUBSAMPLE", 7)
    X, y = (np.repeat(values, 2, axis=0) for values in make_rows())
    if by_target:
        X, y = None, np.arange(16.0)
    assert merge_equal(X, y) == (slice(None), None, 0, None)
    weight = np.arange(1.0, 17.0)
    rows, counts, n_copies, _ = merge_equal(X, y, weight)
    assert rows == slice(None)
    assert counts is weight
    assert n_copies == 0


def test_the_number_of_copies_does_not_matter(monkeypatch):
    """Of few distinct rows, that is."""
    monkeypatch.setattr(_weights, "SUBSAMPLE", 8)
    X, y = make_rows()
    *repeated, n_copies = chosen(np.tile(X, (50, 1)), np.tile(y, 50), None)
    *weighted, _ = chosen(X, y, 50.0)
    for one, other in zip(weighted, repeated, strict=True):
        assert_array_equal(one, other)
    assert n_copies == 392


@pytest.mark.parametrize("shape", [(2, 3), (40, 1), (40, 2)])
def test_targets_of_several_functions(shape, rng):
    """Which have few values."""
    y, n = rng.choice([-1.0, 1.0], shape), shape[0]
    y[1] = y[0]
    X, targets = count_targets(np.zeros((n, 1)), y)
    assert len(X) == len(targets) == len(np.unique(y, axis=0))
    assert targets.n_rows == targets.counts.sum() == n


# -- targets of rows ---------------------------------------------------------------------------


def test_targets_of_two_calls():
    X, y = make_rows()
    X[5] = X[6]
    known, new = Targets(y[:6], None, 2), Targets(y[6:], np.array([3.0, 0.5]))
    both = known.joined(new)
    assert_array_equal(both.counts, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 0.5])
    assert both.n_rows == 10
    assert both[2:7].n_rows == 5
    assert known.joined(known).weight is None
    y[5] = y[6]
    X_merged, merged = merge_targets(X, Targets(y, both.weight, 2))
    assert len(X_merged) == len(merged) == 7
    assert merged.n_rows == 10
    assert_array_equal(merged.counts[np.all(X_merged == X[5], axis=1)], 4.0)


def test_rows_of_other_known_noise_stay_apart():
    X, y = np.tile(make_rows(1)[0], (5, 1)), np.ones(5)
    variance = np.array([0.0, 2.0, 2.0, 0.0, 2.0])
    X_kept, targets = count_targets(X, y, None, variance)
    for some in (targets, merge_targets(X, Targets(y, variance=variance))[1]):
        assert_array_equal(some.weight[np.argsort(some.variance)], [2.0, 3.0])
    assert len(X_kept) == 2
    _, weighted = count_targets(X, y, [1.0, 0.0, 1.0, 1.0, 2.0], variance)
    assert_array_equal(weighted.variance, targets.variance)


def test_known_noise_of_two_calls():
    known = Targets(np.arange(3.0), variance=np.array([1.0, 0.0, 2.0]))
    plain = Targets(np.arange(2.0))
    assert_array_equal(known.joined(plain).variance, [1.0, 0.0, 2.0, 0.0, 0.0])
    assert_array_equal(plain.joined(known)[[0, 2]].variance, [0.0, 1.0])
    assert plain.joined(plain).variance is None


def test_scale_of_targets_is_that_of_the_repeated_rows(rng):
    y, weight = rng.standard_normal((6, 2)), np.array([1, 3, 2, 1, 5, 2])
    weighted, repeated = Targets(y, weight.astype(float)).scale, Targets(y.repeat(weight, 0)).scale
    assert weighted.n == repeated.n
    assert_allclose(weighted.mean, repeated.mean, rtol=1e-12)
    assert_allclose(weighted.unit, repeated.unit, rtol=1e-12)


def test_weights_of_classes():
    classes, counts = np.array(["a", "b", "c"]), np.array([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert_array_equal(weigh_classes(None, classes, counts.sum(axis=0)), 1.0)
    assert_allclose(weigh_classes({"b": 2.0}, classes, counts.sum(axis=0)), [1.0, 2.0, 1.0])
    assert_allclose(weigh_classes("balanced", classes, counts.sum(axis=0)), [4 / 9, 4 / 3, 1.0])
    for bad in ({"d": 1.0}, {"a": 0.0}, {"a": np.nan}, {"a": -1.0}):
        with pytest.raises(ValueError, match="class_weight"):
            weigh_classes(bad, classes, counts.sum(axis=0))


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_rows_that_fade_are_compared_with_one_that_has_come_once(unit):
    """Whatever the units of weights are, and however often the newest ones have come."""
    X, y = make_rows(5)
    known = Targets(y, unit * np.array([0.2, 0.02, 1e-3, 0.5, 1e-4]))
    rows, targets = join_rows((X, known), (X[:1], Targets(y[:1], np.array([unit]), remains=0.5)))
    assert_allclose(targets.counts, unit * np.array([0.2, 0.02, 0.5, 1.0]))
    assert_array_equal(rows, X[[0, 1, 3, 0]])
    often = Targets(y[:1], np.array([60.0]), remains=0.5)
    assert len(join_rows((X, known), (X[:1], often))[1]) == (4 if unit == 1.0 else 1)
