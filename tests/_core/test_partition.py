import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.cluster import KMeans

from skvbgp._core import partition as partition_module
from skvbgp._core.partition import (
    balanced_partition,
    cut_by_block,
    group_rows,
    partition_rows,
)


def within_block_variance(X, labels):
    blocks = group_rows(labels, labels.max() + 1)
    return sum(np.sum((X[rows] - X[rows].mean(axis=0)) ** 2) for rows in blocks) / len(X)


def joined(X, chunks, n_blocks):
    """Partition of successive chunks of rows, and the label each row had in its own chunk."""
    labels = np.empty(len(X), dtype=int)
    partition, labels[chunks[0]] = balanced_partition(X[chunks[0]], n_blocks)
    for rows in chunks[1:]:
        other, other_labels = balanced_partition(X[rows], n_blocks)
        labels[rows] = partition.n_blocks + other_labels
        partition = partition.joined(other)
    return partition, labels


@pytest.mark.parametrize(("n", "d", "n_blocks"), [(100, 1, 7), (503, 3, 16), (60, 5, 60)])
def test_sizes_differ_by_at_most_one(rng, n, d, n_blocks):
    partition, labels = balanced_partition(rng.normal(size=(n, d)), n_blocks)
    assert_array_equal(np.bincount(labels), partition.sizes)
    assert partition.n_blocks == n_blocks
    assert set(partition.sizes) <= {n // n_blocks, -(-n // n_blocks)}


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 13, 64])
def test_training_rows_find_their_own_block(rng, n_blocks):
    X = 100 + rng.normal(size=(1000, 4))
    partition, labels = balanced_partition(X, n_blocks)
    assert_array_equal(partition.lookup(X), labels)


def test_places_between_blocks_are_of_the_nearer_one():
    partition, _ = balanced_partition(np.array([[0.0], [1.0], [3.0], [4.0]]), 2)
    assert_array_equal(partition.lookup(np.array([[1.9], [2.1]])), [0, 1])


def test_centers_are_the_means_of_the_blocks(rng):
    X = rng.normal(size=(200, 3))
    partition, labels = balanced_partition(X, 6)
    means = [X[rows].mean(axis=0) for rows in group_rows(labels, 6)]
    np.testing.assert_allclose(partition.centers, means, rtol=0, atol=1e-14)


def test_separate_clusters_are_found(rng):
    cluster = rng.permutation(np.repeat(np.arange(4), 25))
    X = 10 * np.array([[0, 0], [0, 3], [1, 0], [1, 3]])[cluster] + rng.normal(size=(100, 2))
    _, labels = balanced_partition(X, 4)
    for rows in group_rows(labels, 4):
        assert len(set(cluster[rows])) == 1


def test_two_means_steps_make_blocks_more_compact(rng, monkeypatch):
    X = rng.gamma(2, size=(200, 3))
    variances = []
    for steps in [0, 1, 3, 10]:
        monkeypatch.setattr("skvbgp._core.partition._TWO_MEANS_STEPS", steps)
        variances.append(within_block_variance(X, balanced_partition(X, 2)[1]))
    assert np.all(np.diff(variances) < 0)


def test_blocks_are_nearly_as_compact_as_those_of_kmeans(rng):
    X = rng.normal(size=(2000, 3)) * [3, 1, 1]
    kmeans = KMeans(n_clusters=16, n_init=1, random_state=0).fit(X)
    _, labels = balanced_partition(X, 16)
    assert within_block_variance(X, labels) < 1.25 * kmeans.inertia_ / len(X)


@pytest.mark.parametrize("whitened", [False, True])
def test_order_of_rows_does_not_matter(rng, whitened):
    X = rng.gamma(2, size=(400, 3))
    if whitened:
        X = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[0]
    order = rng.permutation(len(X))
    _, labels = balanced_partition(X, 11)
    _, permuted = balanced_partition(X[order], 11)
    assert_array_equal(permuted, labels[order])


def test_labels_of_single_rows_equal_those_of_the_batch(rng):
    X = rng.normal(size=(300, 5))
    X_new = np.concatenate([rng.normal(size=(100, 5)), np.asfortranarray(X)[:20]])
    partition, _ = joined(X, np.split(np.arange(300), 3), n_blocks=9)
    single = [partition.lookup(X_new[[i]])[0] for i in range(len(X_new))]
    assert_array_equal(partition.lookup(X_new), single)
    assert_array_equal(partition.lookup(np.asfortranarray(X_new)), single)


def test_lookup_takes_more_rows_than_one_pass(rng, monkeypatch):
    X = rng.normal(size=(200, 2))
    partition, _ = joined(X, np.split(np.arange(200), 4), n_blocks=5)
    expected = partition.lookup(X)
    monkeypatch.setattr("skvbgp._core.partition._LOOKUP_CELLS", 30)
    assert_array_equal(partition.lookup(X), expected)
    assert partition.lookup(X[:0]).shape == (0,)


def test_identical_rows_are_still_divided():
    partition, labels = balanced_partition(np.full((10, 3), 0.1), 4)
    assert_array_equal(np.sort(labels), [0, 0, 1, 1, 1, 2, 2, 3, 3, 3])
    assert len(set(partition.lookup(np.full((10, 3), 0.1)))) == 1


def test_duplicates_are_kept_together_where_sizes_allow(rng):
    X = np.repeat(rng.normal(size=(8, 2)), 5, axis=0)
    partition, labels = balanced_partition(X, 8)
    assert_array_equal(partition.lookup(X), labels)


