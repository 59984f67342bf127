"""What every test shares: a seeded generator, and one BLAS thread.

One thread makes sums come out in the same order on every machine and keeps `pytest -n` and the
workers of parallel tests from competing for the same cores.
"""

import logging

import numpy as np
import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def _single_threaded():
    with threadpool_limits(limits=1):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def quick_block_start(monkeypatch):
    """Few steps for the start of the noise kernel, in tests of many small fits."""
    monkeypatch.setattr("skvbgp.sgpr._start._BLOCK_STEPS", 10, raising=False)


@pytest.fixture
def quick_searches(monkeypatch, quick_block_start):
    """Few draws and steps of every search, in tests that do not ask how good its result is."""
    for module, name, value in [
        ("sgpr._start", "_BLOCK_STEPS", 3),
        ("gp._search", "_N_DRAWS", 2),
        ("gp._class_search", "_N_DRAWS", 2),
        ("kernel_selection._training", "_DRAWS_PER_RESTART", 2),
        ("kernel_selection._training", "_SCREENING_ITERATIONS", 6),
        ("kernel_selection._belief", "_MAX_ITER", 5),
    ]:
        monkeypatch.setattr(f"skvbgp.{module}.{name}", value)


@pytest.fixture(scope="session")
def client():
    """Client of a Dask cluster of two worker processes with a thread each."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",  # its server starts anyway, and without a free port it warns
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
