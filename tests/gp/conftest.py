"""What tests of near rows share."""

import pytest


@pytest.fixture
def few_kernels(monkeypatch):
    """Searches begin with two kernels, in tests that do not ask what is found."""
    from tests.gp.searches import try_few_kernels

    try_few_kernels(monkeypatch)


@pytest.fixture
def unjudged(monkeypatch):
    """Few rows are not left out of training either, in tests that do not ask what they say."""
    monkeypatch.setattr("skvbgp.gp.search._few_rows.LEAST_ROWS", 10_000)
