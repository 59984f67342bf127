"""Blocks of near rows on the workers that have the rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.partition import balanced_partition, group_rows
from skvbgp._core.scaling import Coordinates
from skvbgp._core.sharded_blocks import ShardedBlocks
from skvbgp._core.shards import ShardedRows

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

N = 240

pytestmark = pytest.mark.usefixtures("client")


def place(X, y, chunks=70):
    rows = ShardedRows(da.from_array(X, chunks=(chunks, 2)), da.from_array(y, chunks=chunks))
    return rows, Coordinates(X[:9].mean(axis=0), np.array([1.0, 2.0]))


def divide(X, y, block_rows=20.0):
    return ShardedBlocks.of(*place(X, y), block_rows)


def test_blocks_are_those_of_memory(rng):
    """Two regions are the first branches of the tree that memory makes."""
    X, y = rng.standard_normal((N, 2)), np.arange(float(N))
    blocks = divide(X, y)
    partition, labels = balanced_partition(blocks.frame.scaled(X), 12)
    assert (len(blocks), blocks.sizes.tolist(), blocks.starts.tolist()) == (12, [6, 6], [0, 6])
    places = blocks.frame.scaled(rng.standard_normal((50, 2)))
    assert_array_equal(blocks.lookup(places), partition.lookup(places))
    for block, index in zip(blocks.pick(np.arange(12)), group_rows(labels, 12), strict=True):
        assert_array_equal(block.y, y[index])
        assert_array_equal(block.X, X[index])


def test_blocks_come_in_the_order_in_which_they_are_asked_for(rng, monkeypatch):
    monkeypatch.setattr("skvbgp._core.sharded_blocks._FETCHED_ROWS", 50)
    X, y = rng.standard_normal((N, 2)), np.arange(float(N))
    blocks = divide(X, y)
    chosen = rng.permutation(len(blocks))
    picked = list(blocks.pick(chosen))
    for k, block in zip(chosen, picked, strict=True):
        assert_array_equal(blocks.lookup(blocks.frame.scaled(block.X)), np.full(len(block.y), k))
    assert_array_equal(np.sort(np.concatenate([block.y for block in picked])), y)
    for own in blocks.find(chosen).values():
        assert_array_equal(np.diff(chosen[own.places] - own.local), 0)


def test_blocks_are_followed_by_others(rng):
    X, y = rng.standard_normal((N, 2)), np.arange(float(N))
    known = divide(X, y)
    both = known.joined(divide(X[:60] + 0.3, y[:60] + N))
    assert (len(known), len(both), both.rows.n) == (12, 16, N + 60)
    picked = list(both.pick(np.arange(len(both))))
    assert_array_equal(np.sort(np.concatenate([block.y for block in picked])), np.arange(N + 60.0))
    centers = np.array([both.frame.scaled(block.X).mean(axis=0) for block in picked])
    places = both.frame.scaled(rng.standard_normal((50, 2)))
    distance = np.sum((places[:, None] - centers) ** 2, axis=2)
    old, new = known.lookup(places), both.lookup(places)
    moved = new != old
    assert moved.any() and np.all(new[moved] >= len(known))
    every = np.arange(len(places))
    assert np.all(distance[every, new] <= distance[every, old] * (1.0 + 1e-12))


def test_blocks_are_not_too_large(rng):
    X, y = rng.standard_normal((N, 2)), np.arange(float(N))
    with pytest.raises(ValueError, match="Ask for more blocks"):
        divide(X, y, 10_001.0)
    assert_allclose(divide(X, y, float(N)).sizes, 1)  # of each worker one at least
