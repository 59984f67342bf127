"""Searches that end because they would stay below another one."""

import numpy as np
from numpy.testing import assert_allclose

from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp._optim.race import give_up_below


def slow(x):
    """A quartic, whose maximum 0 is approached over many iterations."""
    return -float(np.sum(x**4)), -4.0 * x**3


def climb(target, max_iter=60):
    x = np.array([3.0, 1.0, 2.0])
    end_pass = give_up_below(target, max_iter)
    return lbfgs_ascent(slow, x, max_iter=max_iter, tol=0.0, end_pass=end_pass)


def test_a_search_that_can_get_there_goes_on():
    free = climb(-np.inf)
    assert not free.stopped
    assert_allclose(climb(-1e-3).value, free.value)


def test_a_search_that_stays_below_is_given_up():
    free, given_up = climb(-np.inf), climb(1.0)
    assert given_up.stopped
    assert 3 < given_up.n_iter < free.n_iter
    assert given_up.values == free.values[: given_up.n_iter]
