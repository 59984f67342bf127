"""A small problem, and rows that are predicted."""

import numpy as np
import pytest

from tests.sgpr.problems import small_problem


@pytest.fixture
def problem():
    return small_problem("dtc")


@pytest.fixture
def Xs():
    """Test rows near the data, scaled."""
    return np.random.default_rng(10).normal(size=(5, 2))
