"""Running mean and spread against NumPy's on all the rows, up to the ends of double precision."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.scaling import Coordinates, RunningScale, Target


def test_of(rng):
    values = rng.normal(size=(50, 3)) * [1.0, 1e3, 1e-3] + [0.0, 5.0, -1.0]
    summary = RunningScale.of(values)
    assert summary.n == 50
    assert_allclose(summary.mean, values.mean(axis=0), rtol=1e-12, atol=1e-14)
    assert_allclose(summary.std, values.std(axis=0), rtol=1e-12)
    assert_array_equal(summary.unit, summary.std)


@pytest.mark.parametrize("sizes", [(1, 49), (49, 1), (10, 15, 25), (1, 1, 1, 47)])
def test_merged_is_the_summary_of_all_rows(rng, sizes):
    """Chunks with means of their own, so that the spread between chunks counts."""
    parts = [rng.normal(size=(size, 2)) * (k + 1) + [3.0 * k, -2.0] for k, size in enumerate(sizes)]
    summary = RunningScale.of(parts[0])
    for part in parts[1:]:
        summary = summary.merged(RunningScale.of(part))
    expected = RunningScale.of(np.concatenate(parts))
    assert summary.n == expected.n == 50
    assert_allclose(summary.mean, expected.mean, rtol=1e-12, atol=1e-14)
    assert_allclose(summary.std, expected.std, rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1e160, 1e300])
def test_squares_neither_overflow_nor_vanish(rng, unit):
    """Powers of the unit factor out: the summary is that of the values without it."""
    values = rng.uniform(-1.0, 1.0, size=(20, 1)) + 0.5
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        first, second = RunningScale.of(unit * values[:7]), RunningScale.of(unit * values[7:])
        summaries = [RunningScale.of(unit * values), first.merged(second)]
    for summary in summaries:
        assert_allclose(summary.mean / unit, values.mean(axis=0), rtol=1e-12)
        assert_allclose(summary.std / unit, values.std(axis=0), rtol=1e-12)
        assert_array_equal(summary.unit, summary.std)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e8, 1e300])
def test_unit_of_a_constant_column_is_one(value):
    summary = RunningScale.of(np.full((7, 1), value))
    assert_array_equal(summary.unit, 1.0)
    assert_array_equal(summary.merged(summary).unit, 1.0)
    assert_allclose(summary.mean, value, rtol=1e-15)


def test_constant_up_to_rounding():
    """0.1 + 0.2 and 0.3 differ by rounding alone; 1 and 1 + 1e-12 differ."""
    rounding = np.array([[0.1 + 0.2], [0.3], [0.3]])
    assert RunningScale.of(rounding).std > 0.0
    assert_array_equal(RunningScale.of(rounding).unit, 1.0)
    tiny = RunningScale.of(np.array([[1.0], [1.0 + 1e-12]]))
    assert_allclose(tiny.unit, 5e-13, rtol=1e-3)


def test_coordinates_of_the_entries_seen(rng):
    X = rng.standard_normal((6, 2)) * [1.0, 9.0] + 3.0
    whole = Coordinates.of(X)
    X = np.insert(X, 2, np.nan, axis=0)
    X[4, 0] = np.nan
    seen = Coordinates.of_seen(X)
    assert seen.offset[1] == whole.offset[1] and seen.scale[1] == whole.scale[1]
    assert_allclose(seen.offset[0], np.nanmean(X[:, 0]))
    assert_allclose(seen.scale[0], np.nanstd(X[:, 0]))


def test_columns_that_have_been_constant_get_a_unit_from_later_rows(rng):
    known, X = rng.standard_normal((2, 20, 3)) * [2.0, 1e3, 1e-3] + [0.0, 5.0, 0.1]
    known[:, 1:] = [5.0, 0.1]
    before = Coordinates.of(known)
    after = before.filled(known, X)
    assert_array_equal(after.offset, before.offset)
    assert after.scale[0] == before.scale[0]
    assert_allclose(after.scale[1:], np.median(np.abs(X - [0.0, 5.0, 0.1])[:, 1:], axis=0))
    assert_allclose(after.scaled(known), before.scaled(known), atol=1e-12)
    assert_array_equal(before.filled(known, known).scale, before.scale)
    assert_array_equal(after.filled(X, 9.0 * X).scale, after.scale)
    assert_array_equal(before.filled(known, known * (1.0 + 1e-15)).scale, before.scale)
    for huge in (1e200, 1e304):
        with pytest.raises(ValueError, match="spread of X"):
            before.filled(known, X * [1.0, huge, 1.0])


def test_columns_whose_spread_is_one_keep_it():
    known = np.array([[-1.0], [1.0]])
    assert_array_equal(Coordinates.of(known).filled(known, 9.0 * known).scale, 1.0)


def test_one_row():
    summary = RunningScale.of(np.array([[2.0, -3.0]]))
    assert_array_equal(summary.mean, [2.0, -3.0])
    assert_array_equal(summary.std, 0.0)
    assert_array_equal(summary.unit, 1.0)


@pytest.mark.parametrize("value", [1e148, -1.7e308])
def test_values_whose_distance_has_no_square(value):
    coordinates, target = Coordinates(np.zeros(2), np.array([1.0, 1e-3])), Target(0.0, 1.0)
    assert_array_equal(coordinates.scaled(np.array([[1e147, np.nan]])), [[1e147, np.nan]])
    with pytest.raises(ValueError, match="X has an entry .* spreads away"):
        coordinates.scaled(np.array([[0.0, 0.0], [0.0, value]]))
    with pytest.raises(ValueError, match="y has an entry .* spreads away"):
        target.scaled(np.array([0.0, value]))


def test_scaling_many_rows_makes_no_other_array_of_their_size():
    X = np.random.default_rng(0).standard_normal((50_000, 8))
    coordinates = Coordinates(np.ones(8), np.full(8, 2.0))
    tracemalloc.start()
    scaled = coordinates.scaled(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * scaled.nbytes
