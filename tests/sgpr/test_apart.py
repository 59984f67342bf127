"""Outputs that stay apart from those that learn from each other."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPITCRegressor
from skvbgp._core.linalg import JITTER
from skvbgp.base import Targets, _joint_learner
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._joint_outputs import SparseJointLearner
from skvbgp.sgpr._memory import Memory
from tests.fits import train_until
from tests.functions import check_first_slope, check_joint_draws
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import INDEPENDENT, joint, small, ways
from tests.sgpr.problems import small_problem, state_of

every = pytest.mark.parametrize("cls", INDEPENDENT)
PLACES = np.array([[0.3, -0.2], [1.0, 1.5], [-2.5, 2.2]])


def draw_data(n=90, seed=0):
    """A smooth function of the first input, and a rough one of the second with noise, that falls.

    The third is the first one again.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    first = np.sin(2.0 * X[:, 0])
    second = 5.0 - 20.0 * np.sign(np.sin(4.0 * X[:, 1])) - 9.0 * X[:, 0]
    Y = np.column_stack([first, second, -3.0 * first])
    Y += [0.01, 3.0, 0.05] * rng.standard_normal(Y.shape)
    return X, np.where(rng.random(Y.shape) < 0.4, np.nan, Y)


@pytest.fixture(scope="module")
def data():
    X, Y = draw_data()
    return X, Y[:, :2]


def judge(known, rows, hidden):
    return SparseJointLearner(None, 2).judge(known, rows, hidden)


@pytest.fixture
def second_apart(monkeypatch):
    """Whatever is better, the second output has a model of its own."""

    def compare(common, alone, *known):
        return np.arange(len(alone)) == 1

    monkeypatch.setattr(_joint_learner, "compare_alone", compare)


@pytest.fixture
def all_apart(monkeypatch):
    def compare(common, alone, *known):
        return np.ones(len(alone), dtype=bool)

    monkeypatch.setattr(_joint_learner, "compare_alone", compare)


class Alone:
    """A regressor of one output, in its unit in a model of all."""

    def __init__(self, model, j=1):
        self.units, self.j = model._state.units, j
        self.mean, self.unit = self.units.mean[j], self.units.unit[j]
        self.model = clone(model).set_params(output_covariance=None)

    def scale(self, y, y_var=None):
        seen = ~np.isnan(y)
        known = {} if y_var is None else {"y_var": y_var[seen] / self.unit**2}
        return seen, (y[seen] - self.mean) / self.unit, known

    def fit(self, X, y, method="fit", sample_weight=None, y_var=None):
        seen, y, known = self.scale(y, y_var)
        if sample_weight is not None:
            known["sample_weight"] = sample_weight[seen]
        getattr(self.model, method)(X[seen], y, **known)
        return self

    def predict(self, X, **given):
        mean, std = self.model.predict(X, return_std=True, **given)
        return self.mean + self.unit * mean, np.sqrt(self.unit**2 * std**2)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=1e-12)


# -- who predicts ----------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("cls", [VBDTCRegressor, VBFITCRegressor])
def test_outputs_of_other_kinds_stay_apart(cls):
    X, Y = draw_data(200)
    truth = -20.0 * np.sign(np.sin(4.0 * X[:, 1])) + 5.0 - 9.0 * X[:, 0]
    model = cls(output_covariance="learned", random_state=0).fit(X, Y)
    assert_array_equal(model.learns_from_others_, [True, False, True])
    missing = np.isnan(Y[:, 1])

    def density(model):
        mean, std = model.predict(X, return_std=True)
        return np.mean(norm.logpdf(truth, mean[:, 1], std[:, 1])[missing])

    now = density(model)
    model._state = replace(model._state, apart=(None,) * 3)
    assert model.learns_from_others_.all()
    assert now > density(model)


@pytest.mark.parametrize("missing", [pytest.param(0.0, marks=pytest.mark.thorough), 0.5])
@every
@pytest.mark.every_nth("cls", 2)
def test_outputs_of_one_kind_learn_from_each_other(cls, missing):
    rng = np.random.default_rng(2)
    X = rng.uniform(-2.0, 2.0, (60, 2))
    f = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1])
    Y = np.column_stack([f, -30.0 * f]) + rng.standard_normal((60, 2)) * [0.1, 3.0]
    Y[rng.random(Y.shape) < missing] = np.nan
    given = {"max_iter": 30, "n_inducing": 20}
    model = joint(cls, **given).fit(X, Y)
    assert model.learns_from_others_.dtype == bool
    assert_array_equal(model.learns_from_others_, [True, True])
    assert not small(cls).fit(X, Y).learns_from_others_.any()
    assert_array_equal(joint(cls).fit(X, f).learns_from_others_, [False])
    assert model.n_iter_ > model._state.model.n_iter
    assert not hasattr(VBPITCRegressor(), "learns_from_others_")


