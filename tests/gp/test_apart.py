"""Outputs that stay apart from those that learn from each other."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import t as student_t

from skvbgp import VBGPRegressor
from skvbgp.base import _joint_learner
from skvbgp.base._apart import compare_alone, hide_values
from skvbgp.gp._gradient import measure_relevance
from skvbgp.gp._joint_outputs import GPJointLearner, ListedRows, score_parted, take_output
from skvbgp.gp._mixture import OutputNoise
from skvbgp.gp._rows import Rows
from skvbgp.kernels import Matern
from tests.fits import train_until
from tests.functions import check_first_slope, check_joint_draws
from tests.gp.cases import small, small_outputs
from tests.means import check_means
from tests.oracles import gp as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

PLACES = np.array([[0.3, -0.2], [1.0, 1.5], [-2.5, 2.2]])


def draw_data(n=70, seed=0):
    """A smooth function of the first input, and a rough one of the second with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    first = np.sin(2.0 * X[:, 0]) + 0.01 * rng.standard_normal(n)
    second = 5.0 + 20.0 * np.sign(np.sin(5.0 * X[:, 1])) + 3.0 * rng.standard_normal(n)
    Y = np.column_stack([first, second])
    return X, np.where(rng.random(Y.shape) < 0.4, np.nan, Y)


@pytest.fixture(scope="module")
def data():
    return draw_data()


def make_model(kernel=None, **parameters):
    return small_outputs(kernel, **({"output_covariance": "learned"} | parameters))


@pytest.fixture
def second_apart(monkeypatch):
    """Whatever is better, the second output has a model of its own."""
    compare_with(monkeypatch, np.array([False, True]))


def compare_with(monkeypatch, is_better):
    """A list of what is compared, of which the given ones are better."""
    known = []

    def compare(*given):
        known.append(given)
        return is_better

    monkeypatch.setattr(_joint_learner, "compare_alone", compare)
    return known


def judge(state, rows, hidden):
    return GPJointLearner(None, 2).judge((None, state), ListedRows.of(rows).given, hidden)


def fit_alone(X, y, **parameters):
    """The second output's own model, of the rows in which it was observed."""
    seen = ~np.isnan(y)
    return small_outputs(**parameters).fit(X[seen], y[seen])


# -- who predicts ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_kernels", "unjudged")
@pytest.mark.thorough
def test_outputs_of_other_kinds_stay_apart():
    X, Y = draw_data(200)
    model = VBGPRegressor(output_covariance="learned", random_state=0, max_iter=8).fit(X, Y)
    assert not model.learns_from_others_[1]
    own = VBGPRegressor(random_state=0, max_iter=8).fit(X, Y)
    joint = replace(model._state, apart=(None, None))
    errors = []
    for posterior in (model._state.posterior, own._posterior(), joint.posterior):
        mean, variance = posterior.moments(X, True)
        missing, truth = np.isnan(Y[:, 1]), 5.0 + 20.0 * np.sign(np.sin(5.0 * X[:, 1]))
        errors.append(np.mean((mean - truth[:, None])[missing, 1] ** 2))
    assert_allclose(errors[0], errors[1], rtol=1e-3)
    assert errors[0] < 0.9 * errors[2]


