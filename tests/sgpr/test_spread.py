"""Blocks of rows that live on Dask's workers: fits and predictions are those of memory."""

import copy
import os
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp import VBPICRegressor, VBPITCRegressor
from skvbgp._core.partition import group_rows
from skvbgp._core.shards import ShardedRows
from tests.row_keepers import check_deaths_change_nothing, check_rows_do_not_mix
from tests.sgpr.test_sharded import Killing, as_arrays, as_frames, kill_in_a_step, make_data

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

N, LATER = 720, 240
PLACES = make_data(40, 5)[0]

pytestmark = pytest.mark.usefixtures("client", "many_rows", "quick_searches", "_few_steps")


@pytest.fixture
def _few_steps(monkeypatch):
    monkeypatch.setattr("skvbgp.sgpr._training._STREAM_STEPS", 2)


def quick(kind=VBPICRegressor, **options):
    few = dict(n_inducing=8, n_blocks=12, n_samples=4, max_iter=2, batch_size=200, random_state=0)
    return kind(**{**few, "noise_kernel": None, **options})


def say(model):
    mean, std = model.predict(PLACES, return_std=True)
    noise = [model.noise_variance_, *model.noise_kernel_.theta]
    return np.concatenate([mean, std, noise, [model.lower_bound_], model.lower_bounds_])


