"""Which values are left out to say which outputs are better alone."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skvbgp.base._apart import Known, compare_alone, hide_values


def test_values_that_are_hidden():
    """All of a row, or where values are missing a single one of half the rows; once each."""
    rng = np.random.RandomState(0)
    row_of, output = np.repeat(np.arange(40), 3), np.tile(np.arange(3), 40)
    parts = list(hide_values(row_of, output, True, rng))
    assert_array_equal(np.sum(parts, axis=0), np.ones(120))
    for hidden in parts:
        assert_array_equal(hidden.reshape(40, 3).all(axis=1), hidden.reshape(40, 3).any(axis=1))
        assert hidden.sum() == 24
    seen = np.delete(np.arange(120), [5, 77])
    hidden = np.sum(list(hide_values(row_of[seen], output[seen], False, rng)), axis=0)
    sizes, counts = np.bincount(row_of[seen]), np.bincount(row_of[seen], hidden)
    assert hidden.max() == 1
    assert np.all((counts == 1) | (counts == sizes))
    assert 8 < np.sum(counts == 1) < 32
    row_of, output = np.repeat(np.arange(4_000), 2), np.tile(np.arange(2), 4_000)
    many = list(hide_values(row_of, output, True, rng))
    assert [hidden.sum() for hidden in many] == [1_000]


def test_values_of_an_output_in_a_row_are_hidden_together():
    """Rows are those of one place, which may have several values of an output."""
    rng = np.random.RandomState(1)
    row, output = np.tile(np.repeat(np.arange(30), 2), 2), np.repeat([0, 1], 60)
    hidden = np.sum(list(hide_values(row, output, True, rng)), axis=0)
    assert_array_equal(hidden, np.ones(120))
    hidden = np.sum(list(hide_values(row[1:-2], output[1:-2], False, rng)), axis=0)
    count = np.zeros((30, 2))
    np.add.at(count, (row[1:-2], output[1:-2]), hidden)
    known = np.zeros((30, 2))
    np.add.at(known, (row[1:-2], output[1:-2]), 1.0)
    assert np.all((count == 0.0) | (count == known))
    assert 5 < np.sum(count.min(axis=1) == 0.0) < 25


@pytest.mark.parametrize(("gain", "joins"), [(0.08, True), (0.3, False), (-0.3, True)])
def test_gains_have_to_exceed_their_standard_error(gain, joins):
    """One value more, the next one less: of some 45 values, the error of the mean is .15."""
    check_choice(np.random.default_rng(0).random((70, 2)) < 0.6, gain, joins)


@pytest.mark.parametrize(("gain", "joins"), [(0.08, False), (-0.08, True)])
def test_complete_rows_ask_for_no_margin(gain, joins):
    check_choice(np.ones((70, 2)), gain, joins)


def check_choice(is_seen, gain, joins):
    """Whether the second output joins, if its own model gains so much, but for what cancels out."""
    row, output = np.nonzero(is_seen)

    def judge(model, rows, hidden):
        index = np.flatnonzero(hidden)
        return np.zeros(len(index)) if model == "all" else gain + (-1.0) ** index

    alone = None, Known("own", None)
    rng = np.random.RandomState(0)
    is_better = compare_alone(Known("all", None), alone, output, row, judge, rng)
    assert_array_equal(is_better, [False, not joins])