@pytest.mark.usefixtures("second_apart")
@pytest.mark.thorough
def test_rows_of_one_that_are_at_few_places_are_left_out_one_by_one():
    """As those of a model of its own, in whose predictions they are one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (12, 2))[rng.integers(12, size=440)]
    Y = np.column_stack([np.full(440, np.nan), X[:, 0] + rng.standard_normal(440)])
    Y[::4, 0] = X[::4, 1]
    model = make_model(n_neighbors=20, max_iter=1).fit(X, Y)
    apart = model._state.apart[1]
    assert len(apart.known) == 12
    mean, std = model.loo_predict()
    rows, units = model._state.model.rows, model._state.units
    expected = np.full((2, len(rows)), np.nan)
    expected[:, rows.X[:, -1] == 1.0] = apart.leave_out_all()
    own_mean, own_variance = (rows.give_to_seen(part)[1::2] for part in expected)
    assert_allclose(mean[:, 1], units.mean[1] + units.unit[1] * own_mean, rtol=1e-7)
    assert_allclose(std[:, 1], units.unit[1] * np.sqrt(own_variance), rtol=1e-7)


@pytest.mark.parametrize("missing", [0.0, 0.5])
@pytest.mark.every_nth("missing", 2)
def test_outputs_of_one_kind_learn_from_each_other(missing):
    rng = np.random.default_rng(2)
    X = rng.uniform(-2.0, 2.0, (60, 2))
    f = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1])
    Y = np.column_stack([f, -30.0 * f]) + rng.standard_normal((60, 2)) * [0.1, 3.0]
    Y[rng.random(Y.shape) < missing] = np.nan
    model = make_model().fit(X, Y)
    assert model.learns_from_others_.dtype == bool
    assert_array_equal(model.learns_from_others_, [True, True])
    assert not make_model(output_covariance=None).fit(X, Y).learns_from_others_.any()
    assert_array_equal(make_model().fit(X, f).learns_from_others_, [False])


def test_few_values_are_not_tried_alone(data):
    X, Y = data[0], data[1].copy()
    Y[np.flatnonzero(~np.isnan(Y[:, 1]))[9:], 1] = np.nan
    model = make_model().fit(X, Y)
    assert model.learns_from_others_[1]
    assert model._learner().max_passes(Y[:, 0]) < model._full_learner().max_passes(Y.ravel())


def test_what_is_not_learned_does_not_decide(data):
    model = make_model(learn_hyperparameters=False).fit(*data)
    assert model.learns_from_others_.all()


@pytest.mark.parametrize("kind", ["missing", "complete", "repeated", "copied"])
@pytest.mark.every_nth("kind", 4)
def test_choice_is_by_the_density_of_hidden_values(data, monkeypatch, kind):
    """Of dense processes given what is not hidden, Student's t with five degrees of freedom.

    Of rows that the user has given, also where some values are equal; not of copies.
    """
    X, Y = data
    if kind == "repeated":
        X = np.round(X)
    if kind != "missing":
        Y = np.nan_to_num(Y) if kind == "complete" else np.round(np.nan_to_num(Y))
    copied = np.arange(len(Y)) if kind != "copied" else np.repeat(np.arange(35), 2)
    X, Y = X[copied], Y[copied]
    known = compare_with(monkeypatch, np.zeros(2, dtype=bool))
    make_model(n_neighbors=1000, max_iter=3).fit(X, Y)
    ((common, alone, output, row, judge, _),) = known
    (_, model), (values, _) = common
    seen = np.argwhere(~np.isnan(Y))
    if kind == "copied":
        order, seen = np.lexsort([output, row]), seen[seen[:, 0] % 2 == 0]
        assert_array_equal(np.column_stack([row, output])[order], seen)
    else:
        assert_array_equal(np.column_stack([row, output]), seen)
        assert (len(values.rows) < len(seen)) == (kind == "repeated")
    gains = [[], []]
    for hidden in hide_values(row, output, kind != "missing", np.random.RandomState(3)):
        together = measure_densely(model, values, hidden, output)
        assert_allclose(judge(*common, hidden), together, rtol=1e-4, atol=1e-4)
        for j, ((_, one), (own, _)) in enumerate(alone):
            mine = hidden[output == j]
            density = measure_densely(one, own, mine, np.zeros(len(mine), dtype=int))
            assert_allclose(judge(*alone[j], mine), density, rtol=1e-4, atol=1e-4)
            gains[j] += list(density - together[output[hidden] == j])
    is_better = compare_alone(common, alone, output, row, judge, np.random.RandomState(3))
    assert_array_equal(
        is_better,
        [sum(one) > (kind == "missing") * np.linalg.norm(one) for one in gains],
    )


def measure_densely(state, values, hidden, output):
    """Log densities of hidden values by a mixture of exact processes, by the oracle.

    Each is a row as often as it counts.
    """
    copies = np.repeat(np.arange(len(hidden)), values.counts.astype(int))
    X, y = values.rows.X[values.row[copies]], values.rows.y[values.row[copies]]
    _, value = np.unique(copies[hidden[copies]], return_inverse=True)
    hidden, output = hidden[copies], output[copies]
    frames, mixture = state.frames, state.mixture
    scaled, y_scaled = frames.coordinates.scaled(X)[:, :2], frames.target.scaled(y)
    means, variances, own = [], [], []
    for process in mixture.processes:
        B, factors = np.ones((1, 1)), np.ones(1)
        if process.coregion is not None:
            B, factors = process.coregion.B, process.coregion.factors
        noises = process.noise * factors
        seen = np.where(hidden, np.nan, y_scaled)
        K = process.kernel(scaled)
        _, mean, covariance = oracle.predict_outputs(K, B, output, seen, noises)
        means.append(mean)
        variances.append(np.diagonal(covariance))
        own.append(noises[output[hidden]])
    belief = np.exp(mixture.log_weights)
    mean = np.average(means, axis=0, weights=belief)
    noises = mixture.noises or (OutputNoise(0.0, mixture.noise_level),)
    variances += np.array([oracle.spread_noise(one, mean, output[hidden], noises) for one in own])
    spread = np.average(variances + (np.array(means) - mean) ** 2, axis=0, weights=belief)
    unit = frames.target.unit
    scale = unit * np.sqrt(0.6 * mixture.calibration * spread)
    density = student_t.logpdf(y[hidden], 5.0, frames.target.original(mean), scale)
    return np.bincount(value, density)


def test_rows_that_count_twice_speak_twice(data):
    X, Y = data
    weight = np.where(np.arange(70) < 30, 2.0, 1.0)
    state = make_model().fit(X, Y, sample_weight=weight)._state.model
    hidden = np.arange(len(state.rows)) % 7 == 0
    density = judge(state, state.rows, hidden)
    X, y, noise = state.rows.X, state.rows.y, state.rows.noise
    count = noise.weight[hidden]
    assert set(count) == {1.0, 2.0}
    single = replace(noise, weight=np.where(hidden, 1.0, noise.weight))
    once = judge(state, Rows().plus(X, y, single), hidden)
    assert_allclose(density, count * once)
    wide = replace(single, variance=np.where(hidden, 0.3, 0.0))
    assert np.all(judge(state, Rows().plus(X, y, wide), hidden) != once)


# -- what it says ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("second_apart")
@pytest.mark.parametrize("n_neighbors", ["auto", 20])
@pytest.mark.every_nth("n_neighbors", 2)
def test_output_apart_is_what_it_is_alone(data, n_neighbors):
    X, Y = data
    model = make_model(n_neighbors=n_neighbors).fit(X, Y)
    alone = fit_alone(X, Y[:, 1], n_neighbors=n_neighbors)
    assert_array_equal(model.learns_from_others_, [True, False])
    close = {"rtol": 1e-4, "atol": 1e-4}
    for found, expected in zip(
        model.predict(PLACES, return_std=True), alone.predict(PLACES, return_std=True), strict=True
    ):
        assert_allclose(found[:, 1], expected, **close)
    for found, expected in zip(model.loo_predict(), alone.loo_predict(), strict=True):
        assert_array_equal(np.isnan(found), np.isnan(Y))
        assert_allclose(found[~np.isnan(Y[:, 1]), 1], expected, **close)
    covariance = model.predict(PLACES, return_cov=True)[1]
    assert_allclose(covariance[:, :, 1], alone.predict(PLACES, return_cov=True)[1], **close)
    p = [0.1, 0.5, 0.9]
    quantiles = model.predict_quantiles(PLACES, p)
    assert_allclose(quantiles[:, 1], alone.predict_quantiles(PLACES, p), **close)
    y = np.column_stack([np.full(3, np.nan), [1.0, 2.0, 30.0]])
    density = alone.log_predictive_density(PLACES, y[:, 1])
    assert_allclose(model.log_predictive_density(PLACES, y), density, **close)
    wide = model.predict(PLACES, return_std=True, y_var=[[0.0, 9.0]] * 3)[1]
    assert_allclose(wide[:, 1] ** 2, alone.predict(PLACES, return_std=True)[1] ** 2 + 9.0, **close)
    slopes = zip(model.predict_gradient(PLACES), alone.predict_gradient(PLACES), strict=True)
    for found, expected in slopes:
        assert_allclose(found[:, 1], expected, **close)
    assert_allclose(model.noise_variance_[1], alone.noise_variance_, **close)
    assert "Output 1 has a model of its own" in model.summary()
    copy = pickle.loads(pickle.dumps(model))
    assert_array_equal(copy.predict(PLACES), model.predict(PLACES))


@pytest.mark.usefixtures("second_apart")
def test_others_predict_as_they_would_together(data):
    X, Y = data
    model = make_model().fit(X, Y)
    joint = replace(model._state, apart=(None, None))
    found, expected = model.predict(PLACES), joint.posterior.moments(PLACES, True)[0]
    assert_allclose(found[:, 0], expected[:, 0], rtol=1e-10)
    check_means(model._state.posterior, PLACES)
    assert np.abs(found - expected)[:, 1].min() > 1e-3
    assert_array_equal(model.output_covariance_, joint.covariance)
    assert model.noise_variance_[0] == (joint.noises * joint.units.unit**2)[0]


@pytest.mark.usefixtures("second_apart")
@pytest.mark.parametrize("n_neighbors", ["auto", 20])
@pytest.mark.every_nth("n_neighbors", 2)
def test_draws_know_nothing_of_one_another(data, n_neighbors):
    model = make_model(n_neighbors=n_neighbors).fit(*data)
    mean, covariance = model._state.posterior.joint_outputs(PLACES, False)
    assert not covariance.reshape(3, 2, 3, 2)[:, 0, :, 1].any()
    std = np.sqrt(np.diagonal(covariance))
    assert_allclose(model.predict(PLACES).ravel(), mean)
    assert_allclose(model.predict(PLACES, True, include_noise=False)[1].ravel(), std)
    functions = model.sample_function(9)
    assert functions.gradient(PLACES).shape == (3, 2, 2, 9)
    if n_neighbors == "auto":
        check_first_slope(functions, PLACES)


@pytest.mark.thorough
@pytest.mark.usefixtures("second_apart")
@pytest.mark.parametrize("n_neighbors", ["auto", 20])
def test_draws_have_the_moments_of_all_outputs_together(data, n_neighbors):
    model = make_model(n_neighbors=n_neighbors).fit(*data)
    mean, covariance = model._state.posterior.joint_outputs(PLACES, False)
    functions = model.sample_function(1500)
    for values in (functions(PLACES), model.sample_y(PLACES, 1500, include_noise=False)):
        check_joint_draws(values, mean, covariance, error=0.12, covariance_error=0.2)


@pytest.mark.usefixtures("second_apart")
def test_relevance_is_an_average_over_values(data):
    X, Y = data
    model = make_model().fit(X, Y)
    shares = np.sum(~np.isnan(Y), axis=0) / np.sum(~np.isnan(Y))
    alone = fit_alone(X, Y[:, 1])
    common = model._state.model
    among = np.flatnonzero(common.rows.X[:, 2] > 0.0)
    relevance = measure_relevance(common.posterior, among)
    expected = shares[0] * relevance.mean[:2] + shares[1] * alone.feature_importances_
    assert_allclose(model.feature_importances_, expected, rtol=1e-3)
    assert_allclose(model.feature_importances_.sum(), 1.0)
    both = replace(model._state, apart=model._state.apart[1:] * 2)
    assert_allclose(both.posterior.relevance.mean, alone.feature_importances_, rtol=1e-3)


def test_score_is_that_of_whoever_predicts(data, monkeypatch):
    X, Y = data
    known = compare_with(monkeypatch, np.array([False, True]))
    model = make_model().fit(X, Y)
    ((((_, common), _), alone, *_),) = known
    alone = [one for (_, one), _ in alone]
    mean, std = model.loo_predict()
    density = -0.5 * (np.log(2.0 * np.pi * std**2) + ((Y - mean) / std) ** 2)
    assert_allclose(model.log_predictive_density_, np.nanmean(density), rtol=1e-4)
    rng = np.random.RandomState(0)
    assert score_parted(common, (None, None), rng) == common.score
    each = [one.score - np.log(one.frames.target.unit) for one in alone]
    counts = np.sum(~np.isnan(Y), axis=0)
    expected = np.average(each, weights=counts)
    assert_allclose(score_parted(common, alone, rng), expected)
    # in a frame of another unit, as what a global part leaves has
    frames = replace(alone[1].frames, target=replace(alone[1].frames.target, unit=2.0))
    moved = alone[0], replace(alone[1], frames=frames)
    lost = np.log(2.0) * counts[1] / counts.sum()
    assert_allclose(score_parted(common, moved, rng), expected - lost)
    noises = [replace(model._state, apart=apart).noises for apart in (moved, alone)]
    assert_allclose(noises[0], noises[1] * [1.0, 4.0])
    assert model.n_iter_ == common.n_iter + sum(one.n_iter for one in alone)


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("second_apart")
@pytest.mark.parametrize("n_neighbors", [1000, 20])
@pytest.mark.every_nth("n_neighbors", 2)
def test_new_rows_are_known_to_both(data, n_neighbors):
    X, Y = data
    new = X[:3] + 0.01
    y = np.array([[np.nan, 60.0], [0.5, np.nan], [np.nan, -40.0]])
    model = make_model(n_neighbors=n_neighbors).fit(X, Y)
    alone = fit_alone(X, Y[:, 1], n_neighbors=n_neighbors)
    before = model.predict(new)
    for some in (slice(0, 2), slice(2, 3)):
        model.partial_fit(new[some], y[some])
    alone.partial_fit(new[[0, 2]], y[[0, 2], 1])
    assert_allclose(model.predict(PLACES)[:, 1], alone.predict(PLACES), rtol=1e-4)
    assert_allclose(model.predict(new)[:, 1], alone.predict(new), rtol=1e-4)
    assert model.predict(new)[0, 1] > before[0, 1]
    assert_array_equal(model.learns_from_others_, [True, False])
    assert model.loo_predict()[0].shape == (73, 2)


@pytest.mark.usefixtures("second_apart")
@pytest.mark.parametrize("forgetting", [0.97, 50])
@pytest.mark.every_nth("forgetting", 2)
def test_rows_are_forgotten_by_both(data, forgetting):
    """An output of which nothing is known any more is predicted by the others."""
    X, Y = data
    model = make_model(forgetting=forgetting).fit(X, Y)
    model.partial_fit(X[:10] + 0.01, Y[:10])
    state = model._state
    rows = take_output(state.model.rows, 2, 1)
    own = state.apart[1].rows
    assert_array_equal(own.X, rows.X)
    assert_allclose(own.y, rows.y)
    assert_array_equal(own.weight, rows.weight)
    known = ~np.isnan(model.loo_predict()[0][:, 1])
    assert known.sum() == len(own)
    if forgetting == 50:
        gone = np.column_stack([np.linspace(-1.0, 1.0, 24), np.full(24, np.nan)])
        model.partial_fit(X[:24], gone)
        model.partial_fit(X[24:48], gone)
        assert model.predict(PLACES).shape == (3, 2)


@pytest.mark.usefixtures("second_apart")
@pytest.mark.parametrize(("k", "left"), [(30, 15), (100, 100)])
@pytest.mark.every_nth("k", 2)
def test_output_that_all_its_rows_predicted_has_neighbours_with_more(data, k, left):
    model = make_model(n_neighbors=15, max_iter=1).fit(*data)
    one = replace(model._state.apart[1], k=k)
    _, followed = model._full_learner()._follow((None, one), model._state.model)
    assert len(followed.rows) > 30
    assert followed.k == left


@pytest.mark.usefixtures("second_apart")
def test_stream_learns_again_when_an_output_apart_would():
    """With more rows than neighbours, or the first missing entry of an input."""
    X, Y = draw_data(80)
    Y[:40, 0], Y[60:] = np.nan, np.nan
    model = make_model(n_neighbors=40).fit(X, Y)
    known = model._state.apart[1]
    assert len(known.rows) < 38 and len(model._state.model.rows) > 40
    model.partial_fit(X[60:62], [[0.1, 2.0], [0.2, 3.0]])
    assert model._state.apart[1].mixture is known.mixture
    n_more = 41 - len(model._state.apart[1].rows)
    more = np.column_stack([np.full(n_more, np.nan), np.linspace(-9.0, 9.0, n_more)])
    places = np.random.default_rng(1).uniform(-2.0, 2.0, (n_more, 2))
    model.partial_fit(places, more)
    assert model._state.apart[1].mixture is not known.mixture
    known = model._state.apart[1]
    model.partial_fit([[0.1, np.nan]], [[np.nan, 3.0]])
    assert model._state.apart[1].mixture is not known.mixture
    assert model._state.apart[1].frames.gaps.columns[1]


@pytest.mark.usefixtures("second_apart")
def test_warm_start_keeps_who_is_apart(data, monkeypatch):
    X, Y = data
    model = make_model(warm_start=True).fit(X, Y)
    n_iter = model.n_iter_

    known = compare_with(monkeypatch, None)
    model.fit(X, Y)
    assert not known
    assert_array_equal(model.learns_from_others_, [True, False])
    assert model.n_iter_ < n_iter


def test_training_that_is_stopped_has_the_model_of_all(data):
    X, Y = data
    learner = make_model()
    rows, y = learner._prepare(X, Y, reset=True, sample_weight=None, y_var=None)
    learner = learner._full_learner()
    for n in (1, 2, 3):
        start = learner.start(rows, y, np.random.RandomState(0), None)
        state, seen = train_until(learner, start, rows, y, n)
        assert state.apart == (None, None) or len(seen) < n
        assert all(one.apart == (None, None) for one in seen)
        assert len(seen) == n
        assert learner.attributes(state)["noise_variance_"].shape == (2,)


# -- rows of other kinds ---------------------------------------------------------------------------


@pytest.mark.usefixtures("second_apart")
def test_gaps_weights_and_categories(data):
    X, Y = data[0].copy(), data[1]
    X[::6, 1] = np.nan
    typed = np.column_stack([X, np.arange(70) % 3])
    model = make_model(Matern(nu=2.5), categorical_features=[2], max_iter=2)
    weight = np.where(np.arange(70) < 10, 2.0, 1.0)
    model.fit(typed, Y, sample_weight=weight, y_var=[[0.0, 1.0]] * 70)
    seen = ~np.isnan(Y[:, 1])
    alone = small_outputs(Matern(nu=2.5), categorical_features=[2], max_iter=2)
    alone.fit(typed[seen], Y[seen, 1], sample_weight=weight[seen], y_var=1.0)
    for found, expected in zip(
        model.predict(typed, return_std=True), alone.predict(typed, return_std=True), strict=True
    ):
        assert_allclose(found[:, 1], expected, rtol=1e-3)
    assert model.feature_importances_.shape == (3,)
    model.partial_fit(typed[:2], [[np.nan, 3.0], [0.1, 2.0]])
    alone.partial_fit(typed[:2], [3.0, 2.0], y_var=0.0)
    assert_allclose(model.predict(typed)[:, 1], alone.predict(typed), rtol=1e-3)


def test_global_part_does_not_know_what_is_hidden():
    """Nor do rows that come later move it."""
    X, Y = draw_data(60)
    y = np.nan_to_num(Y[:, 0])
    model = small(2.0 * Matern(2.0, nu=1.5), n_neighbors=8, n_inducing=10, max_iter=1).fit(X, y)
    state, hidden = model._state, np.arange(60) == 7
    rows = Rows().plus(X, y)
    told = judge(state, rows, hidden)
    moved = judge(state, Rows().plus(X, np.where(hidden, y + 0.5, y)), hidden)
    known = state.shared.given(Rows().plus(X[~hidden], y[~hidden]), np.arange(59))
    kept = known.subtract(Rows().plus(X[~hidden], y[~hidden]))
    posterior = replace(state, rows=kept, shared=known).posterior
    mean, variance = posterior.moments(X[hidden], True)
    scale = np.sqrt(variance * 0.6)
    assert_allclose(told, student_t.logpdf(y[hidden], 5.0, mean, scale))
    assert_allclose(moved, student_t.logpdf(y[hidden] + 0.5, 5.0, mean, scale))
