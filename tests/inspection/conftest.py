"""No window opens, and no figure outlives its test."""

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def _no_window():
    plt.switch_backend("Agg")
    yield
    plt.close("all")
