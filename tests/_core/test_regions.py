"""Rows that move to the workers by place."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.regions import move_to_boxes, move_to_regions
from skvbgp._core.scaling import Coordinates
from skvbgp._core.shards import ShardedColumns, ShardedRows

da = pytest.importorskip("dask.array")

N = 400


def place(X):
    rows = ShardedRows(da.from_array(X, chunks=(70, 2)), da.arange(len(X), chunks=90))
    return rows, Coordinates(rows.inputs.mean, rows.inputs.unit)


def find_shards(rows):
    """Shard of each row, in the order of the collection."""
    order = rows.fetch(np.arange(rows.n)).y.astype(int)
    return np.repeat(np.arange(len(rows.shard_sizes)), rows.shard_sizes)[np.argsort(order)]


def test_each_worker_gets_a_region(client, rng, monkeypatch):
    monkeypatch.setattr("skvbgp._core.regions._SAMPLE_ROWS", 200)
    X = rng.uniform(-1.0, 1.0, (N, 1))
    rows, coordinates = place(X)
    regions = move_to_regions(rows, coordinates)
    assert rows.n == N
    assert_allclose(rows.shard_sizes, N / 2, atol=40)
    assert_array_equal(find_shards(rows), regions.lookup(coordinates.scaled(X)))
    order = rows.fetch(np.arange(N)).y.astype(int)
    assert_array_equal(np.sort(order), np.arange(N))
    assert_array_equal(rows.fetch(np.arange(N)).X, X[order])
    low, high = rows.boxes[:, 0, 0], rows.boxes[:, 1, 0]
    assert low.max() > high.min()  # they do not overlap


def test_regions_without_rows(client):
    """All rows are at the threshold, on its first side; no place is led to the second."""
    rows, coordinates = place(np.ones((N, 2)))
    regions = move_to_regions(rows, coordinates)
    assert_array_equal(rows.shard_sizes, [N])
    assert_array_equal(regions.shards, [0, 0])
    assert_array_equal(regions.lookup(np.array([[-3.0, 0.0], [9.0, 9.0]])), [0, 0])


def test_one_worker_keeps_its_rows(client, rng, monkeypatch):
    shards = None
    rows, coordinates = place(rng.standard_normal((N, 2)))
    first = next(iter(rows._client.nthreads()))
    monkeypatch.setattr(rows._client, "nthreads", lambda: {first: 1})  # the other one is gone
    for _ in range(2):
        assert_array_equal(move_to_regions(rows, coordinates).shards, [0])
        shards, before = rows._shards, shards
    assert shards is before and len(shards) == 1


def test_each_worker_gets_a_box_and_rows_are_found_by_their_numbers(client, rng, monkeypatch):
    monkeypatch.setattr("skvbgp._core.regions._SAMPLE_ROWS", 200)
    X = rng.uniform(-1.0, 1.0, (N, 2))
    X[:, 0] *= 0.1
    rows, coordinates = place(X)
    move_to_boxes(rows, coordinates, np.array([1.0, 0.3]))  # the other input is wide, but not here
    assert_allclose(rows.shard_sizes, N / 2, atol=40)
    low, high = rows.boxes[:, 0, 0], rows.boxes[:, 1, 0]
    assert low.max() > high.min()
    index = rng.permutation(N)[:100]
    assert_array_equal(ShardedColumns(rows, "X")[index], X[index])
    assert_array_equal(ShardedColumns(rows, "y")[::7], np.arange(N)[::7])
    now = rows.renumbered(index)
    assert_array_equal(rows.fetch(now).y, index)
    move_to_boxes(rows, coordinates, np.array([0.3, 1.0]))  # once is enough
    assert_array_equal(rows.renumbered(index), now)


def test_a_box_is_one_workers_wherever_dask_has_made_it(client, rng, monkeypatch):
    send = ShardedRows._send
    monkeypatch.setattr(
        ShardedRows,
        "_send",
        lambda rows, join, cuts, workers: send(rows, join, cuts, workers[:1] * len(workers)),
    )
    rows, coordinates = place(rng.uniform(-1.0, 1.0, (N, 2)) * [1.0, 0.1])
    move_to_boxes(rows, coordinates, np.array([1.0, 0.1]))
    assert rows.n_shards == 2
    assert rows.boxes[:, 0, 0].max() > rows.boxes[:, 1, 0].min()


def test_equal_rows_are_divided_as_well(client):
    rows, coordinates = place(np.ones((N, 2)))
    move_to_boxes(rows, coordinates, np.ones(2))
    assert_allclose(rows.shard_sizes, N / 2, atol=3)


def test_moved_rows_are_followed_by_others(client, rng):
    X = rng.uniform(-1.0, 1.0, (N, 2))
    parts = [place(part)[0] for part in (X, X[:90], X[::-1])]
    for rows in (parts[0], parts[2]):
        move_to_boxes(rows, Coordinates(np.zeros(2), np.ones(2)), np.ones(2))
    rows = parts[0].joined(parts[1]).joined(parts[2])
    index = rng.permutation(rows.n)
    expected = np.concatenate([X, X[:90], X[::-1]])[index]
    for one in (rows, pickle.loads(pickle.dumps(rows))):
        assert_array_equal(ShardedColumns(one, "X")[index], expected)


def test_one_worker_has_one_box(client, rng, monkeypatch):
    rows, coordinates = place(rng.standard_normal((N, 2)))
    before = rows._shards
    monkeypatch.setattr(rows._client, "nthreads", lambda: {"one": 1})
    move_to_boxes(rows, coordinates, np.ones(2))
    assert rows._shards is before and not rows.has_moved
