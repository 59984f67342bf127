"""Rows that stay on the workers of a Dask cluster: fits and predictions are those of memory."""

import os
import pickle
import signal

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp._core.scaling import Coordinates, Target
from skvbgp._core.shards import ShardedRows
from skvbgp.spectrum._rows import BlockedRows, Rows
from skvbgp.spectrum._spread import SpreadBlocks
from tests.row_keepers import check_rows_do_not_mix
from tests.spectrum.cases import make_data, small

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

N, LATER, N_BLOCKS = 330, 120, 6
PLACES = make_data(40, seed=5)[0]

pytestmark = pytest.mark.usefixtures("client", "quick_searches")


@pytest.fixture(autouse=True)
def _many(monkeypatch):
    """These rows are many: they stay where they are."""
    monkeypatch.setattr("skvbgp.base._rows.SUBSAMPLE", 100)
    monkeypatch.setattr("skvbgp.spectrum._learner._EVIDENCE_ROWS", 100)
    monkeypatch.setattr("skvbgp.spectrum._spread._TILE_ROWS", 16)
    monkeypatch.setattr("skvbgp._core.sharded_blocks._FETCHED_ROWS", 150)


def spread(X, y, chunks=70):
    return da.from_array(X, chunks=(chunks, 1)), da.from_array(y, chunks=chunks)


def quick(**options):
    return small(**{"n_blocks": N_BLOCKS, "max_iter": 2, "batch_size": 120, **options})