def test_few_values_and_what_is_not_learned_do_not_decide(data, monkeypatch):
    def refuse(*known):
        raise AssertionError

    monkeypatch.setattr(_joint_learner, "compare_alone", refuse)
    X, Y = data[0], data[1].copy()
    model = joint(VBDTCRegressor, learn_hyperparameters=False).fit(X, Y)
    assert model.learns_from_others_.all()
    for j in range(2):
        Y[np.flatnonzero(~np.isnan(Y[:, j]))[9:], j] = np.nan
    model = joint(VBDTCRegressor).fit(X, Y)
    assert model.learns_from_others_.all()
    assert model.n_iter_ == model._state.model.n_iter


@pytest.mark.parametrize("kind", ["dtc", "fitc"])
def test_density_of_hidden_values(kind):
    """By the literal q(u) of the others, with their weights and known noise."""
    problem = small_problem(kind)
    state, data = state_of(problem), problem.data
    learner = VBDTCRegressor()._learner()
    hidden = np.arange(len(data)) % 3 == 1
    known = *problem.scaled, problem.Z, *problem.theta, problem.C
    mean, variance = oracles.leave_out(*known, hidden, JITTER)
    variance = variance + np.diagonal(problem.C)[hidden]
    unit = data.target.unit
    targets = Targets(data.y)
    found = judge((learner, state), (data.X, targets), hidden)
    y = known[1][hidden]
    assert_allclose(found, norm.logpdf(y, mean, np.sqrt(variance)) - np.log(unit), atol=1e-8)
    # a hidden row that counts twice speaks twice; known noise of new rows is theirs alone
    weight = np.where(hidden, 2.0, 1.0)
    own = np.where(hidden, 0.3, 0.0)
    found = judge((learner, state), (data.X, Targets(data.y, weight, variance=own)), hidden)
    density = norm.logpdf(y, mean, np.sqrt(variance + 0.3 / unit**2)) - np.log(unit)
    assert_allclose(found, 2.0 * density, atol=1e-8)
    # a row that counts twice is there twice to the others
    weight, twice = np.where(hidden, 1.0, 2.0), np.repeat(np.arange(len(data)), 2)
    X, y, Z, *theta, C = known
    known = X[twice], y[twice], Z, *theta, np.diag(np.diagonal(C)[twice])
    mean, variance = oracles.leave_out(*known, hidden[twice], JITTER)
    variance = variance + np.diagonal(problem.C)[hidden].repeat(2)
    found = judge((learner, state), (data.X, Targets(data.y, weight)), hidden)
    density = norm.logpdf(known[1][hidden[twice]], mean, np.sqrt(variance))[::2]
    assert_allclose(found, density - np.log(unit), atol=1e-8)


@every
def test_density_of_hidden_values_of_few_rows(cls, data):
    """A mixture over draws of theta, each given the others."""
    X, y = data[0][:30], np.nan_to_num(data[1][:30, 0])
    model = small(cls, "exact", max_iter=4).fit(X, y)
    state, hidden = model._state, np.arange(30) % 4 == 2
    mixture, p, target = state.memory, state.parameters, state.target
    assert isinstance(mixture, Mixture)
    found = judge((model._learner(), state), (X, Targets(y)), hidden)
    x, scaled = state.model.coordinates.scaled(X), target.scaled(y)
    noise, densities = state.noise.marginal_variance(X), []
    for e in mixture.draws:
        K = p.draw_sigma_f(e[-1]) ** 2 * oracles.se(*[x * p.draw_Lambda(e[:-1])] * 2)
        A = K[np.ix_(hidden, ~hidden)] @ np.linalg.inv((K + np.diag(noise))[~hidden][:, ~hidden])
        variance = np.diagonal(K + np.diag(noise))[hidden]
        variance = variance - np.sum(A * K[np.ix_(hidden, ~hidden)], axis=1)
        densities.append(norm.pdf(scaled[hidden], A @ scaled[~hidden], np.sqrt(variance)))
    assert_allclose(found, np.log(np.mean(densities, axis=0) / target.unit), rtol=1e-6)


