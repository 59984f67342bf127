"""The tests of convergence, of a noisy objective and of a search in rounds."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from skvbgp._optim.convergence import (
    give_up_below,
    has_converged,
    has_settled,
    warn_of_fall,
)
from skvbgp._optim.lbfgs import lbfgs_ascent


def test_needs_two_windows():
    assert not has_converged([1.0] * 199, 1e-3, 1)
    assert has_converged([1.0] * 200, 1e-3, 1)
    assert not has_converged([1.0] * 3, 1e-3, 50)
    assert has_converged([1.0] * 4, 1e-3, 50)


def test_a_rise_beyond_the_tolerance_goes_on():
    rising = list(np.arange(200.0))
    assert not has_converged(rising, 1e-3, 1)
    assert has_converged(rising, 2.0, 1)
    assert has_converged(rising[::-1], 0.0, 1)


def test_single_values_do_not_matter():
    noisy = [(-1.0) ** i for i in range(200)]
    assert has_converged(noisy, 1e-3, 1)


def test_a_fall_settles_nothing():
    assert has_settled(-100.0, -100.5, 1e-2) and has_settled(-100.5, -100.0, 1e-2)
    assert not has_settled(-102.0, -100.0, 1e-2) and not has_settled(-100.0, -np.inf, 1e-2)
    with pytest.warns(ConvergenceWarning, match="fell from -100 to -102"):
        warn_of_fall(-102.0, -100.0, 1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_fall(-100.5, -100.0, 1e-2)
        warn_of_fall(-100.0, -102.0, 1e-2)


# -- searches that would stay below another one ----------------------------------------------------


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
