"""Rows that a model keeps, found again."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skvbgp.base import Targets, find_known

X = np.array([[0.0, 1.0], [2.0, 3.0], [2.0, 3.0], [-0.0, 5.0]])
y = np.array([1.0, 2.0, 3.0, 4.0])


def test_known_rows_are_found():
    known = Targets(y, np.array([1.0, 1.0, 2.0, 1.0]), variance=np.array([0.0, 0.5, 0.0, 0.0]))
    some = Targets(y[[2, 0]], np.array([2.0, 1.0]))
    assert_array_equal(find_known(X[[2, 0]], some, X, known), [2, 0])
    assert_array_equal(find_known(X, known, X[::-1], known[::-1]), [3, 2, 1, 0])


def test_a_row_that_is_kept_several_times_cannot_be_left_out():
    """It would be predicted from its copy."""
    rows, targets = np.vstack([X, X[:1]]), Targets(np.append(y, y[:1]))
    assert_array_equal(find_known(X[1:], Targets(y[1:]), rows, targets), [1, 2, 3])
    for asked in (X, rows):
        with pytest.raises(ValueError, match="several times"):
            find_known(asked, Targets(targets.y[: len(asked)]), rows, targets)


@pytest.mark.parametrize(
    ("rows", "targets", "message"),
    [
        (X + 1.0, Targets(y), "new to it"),
        (X, Targets(y[::-1]), "new to it"),
        (X, Targets(y, variance=np.ones(4)), "new to it"),
        (X, Targets(y, np.full(4, 2.0)), "more or less often.*forgetting \\*\\* age"),
    ],
)
def test_other_rows_are_refused(rows, targets, message):
    with pytest.raises(ValueError, match=message):
        find_known(rows, targets, X, Targets(y))