@ways
@pytest.mark.every_nth("solver", 2)
def test_choice_is_by_the_density_of_hidden_values(cls, solver, data, monkeypatch):
    """Rows are those of one place, and values are in the order of the model of all."""
    X, Y = data
    known, seen = [], ~np.isnan(Y)

    def keep(*given):
        known.append(given)
        return np.zeros(2, dtype=bool)

    monkeypatch.setattr(_joint_learner, "compare_alone", keep)
    joint(cls, solver).fit(X, Y)
    ((common, alone, output, row, judged_by, _),) = known
    rows, own = np.nonzero(seen.T)[1], np.nonzero(seen.T)[0]
    assert_array_equal(output, own)
    assert_array_equal(row[:, None] == row, rows[:, None] == rows)
    assert judged_by.__func__ is SparseJointLearner.judge
    for j, one in enumerate(alone):
        assert_array_equal(one.rows[0], X[seen[:, j]])
        assert_array_equal(one.rows[1].y, common.rows[1].y[output == j])
        hidden = row[output == j] % 7 == 3
        assert np.isfinite(judge(*one, hidden)).all()
    assert np.isfinite(judge(*common, row % 7 == 3)).all()


# -- what it says ----------------------------------------------------------------------------------


@ways
@pytest.mark.usefixtures("second_apart")
@pytest.mark.every_nth("cls", 2)
def test_output_apart_is_what_it_is_alone(cls, solver, data):
    """Bit for bit that of the same values in the unit of the output."""
    X, Y = data
    model = joint(cls, solver).fit(X, Y)
    assert_array_equal(model.learns_from_others_, [True, False])
    alone = Alone(model).fit(X, Y[:, 1])
    assert pickle.dumps(model._state.apart[1].parameters) == pickle.dumps(
        alone.model._state.parameters
    )
    for given in ({}, {"include_noise": False}):
        found = model.predict(PLACES, return_std=True, **given)
        assert_same([part[:, 1] for part in found], alone.predict(PLACES, **given))
    seen, y, _ = alone.scale(Y[:, 1])
    loo, expected = model.loo_predict(X, Y), alone.model.loo_predict(X[seen], y)
    assert_array_equal(np.isnan(loo[0]), np.isnan(Y))
    assert_allclose(loo[0][seen, 1], alone.mean + alone.unit * expected[0], rtol=1e-9)
    assert_allclose(loo[1][seen, 1], abs(alone.unit) * expected[1], rtol=1e-9)
    covariance = model.predict(PLACES, return_cov=True)[1]
    expected = alone.model.predict(PLACES, return_cov=True)[1]
    assert_allclose(covariance[:, :, 1], alone.unit**2 * expected, rtol=1e-12)
    levels = [0.1, 0.5, 0.9] if alone.unit > 0.0 else [0.9, 0.5, 0.1]
    expected = alone.mean + alone.unit * alone.model.predict_quantiles(PLACES, levels)
    assert_allclose(model.predict_quantiles(PLACES, [0.1, 0.5, 0.9])[:, 1], expected, rtol=1e-8)
    new = np.column_stack([np.full(3, np.nan), [1.0, 2.0, 30.0]])
    density = alone.model.log_predictive_density(PLACES, (new[:, 1] - alone.mean) / alone.unit)
    expected = density - np.log(abs(alone.unit))
    assert_allclose(model.log_predictive_density(PLACES, new), expected, rtol=1e-9)
    wide = model.predict(PLACES, return_std=True, y_var=[[0.0, 9.0]] * 3)[1]
    assert_allclose(wide[:, 1] ** 2, alone.predict(PLACES)[1] ** 2 + 9.0, rtol=1e-9)
    slope, std = model.predict_gradient(PLACES)
    mean, expected = alone.model.predict_gradient(PLACES)
    assert_allclose(slope[:, 1], alone.unit * mean, rtol=1e-9)
    assert_allclose(std[:, 1], abs(alone.unit) * expected, rtol=1e-9)
    assert_allclose(model.noise_variance_[1], alone.unit**2 * alone.model.noise_variance_)
    copy = pickle.loads(pickle.dumps(model))
    assert_array_equal(copy.learns_from_others_, [True, False])
    assert_array_equal(copy.predict(PLACES), model.predict(PLACES))


@ways
@pytest.mark.usefixtures("second_apart")
@pytest.mark.every_nth("cls", 2)
def test_others_predict_as_they_would_together(cls, solver, data):
    X, Y = data
    model, together = joint(cls, solver).fit(X, Y), joint(cls, solver).fit(X, Y)
    together._state = replace(model._state, apart=(None, None))
    found, expected = model.predict(PLACES), together.predict(PLACES)
    assert_allclose(found[:, 0], expected[:, 0], rtol=1e-9)
    assert np.abs(found - expected)[:, 1].min() > 1e-6
    assert_array_equal(model.output_covariance_, together.output_covariance_)
    own = model._state.model.attributes["noise_variance_"] * model._state.units.unit**2
    assert model.noise_variance_[0] == own[0] and model.noise_variance_[1] != own[1]
    assert model.lower_bound_ == together.lower_bound_