@pytest.mark.parametrize(
    "model",
    [
        quick(),
        quick(VBPITCRegressor),
        pytest.param(quick(psi="closed_form", max_iter=1), marks=pytest.mark.slow),
        pytest.param(quick(learn_hyperparameters=False), marks=pytest.mark.slow),
        pytest.param(quick(warm_start=True), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_fit_is_that_of_memory(model):
    """Each of two workers has a half of the rows, the first two branches of the tree of all."""
    (X, y), (later_X, later_y) = make_data(N), make_data(LATER, 1)
    spread, local = clone(model), clone(model)
    for _ in range(1 + model.warm_start):
        assert_allclose(say(spread.fit(*as_arrays(X, y))), say(local.fit(X, y)), rtol=1e-8)
    expected = local.predict(PLACES, return_cov=True)
    for part, other in zip(spread.predict(PLACES, return_cov=True), expected, strict=True):
        assert_allclose(part, other, rtol=1e-8, atol=1e-10)
    quantiles = [model.predict_quantiles(PLACES, [0.1, 0.9]) for model in (spread, local)]
    assert_allclose(*quantiles, rtol=1e-8)
    if isinstance(model, VBPICRegressor):
        assert_array_equal(spread._state.blocks.blocks.sizes, [6, 6])
    spread.partial_fit(*as_arrays(later_X, later_y))
    local.partial_fit(later_X, later_y)
    assert_allclose(say(spread), say(local), rtol=1e-8)
    assert spread.n_samples_seen_ == N + LATER


def test_functions_are_those_of_memory():
    """Their values and slopes come from the worker that has the block of a place."""
    X, y = make_data(N)
    spread, local = quick().fit(*as_arrays(X, y)), quick().fit(X, y)
    functions, expected = (model.sample_function(3) for model in (spread, local))
    assert_allclose(functions(PLACES), expected(PLACES), rtol=1e-6)
    found = functions.gradient(PLACES[:4]), *spread.predict_gradient(PLACES[:4])
    others = expected.gradient(PLACES[:4]), *local.predict_gradient(PLACES[:4])
    for part, other in zip(found, others, strict=True):
        assert_allclose(part, other, rtol=1e-6, atol=1e-8)
    assert_allclose(spread.feature_importances_, local.feature_importances_, rtol=1e-6)


def test_a_search_for_the_noise_is_that_of_memory():
    """It is a few iterations of L-BFGS, which carry the last bits of the frames on."""
    X, y = make_data(N)
    spread, local = (quick(noise_kernel="auto") for _ in range(2))
    assert_allclose(say(spread.fit(*as_arrays(X, y))), say(local.fit(X, y)), rtol=1e-5)
    assert str(spread.noise_kernel_)[:20] == str(local.noise_kernel_)[:20]


def test_a_fit_is_that_of_the_same_blocks(monkeypatch):
    """Regions and blocks are uneven, unlike those that memory would make."""
    monkeypatch.setattr("skvbgp._core.regions._SAMPLE_ROWS", 50)
    X, y = make_data(N)
    spread = quick(n_blocks=7).fit(*as_arrays(X, y))
    blocks = spread._state.blocks.blocks

    def take_those(X, n_blocks, scaled):
        return blocks, group_rows(blocks.lookup(scaled(X)), len(blocks))

    monkeypatch.setattr("skvbgp.sgpr._blocks.partition_rows", take_those)
    local = quick(n_blocks=7).fit(X, y)
    assert len(set(map(len, local._state.blocks.X))) > 2
    assert_allclose(say(spread), say(local), rtol=1e-8)


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (VBPICRegressor, TypeError, "needs a model of rows in memory"),
        (VBPITCRegressor, ValueError, "known of a single fit to rows in memory"),
    ],
)
def test_rows_in_blocks_on_workers_cannot_be_left_out(kind, error, message):
    X, y = make_data(N)
    model = quick(kind).fit(*as_arrays(X, y))
    with pytest.raises(error, match=message):
        model.loo_predict(X, y)


def test_a_fit_does_not_depend_on_the_chunks():
    X, y = make_data(N)
    expected = say(quick().fit(*as_arrays(X, y)))
    model = quick().fit(da.from_array(X, chunks=50), da.from_array(y, chunks=N))
    assert_allclose(say(model), expected, rtol=1e-8)


@pytest.mark.parametrize("kind", [VBPICRegressor, VBPITCRegressor])
def test_predictions_of_a_collection_are_lazy(kind):
    X, y = make_data(N)
    model = quick(kind).fit(*as_arrays(X, y))
    places = da.from_array(PLACES, chunks=(17, 2))
    mean, std = model.predict(places, return_std=True)
    assert mean.chunks == std.chunks == ((17, 17, 6),)
    assert_allclose(da.compute(mean, std), model.predict(PLACES, return_std=True), rtol=1e-10)
    latent = model.predict(places, include_noise=False)
    assert_allclose(latent.compute(), model.predict(PLACES, include_noise=False), rtol=1e-10)


def test_frames_give_their_names():
    X, y = make_data(N)
    rows, targets = as_frames(X, y)
    model = quick().fit(rows, targets)
    assert list(model.feature_names_in_) == ["a", "b"]
    mean = model.predict(rows)
    assert mean.npartitions == rows.npartitions
    assert_allclose(mean.compute(), quick().fit(X, y).predict(X), rtol=1e-8)


def test_factors_of_blocks_are_those_of_the_model_that_predicts():
    """Workers keep them from one prediction to the next."""
    X, y = make_data(N)
    model = quick().fit(*as_arrays(X, y))
    few, many = model.predict(PLACES), copy.copy(model).set_params(n_samples=40)
    assert np.abs(many.predict(PLACES) - few).max() > 1e-6
    assert_array_equal(model.predict(PLACES), few)
    before = pickle.loads(pickle.dumps(model))
    model.partial_fit(*as_arrays(X[:50] + 0.01, y[:50] + 1.0))
    assert np.abs(model.predict(PLACES) - few).max() > 1e-3
    assert_array_equal(before.predict(PLACES), few)


def test_what_cannot_be_joined_is_refused():
    X, y = make_data(N)
    check_rows_do_not_mix(quick(), X, y, as_arrays, say)
    other = quick(VBPITCRegressor).fit(X, y)  # it keeps no rows
    assert other.partial_fit(*as_arrays(X, y)).n_samples_seen_ == 2 * N


@pytest.mark.parametrize("kind", [VBPICRegressor, VBPITCRegressor])
def test_what_would_gather_rows_is_refused_before_any_work(kind, monkeypatch):
    def load(*collections):
        raise AssertionError

    X, y = as_arrays(*make_data(N))
    with monkeypatch.context() as patch:
        patch.setattr(ShardedRows, "__init__", load)
        for solver in ("exact", "collapsed"):
            with pytest.raises(TypeError, match="rows in memory"):
                quick(kind, solver=solver).fit(X, y)
        with pytest.raises(TypeError, match="sample_weight needs rows in memory"):
            quick(kind).fit(X, y, sample_weight=np.ones(N))
        with pytest.raises(TypeError, match="y_var needs rows in memory"):
            quick(kind).fit(X, y, y_var=0.1)
    monkeypatch.setattr("skvbgp._core.sharded_blocks._FETCHED_ROWS", 150)
    with pytest.raises(ValueError, match="Ask for more blocks"):
        quick(kind, n_blocks=2).fit(X, y)


def test_what_fails_leaves_the_estimator_as_it_was():
    X, y = make_data(N)
    model = quick().fit(*as_arrays(X, y))
    before, far = say(model), y.copy()
    for value, message in [(np.nan, "NaN"), (1e160, "beyond 1e153")]:
        far[-1] = value
        with pytest.raises(ValueError, match=message):
            model.partial_fit(*as_arrays(X, far))
        assert_array_equal(say(model), before)


def test_what_comes_to_the_client_does_not_grow_with_the_rows(monkeypatch):
    monkeypatch.setattr("skvbgp.base._start.SUBSAMPLE", 60)
    monkeypatch.setattr("skvbgp.base._start.START_ROWS", 60)
    monkeypatch.setattr("skvbgp.sgpr._start._SAMPLE_ROWS", 60)
    monkeypatch.setattr("skvbgp.sgpr._places._PLACES", 60)
    monkeypatch.setattr("skvbgp.base._gap_noise._PLACES", 60)
    monkeypatch.setattr("skvbgp._core.regions._SAMPLE_ROWS", 60)
    monkeypatch.setattr("skvbgp._core.sharded_blocks._FETCHED_ROWS", 120)
    calls, collect = [], ShardedRows._collect

    def collect_and_measure(rows, *arguments):
        results = collect(rows, *arguments)
        calls.append(max(len(pickle.dumps(result)) for result in results))
        return results

    monkeypatch.setattr(ShardedRows, "_collect", collect_and_measure)
    sizes, largest = [], []
    for n in (N, 4 * N):
        model = quick(n_blocks=n // 30).fit(*as_arrays(*make_data(n)))
        model.predict(PLACES)
        sizes.append(len(pickle.dumps(model)))
        largest.append(max(calls))
    assert largest[1] <= largest[0] + 2000
    assert abs(sizes[1] - sizes[0]) < 2000


def test_a_worker_that_dies_between_two_steps_changes_nothing(client):
    X, y = make_data(N)
    callback = Killing(next(iter(client.run(os.getpid).values())))
    model = quick().set_callbacks(callback).fit(*as_arrays(X, y))
    assert not callback.pids
    assert_allclose(say(model), say(quick().fit(X, y)), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("n_results", [0, 1])
@pytest.mark.parametrize("n_killed", [1, 2])
def test_workers_that_die_in_a_step_change_nothing(monkeypatch, tmp_path, n_results, n_killed):
    X, y = make_data(N)
    model, expected = quick(), say(quick().fit(X, y))
    function = "skvbgp.sgpr._spread._sum_blocks"
    count_killed = kill_in_a_step(monkeypatch, tmp_path, function, n_results, n_killed)
    model.fit(*as_arrays(X, y))
    assert count_killed() == n_killed
    assert_allclose(say(model), expected, rtol=1e-8)


@pytest.mark.slow
def test_workers_that_die_between_two_calls_change_nothing(client):
    X, y = make_data(N)
    check_deaths_change_nothing(client, quick().fit(*as_arrays(X, y)), PLACES, say)
