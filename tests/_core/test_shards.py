"""Rows on Dask's workers."""

import pickle
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.scaling import RunningScale
from skvbgp._core.shard import Block, Shard
from skvbgp._core.shards import ShardedColumns, ShardedRows
from skvbgp.base._weights import Targets

da = pytest.importorskip("dask.array")

N = 1000


def make_rows(rng):
    return rng.standard_normal((N, 3)), rng.standard_normal(N) + 5.0


@pytest.fixture
def rows(client, rng):
    X, y = make_rows(rng)
    return ShardedRows(da.from_array(X, chunks=(130, 2)), da.from_array(y, chunks=99))


def add_up(factor, rows, weights):
    yield factor * float(weights @ rows.y)
    yield len(rows.y)


def add_own(index, weights, shard):
    return add_up(1.0, shard.rows(index), weights)


def count_all(factor, shard):
    return factor * sum(len(block.y) for block in shard.blocks)


def test_rows_are_those_of_the_collections(rows, rng):
    X, y = make_rows(np.random.default_rng(0))
    assert (rows.n, rows.d, rows.at_one_place) == (N, 3, False)
    summary = RunningScale.of(y[:, None])
    assert_allclose(rows.scale.mean, summary.mean, rtol=1e-14)
    assert_allclose(rows.scale.std, summary.std, rtol=1e-14)
    assert rows.scale.n == N
    for index in (np.arange(N), np.array([999]), np.array([700, 130, 0, 129])):
        fetched = rows.fetch(index)
        assert_array_equal(fetched.X, X[index])
        assert_array_equal(fetched.y, y[index])


def test_both_workers_have_some(client, rows):
    assert sum(count > 0 for count in rows.call(count_all, (1,))) == 2
    assert sum(rows.call(count_all, (2,))) == 2 * N


def number_rows(shard):
    return np.concatenate([block.y for block in shard.blocks])


def test_rows_have_the_numbers_of_the_collections(client):
    rows = ShardedRows(da.ones((N, 2), chunks=130), da.arange(N, chunks=99))
    for k, numbers in enumerate(rows.call(number_rows, ())):
        assert_array_equal(rows.number(k, np.arange(len(numbers))), numbers)


def test_rows_are_followed_by_others(client, rows):
    X, y = make_rows(np.random.default_rng(0))
    others = ShardedRows(da.from_array(X[:70] + 1.0, chunks=30), da.from_array(y[:70], chunks=30))
    both = rows.joined(others)
    X, y = np.concatenate([X, X[:70] + 1.0]), np.append(y, y[:70])
    assert (both.n, both.d, rows.n) == (N + 70, 3, N)
    assert_allclose(both.inputs.std, X.std(axis=0), rtol=1e-13)
    assert_allclose(both.scale.mean, [y.mean()], rtol=1e-13)
    index = np.array([1069, 5, 1000, 999])
    assert_array_equal(both.fetch(index).X, X[index])
    assert_array_equal(rows.fetch(index[1:2]).X, X[5:6])


def test_a_copy_knows_where_the_rows_are(rows, monkeypatch):
    X, _ = make_rows(np.random.default_rng(0))
    copy = pickle.loads(pickle.dumps(rows))
    assert_array_equal(copy.fetch(np.array([3, 700])).X, X[[3, 700]])
    rows._shards[0]._future.cancel(force=True)
    with pytest.raises(RuntimeError, match="not on the workers any more"):
        copy.call(count_all, (1,))
    assert sum(rows.call(count_all, (1,))) == N  # made again
    copy = pickle.loads(pickle.dumps(rows))

    def none():
        raise ValueError("No clients found")

    monkeypatch.setattr("distributed.get_client", none)
    with pytest.raises(RuntimeError, match="not on the workers any more"):
        copy.call(count_all, (1,))


def test_shards_keep_what_was_made_last():
    shard, made = Shard(Block(np.ones((3, 2)), np.arange(3.0))), []
    for key in (1, 1, 2, 1):
        assert shard.keep("a", key, lambda key=key: made.append(key) or 10 * key) == 10 * key
    assert shard.keep("b", 1, lambda: "other") == "other"
    assert shard.keep("a", 1, lambda: made.append(3)) == 10
    assert made == [1, 2, 1]


def test_functions_get_the_rows_and_what_belongs_to_them(rows):
    _, y = make_rows(np.random.default_rng(0))
    index = np.arange(0, N, 3)
    weights = np.linspace(0.0, 1.0, len(index))
    begun = rows.begin(add_up, (2.0,), index, lambda places: (weights[places],))
    assert_array_equal(np.sort(np.concatenate(begun.places)), np.arange(len(index)))
    assert_allclose(sum(begun.first), 2.0 * weights @ y[index])
    assert begun.resume() == [len(places) for places in begun.places]


def test_functions_get_shards_and_what_belongs_to_them(rows):
    _, y = make_rows(np.random.default_rng(0))
    sizes = rows.shard_sizes
    assert rows.n_shards == rows.n_workers == len(sizes)
    begun = rows.begin_some(add_own, {k: (np.arange(n), np.ones(n)) for k, n in enumerate(sizes)})
    assert_allclose(sum(begun.first), y.sum())
    assert_array_equal(begun.resume(), sizes)
    begun = rows.begin_some(add_own, {1: (np.array([0]), np.ones(1))})
    assert begun.resume() == [1]


