"""Units of outputs that learn from each other."""

import numpy as np
from numpy.testing import assert_allclose

from skvbgp.base import Targets, lengthen
from skvbgp.base._joint_outputs import Units

UNITS = Units(np.array([1.0, -2.0]), np.array([10.0, 0.5]))


def test_units_around_others_restore_what_both_have_scaled(rng):
    inner = Units(np.array([3.0, 4.0]), np.array([-2.0, 7.0]))
    scaled = rng.standard_normal(2), rng.uniform(size=2)
    expected = UNITS.restore(*inner.restore(*scaled))
    assert_allclose(UNITS.around(inner).restore(*scaled), expected)


def test_targets_and_their_known_noise_are_in_units_of_their_outputs():
    X, variance = lengthen(np.zeros((1, 1)), 2), np.array([50.0, 1.0])
    scaled = UNITS.scale_targets(X, Targets(np.array([21.0, -1.0]), variance=variance))
    assert_allclose(scaled.y, [2.0, 2.0])
    assert_allclose(scaled.variance, [0.5, 4.0])