def say(model):
    moments = model.predict(PLACES, return_std=True)
    hyper = [model.signal_variance_, model.noise_variance_, model.local_noise_variance_]
    return np.concatenate([*moments, hyper, model.lower_bounds_, [model.lower_bound_]])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_neighbors": None, "gamma": 0.3},
        pytest.param({"gamma": 1.0}, marks=pytest.mark.slow),
        pytest.param({"posterior": "factorised", "objective": "bound"}, marks=pytest.mark.slow),
        pytest.param({"objective": "bound", "solver": "adam"}, marks=pytest.mark.slow),
        pytest.param({"posterior": "point", "n_blocks": 22}, marks=pytest.mark.slow),
        pytest.param({"learn_hyperparameters": False}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_fit_is_that_of_memory(options):
    """Each of two workers has a half of the rows, the first two branches of the tree of all."""
    X, y = make_data(N)
    model = quick(**options)
    local = clone(model).fit(X, y)
    assert_allclose(say(model.fit(*spread(X, y))), say(local), rtol=1e-8)
    assert_array_equal(model._state.rows.blocks.sizes, np.full(2, model.n_blocks // 2))
    assert isinstance(local._state.rows, BlockedRows)
    assert (model.n_samples_seen_, model.n_iter_) == (N, local.n_iter_)
    if options.get("gamma") != 1.0:
        expected = local.predict(PLACES[:7], return_cov=True)
        for part, other in zip(model.predict(PLACES[:7], return_cov=True), expected, strict=True):
            assert_allclose(part, other, rtol=1e-8, atol=1e-10)
    for part, other in zip(*(m.predict_gradient(PLACES) for m in (model, local)), strict=True):
        assert_allclose(part, other, rtol=1e-7, atol=1e-8)
    assert_allclose(model.feature_importances_, local.feature_importances_, rtol=1e-7)


def test_a_fit_does_not_depend_on_the_chunks(monkeypatch):
    monkeypatch.setattr("skvbgp._core.regions._SAMPLE_ROWS", 100)  # the regions differ in size
    X, y = make_data(N)
    expected = say(quick().fit(*spread(X, y)))
    assert_allclose(say(quick().fit(*spread(X, y, N))), expected, rtol=1e-8)


@pytest.mark.parametrize("n_neighbors", [30, None])
def test_predictions_of_a_collection_are_lazy(n_neighbors):
    X, y = make_data(N)
    model = quick(n_neighbors=n_neighbors).fit(*spread(X, y))
    mean, std = model.predict(da.from_array(PLACES, chunks=(17, 2)), return_std=True)
    assert mean.chunks == std.chunks == ((17, 17, 6),)
    expected = model.predict(PLACES, return_std=True)
    assert_allclose(da.compute(mean, std), expected, rtol=1e-10)
    quantiles = model.predict_quantiles(da.from_array(PLACES, chunks=(17, 2)), [0.1, 0.9])
    assert_allclose(quantiles.compute(), model.predict_quantiles(PLACES, [0.1, 0.9]), rtol=1e-10)


@pytest.mark.parametrize("learns", [False, True])
def test_streams(learns):
    """Blocks differ from those in memory, neighbours and sums over new rows do not."""
    first, later = make_data(N), make_data(LATER, seed=1)
    model = quick(learn_hyperparameters=learns)
    local = clone(model).fit(*first).partial_fit(*later)
    model.partial_fit(*spread(*first, N)).partial_fit(*spread(*later))
    assert model.n_samples_seen_ == N + LATER
    assert model._state.rows.n_blocks == N_BLOCKS + round(LATER / (N / N_BLOCKS))
    if not learns:
        assert_allclose(model.q_mean_, local.q_mean_, rtol=1e-8, atol=1e-10)
        assert_allclose(model.predict(PLACES), local.predict(PLACES), rtol=1e-8)
        assert_allclose(model.lower_bound_, local.lower_bound_, rtol=1e-8)
    X, y = make_data(200, seed=2)
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 0.4


def test_what_cannot_be_joined_is_refused():
    X, y = make_data(N)
    model = check_rows_do_not_mix(quick(), X, y, spread, say)
    model.partial_fit(*spread(X[:50] + 0.01, y[:50], 20))  # few rows stay there, too


def test_rows_on_workers_cannot_be_left_out():
    X, y = make_data(N)
    with pytest.raises(TypeError, match="needs a model of rows in memory"):
        quick().fit(*spread(X, y)).loo_predict(X, y)


def test_what_would_gather_rows_is_refused():
    X, y = make_data(N)
    with pytest.raises(TypeError, match="sample_weight needs rows in memory"):
        quick().fit(*spread(X, y), sample_weight=np.ones(N))
    with pytest.raises(TypeError, match="y_var needs rows in memory"):
        quick().fit(*spread(X, y), y_var=0.1)
    with pytest.raises(ValueError, match="Ask for more blocks"):
        quick(n_blocks=2).fit(*spread(X, y))
    model = quick(n_neighbors=N).fit(*spread(X, y))
    with pytest.raises(TypeError, match="sample_function needs a model of rows in memory"):
        model.sample_function()
    assert model.set_params(gamma=1.0).sample_function(2)(PLACES).shape == (40, 2)
    model.set_params(gamma=0.0)
    with pytest.raises(ValueError, match="not gathered"):
        model.predict(da.from_array(PLACES))
    far = y.copy()
    far[-1] = 1e160
    with pytest.raises(ValueError, match="spreads away"):
        model.partial_fit(*spread(X, far))
    assert model.n_samples_seen_ == N


def test_what_comes_to_the_client_does_not_grow_with_the_rows(monkeypatch):
    monkeypatch.setattr("skvbgp._core.regions._SAMPLE_ROWS", 100)
    monkeypatch.setattr("skvbgp.base._gap_noise._PLACES", 100)
    calls, call_some = [], ShardedRows.call_some

    def call_and_measure(rows, function, tasks):
        results = call_some(rows, function, tasks)
        calls.append(sum(len(pickle.dumps(result)) for result in results))
        return results

    monkeypatch.setattr(ShardedRows, "call_some", call_and_measure)
    sizes = []
    for n in (N, 4 * N):
        model = quick(n_blocks=n // 50, n_neighbors=10).fit(*spread(*make_data(n)))
        model.predict(PLACES)
        sizes.append(len(pickle.dumps(model)))
        assert max(calls) < 180 * 3 * 8 + 2000
    assert abs(sizes[1] - sizes[0]) < 1_000


@pytest.mark.parametrize("chunks", [70, N])
def test_blocks_are_those_of_the_rows(rng, chunks):
    X, y = rng.standard_normal((N, 2)), rng.standard_normal(N)
    workers = ShardedRows(*spread(X, y, chunks))
    frames = Coordinates(workers.inputs.mean, workers.inputs.unit), Target(0.5, 2.0)
    blocks = SpreadBlocks.of(workers, *frames, 30.0)
    order = rng.permutation(blocks.n_blocks)
    picked = list(blocks.pick(order))
    assert sum(map(len, picked)) == N
    for k, rows in zip(order, picked, strict=True):
        assert_array_equal(blocks.lookup(rows.X), np.full(len(rows), k))
    everything = Rows.joined(picked)
    assert_allclose(np.sort(everything.y), np.sort((y - 0.5) / 2.0), rtol=1e-14)


@pytest.mark.slow
def test_workers_that_die_change_nothing(client):
    X, y = make_data(N)
    model = quick(n_neighbors=None).fit(*spread(X, y))
    expected = say(model)
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)
    assert_allclose(say(model), expected, rtol=1e-8)