def cut_by_sign(column, block):
    is_positive = block.X[:, column] > 0.0
    return [Block(block.X[own], block.y[own]) for own in (~is_positive, is_positive)]


def test_workers_exchange_their_rows(rows):
    X, y = make_rows(np.random.default_rng(0))
    shards = rows.exchange(cut_by_sign, (2,), 2)
    assert_array_equal(np.sort(shards), [0, 1])
    assert rows.n == N
    assert_array_equal(rows.shard_sizes[shards[1]], np.sum(X[:, 2] > 0.0))
    assert_array_equal(np.sort(rows.fetch(np.arange(N)).y), np.sort(y))
    low, high = rows.boxes[shards[0]], rows.boxes[shards[1]]
    assert low[1, 2] <= 0.0 < high[0, 2]


def cut_nowhere(block):
    nothing = np.zeros(len(block.y), dtype=bool)
    return [Block(block.X[nothing], block.y[nothing]), block]


def test_a_part_without_rows_is_nowhere(rows):
    assert_array_equal(rows.exchange(cut_nowhere, (), 2), [-1, 0])
    assert (rows.n, rows.n_shards) == (N, 1)


def test_columns_are_never_gathered_by_accident(rows):
    X, y = ShardedColumns(rows, "X"), ShardedColumns(rows, "y")
    assert (X.shape, y.shape, len(X)) == ((N, 3), (N,), N)
    assert Targets(y).scale is rows.scale
    assert X[np.array([5])].shape == (1, 3)
    assert X[:7].shape == (7, 3)
    assert (X.size, y.size) == (3 * N, N)
    with pytest.raises(TypeError, match="not gathered"):
        np.asarray(X)


def test_rows_at_one_place(client):
    rows = ShardedRows(da.ones((10, 2), chunks=(3, 2)), da.arange(10, chunks=3))
    assert rows.at_one_place


@pytest.mark.parametrize(
    ("X", "y", "error", "match"),
    [
        (da.ones((9, 2)), da.ones(8), ValueError, "9 rows and y has 8"),
        (da.ones((9, 2)), da.ones((9, 1)), ValueError, "two dimensions, and y one"),
        (da.ones(9), da.ones(9), ValueError, "two dimensions, and y one"),
        (da.ones((9, 2)), np.ones(9), TypeError, "both be"),
        (da.ones((9, 2), chunks=3) * np.nan, da.ones(9), ValueError, "NaN"),
        (da.ones((9, 2)), da.ones(9) / 0.0, ValueError, "infinity"),
        (da.ones((0, 2)), da.ones(0), ValueError, "0 sample"),
        (da.ones((9, 2))[da.arange(9) > 3], da.ones(5), ValueError, "compute_chunk_sizes"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_what_is_no_data_is_refused(client, X, y, error, match):
    with pytest.raises(error, match=match):
        ShardedRows(X, y)


def test_an_answer_belongs_to_its_question():
    shard = Shard(Block(np.ones((3, 2)), np.arange(3.0)))
    weights = np.ones(2)
    assert shard.begin(7, add_own, (np.array([1, 2]), weights)) == 3.0
    assert shard.resume(7) == shard.resume(7) == 2
    shard.begin(8, add_own, (np.array([0, 2]), weights))
    with pytest.raises(RuntimeError, match="Call 7 is over: 8 has begun"):
        shard.resume(7)


def test_losses_without_an_end_are_an_error(rows, monkeypatch):
    class Unreachable:
        def run(self, *arguments):
            return self

        def result(self):
            raise OSError("Unable to contact Actor's worker")

    made = []
    monkeypatch.setattr(rows, "_shards", [Unreachable() for _ in rows._shards])
    monkeypatch.setattr(rows, "_make_shard", lambda k: made.append(k) or Unreachable())
    with pytest.raises(RuntimeError, match="lost 4 times in one step"):
        rows.call(count_all, (1,))
    assert len(made) == 4 * len(rows._shards)


def test_rows_that_cannot_be_made_again_are_an_error(client, rows):
    lost = client.submit(np.ones, 3)
    lost.cancel()
    with pytest.raises(RuntimeError, match="cannot be made again"):
        rows._gather([lost])


def test_rows_that_never_come_are_an_error(client, rows, monkeypatch):
    monkeypatch.setattr("skvbgp._core.clients._LOOK_EVERY", 0.01)
    never = client.submit(np.ones, 3, workers=["tcp://127.0.0.1:9"])  # no worker is there
    with pytest.raises(RuntimeError, match="Dask does nothing"):
        rows._gather([never])
    monkeypatch.setattr(rows._client, "processing", dict)
    with pytest.raises(RuntimeError, match="no worker is left"):
        rows._gather([never])
    monkeypatch.undo()
    monkeypatch.setattr("skvbgp._core.clients._LOOK_EVERY", 0.01)
    slow = client.submit(time.sleep, 1.0, pure=False)
    rows._gather([slow])  # longer than a worker may have nothing to do, which this one has
    assert slow.done()


def test_a_cluster_is_needed(monkeypatch):
    def none():
        raise ValueError("No clients found")

    monkeypatch.setattr("distributed.default_client", none)
    with pytest.raises(RuntimeError, match=r"start a dask\.distributed\.Client"):
        ShardedRows(da.ones((9, 2)), da.ones(9))
