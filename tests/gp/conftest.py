"""What tests of near rows share."""

import numpy as np
import pytest


@pytest.fixture
def quick_searches(quick_searches, monkeypatch):
    """Beliefs are learned in few steps, too, and draws are as wide as any, wherever they are."""
    monkeypatch.setattr("skvbgp.gp._belief._START_TEMPERS", (0.1,))
    monkeypatch.setattr("skvbgp.gp._belief._MAX_ITER", 10)
    monkeypatch.setattr("skvbgp.gp.classes._link._MAX_ITER", 10)
    monkeypatch.setattr(
        "skvbgp._optim.maximum._measure_curvature",
        lambda process, groups: 25.0 * np.eye(len(process.vector)),
    )


@pytest.fixture
def few_kernels(quick_searches, monkeypatch):
    """Searches begin with two kernels, in tests that do not ask which ones are found."""
    from tests.gp.searches import try_few_kernels

    try_few_kernels(monkeypatch)


@pytest.fixture
def unjudged(monkeypatch):
    """Few rows are not left out of training either, in tests that do not ask what they say."""
    monkeypatch.setattr("skvbgp.gp.search._few_rows.LEAST_ROWS", 10_000)