def test_constant_columns_do_not_matter(rng):
    X = rng.normal(size=(100, 2))
    _, labels = balanced_partition(X, 8)
    _, padded = balanced_partition(np.column_stack([X, np.full(100, 3.0)]), 8)
    assert_array_equal(padded, labels)


@pytest.mark.parametrize("n_blocks", [0, 6])
def test_impossible_number_of_blocks(n_blocks):
    with pytest.raises(ValueError, match="between 1 and the number of rows, 5"):
        balanced_partition(np.zeros((5, 2)), n_blocks)


def test_appended_blocks_keep_their_labels_and_order(rng):
    X = rng.normal(size=(90, 2))
    first, _ = balanced_partition(X[:50], 4)
    second, _ = balanced_partition(X[50:], 3)
    both = first.joined(second)
    assert both.n_blocks == 7
    assert_array_equal(both.centers, np.concatenate([first.centers, second.centers]))
    assert_array_equal(both.sizes, np.concatenate([first.sizes, second.sizes]))


def test_lookup_takes_the_nearest_of_the_chunks_candidates(rng):
    X = rng.normal(size=(90, 2))
    first, _ = balanced_partition(X[:50], 4)
    second, _ = balanced_partition(X[50:], 3)
    candidates = np.stack([first.lookup(X), 4 + second.lookup(X)])  # (2, n)
    both = first.joined(second)
    distance = np.sum((X - both.centers[candidates]) ** 2, axis=-1)  # (2, n)
    assert_array_equal(both.lookup(X), candidates[np.argmin(distance, axis=0), np.arange(90)])


def test_chunks_of_separate_regions_find_their_own_blocks(rng):
    X = rng.uniform(size=(300, 2)) + 10 * np.repeat(np.arange(3), 100)[:, None]
    partition, labels = joined(X, np.split(np.arange(300), 3), n_blocks=5)
    assert_array_equal(partition.lookup(X), labels)


def test_grouping_of_appends_does_not_matter(rng):
    X = rng.normal(size=(90, 2))
    a, b, c = (balanced_partition(rows, 4)[0] for rows in np.split(X, 3))
    assert_array_equal(a.joined(b).joined(c).lookup(X), a.joined(b.joined(c)).lookup(X))


def test_stream_of_single_rows(rng):
    X = rng.normal(size=(1000, 3))
    partition, labels = joined(X, np.arange(1000)[:, None], n_blocks=1)
    assert_array_equal(labels, np.arange(1000))
    assert_array_equal(partition.lookup(X), labels)


def test_pickle(rng):
    X = rng.normal(size=(50, 2))
    partition, labels = balanced_partition(X, 4)
    assert_array_equal(pickle.loads(pickle.dumps(partition)).lookup(X), labels)


def test_input_is_not_written(rng):
    X = rng.normal(size=(50, 2))
    X.flags.writeable = False
    balanced_partition(X, 4)[0].lookup(X)


def test_group_rows():
    blocks = group_rows(np.array([2, 0, 2, 0, 3]), 5)
    for rows, expected in zip(blocks, [[1, 3], [], [0, 2], [4], []], strict=True):
        assert_array_equal(rows, expected)


@pytest.mark.parametrize("max_rows", [1, 2, 100])
def test_cut_by_block(max_rows):
    labels = np.array([3, 0, 3, 3, 1, 0, 3])
    pieces = cut_by_block(labels, max_rows)
    assert [block for block, _ in pieces] == sorted(block for block, _ in pieces)
    assert all(0 < len(rows) <= max_rows for _, rows in pieces)
    for block in (0, 1, 3):
        rows = np.concatenate([rows for name, rows in pieces if name == block])
        assert_array_equal(rows, np.flatnonzero(labels == block))


def check_blocks(partition, blocks, X, n_blocks):
    assert partition.n_blocks == len(blocks) == n_blocks
    assert_array_equal(partition.sizes, [len(rows) for rows in blocks])
    assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(len(X)))


def test_few_rows_are_divided_as_a_whole(rng):
    X = rng.normal(size=(23, 2))
    partition, blocks = partition_rows(3.0 * X, 4, lambda X: X / 3.0)
    check_blocks(partition, blocks, X, 4)
    assert_array_equal(partition.centers, balanced_partition(3.0 * X / 3.0, 4)[0].centers)


def test_many_rows_are_divided_by_a_sample(rng, monkeypatch):
    monkeypatch.setattr(partition_module, "_SAMPLE_ROWS", 500)
    monkeypatch.setattr(partition_module, "_LOOKUP_CELLS", 700)
    X, largest = rng.normal(size=(5000, 2)), []

    def scaled(X):
        largest.append(len(X))
        return X / 3.0

    partition, blocks = partition_rows(3.0 * X, 10, scaled)
    check_blocks(partition, blocks, X, 10)
    assert max(largest) <= 700
    assert np.std(partition.sizes) < 0.2 * 500
    for k, rows in enumerate(blocks):
        assert_array_equal(partition.lookup(X[rows]), k)


def test_many_equal_rows_are_divided_as_a_whole(monkeypatch):
    monkeypatch.setattr(partition_module, "_SAMPLE_ROWS", 50)
    monkeypatch.setattr(partition_module, "_SAMPLE_ROWS_PER_BLOCK", 5)
    X = np.repeat([[0.0], [1.0]], 500, axis=0)
    partition, blocks = partition_rows(X, 8, np.positive)
    check_blocks(partition, blocks, X, 8)
    assert set(partition.sizes) == {125}
