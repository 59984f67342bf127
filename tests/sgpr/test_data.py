"""Frames, groups and mini-batches: every row takes part exactly once."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.sgpr import _data
from skvbgp.sgpr._data import Coordinates, Data, Target

OFFSET, SCALE, MEAN, UNIT = np.array([3.0, -1.0]), np.array([2.0, 0.5]), 10.0, 2.5


def rows_of(n, blocks=None):
    """Data whose targets, unscaled, are the numbers of the rows."""
    X = np.random.default_rng(0).normal(size=(n, 2))
    data = Data(X, np.arange(float(n)), Coordinates(OFFSET, SCALE), Target(MEAN, UNIT))
    return data if blocks is None else replace(data, blocks=blocks)


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