@ways
@pytest.mark.usefixtures("second_apart")
@pytest.mark.every_nth("cls", 2)
@pytest.mark.thorough
def test_draws_know_nothing_of_one_another(cls, solver, data):
    model = joint(cls, solver).fit(*data)
    mean, covariance = model._posterior().joint_outputs(PLACES, False)
    assert not covariance.reshape(3, 2, 3, 2)[:, 0, :, 1].any()
    assert_allclose(model.predict(PLACES).ravel(), mean, rtol=1e-8)
    functions = model.sample_function(2000)
    for values in (functions(PLACES), model.sample_y(PLACES, 2000, include_noise=False)):
        check_joint_draws(values, mean, covariance, error=0.15, covariance_error=0.25)
    check_first_slope(functions, PLACES)


@pytest.mark.usefixtures("second_apart")
def test_relevance_is_an_average_over_values(data):
    X, Y = data
    model = joint(VBDTCRegressor).fit(X, Y)
    alone = Alone(model).fit(X, Y[:, 1]).model
    shares = np.sum(~np.isnan(Y), axis=0) / np.sum(~np.isnan(Y))
    common = model._full_learner().model.posterior(model._state.model)
    mine = common.measure_relevance(np.array([True, False])).mean
    assert np.abs(mine - common.relevance.mean).max() > 1e-6
    expected = shares[0] * mine + shares[1] * alone.feature_importances_
    assert_allclose(model.feature_importances_, expected, rtol=1e-9)
    assert_allclose(model.feature_importances_.sum(), 1.0)
    both = common.measure_relevance(np.array([True, True])).mean
    assert_array_equal(both, common.relevance.mean)
    places = model._state.model.places
    some = places._replace(X=places.X[:3], weight=places.weight[:3])  # of the first output
    assert len(some.of_outputs(np.array([False, True])).X) == 3


@pytest.mark.usefixtures("all_apart")
def test_all_outputs_may_stay_apart(data):
    X, Y = data
    model = joint(VBDTCRegressor).fit(X, Y)
    assert not model.learns_from_others_.any()
    for j in range(2):
        found = model.predict(PLACES, return_std=True)
        alone = Alone(model, j).fit(X, Y[:, j])
        assert_same([part[:, j] for part in found], alone.predict(PLACES))
    assert_allclose(model.feature_importances_.sum(), 1.0)


# -- streams ---------------------------------------------------------------------------------------


@ways
@pytest.mark.usefixtures("second_apart")
@pytest.mark.every_nth("cls", 2)
def test_new_rows_are_known_to_both(cls, solver, data):
    """Also where the output begins again, as it would alone; "exact" does in every call."""
    X, Y = data
    model = joint(cls, solver).fit(X[:60], Y[:60])
    frames = model._state.frames
    alone = Alone(model).fit(X[:60], Y[:60, 1])
    before = model.predict(PLACES)
    unseen = Y[80:].copy()
    unseen[:, 1] = np.nan
    for new, values in [(X[60:80], Y[60:80]), (X[80:], unseen)]:
        model.partial_fit(new, values)
    assert_array_equal(model.learns_from_others_, [True, False])
    assert model.n_samples_seen_ == 90
    assert np.abs(model.predict(PLACES) - before)[:, 1].max() > 0.0
    if model._state.frames == frames:  # a stream that began again has another unit
        alone.fit(X[60:80], Y[60:80, 1], "partial_fit")
        found = model.predict(PLACES, return_std=True)
        assert_same([part[:, 1] for part in found], alone.predict(PLACES))
    else:
        assert solver == "exact" or cls is VBFITCRegressor


@pytest.mark.usefixtures("second_apart")
def test_output_begins_again_when_it_would_alone(data):
    """Few values are known exactly, while all together are too many."""
    X, Y = data
    model = small(VBDTCRegressor, "auto", n_inducing=70, output_covariance="learned")
    model.fit(X[:60], Y[:60])
    seed = model._state.apart[1].seed
    assert isinstance(model._state.model.memory, Memory)
    assert isinstance(model._state.apart[1].memory, Mixture)
    model.partial_fit(X[60:], Y[60:])
    alone = Alone(model)
    alone.model.set_params(random_state=seed)
    alone.fit(X, Y[:, 1])
    found = model.predict(PLACES, return_std=True)
    assert_same([part[:, 1] for part in found], alone.predict(PLACES))
    assert isinstance(model._state.model.memory, Memory)


