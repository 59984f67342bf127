"""Frames, groups and mini-batches: every row takes part exactly once."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.sgpr import _data
from skvbgp.sgpr._data import Coordinates, Data, Target, Targets, merge_equal

OFFSET, SCALE, MEAN, UNIT = np.array([3.0, -1.0]), np.array([2.0, 0.5]), 10.0, 2.5


def rows_of(n, blocks=None):
    """Data whose targets, unscaled, are the numbers of the rows."""
    X = np.random.default_rng(0).normal(size=(n, 2))
    data = Data(X, np.arange(float(n)), Coordinates(OFFSET, SCALE), Target(MEAN, UNIT))
    return data if blocks is None else data.divide(blocks)


def numbers(rows):
    return np.rint(rows.y * UNIT + MEAN).astype(int)


def test_coordinates(rng):
    X = rng.normal(size=(20, 2)) * [3.0, 0.1] + [5.0, -2.0]
    coordinates = Coordinates.of(X)
    scaled = coordinates.scaled(X)
    assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-13)
    assert_allclose(scaled.std(axis=0), 1.0, rtol=1e-13)
    assert_allclose(coordinates.original(scaled), X, rtol=1e-14)
    assert_allclose(Coordinates(OFFSET, SCALE).scaled(X), (X - OFFSET) / SCALE)


def test_coordinates_of_a_constant_column():
    X = np.column_stack([np.arange(5.0), np.full(5, 7.0)])
    assert_array_equal(Coordinates.of(X).scaled(X)[:, 1], 0.0)


def test_target(rng):
    y = rng.normal(size=5)
    target = Target(MEAN, UNIT)
    assert_allclose(target.scaled(y), (y - MEAN) / UNIT)
    assert_allclose(target.original(target.scaled(y)), y, rtol=1e-13)


def test_rows():
    data = rows_of(6)
    rows = data.rows(np.array([4, 1]))
    assert_allclose(rows.X, (data.X[[4, 1]] - OFFSET) / SCALE)
    assert_array_equal(numbers(rows), [4, 1])
    assert len(data) == 6


@pytest.mark.parametrize("n", [1, 4, 5, 13])
def test_groups_of_rows(monkeypatch, n):
    monkeypatch.setattr(_data, "_TILE_ROWS", 4)
    data = rows_of(n)
    groups = [numbers(data.rows(index)) for index in data.groups()]
    assert_array_equal(np.concatenate(groups), np.arange(n))
    assert max(len(group) for group in groups) <= 4


def test_groups_are_the_blocks():
    blocks = [np.array([0, 3]), np.array([1, 2, 4])]
    groups = rows_of(5, blocks).groups()
    for group, block in zip(groups, blocks, strict=True):
        assert_array_equal(group, block)


@pytest.mark.parametrize("n_segments", [1, 3, 16])
def test_segments(monkeypatch, n_segments):
    monkeypatch.setattr(_data, "_TILE_ROWS", 2)
    data = rows_of(15)  # 8 groups
    segments = data.segments(n_segments)
    assert len(segments) == min(n_segments, 8)
    sizes = [len(segment) for segment in segments]
    assert max(sizes) - min(sizes) <= 1
    flat = [numbers(data.rows(index)) for segment in segments for index in segment]
    assert_array_equal(np.concatenate(flat), np.arange(15))


@pytest.mark.parametrize(("n", "batch_size"), [(12, 4), (13, 4), (3, 100), (5, 1)])
def test_minibatches_of_rows(monkeypatch, n, batch_size):
    """Every row once, in tiles of bounded size, with weight n / size of the batch."""
    monkeypatch.setattr(_data, "_TILE_ROWS", 3)
    data = rows_of(n)
    batches = list(data.minibatches(batch_size, np.random.RandomState(0)))
    assert len(batches) == data.n_batches(batch_size) == max(1, round(n / batch_size))
    seen = []
    for batch, weight in batches:
        rows = np.concatenate([numbers(tile) for tile in batch])
        assert max(len(tile.y) for tile in batch) <= 3
        assert weight == n / len(rows)
        seen.append(rows)
    sizes = [len(rows) for rows in seen]
    assert max(sizes) - min(sizes) <= 1
    assert_array_equal(np.sort(np.concatenate(seen)), np.arange(n))


@pytest.mark.parametrize(("batch_size", "per_batch"), [(1, 1), (4, 2), (6, 3), (100, 6)])
def test_minibatches_of_blocks(batch_size, per_batch):
    """Whole blocks, about batch_size rows of them; the weight counts blocks."""
    blocks = [np.array([k, k + 6]) for k in range(5)] + [np.array([5])]  # 11 rows
    data = rows_of(11, blocks)
    batches = list(data.minibatches(batch_size, np.random.RandomState(0)))
    assert len(batches) == data.n_batches(batch_size) == -(-6 // per_batch)
    seen = []
    for batch, weight in batches:
        assert weight == 6 / len(batch)
        assert len(batch) == per_batch
        seen += [tuple(numbers(rows)) for rows in batch]
    assert sorted(seen) == sorted(tuple(block) for block in blocks)


@pytest.mark.parametrize("blocks", [None, [np.array([k]) for k in range(12)]])
def test_order_of_minibatches_is_random(blocks):
    data = rows_of(12, blocks)

    def order(rng):
        batches = data.minibatches(3, rng)
        return [sorted(np.concatenate([numbers(rows) for rows in batch])) for batch, _ in batches]

    rng = np.random.RandomState(0)
    first, second = order(rng), order(rng)
    assert first != second
    assert first == order(np.random.RandomState(0))


# -- equal rows --------------------------------------------------------------------------------


def assert_equal_rows(found, expected):
    (X, targets), (X_expected, expected) = found, expected
    assert_array_equal(X, X_expected)
    assert_array_equal(targets.y, expected.y)
    assert_array_equal(targets.weights, expected.weights)


@pytest.mark.parametrize("tile", [2**14, 7])  # rows that are compared at a time
def test_copies_in_any_order_and_weights_are_the_same_rows(monkeypatch, rng, tile):
    monkeypatch.setattr(_data, "_MERGED_ROWS", tile)
    X, y = rng.integers(0, 3, (30, 2)).astype(float), rng.integers(0, 2, 30).astype(float)
    weight = rng.integers(1, 4, 30)
    index = rng.permutation(np.repeat(np.arange(30), weight))
    found = merge_equal(X, Targets(y, weight.astype(float)))
    assert_equal_rows(merge_equal(X[index], Targets(y[index])), found)
    X_found, targets = found
    assert len(np.unique(np.column_stack([X_found, targets.y]), axis=0)) == len(targets) < 30
    assert targets.weight.sum() == weight.sum()
    assert targets.n_seen == 30
    for x, value, w in zip(X_found, targets.y, targets.weight, strict=True):
        assert w == weight[np.all(X == x, axis=1) & (y == value)].sum()


def test_negative_zeros_are_zeros():
    _, targets = merge_equal(np.array([[0.0], [-0.0]]), Targets(np.array([-0.0, 0.0])))
    assert_array_equal(targets.weight, [2.0])


@pytest.mark.parametrize("weight", [None, np.ones(20)])
def test_distinct_rows_without_weights_stay_in_their_order(rng, weight):
    X, y = rng.normal(size=(20, 2)), np.repeat(rng.normal(size=10), 2)
    X[2] = X[0]  # of another target
    found_X, targets = merge_equal(X, Targets(y, weight))
    assert found_X is X
    assert targets.y is y
    assert targets.weight is None


@pytest.mark.parametrize("factor", [0.0, 1.0])  # where X alone tells rows apart, or y as well
def test_many_distinct_rows_are_not_compared_further(monkeypatch, rng, factor):
    """Not even read, which may take long."""
    monkeypatch.setattr(_data, "SUBSAMPLE", 5)
    monkeypatch.setattr(_data, "_MERGED_ROWS", 8)

    class Unread(np.ndarray):
        def __getitem__(self, rows):
            assert rows.stop <= 8
            return np.asarray(self)[rows]

    X = rng.normal(size=(100, 2))
    X[8:] = X[0]
    weight = rng.uniform(size=100)
    unread, targets = X.view(Unread), Targets(factor * X[:, 0], weight)
    found = merge_equal(unread, targets)
    assert found[0] is unread
    assert found[1] is targets
