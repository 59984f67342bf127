"""What new rows are conditioned on: neighbours in the place of a block."""

import pickle

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.spectrum import _neighbours
from skvbgp.spectrum._block_model import SharedRows
from skvbgp.spectrum._features import features
from skvbgp.spectrum._neighbours import Alone, NearPlaces, Neighbours, Pieces, group_places
from skvbgp.spectrum._rows import Rows
from tests.oracles import spectrum as oracle
from tests.spectrum.cases import HYPER, D, M, condition, draw, make_data, small
from tests.spectrum.test_regressor import KNOWN, parts

# -- the conditional -------------------------------------------------------------------------


# fewer and more rows than features, and places alone, in groups or in pieces
in_groups = pytest.mark.parametrize(
    ("k", "way"), [*((k, way) for k in (1, 4) for way in ("alone", "group", "piece")), (9, "alone")]
)


def choose_way(way, monkeypatch):
    """Have places take one way, whatever it costs."""
    costs = {"alone": ("_ALONE",), "group": ("_SMALL", "_ENTRY"), "piece": ("_WHOLE",)}
    for one, names in costs.items():
        for name in names:
            monkeypatch.setattr(_neighbours, name, 0.0 if one == way else 1e12)


@pytest.fixture
def grouping(way, monkeypatch):
    choose_way(way, monkeypatch)
    monkeypatch.setattr(_neighbours, "_PIECE", 2)
    monkeypatch.setattr(_neighbours, "_CALLS", 1e9 if way == "alone" else 0.0)


@in_groups
@pytest.mark.parametrize("stack_size", [1, 100, 10**6])
@pytest.mark.every_nth("k", 2)
def test_each_row_has_the_conditional_of_its_neighbours(
    rng, rows, R, k, grouping, stack_size, monkeypatch
):
    monkeypatch.setattr(_neighbours, "_STACK_SIZE", stack_size)
    (X, y), X_new = rows, rng.standard_normal((5, D))
    near = np.array([oracle.nearest(x, X, k) for x in X_new])
    local, Phi = Neighbours.of(Rows(X, y), near), features(X_new, R)
    expected = [
        oracle.test_conditional(x, X[index], y[index], R, np.zeros(2 * M), 0.0, 1.3, 0.2)
        for x, index in zip(X_new, near, strict=True)
    ]
    for full in (False, True):
        mean, spread = condition(local, Phi, R, full=full)
        variance = np.diag(spread) if full else spread
        np.testing.assert_allclose(np.column_stack([mean, variance]), expected, rtol=1e-8)
    covariance = oracle.neighbour_errors(X_new, X, near, R, 1.3, 0.2)
    np.testing.assert_allclose(spread, covariance, rtol=1e-8, atol=1e-10)


