"""The falling step sizes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._optim.schedule import cosine_annealing


def test_from_one_to_zero_by_way_of_a_half():
    assert cosine_annealing(0, 10) == 1.0
    assert cosine_annealing(5, 10) == pytest.approx(0.5)
    assert cosine_annealing(10, 10) == pytest.approx(0.0, abs=1e-15)


def test_falls_slowly_at_both_ends_and_fastest_in_between():
    shares = np.array([cosine_annealing(step, 100) for step in range(101)])
    falls = -np.diff(shares)
    assert np.all(falls > 0.0)
    assert falls.argmax() in (49, 50)
    assert_allclose(falls, falls[::-1])
