"""Rows that stay on the workers of a Dask cluster: fits and predictions are those of memory."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp import VBGPRegressor
from skvbgp._core import order
from skvbgp._core.regions import move_to_boxes
from skvbgp._core.scaling import Coordinates
from skvbgp._core.shards import ShardedRows
from skvbgp.base import Neighbourhoods, find_near
from skvbgp.gp._spread import SpreadRows
from skvbgp.kernels import RBF, Matern, White
from tests.decoupled.test_sharded import let_workers_die
from tests.means import check_means
from tests.row_keepers import check_deaths_change_nothing

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

N, LATER = 700, 200
PLACES = np.random.default_rng(1).uniform(-1.2, 1.2, (40, 2))
#: Rows are in the order of an input: most shards have no neighbour of a place.
CHUNKS = {"even": 170, "uneven": (3, 500, 1, 196), "one": N}

pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("skvbgp.gp.search._sample.HELD_OUT", 30)
    monkeypatch.setattr("skvbgp.gp.search._many_rows._TRIAL_ROWS", 150)
    monkeypatch.setattr("skvbgp.gp.search._many_rows._FINAL_ROWS", 150)


def make_data(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    X = X[np.argsort(X[:, 0])]
    return X, np.sin(4.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n) + 3.0


def spread(X, y, chunks=170):
    return da.from_array(X, chunks=(chunks, 1)), da.from_array(y, chunks=N // 3)


LEARNED = VBGPRegressor([Matern(nu=1.5), RBF()], n_neighbors=15, max_iter=2, random_state=0)
FIXED = VBGPRegressor(RBF(0.5), n_neighbors=15, learn_hyperparameters=False, random_state=0)


def say(model):
    moments = model.predict(PLACES, return_std=True)
    return np.concatenate([*moments, [model.noise_variance_], model.kernel_posterior_])


def test_inputs_are_warped_as_those_in_memory():
    X, y = make_data(N)
    X = np.exp(3.0 * X)
    model = VBGPRegressor(n_neighbors=15, n_inducing=None, max_iter=8, random_state=0)
    local, model = clone(model).fit(X, y), model.fit(*spread(X, y))
    assert np.all(np.isfinite(model.input_warp_))
    assert_allclose(model.input_warp_, local.input_warp_, rtol=5e-2)  # rounding in training grows
    places = np.exp(3.0 * PLACES)
    assert_allclose(model.predict(places), local.predict(places), rtol=1e-3)


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_a_fit_is_that_of_rows_in_memory(chunks):
    X, y = make_data(N)
    model, local = clone(LEARNED).fit(*spread(X, y, chunks)), clone(LEARNED).fit(X, y)
    assert isinstance(model._state.rows, SpreadRows)
    assert_allclose(say(model), say(local), rtol=1e-8)
    assert_allclose(model.log_predictive_density_, local.log_predictive_density_, rtol=1e-8)
    assert (model.n_samples_seen_, model.n_neighbors_) == (N, 15)


@pytest.mark.slow
def test_a_search_is_that_of_rows_in_memory():
    X, y = make_data(N)
    model = VBGPRegressor(n_neighbors=30, max_iter=3, random_state=0)
    local = clone(model).fit(X, y)
    assert_allclose(say(model.fit(*spread(X, y))), say(local), rtol=1e-6)
    assert model.summary() == local.summary()


def test_more_rows_than_an_order_is_stored_of(monkeypatch):
    monkeypatch.setattr(order, "_STORED_ROWS", 100)
    X, y = make_data(N)
    model, other = (clone(LEARNED).fit(*spread(X, y, chunks)) for chunks in (170, N))
    assert_allclose(say(model), say(other), rtol=1e-8)
    assert np.mean((model.predict(X) - y) ** 2) < 0.02


@pytest.fixture(scope="module")
def models(cluster):
    """Of the same rows, on the workers and in memory."""
    X, y = make_data(N)
    return clone(FIXED).fit(*spread(X, y)), clone(FIXED).fit(X, y)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("predict", {"return_std": True, "include_noise": False}),
        ("predict", {"return_cov": True}),
        ("predict", {"return_std": True, "y_var": 0.5}),
        ("predict_interval", {}),
        ("predict_gradient", {}),
    ],
)
def test_methods_say_what_they_say_in_memory(models, method, options):
    of_spread, of_local = (getattr(model, method)(PLACES, **options) for model in models)
    for part, expected in zip(of_spread, of_local, strict=True):
        assert_allclose(part, expected, rtol=1e-8, atol=1e-10)


def test_gaps_in_new_rows(models):
    rows = PLACES.copy()
    rows[3, 1] = rows[7, 0] = np.nan
    of_spread, of_local = (model.predict(rows, return_std=True) for model in models)
    assert_allclose(of_spread, of_local, rtol=1e-8)
    check_means(models[0]._state.posterior, rows)


def test_what_describes_the_model(models, monkeypatch):
    monkeypatch.setattr("skvbgp.base._function._RELEVANCE_ROWS", 30)
    model, local = models
    assert_allclose(model.feature_importances_, local.feature_importances_, rtol=1e-8)
    assert_allclose(model.output_covariance_, local.output_covariance_, rtol=1e-8)
    assert model.summary() == local.summary()


def test_predictions_of_a_collection_are_lazy(models):
    model, local = models
    mean, std = model.predict(da.from_array(PLACES, chunks=(17, 2)), return_std=True)
    assert mean.chunks == std.chunks == ((17, 17, 6),)
    assert mean.dtype == np.float64
    expected = local.predict(PLACES, return_std=True)
    assert_allclose(da.compute(mean, std), expected, rtol=1e-8)


def test_frames_give_their_names():
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    X, y = make_data(N)
    table = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    rows = frames.from_pandas(table, npartitions=3)
    model = clone(FIXED).fit(rows[["a", "b"]], rows["y"])
    assert list(model.feature_names_in_) == ["a", "b"]
    result = model.predict(rows[["a", "b"]])
    assert result.npartitions == 3
    assert_allclose(result.compute(), clone(FIXED).fit(X, y).predict(X), rtol=1e-8)


def test_few_rows_are_all_neighbours():
    X, y = make_data(15)
    model, local = clone(LEARNED).fit(*spread(X, y)), clone(LEARNED).fit(X, y)
    assert_array_equal(say(model), say(local))
    check_means(model._state.posterior, PLACES)


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [pytest.param(LEARNED, marks=pytest.mark.slow), FIXED],
    ids=["learned", "fixed"],
)
def test_more_rows_join(model):
    known, local = clone(model), clone(model)
    for n, seed in [(N, 0), (LATER, 1), (N, 2)]:  # known, known at once, learned from again
        X, y = make_data(n, seed)
        known.partial_fit(*spread(X, y))
        local.partial_fit(X, y)
        assert_allclose(say(known), say(local), rtol=1e-8)
    assert known.n_samples_seen_ == 2 * N + LATER


@pytest.mark.slow
def test_a_fit_goes_on_from_the_one_before():
    X, y = make_data(N)
    model, local = (clone(LEARNED).set_params(warm_start=True) for _ in range(2))
    for _ in range(2):
        model.fit(*spread(X, y))
        local.fit(X, y)
    assert_allclose(say(model), say(local), rtol=1e-8)


def test_rows_are_in_one_place_all_of_them(models):
    X, y = make_data(LATER)
    model, local = (pickle.loads(pickle.dumps(one)) for one in models)
    before = say(model)
    with pytest.raises(TypeError, match="rows in memory cannot join"):
        model.partial_fit(X, y)
    assert_array_equal(say(model), before)
    with pytest.raises(TypeError, match="knows rows in memory"):
        local.partial_fit(*spread(X, y))


# -- what cannot be done ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"categorical_features": [0]}, {}),
        ({"output_covariance": "learned"}, {}),
        ({"output_hyperparameters": "shared"}, {}),
        ({"forgetting": 0.9}, {}),
        ({}, {"sample_weight": 2.0}),
        ({}, {"y_var": 1.0}),
        ({}, {"y_var": da.ones(N)}),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_what_cannot_be_done_is_refused_before_any_work(method, options, arguments):
    def fail(block):
        raise AssertionError("the collection was computed")

    X, y = (values.map_blocks(fail, dtype=float) for values in (da.ones((N, 2)), da.ones(N)))
    model = clone(FIXED).set_params(**options)
    (name,) = options or arguments
    with pytest.raises(TypeError, match=f"{name} needs rows in memory"):
        getattr(model, method)(X, y, **arguments)
    assert not hasattr(model, "_state")


def test_one_output():
    X, y = make_data(N)
    with pytest.raises(ValueError, match="y one"):
        clone(FIXED).fit(da.from_array(X), da.from_array(np.column_stack([y, y])))
    both = clone(FIXED).fit(X[:20], np.column_stack([y, y])[:20])
    with pytest.raises(ValueError, match="one output, but there were 2"):
        both.partial_fit(*spread(X, y))


def test_gaps_in_known_rows_leave_the_estimator_as_it_was(models):
    model = pickle.loads(pickle.dumps(models[0]))
    before = say(model)
    X, y = make_data(N)
    X[300, 0] = np.nan
    for method in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="NaN"):
            method(*spread(X, y))
        assert_array_equal(say(model), before)


def test_methods_that_need_all_rows_say_so(models):
    with pytest.raises(TypeError, match="loo_predict needs a model of rows in memory"):
        models[0].loo_predict()
    with pytest.raises(TypeError, match="sample_function needs a model of rows in memory"):
        models[0].sample_function()


# -- where the rows are ----------------------------------------------------------------------------


def test_shards_that_have_no_near_row_are_not_asked(client, monkeypatch):
    X = make_data(N)[0]  # in the order of the first input
    halves = [ShardedRows(*spread(part, part[:, 0], N)) for part in (X[:350], X[350:])]
    rows, frame, asked = halves[0].joined(halves[1]), Coordinates(np.zeros(2), np.ones(2)), []
    call = rows.call_some

    def call_and_note(function, tasks):
        if tasks:
            asked.append({s: len(task[2]) for s, task in tasks.items()})
        return call(function, tasks)

    monkeypatch.setattr(rows, "call_some", call_and_note)
    edge = X[349, 0]
    places = np.array([[-0.9, 0.0], [-0.5, 0.5], [edge, 0.1], [0.8, 0.0]])
    near = find_near(rows, frame, np.ones(2), frame.scaled(places), 10)
    assert asked == [{0: 3, 1: 1}, {1: 1}]  # both halves for the place at the edge
    assert_array_equal(near, Neighbourhoods([X]).find(places, 10))
    asked.clear()
    many = find_near(rows, frame, np.ones(2), frame.scaled(places[:1]), 400)
    assert many.max() >= 350  # more than one has
    assert asked == [{0: 1}, {1: 1}]


@pytest.mark.parametrize("weights", [[1.0, 1.0], [0.1, 3.0]], ids=["same", "other"])
def test_most_places_ask_one_worker_once_rows_have_moved(rng, monkeypatch, weights):
    """Exactly the near rows are found even with another distance than the rows moved by."""
    X, places = rng.uniform(-1.0, 1.0, (900, 2)), rng.uniform(-1.2, 1.2, (100, 2))
    X[10:50] = X[9]  # equally near
    rows, asked = ShardedRows(*spread(X, X[:, 0])), []
    frame, weights = Coordinates(np.zeros(2), np.ones(2)), np.array(weights)
    move_to_boxes(rows, frame, np.ones(2))
    call = rows.call_some

    def call_and_note(function, tasks):
        if function.__name__ == "_find_in_shard":
            asked.extend(len(task[2]) for task in tasks.values())
        return call(function, tasks)

    monkeypatch.setattr(rows, "call_some", call_and_note)
    near = find_near(rows, frame, weights, frame.scaled(places), 20)
    found = rows.fetch(near.ravel()).X.reshape(100, 20, 2)
    distance = np.linalg.norm((X - places[:, None]) * weights, axis=2)
    told = np.linalg.norm((found - places[:, None]) * weights, axis=2)
    assert_allclose(told, np.sort(distance)[:, :20], rtol=1e-12)
    assert len(np.unique(near[0])) == 20
    assert sum(asked) < (130 if weights[0] == weights[1] else 201)


def test_places_are_predicted_where_their_neighbours_are(models, monkeypatch):
    """Only neighbours behind a cut travel, and each turn has places for both workers."""
    monkeypatch.setattr("skvbgp.gp._spread._TILE_ROWS", 16)
    model, local = models
    X = np.sort(make_data(N)[0], axis=0)[::10]  # in order of place
    sent, call = [], ShardedRows.call_some

    def call_and_note(rows, function, tasks):
        if function.__name__ == "_predict_in_shard":
            sent.append({s: (len(task[3]), len(task[5].y)) for s, task in tasks.items()})
        return call(rows, function, tasks)

    monkeypatch.setattr(ShardedRows, "call_some", call_and_note)
    found = model.predict(X, return_std=True)
    assert_allclose(found, local.predict(X, return_std=True), rtol=1e-8)
    assert len(sent) == 5 and all(len(turn) == 2 for turn in sent)
    n_places, n_others = np.sum([own for turn in sent for own in turn.values()], axis=0)
    assert n_places == len(X)
    assert 0 < n_others < 0.1 * 15 * len(X)


@pytest.mark.parametrize("d", [2, 14], ids=["tree", "all distances"])
def test_near_rows_are_those_of_all(rng, d):
    X, places = rng.standard_normal((300, d)), rng.standard_normal((30, d))
    rows = ShardedRows(da.from_array(X, chunks=(70, d)), da.ones(300, chunks=70))
    weights = rng.uniform(0.5, 2.0, d)
    frame = Coordinates(rows.inputs.mean, rows.inputs.unit)
    expected = Neighbourhoods([frame.scaled(X) * weights]).find(frame.scaled(places) * weights, 40)
    assert_array_equal(find_near(rows, frame, weights, frame.scaled(places), 40), expected)
    twice = rows.joined(rows)
    found = find_near(twice, frame, weights, frame.scaled(places), 10)
    assert_array_equal(found[:, ::2], expected[:, :5])
    assert_array_equal(found[:, 1::2], 300 + expected[:, :5])


@pytest.mark.parametrize("d", [2, 14], ids=["tree", "all distances"])
def test_shards_are_asked_for_their_share_first(rng, monkeypatch, d):
    """In random order, and where one of several whose boxes are the same has all near rows."""
    X, places, k = rng.uniform(-1.0, 1.0, (900, d)), rng.uniform(-1.0, 1.0, (30, d)), 40
    X[:300, 0], X[300:600, 0] = -np.abs(X[:300, 0]), np.abs(X[300:600, 0])
    X[[0, 300, 600]], X[[1, 301, 601]] = -1.0, 1.0
    places[:10] = X[10:20]  # equal rows and ties
    X[20:30] = X[10:20]
    parts = [ShardedRows(*spread(part, part[:, 0], N)) for part in np.split(X, 3)]
    rows, told = parts[0].joined(parts[1]).joined(parts[2]), []
    frame = Coordinates(np.zeros(d), np.ones(d))
    call = rows.call_some

    def call_and_note(function, tasks):
        results = call(function, tasks)
        told.append({s: distance.shape for s, (distance, _) in zip(tasks, results, strict=True)})
        return results

    monkeypatch.setattr(rows, "call_some", call_and_note)
    near = find_near(rows, frame, np.ones(d), frame.scaled(places), k)
    distance = np.linalg.norm(X - places[:, None], axis=2)
    expected = np.argsort(distance, axis=1, kind="stable")[:, :k]
    assert_array_equal(np.sort(near), np.sort(expected))
    first, again, *_ = told
    assert set(first.values()) == {(30, 25)}  # a third, and three standard deviations
    assert all(n < 30 and most == k for n, most in again.values())


def test_what_comes_to_the_client_does_not_grow_with_the_rows(monkeypatch):
    """Groups, some rows that judge kernels, and the neighbours of a tile of places."""
    for module, name, value in [
        ("gp.search._sample", "_JUDGED_ROWS", 100),
        ("_core.regions", "_SAMPLE_ROWS", 100),
        ("base._gaps", "_LEARNED_FROM", 100),
        ("gp._spread", "_TILE_ROWS", 8),
    ]:
        monkeypatch.setattr(f"skvbgp.{module}.{name}", value)
    fetched, fetch = [], ShardedRows.fetch

    def fetch_and_note(rows, index):
        fetched.append(len(index))
        return fetch(rows, index)

    monkeypatch.setattr(ShardedRows, "fetch", fetch_and_note)
    sizes = []
    for n in (N, 4 * N):
        model = clone(LEARNED).fit(*spread(*make_data(n)))
        model.predict(PLACES)
        assert max(fetched) <= 8 * 15  # places and their neighbours, or a hundred rows
        sizes.append(len(pickle.dumps(model)))
    assert abs(sizes[1] - sizes[0]) < 1_000


@pytest.mark.slow
def test_workers_that_die_change_nothing(client):
    X, y = make_data(N)
    check_deaths_change_nothing(client, clone(FIXED).fit(*spread(X, y)), PLACES, say)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function", ["base._spread_neighbours._find_in_shard", "gp._spread._predict_in_shard"]
)
def test_a_worker_that_dies_while_it_predicts_changes_nothing(monkeypatch, tmp_path, function):
    X, y = make_data(N)
    model, expected = clone(FIXED).fit(*spread(X, y)), say(clone(FIXED).fit(X, y))
    count_deaths = let_workers_die(monkeypatch, tmp_path, f"skvbgp.{function}")
    assert_allclose(say(model), expected, rtol=1e-8)
    assert count_deaths() == 1


@pytest.mark.slow
def test_workers_that_die_again_and_again_end_a_prediction(monkeypatch, tmp_path):
    model = clone(FIXED).fit(*spread(*make_data(N)))
    expected = say(model)
    with monkeypatch.context() as patch:
        let_workers_die(patch, tmp_path, "skvbgp.gp._spread._predict_in_shard", n_deaths=20)
        with pytest.raises(RuntimeError, match="Workers were lost 4 times"):
            model.predict(PLACES)
    assert_allclose(say(model), expected, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["_cut_blocks", "_receive", "_find_moved"])
def test_a_worker_that_dies_while_rows_move_changes_nothing(monkeypatch, tmp_path, function):
    X, y = make_data(N)
    local = clone(FIXED).fit(X, y)
    count_deaths = let_workers_die(monkeypatch, tmp_path, f"skvbgp._core.shards.{function}")
    model = clone(FIXED).fit(*spread(X, y))
    assert_allclose(model.feature_importances_, local.feature_importances_, rtol=1e-8)
    assert count_deaths() == 1
    assert_allclose(say(model), say(local), rtol=1e-8)


def test_kernels_with_white_noise():
    X, y = make_data(N)
    model = clone(FIXED).set_params(kernel=RBF(0.5) + White(0.1))
    local = clone(model).fit(X, y)
    assert_allclose(say(model.fit(*spread(X, y))), say(local), rtol=1e-8)
