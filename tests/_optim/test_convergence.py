"""The tests of convergence, of a noisy objective and of a search in rounds."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skvbgp._optim.convergence import has_converged, has_settled, warn_of_fall


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
