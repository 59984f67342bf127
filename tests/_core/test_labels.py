"""Class labels of rows on Dask's workers."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skvbgp._core.labels import LabelledRows, choose_classes

da = pytest.importorskip("dask.array")

N = 100


def as_arrays(X, y):
    return da.from_array(X, chunks=(30, 1)), da.from_array(y, chunks=70)


@pytest.fixture
def X(client, rng):
    return rng.standard_normal((N, 2))


@pytest.mark.parametrize(
    "labels", [[False, True], [-1, 3, 7], [0.0, 2.0], ["a", "long", "short"]], ids=repr
)
@pytest.mark.parametrize("declares", [False, True])
@pytest.mark.in_turn("declares")
def test_workers_have_the_numbers_of_the_labels(X, rng, labels, declares):
    y = np.array(labels)[rng.integers(0, len(labels), N)]
    rows = LabelledRows(*as_arrays(X, y), np.array(labels) if declares else None)
    assert_array_equal(rows.classes, labels)
    assert rows.classes.dtype == y.dtype
    assert_array_equal(rows.count_classes(), [np.sum(y == label) for label in labels])
    index = np.array([99, 3, 50])
    assert_array_equal(rows.classes[rows.fetch(index).y.astype(int)], y[index])
    assert_array_equal(rows.fetch(index).X, X[index])


def test_labels_of_a_data_frame(client, X):
    dd, pandas = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    y = np.array(["no", "yes"] * (N // 2))
    frame = dd.from_pandas(pandas.DataFrame({"a": X[:, 0], "b": y}), npartitions=4)
    frame = frame[frame.a > -10.0]  # partitions of unknown sizes
    rows = LabelledRows(frame[["a"]], frame.b, None)
    assert_array_equal(rows.classes, ["no", "yes"])
    assert_array_equal(rows.fetch(np.arange(4)).y, [0.0, 1.0, 0.0, 1.0])


def test_blocks_without_rows(client, X):
    dd, pandas = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(4.0), "b": ["x", "x", "y", "y"]})
    rows = dd.from_pandas(frame, npartitions=2)
    rows = rows[rows.a > 1.0]
    assert_array_equal(LabelledRows(rows[["a"]], rows.b, np.array(["x", "y"])).totals, [0, 2])
    nothing = rows[rows.a > 9.0]
    with pytest.raises(ValueError, match="0 sample"):
        LabelledRows(nothing[["a"]], nothing.b, None)


def count(shard):
    return np.concatenate([block.y for block in shard.blocks]).sum()


def test_lost_labels_are_made_again(X):
    rows = LabelledRows(*as_arrays(X, np.arange(N) % 2), None)
    rows._shards[0]._future.cancel(force=True)
    assert sum(rows.call(count, ())) == N // 2


@pytest.mark.parametrize(
    ("y", "classes", "match"),
    [
        (np.zeros(N), None, "At least two classes"),
        (np.arange(N) % 3, np.arange(2), "not among the classes"),
        (np.arange(N) / 3.0, None, "continuous"),
        (np.where(np.arange(N) == 80, np.nan, 1.0), None, "NaN"),
    ],
)
def test_what_are_no_labels_is_refused(X, y, classes, match):
    with pytest.raises(ValueError, match=match):
        LabelledRows(*as_arrays(X, y), classes)


def test_classes_are_those_found_or_those_declared():
    found, declared = np.array([1, 2]), np.array([0, 1, 2])
    assert choose_classes(found, None) is found
    assert choose_classes(found, declared) is declared
