"""The global part, and what near rows say of what it leaves."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.gp import VBGPRegressor, _rows, _sum
from skvbgp.gp._inducing import GlobalPart, SumPosterior
from skvbgp.gp._mixture import LocalMoments, Mixture, Predicted
from skvbgp.gp._posterior import NeighbourPosterior
from skvbgp.gp._process import Process
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._rows import Rows
from skvbgp.gp.search._steep_lines import leave_lines
from skvbgp.kernels import RBF, Linear, Matern
from tests.derivatives import numerical_gradient
from tests.gp.cases import make_data, small
from tests.means import check_means
from tests.oracles import gp as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

PROCESS = Process((1.3 * Matern([1.0, 2.5], nu=2.5)).bind(2), 0.04, np.inf)
FRAME = Coordinates(np.array([1.0, -2.0]), np.array([2.0, 0.5])), Target(3.0, 1.5)


def make_part(rng, n=50, m=7, *, with_noise=True, order=None):
    X, y = make_data(n)
    noise = RowNoise(rng.uniform(0.5, 3.0, n), rng.uniform(0.0, 1.0, n)) if with_noise else None
    rows = Rows().plus(X, y, noise)
    Z = FRAME[0].scaled(X[:m])
    empty = GlobalPart(PROCESS, *FRAME, Z, np.empty(0, dtype=int), WhitenedGaussian.standard(m))
    return empty.given(rows, rng.permutation(n) if order is None else order), rows


def predict_dense(part, rows, places):
    """The same from matrices of all rows."""
    coordinates, target = FRAME
    t = np.full(len(rows), PROCESS.noise)
    if rows.noise is not None:
        t = (t + rows.noise.variance / target.unit**2) / rows.noise.weight
    known = coordinates.scaled(rows.X), target.scaled(rows.y), t
    mean, covariance = oracle.predict_sparse(
        PROCESS.kernel, part.Z, *known, coordinates.scaled(places)
    )
    return target.original(mean), covariance * target.unit**2


@pytest.mark.parametrize("with_noise", [False, True])
def test_it_is_the_sparse_process_of_all_rows(rng, with_noise):
    part, rows = make_part(rng, with_noise=with_noise)
    places = np.vstack([rows.X[:5] + 0.2, [[30.0, 30.0]]])
    mean, covariance = predict_dense(part, rows, places)
    assert_allclose(part.mean(places), mean, atol=1e-5)
    found_mean, variance = part.moments(places)
    assert_allclose(found_mean, mean, atol=1e-5)
    assert_allclose(variance, np.diagonal(covariance), atol=1e-5)
    assert_allclose(part.covariance(places), covariance, atol=1e-5)


def test_far_away_it_is_as_uncertain_as_before(rng):
    part, rows = make_part(rng)
    mean, variance = part.moments(np.array([[1e3, 1e3]]))
    assert_allclose(mean, FRAME[1].mean)
    assert_allclose(variance, part.average_prior(rows.X))


def test_a_priori_places_differ_where_there_are_lines(rng):
    part, rows = make_part(rng)
    part = replace(part, process=replace(PROCESS, kernel=(0.5 * Linear(1.0)).bind(2)))
    diagonal = np.diagonal(part.kernel(part.coordinates.scaled(rows.X)))
    assert_allclose(part.average_prior(rows.X), diagonal.mean() * part.target.unit**2)


def test_rows_are_left_out_as_if_they_were_not_known(rng):
    order = rng.permutation(50)[:40]
    part, rows = make_part(rng, order=order)
    index = np.array([order[3], np.setdiff1d(np.arange(50), order)[0]])
    mean, variance = part.leave_out(part.subtract(rows), index)
    for i, row in enumerate(index):
        expected = part.given(rows, order[order != row]).moments(rows.X[[row]])
        assert_allclose([mean[i : i + 1], variance[i : i + 1]], expected, rtol=1e-7)


def test_gradient(rng):
    part, rows = make_part(rng)
    x = rows.X[3] + 0.1
    mean, variance = part.measure_gradient(x[None])
    assert_allclose(mean[0], numerical_gradient(lambda x: part.mean(x[None])[0], x), atol=1e-6)
    for j, step in enumerate(1e-3 * np.eye(2)):
        K = part.covariance(np.array([x - step, x + step]))
        assert_allclose(variance[0, j], (K[0, 0] + K[1, 1] - 2.0 * K[0, 1]) / 4e-6, rtol=1e-2)


@pytest.mark.thorough
def test_draws_have_its_moments(rng):
    part, rows = make_part(rng)
    places = np.vstack([rows.X[:3] + 0.2, [[9.0, 0.0]]])
    draws = part.draw(4000, np.random.RandomState(0))
    values, covariance = draws(places) - part.mean(places)[:, None], part.covariance(places)
    std = np.sqrt(np.diagonal(covariance))
    assert_allclose(values.mean(axis=1) / std, 0.0, atol=0.08)
    assert_allclose(np.cov(values) / np.outer(std, std), covariance / np.outer(std, std), atol=0.12)
    slopes = draws.gradient(places)
    assert_allclose(slopes.std(axis=2), np.sqrt(part.measure_gradient(places)[1]), rtol=0.15)


def test_draws_have_its_moments_where_jitter_is_more_than_what_is_open(rng):
    """Between inducing inputs of a smooth function of large variance."""
    part, rows = make_part(rng, m=40, with_noise=False)
    process = replace(PROCESS, kernel=(1e4 * RBF([10.0, 20.0])).bind(2), noise=1e-5)
    part = replace(part, process=process).given(rows, np.arange(50))
    places = np.vstack([rows.X[40:43], rows.X[40:43] + [2.0, 0.5]])
    draws = part.draw(2000, np.random.RandomState(0))
    assert_allclose(np.var(draws(places), axis=1), part.moments(places)[1], rtol=0.15)


def test_covariances_and_draws_are_those_of_both_parts(rng):
    """Calibrated together."""
    part, rows = make_part(rng)
    mixture = Mixture.of(Process((0.5 * RBF(1.0)).bind(2), 0.04, np.inf))
    given = replace(mixture, calibration=4.0), part.subtract(rows), *FRAME, np.ones(2), 60
    posterior, places = SumPosterior(*given, shared=part), rows.X[:4] + 0.3
    covariance = posterior.joint(places, include_noise=False)[1]
    local = NeighbourPosterior(*given).joint(places, include_noise=False)[1]
    assert_allclose(covariance, local + 4.0 * part.covariance(places), rtol=1e-6)
    draws = posterior.draw_functions(500, np.random.RandomState(0))(places)
    assert_allclose(draws.std(axis=1), np.sqrt(np.diagonal(covariance)), rtol=0.15)


@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.every_nth("n_groups", 2)
def test_hyperparameters_are_those_of_exact_processes(n_groups, rng, monkeypatch):
    """Learned from groups of random rows, here all rows: at a maximum of their evidence."""
    monkeypatch.setattr(_sum, "_GROUP_SIZE", 60 // n_groups)
    monkeypatch.setattr(_rows, "_ROWS_OF_INPUT", 30)  # of two inputs
    X, y = make_data(60)
    rows, start = Rows().plus(X, y), replace(PROCESS, noise=0.1)
    order = rng.permutation(60)
    part = _sum.learn_part(start, *FRAME, rows, order, 10, 1e-9)
    X, y = FRAME[0].scaled(X), FRAME[1].scaled(y)
    groups = order.reshape(n_groups, -1)

    def objective(process):
        evidence = sum(process.log_evidence(X[index], y[index]) for index in groups)
        return evidence + process.log_prior()[0]

    best = objective(part.process)
    assert best > objective(start) + 1.0
    for step in 0.05 * np.eye(len(part.process.vector)):
        assert objective(part.process.with_vector(part.process.vector + step)) < best + 1e-3
        assert objective(part.process.with_vector(part.process.vector - step)) < best + 1e-3


# -- the estimator ---------------------------------------------------------------------------------


def fit_sum(n=80, **parameters):
    X, y = make_data(n)
    return small(n_neighbors=12, n_inducing=15, **parameters).fit(X, y), X, y


def test_prediction_is_the_sum_of_both(rng):
    """By process: the local one, dense, given what the global one leaves of the targets."""
    model, X, y = fit_sum(kernel=RBF())
    assert model.n_inducing_ == 15
    state, places = model._state, X[:4] + 0.15
    shared, target, mixture = state.shared, state.frames.target, state.mixture
    assert_allclose(state.rows.y, y - shared.mean(X), atol=1e-12)
    assert_array_equal(shared.known, np.arange(80))
    local = replace(state, shared=None).posterior
    parts, (mean, variance) = local.measure(places), shared.moments(places)
    assert len(mixture.processes) == 1
    expected = target.original(parts.mean[:, 0]) + mean
    unit2 = target.unit**2
    total = mixture.calibration * ((parts.variance + parts.noise)[:, 0] * unit2 + variance)
    found_mean, found_std = model.predict(places, return_std=True)
    assert_allclose(found_mean, expected)
    assert_allclose(found_std**2, total)
    check_means(state.posterior, places)
    check_means(replace(state, k=80).posterior, places)  # all rows predict


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", [RBF(), Matern(nu=1.5)], ids=repr)
def test_covariance_draws_and_rows_left_out_agree_with_predictions(kernel):
    model, X, _ = fit_sum(kernel=kernel)
    places = np.vstack([X[:3] + 0.2, [[8.0, 9.0]]])
    mean, covariance = model.predict(places, return_cov=True, include_noise=False)
    std = model.predict(places, return_std=True, include_noise=False)[1]
    assert_allclose(np.sqrt(np.diagonal(covariance)), std)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    functions = model.sample_function(2000)
    values = functions(places)
    assert_allclose((values.mean(axis=1) - mean) / std, 0.0, atol=0.1)
    assert_allclose(values.std(axis=1) / std, 1.0, atol=0.15)
    gradient, spread = model.predict_gradient(places)
    slopes = functions.gradient(places)
    assert_allclose(slopes.mean(axis=2), gradient, atol=0.1 * spread.max())
    assert_allclose(slopes.std(axis=2) / spread, 1.0, atol=0.15)
    expected = [numerical_gradient(lambda x: model.predict(x[None])[0], x) for x in places]
    assert_allclose(gradient, expected, atol=1e-5)
    assert_allclose(pickle.loads(pickle.dumps(model)).predict(places), mean)
    left_mean, left_std = model.loo_predict()
    known_mean, known_std = model.predict(X, return_std=True)
    y = make_data(80)[1]
    assert np.mean((y - left_mean) ** 2) > np.mean((y - known_mean) ** 2)
    assert left_std.mean() > known_std.mean()
    assert_allclose(model.feature_importances_.sum(), 1.0)


def test_far_from_all_rows_intervals_hold_the_function():
    model, X, y = fit_sum()
    _, std = model.predict([[1e3, -1e3]], return_std=True, include_noise=False)
    state, alone = model._state, replace(model._state, shared=None)
    assert std[0] > 0.5 * y.std()
    prior = state.shared.average_prior(X)
    assert std[0] ** 2 > state.mixture.calibration * prior
    assert_allclose(state.covariance, alone.covariance + prior)


@pytest.mark.thorough
def test_a_stream_keeps_the_global_part_until_rows_have_doubled():
    model, _, _ = fit_sum()
    shared = model._state.shared
    X, y = make_data(200, seed=1)
    model.partial_fit(X[:10], y[:10])
    assert model._state.shared is shared
    assert_allclose(model._state.observed.y[-10:], y[:10])
    assert_allclose(model._state.rows.y[-10:], y[:10] - shared.mean(X[:10]))
    model.partial_fit(X[10:], y[10:])
    assert model._state.shared is not shared
    again = small(n_neighbors=12, n_inducing=15)
    both = np.vstack([make_data(80)[0], X]), np.concatenate([make_data(80)[1], y])
    again.fit(*both)
    assert_allclose(model._state.observed.y, both[1])
    priors = [one._state.shared.average_prior(X) for one in (model, again)]
    assert abs(priors[0] / priors[1] - 1.0) < 1.0


def test_equal_rows_are_one_with_a_weight(rng):
    X, y = make_data(60)
    weight, order = rng.integers(1, 3, 60), rng.permutation(60)
    model = small(n_neighbors=12, n_inducing=10)
    expected = model.fit(X, y, sample_weight=weight).predict(X, return_std=True)
    repeated = np.repeat(order, weight[order])
    found = model.fit(X[repeated], y[repeated]).predict(X, return_std=True)
    assert_allclose(found, expected, rtol=1e-6)
    noisy = model.fit(X, y, y_var=np.where(np.arange(60) == 0, 1e6, 0.0))
    assert_allclose(noisy.predict(X[:1]), y[:1], atol=2.0)


def test_what_was_observed_at_a_row_that_is_left_out_is_a_target(rng):
    """Not what the global part leaves of it; observed often enough, it is predicted."""
    X, y = make_data(60)
    weight = rng.integers(1, 4, 60)
    state = small(n_neighbors=12, n_inducing=10).fit(X, y, weight)._state
    parts = state.posterior.leave_out(np.arange(60), np.full(60, 1e12))
    expected = state.frames.target.scaled(state.observed.y)[:, None]
    assert_allclose(parts.mean, np.broadcast_to(expected, parts.mean.shape), atol=1e-6)


@pytest.mark.thorough
def test_categories_outputs_and_a_warm_start(rng):
    X, y = make_data(80)
    X = np.column_stack([X, rng.integers(0, 3, 80)])
    Y = np.column_stack([y + X[:, 2], np.where(np.arange(80) < 5, np.nan, -y)])
    model = small(n_neighbors=12, n_inducing=15, categorical_features=[2], warm_start=True)
    model.fit(X, Y)
    assert_array_equal(model.n_inducing_, [15, 15])
    assert model.predict(X).shape == (80, 2)
    assert model.sample_function(3).gradient(X[:2]).shape == (2, 2, 3, 3)
    assert_array_equal(model.fit(X, Y).n_inducing_, [15, 15])


OBSTACLES = {
    "learn_hyperparameters=False": {"learn_hyperparameters": False},
    "forgetting": {"forgetting": 0.9},
    "output_covariance": {"output_covariance": "learned"},
    "output_hyperparameters='shared'": {"output_hyperparameters": "shared"},
    "missing entries": {},
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_where_there_can_be_none(name):
    X, y = make_data(30)
    if name.startswith("output_"):
        y = np.column_stack([y, y**2])
    if name == "missing entries":
        X[0, 0] = np.nan
    parameters = {"n_neighbors": 12, "max_iter": 1, **OBSTACLES[name]}
    message = "NaN" if name == "missing entries" else f"n_inducing=5 is not possible with {name}"
    with pytest.raises(ValueError, match=message):
        small(n_inducing=5, **parameters).fit(X, y)
    assert np.all(small(n_inducing="auto", **parameters).fit(X, y).n_inducing_ == 0)


def test_a_gap_that_comes_later_leaves_the_model_as_it_was():
    model, X, y = fit_sum(max_iter=1)
    before = model.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit([[np.nan, 1.0]], [10.0])
    assert_array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match="NaN"):
        model.predict([[np.nan, 1.0]])


def test_few_rows_are_all_neighbours():
    X, y = make_data(40)
    model = small(n_inducing=5, max_iter=1).fit(X, y)
    expected = small(n_inducing=None, max_iter=1).fit(X, y)
    assert model.n_inducing_ == 0
    assert_array_equal(model.predict(X), expected.predict(X))


@pytest.mark.thorough
def test_numbers_of_neighbours_compete_before_the_judges_there_are():
    """Of 420 rows, 105 judge: fewer than may tell how many neighbours pay."""
    X, y = make_data(420)
    model = small(n_inducing=5, max_iter=1).fit(X, y)
    assert model.n_inducing_ == 5
    assert model.n_neighbors_ in (64, 128, 256, 400)
    assert np.std(y - model.predict(X)) < 0.5 * np.std(y)


@pytest.fixture
def judged(monkeypatch):
    """What the global part was learned from, and which rows have judged."""
    monkeypatch.setattr(_sum, "_LEAST_ROWS", 200)
    seen = {"trained": [], "judges": []}
    learn, rest = _sum.learn_part, _sum._learn_rest

    def watch_learn(start, coordinates, target, rows, order, *others):
        seen["trained"].append(order)
        return learn(start, coordinates, target, rows, order, *others)

    def watch_rest(learner, start, part, held, end_pass):
        seen["judges"].append(held)
        return rest(learner, start, part, held, end_pass)

    monkeypatch.setattr(_sum, "learn_part", watch_learn)
    monkeypatch.setattr(_sum, "_learn_rest", watch_rest)
    return seen


def auto(**parameters):
    return VBGPRegressor(n_neighbors=10, max_iter=2, random_state=0, **parameters)


@pytest.mark.thorough
def test_auto_takes_it_where_all_rows_have_much_in_common(judged, rng):
    """A quadratic form of six inputs: ten rows know little of it."""
    X = rng.standard_normal((240, 6))
    y = np.sum(X @ rng.standard_normal((6, 6)) * X, axis=1) + rng.standard_normal(240)
    model = auto().fit(X, y)
    assert model.n_inducing_ == 180  # all that do not judge
    assert len(judged["judges"][0]) == 60
    assert not np.intersect1d(judged["judges"][0], judged["trained"][0]).size
    alone = auto(n_inducing=None).fit(X, y)
    gain = model.log_predictive_density_ - alone.log_predictive_density_
    assert gain > 0.01
    assert model.n_iter_ > alone.n_iter_


@pytest.mark.thorough
def test_auto_is_near_rows_alone_where_these_know_more(judged, rng, monkeypatch):
    monkeypatch.setattr(_sum, "_N_INDUCING", 10)
    X = rng.uniform(-1.0, 1.0, (240, 2))
    y = np.sin(20.0 * X[:, 0]) * np.sign(X[:, 1]) + 0.05 * rng.standard_normal(240)
    y += 5.0 * X[:, 0]  # near rows see it
    model, alone = auto().fit(X, y), auto(n_inducing=0).fit(X, y)
    assert len(judged["trained"]) == 1
    assert judged["judges"] == []
    assert model.n_inducing_ == 0
    assert_array_equal(model.predict(X, return_std=True), alone.predict(X, return_std=True))


@pytest.mark.thorough
@pytest.mark.parametrize("height, m", [(0.3, 500), (3.0, 10)])
def test_auto_sees_slopes_that_near_rows_cannot(judged, rng, monkeypatch, height, m):
    """The difference of inputs that are nearly equal, and a wave, which may be most of y.

    Then near rows know more than ten inducing inputs do.
    """
    monkeypatch.setattr(_sum, "_N_INDUCING", m)
    a, c, difference, noise = rng.standard_normal((4, 600))
    X = np.column_stack([a, a + 0.01 * difference, c])
    f = difference + height * np.sin(6.0 * c)
    model = VBGPRegressor(n_neighbors=64, max_iter=10, random_state=0)
    model.fit(X[:500], (f + 0.1 * noise)[:500])
    assert model.n_inducing_ > 0
    mean, std = model.predict(X[500:], return_std=True)
    assert np.std(mean - f[500:]) < 0.15
    assert np.mean(std) < 0.25
    functions = model.sample_function(200)
    places = X[500:505]
    mean, std = model.predict(places, return_std=True, include_noise=False)
    assert_allclose((functions(places).mean(axis=1) - mean) / std, 0.0, atol=0.3)
    assert_allclose(model.predict_gradient(places)[0][:, 1], 100.0, rtol=0.1)


@pytest.mark.thorough
def test_auto_needs_rows_and_a_search(judged):
    X, y = make_data(210)
    small(Matern(nu=1.5), n_inducing="auto", n_neighbors=8, max_iter=1).fit(X, y)
    auto().fit(X[:190], y[:190])
    assert judged["trained"] == []


@pytest.mark.parametrize("slope", [0.2, 0.3, 0.4])
def test_lines_that_are_left_are_those_of_rows_as_often_as_they_count(slope):
    """A row of weight 2 is the row twice, and what lines have to gain is so for each of both."""
    rng = np.random.default_rng(0)
    X, error = rng.standard_normal((60, 2)), rng.standard_normal(60)
    count = rng.integers(1, 5, 60)
    y, none = error + slope * X[:, 0], np.zeros((60, 1))
    parts = LocalMoments(none, none, none + 1.0, none)

    def judge(index, weight=None):
        left_out = Predicted(parts.take(index), y[index], weight)
        return leave_lines(Mixture.of(PROCESS), left_out, X[index])

    assert judge(np.arange(60), count) == judge(np.repeat(np.arange(60), count)) == (slope > 0.2)
