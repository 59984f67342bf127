"""Some rows, and frequencies."""

import pytest

from tests.spectrum.cases import D, M


@pytest.fixture
def rows(rng):
    return rng.standard_normal((12, D)), rng.standard_normal(12)


@pytest.fixture
def R(rng):
    return 0.3 * rng.standard_normal((M, D))