@pytest.mark.usefixtures("second_apart")
def test_stream_that_forgets(data):
    X, Y = data
    model = joint(VBDTCRegressor, forgetting=0.95).fit(X[:60], Y[:60])
    before = model.predict(PLACES, return_std=True)[1]
    gone = np.column_stack([np.linspace(-1.0, 1.0, 30), np.full(30, np.nan)])
    model.partial_fit(X[:5] + 0.1, gone[:5])
    after = model.predict(PLACES, return_std=True)[1]
    assert model.learns_from_others_.tolist() == [True, False]
    assert np.all(after[:, 1] > before[:, 1])
    count = np.sum(~np.isnan(Y[:60, 1])) * 0.95**5
    assert_allclose(model._state.apart[1].summary.n, count)
    model.partial_fit(X[60:62], [[0.1, 2.0], [0.2, np.nan]])
    assert_allclose(model._state.apart[1].summary.n, count * 0.95**2 + 0.95)
    assert_allclose(model._state.counts[1], count * 0.95**2 + 0.95)


@every
@pytest.mark.usefixtures("second_apart")
@pytest.mark.every_nth("cls", 2)
def test_warm_start_keeps_who_is_apart(cls, data, monkeypatch):
    X, Y = data
    model = joint(cls, warm_start=True, max_iter=10).fit(X, Y)
    bound = model._state.apart[1].lower_bound

    def refuse(*known):
        raise AssertionError

    monkeypatch.setattr(_joint_learner, "compare_alone", refuse)
    model.set_params(max_iter=1).fit(X, Y)
    assert_array_equal(model.learns_from_others_, [True, False])
    assert model._state.apart[1].lower_bound > bound - 1.0


def test_training_that_is_stopped_has_the_model_of_all(data):
    X, Y = data
    model = joint(VBDTCRegressor, max_iter=3)
    rows, y = model._prepare(X, Y, reset=True, sample_weight=None, y_var=None)
    learner = model._full_learner()
    assert learner.max_passes(y) == 9
    for n in (1, 4, 7):
        start = learner.start(rows, y, np.random.RandomState(0), None)
        state, seen = train_until(learner, start, rows, y, n)
        assert len(seen) == n
        assert state.apart == (None, None)
        assert all(one.apart == (None, None) for one in seen)


# -- rows of other kinds ---------------------------------------------------------------------------


@every
@pytest.mark.usefixtures("second_apart")
@pytest.mark.every_nth("cls", 2)
def test_weights_and_known_noise(cls, data):
    X, Y = data
    weight = np.where(np.arange(90) < 10, 2.0, 1.0)
    variance = np.column_stack([np.full(90, 1e-3), np.arange(90) / 30.0])
    model = joint(cls).fit(X, Y, sample_weight=weight, y_var=variance)
    alone = Alone(model).fit(X, Y[:, 1], sample_weight=weight, y_var=variance[:, 1])
    found = model.predict(PLACES, return_std=True)
    expected = alone.predict(PLACES)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one[:, 1], other, rtol=1e-8)
    loo = model.loo_predict(X, Y, sample_weight=weight, y_var=variance)
    assert_array_equal(np.isnan(loo[0]), np.isnan(Y))


@every
@pytest.mark.usefixtures("second_apart")
@pytest.mark.every_nth("cls", 2)
def test_gaps_and_categories(cls, data):
    X, Y = data[0].copy(), data[1]
    X[::6, 1] = np.nan
    typed = np.column_stack([X, np.arange(90) % 3])
    model = joint(cls, categorical_features=[2]).fit(typed, Y)
    alone = Alone(model).fit(typed, Y[:, 1])
    found = model.predict(typed, return_std=True)
    assert_same([part[:, 1] for part in found], alone.predict(typed))
    assert model.feature_importances_.shape == (3,)


def test_values_of_one_place_are_left_out_together():
    """Also of rows that are equal but for what was observed there."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(-2.0, 2.0, (12, 2)), 3, axis=0)
    Y = np.column_stack([X[:, 0], np.sin(9.0 * X[:, 1])]) + 0.1 * rng.standard_normal((36, 2))
    assert joint(VBDTCRegressor).fit(X, Y).learns_from_others_.shape == (2,)
    once = np.zeros((20, 2)) + [0.5, 1.0]
    once[:3] += np.arange(3)[:, None]
    Y = np.column_stack([once[:, 0], np.r_[np.full(3, np.nan), rng.standard_normal(17)]])
    model = joint(VBDTCRegressor).fit(once, Y + 0.1 * rng.standard_normal(Y.shape))
    assert np.isfinite(model.predict(once)).all()  # all values of an output may be hidden
