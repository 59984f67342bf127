"""The test of convergence of a noisy objective."""

import numpy as np

from skvbgp._optim.convergence import has_converged


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
