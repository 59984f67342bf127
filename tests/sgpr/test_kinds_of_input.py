"""Arrays, lists and data frames as input."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPICRegressor
from tests.sgpr.cases import (
    INDEPENDENT,
    SOLVERS,
    every,
    make_data,
    quick_for,
    small,
)

pytestmark = pytest.mark.usefixtures("quick_block_start")


def read_only(values, folder):
    values = values.copy()
    values.flags.writeable = False
    return values


def memory_mapped(values, folder):
    np.save(folder / f"{values.ndim}.npy", values)
    return np.load(folder / f"{values.ndim}.npy", mmap_mode="r")


@quick_for(VBDTCRegressor, VBPICRegressor)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("convert", [read_only, memory_mapped])
@pytest.mark.in_turn("solver", "convert")
def test_read_only_and_memory_mapped_input(cls, solver, convert, tmp_path):
    X, y = make_data()
    expected = small(cls, solver).fit(X, y).predict(X, return_std=True)
    X_in, y_in = convert(X, tmp_path), convert(y, tmp_path)
    model = small(cls, solver).fit(X_in, y_in)
    for mine, theirs in zip(model.predict(X_in, return_std=True), expected, strict=True):
        assert_array_equal(mine, theirs)
    model.partial_fit(X_in, y_in)


@quick_for(VBFITCRegressor, VBPICRegressor)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
@pytest.mark.every_nth("dtype", 2)
def test_other_numbers_are_taken_as_float64(cls, dtype):
    X, y = make_data()
    X, targets = (10.0 * X).astype(dtype), (10.0 * y).astype(dtype if dtype is not bool else int)
    expected = small(cls).fit(X.astype(float), targets.astype(float))
    model = small(cls).fit(X, targets)
    mean, std = model.predict(X, return_std=True)
    assert mean.dtype == std.dtype == np.float64
    assert_array_equal(mean, expected.predict(X.astype(float)))


@every
def test_lists_and_other_memory_layouts(cls):
    X, y = make_data()
    expected = small(cls).fit(X, y).predict(X)
    doubled, wide = np.repeat(y, 2), np.repeat(X, 2, axis=1)
    for X_in, y_in in [
        (X.tolist(), y.tolist()),
        (np.asfortranarray(X), y),
        (wide[:, ::2], doubled[::2]),
    ]:
        assert_array_equal(small(cls).fit(X_in, y_in).predict(X_in), expected)


@every
@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.every_nth("cls", 2)
def test_data_frames(cls, library):
    frames = pytest.importorskip(library)
    X, y = make_data()
    expected = small(cls).fit(X, y).predict(X)
    frame, column = frames.DataFrame({"east": X[:, 0], "north": X[:, 1]}), frames.Series(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = small(cls).fit(frame, column)
        assert_array_equal(model.predict(frame), expected)
        model.partial_fit(frame[:5], column[:5])
        model.sample_y(frame[:5])
    assert list(model.feature_names_in_) == ["east", "north"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["north", "east"]])
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame[["north", "east"]], column)


@pytest.mark.parametrize("cls", INDEPENDENT)
def test_a_column_of_targets_is_one_output(cls):
    X, y = make_data()
    model = small(cls).fit(X, y[:, None])
    assert_array_equal(model.predict(X), small(cls).fit(X, y).predict(X))