@in_groups
def test_draws_are_those_of_the_block_of_each_row_s_neighbours(rng, rows, R, k, grouping):
    (X, y), X_new = rows, rng.standard_normal((5, D))
    near = np.array([oracle.nearest(x, X, k) for x in X_new])
    known, Phi = Rows(X, y), features(X_new, R)
    s, noise = rng.standard_normal((2 * M, 3)), rng.standard_normal((len(y), 3))
    mean, errors = draw(Neighbours.of(known, near), Phi, R, s, noise[np.unique(near)])
    for i, index in enumerate(near):
        own = draw(SharedRows(known.take(index)), Phi[i : i + 1], R, s, noise[index])
        np.testing.assert_allclose(mean[i], own[0][0], rtol=1e-8)
        np.testing.assert_allclose(errors[i], own[1][0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("full", [False, True])
def test_without_neighbours_rows_have_the_prior(rng, rows, R, full):
    """As the single row of a block has that is left out."""
    Phi, near = features(rng.standard_normal((3, D)), R), np.empty((3, 0), dtype=np.intp)
    mean, spread = condition(Neighbours.of(Rows(*rows), near), Phi, R, full=full)
    prior = 1.3 / M * (Phi @ Phi.T)
    np.testing.assert_array_equal(mean, np.zeros(3))
    np.testing.assert_allclose(spread, prior if full else np.diag(prior), rtol=1e-12)


@pytest.mark.parametrize("n", [4, 12])
@pytest.mark.parametrize("full", [False, True])
def test_all_rows_as_neighbours_are_a_block(rng, rows, R, n, full):
    known = Rows(*rows).take(slice(n))
    Phi, near = features(rng.standard_normal((5, D)), R), np.tile(np.arange(n), (5, 1))
    locals_ = Neighbours.of(known, near), SharedRows(known)
    for one, other in zip(*(condition(local, Phi, R, full=full) for local in locals_), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


def test_only_rows_that_are_near_to_some_are_passed_on(rows):
    X, y = rows
    near = np.array([[7, 2], [2, 9]])
    local = Neighbours.of(Rows(X, y), near)
    np.testing.assert_array_equal(local.rows.y, y[[2, 7, 9]])
    np.testing.assert_array_equal(local.rows.X[local.near], X[np.sort(near, axis=1)])


# -- predictions -----------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [-0.3, 0.0, 0.4])
@pytest.mark.parametrize("k", [5, 30])
@pytest.mark.every_nth("gamma", 3)
def test_predictions_are_the_literal_conditional_of_the_nearest_rows(gamma, k, monkeypatch):
    """In several groups; near means that of standardised inputs."""
    monkeypatch.setattr("skvbgp.spectrum._posterior._TILE_ROWS", 4)
    X, y = make_data()
    X_new, _ = make_data(10, seed=1)
    options = {"posterior": "point", "n_samples": 1, "gamma": gamma, "n_neighbors": k}
    model = small(**options).fit(X, y)
    R, _, signal, noise = parts(model)
    state = model._state
    z = np.random.RandomState(state.seed).standard_normal((1, state.q.structure.size))
    s = state.q.sample(z)[0, state.q.structure.weights] * state.target.unit
    mean, std = model.predict(X_new, return_std=True, include_noise=False)
    offset, spread = X.mean(axis=0), X.std(axis=0)
    for i, x in enumerate(X_new):
        near = oracle.nearest(x / spread, X / spread, k)
        given = X[near] - offset, y[near] - y.mean()
        expected = oracle.test_conditional(x - offset, *given, R, s, gamma, signal, noise)
        assert mean[i] == pytest.approx(expected[0] + y.mean(), rel=1e-7)
        assert std[i] ** 2 == pytest.approx(expected[1], rel=1e-5)


@pytest.mark.parametrize("n_neighbors", [60, 1000])
@pytest.mark.every_nth("n_neighbors", 2)
def test_neighbours_that_are_all_rows_equal_a_single_block(n_neighbors):
    X, y = make_data()
    near = small(n_neighbors=n_neighbors, **KNOWN).fit(X, y)
    single = small(**{**KNOWN, "n_blocks": 1, "n_neighbors": None}).fit(X, y)
    for options in ({"return_std": True}, {"return_cov": True}):
        for one, other in zip(
            near.predict(X, **options), single.predict(X, **options), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


def test_the_covariance_tends_to_that_of_all_rows():
    """Rows that are predicted from others of their own are not independent."""
    X, y = make_data()
    model, covariances = small(**KNOWN).fit(X, y), []
    for k in (10, 30, 59, 60):
        _, covariance = model.set_params(n_neighbors=k).predict(X[:20] + 0.1, return_cov=True)
        covariances.append(covariance)
    *near, exact = covariances
    errors = [np.abs(covariance - exact).max() for covariance in near]
    assert errors[0] > 1.5 * errors[1] > 15.0 * errors[2]
    assert np.abs(exact - np.diag(np.diag(exact))).max() > 5.0 * errors[2]


def test_rows_are_predicted_alone_as_in_a_batch_and_by_workers():
    X, y = make_data()
    model = small(n_neighbors=9).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    alone = np.array([model.predict(x[None], return_std=True) for x in X[:7]])[:, :, 0]
    np.testing.assert_allclose(alone, np.column_stack([mean, std])[:7], rtol=1e-7)
    with parallel_config("threading", n_jobs=2):
        np.testing.assert_array_equal(model.predict(X), mean)


def test_neighbours_are_read_at_prediction_and_do_not_matter_to_the_global_function():
    X, y = make_data()
    model = small(n_neighbors=None).fit(X, y)
    by_block = model.predict(X)
    assert not np.allclose(model.set_params(n_neighbors=9).predict(X), by_block)
    np.testing.assert_array_equal(model.set_params(n_neighbors=None).predict(X), by_block)
    whole = model.set_params(gamma=1.0).predict(X)
    np.testing.assert_array_equal(model.set_params(n_neighbors=9).predict(X), whole)


# -- streams ---------------------------------------------------------------------------------


def test_new_rows_are_known_to_the_next_prediction():
    X, y = make_data(100)
    model = small(n_neighbors=1, learn_hyperparameters=False).fit(X[:60], y[:60])
    model.predict(X)
    for rows in (slice(60, 61), slice(61, 100)):
        model.partial_fit(X[rows], y[rows])
        scaled = model._state.coordinates.scaled(X[rows])
        near = model._state.rows.neighbourhoods.find(scaled, 1)[:, 0]
        known = model._state.rows.all_rows.take(near)
        np.testing.assert_array_equal(known.X, scaled)
        np.testing.assert_allclose(model._state.target.original(known.y), y[rows])
    before = model.predict(X[:1] + 1e-3)
    assert abs(model.partial_fit(X[:1] + 1e-3, y[:1] + 9.0).predict(X[:1] + 1e-3) - before) > 1.0


def test_what_is_searched_is_not_pickled():
    X, y = make_data()
    model = small(n_neighbors=9).fit(X, y)
    before = pickle.dumps(model)
    mean = model.predict(X)
    assert "neighbourhoods" in vars(model._state.rows)
    after = pickle.dumps(model)
    assert len(after) == len(before)
    np.testing.assert_allclose(pickle.loads(after).predict(X), mean, atol=1e-12 * y.std())


def test_equal_rows_have_finite_answers():
    X, y = make_data()
    X = np.repeat(X[:6], 10, axis=0)
    for options in ({}, {**KNOWN, "noise_variance": 4e-13}):
        mean, std = small(n_neighbors=15, **options).fit(X, y).predict(X, return_std=True)
        assert np.isfinite(mean).all() and np.isfinite(std).all()


@pytest.mark.parametrize("n_neighbors", [0, 2.5, "auto"])
def test_wrong_numbers_of_neighbours_have_a_clear_error(n_neighbors):
    with pytest.raises(ValueError, match="n_neighbors"):
        small(n_neighbors=n_neighbors).fit(*make_data())


# -- places that share what their neighbours have in common --------------------------------------

#: Neighbours of three places each: some, none and all in common.
NEAR = {
    "some": [[0, 2, 3, 8], [2, 3, 5, 8], [1, 2, 4, 8]],
    "none": [[0, 1, 2, 3], [4, 5, 6, 7], [3, 8, 9, 10]],
    "all": [[1, 4, 6, 7]] * 3,
}


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("near", NEAR.values(), ids=NEAR)
def test_weights_are_those_of_each_place_s_own_system(rng, near, p):
    """Of two draws of the features, for several lines of each place."""
    near = np.array(near)
    known, Phi = rng.standard_normal((2, 11, 6)), rng.standard_normal((2, 3, p, 6))
    W = NearPlaces.of(np.arange(3), near).weigh(known, Phi, 0.3)
    assert W.shape == (2, 3, p, 4)
    for s in range(2):
        for i, index in enumerate(near):
            own = known[s, index]
            expected = np.linalg.solve(own @ own.T + 0.3 * np.eye(4), own @ Phi[s, i].T).T
            assert_allclose(W[s, i], expected, rtol=1e-9, atol=1e-12)


def nearest(places, X, k):
    distance = np.sum((places[:, None] - X) ** 2, axis=2)
    return np.sort(np.argsort(distance, axis=1)[:, :k], axis=1)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("near", NEAR.values(), ids=NEAR)
@pytest.mark.parametrize("pieces", [[[0, 1, 2]], [[2, 0], [1]]])
def test_weights_of_pieces_are_those_of_each_place_s_own_system(rng, near, p, pieces):
    near = np.array(near)
    known, Phi = rng.standard_normal((near.max() + 1, 6)), rng.standard_normal((3, p, 6))
    W = Pieces(near, [np.array(piece) for piece in pieces]).weigh(known, Phi, 0.3)
    for i, index in enumerate(near):
        own = known[index]
        expected = np.linalg.solve(own @ own.T + 0.3 * np.eye(4), own @ Phi[i].T).T
        assert_allclose(W[i], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 13, 64])
def test_each_place_is_in_one_piece_of_near_ones(rng, n, monkeypatch):
    choose_way("piece", monkeypatch)
    monkeypatch.setattr(_neighbours, "_PIECE", 4)
    X, places = rng.uniform(size=(60, D)), rng.uniform(size=(n, D))
    pieces = group_places(X, nearest(places, X, 5), 40).pieces
    assert_array_equal(np.sort(np.concatenate(pieces)), np.arange(n))
    assert max(map(len, pieces)) < 8


@pytest.mark.parametrize("n", [1, 2, 13, 64])
def test_each_place_is_in_one_group_of_near_ones(rng, n, monkeypatch):
    choose_way("group", monkeypatch)
    X, places = rng.uniform(size=(60, D)), rng.uniform(size=(n, D))
    near = nearest(places, X, 5)
    groups = group_places(X, near, 40)
    assert_array_equal(np.sort(np.concatenate([group.places for group in groups])), np.arange(n))
    for group in groups:
        own = near[group.places]
        assert_array_equal(own[group.is_shared].reshape(len(own), -1), [group.shared] * len(own))
        rest = own[~group.is_shared].reshape(len(own), -1)
        assert_array_equal(group.others[group.own], rest)


def test_groups_are_larger_the_nearer_their_places_are(rng, monkeypatch):
    monkeypatch.setattr(_neighbours, "_WHOLE", 1e12)
    X = rng.uniform(size=(400, D))
    sizes = [
        len(group_places(X, nearest(width * rng.uniform(size=(64, D)), X, 10), 40))
        for width in (0.01, 0.1, 1.0)
    ]
    assert sizes[0] == 1 and sizes == sorted(sizes) and sizes[2] > sizes[1]


def test_pieces_are_cut_at_medians_of_the_widest_input(rng):
    X = rng.permutation(8)[:, None] * [10.0, 1.0] + [[0.0, 0.0]]
    assert_array_equal(np.argsort(X[:, 0]), _neighbours._halve(X, 3))
    pieces = np.split(_neighbours._halve(X, 1), 2)
    assert [set(X[piece, 0]) for piece in pieces] == [{0, 10, 20, 30}, {40, 50, 60, 70}]


def test_places_are_alone_where_they_have_little_in_common(rng):
    X = rng.uniform(size=(400, 8))
    assert isinstance(group_places(X, nearest(rng.uniform(size=(16, 8)), X, 6), 200), Alone)
    of_features = group_places(X, nearest(X[:9], X, 3), 2)  # systems that neighbours do not share
    assert isinstance(of_features, Alone)


def test_near_places_with_little_in_common_share_products(rng):
    """A few of many inputs: whole systems take less than what remains of them."""
    X = rng.uniform(size=(60, 8))
    places = rng.uniform(size=(256, 8))
    assert isinstance(group_places(X, nearest(places, X, 20), 200), Pieces)


def test_pieces_have_not_too_many_entries(rng, monkeypatch):
    places, X = rng.uniform(size=(64, D)), rng.uniform(size=(30, D))
    near = nearest(places, X, 4)
    choose_way("piece", monkeypatch)
    monkeypatch.setattr(_neighbours, "_MOST_ENTRIES", 64 * 4**2)
    assert isinstance(group_places(X, near, 40), Pieces)
    monkeypatch.setattr(_neighbours, "_MOST_ENTRIES", 64 * 4**2 - 1)
    assert not isinstance(group_places(X, near, 40), Pieces)


def test_many_rows_are_predicted_in_larger_tiles(monkeypatch):
    X, y = make_data()
    model = small(n_neighbors=9).fit(X, y)
    expected = model.predict(X, return_std=True)
    monkeypatch.setattr("skvbgp.spectrum._posterior._LARGE_TILE", 15)
    monkeypatch.setattr("skvbgp.spectrum._posterior._MANY_TASKS", 4)
    sizes, condition = [], Neighbours.condition

    def record(self, *args, **options):
        sizes.append(len(self.near))
        return condition(self, *args, **options)

    monkeypatch.setattr(Neighbours, "condition", record)
    assert_allclose(model.predict(X, return_std=True), expected, rtol=1e-8)
    assert sizes == [15] * 4
    model.predict(X[:59])
    assert sizes[4:] == [59]


def test_draws_are_taken_some_at_a_time(rng, monkeypatch):
    """As many as they may be, one after the other, with the same answers."""
    X, places = rng.uniform(size=(30, D)), rng.uniform(size=(9, D))
    local = Neighbours.of(Rows(X, X[:, 0]), nearest(places, X, 4))
    draws = [rng.standard_normal((M, D)) for _ in range(5)]
    choose_way("group", monkeypatch)

    def lines(R):
        return np.cos(places @ np.tile(R, (2, 1)).T)

    def answers(least):
        monkeypatch.setattr("skvbgp.spectrum._neighbours._LEAST_DRAWS", least)
        monkeypatch.setattr("skvbgp.spectrum._neighbours._DRAWS_SIZE", 1)
        return list(local.condition(lines, draws, HYPER, full=False))

    for one, other in zip(answers(1), answers(3), strict=True):
        for first, second in zip(one, other, strict=True):
            assert_allclose(first, second, rtol=1e-10)
