"""Training on rows that live on Dask's workers: mini-batches are fetched."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skvbgp import DecoupledGPRegressor

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

N, LATER = 600, 300


@pytest.fixture(autouse=True)
def _many(client, monkeypatch):
    """These rows are many: they stay where they are."""
    monkeypatch.setattr("skvbgp.base._regressor.SUBSAMPLE", 100)


def make_data(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(n)


def as_arrays(X, y):
    return da.from_array(X, chunks=(170, 1)), da.from_array(y, chunks=210)


def say(model):
    mean, std = model.predict(make_data(20, 2)[0], return_std=True)
    return np.concatenate([mean, std, model.lower_bounds_])


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"likelihood": "student_t"}, marks=pytest.mark.slow),
        pytest.param({"replay": 0}, marks=pytest.mark.slow),
    ],
    ids=["default", "student_t", "no replay"],
)
def test_training_is_that_of_rows_in_memory(options):
    model = DecoupledGPRegressor(30, 8, max_iter=2, batch_size=200, random_state=0, **options)
    local, first, later = clone(model), make_data(N, 0), make_data(LATER, 1)
    assert_allclose(say(model.fit(*as_arrays(*first))), say(local.fit(*first)), rtol=1e-6)
    model.partial_fit(*as_arrays(*later))
    assert_allclose(say(model), say(local.partial_fit(*later)), rtol=1e-6)
    assert model.n_samples_seen_ == N + LATER


def test_weights_are_refused():
    X, y = as_arrays(*make_data(N, 0))
    for method in (DecoupledGPRegressor().fit, DecoupledGPRegressor().partial_fit):
        with pytest.raises(TypeError, match="sample_weight needs rows in memory"):
            method(X, y, sample_weight=np.ones(N))
    with pytest.raises(TypeError, match="sample_weight needs rows in memory"):
        DecoupledGPRegressor().fit(*make_data(N, 0), sample_weight=y)


def test_counts_are_refused():
    model = DecoupledGPRegressor(likelihood="poisson")
    with pytest.raises(TypeError, match="poisson.* needs rows in memory"):
        model.fit(*as_arrays(*make_data(N, 0)))
