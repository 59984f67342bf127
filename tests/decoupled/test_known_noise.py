"""Known variances of rows' noise: they add to the learned one, in training and in prediction."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp._core.evidence import scan_noises
from skvbgp.decoupled import DecoupledGPRegressor
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._bound import Evaluation
from skvbgp.decoupled._likelihoods import Gaussian
from skvbgp.decoupled._start import log_evidence
from skvbgp.kernels import RBF
from tests.decoupled.cases import check_exact_process, small
from tests.decoupled.problems import M_ALPHA, PARAMETRIZATIONS, N, as_rows, make_problem
from tests.derivatives import assert_slopes, numerical_gradient
from tests.oracles import decoupled as oracles

each = pytest.mark.parametrize("parametrization", PARAMETRIZATIONS)

EVERY_POINT = np.arange(M_ALPHA)
COUNTS = np.array([0.3, 2.0, 1.0, 0.7, 3.5, 0.01, 1.2, 5.0, 1.7])
VARIANCES = np.array([0.0, 0.3, 2.0, 0.05, 0.0, 1.0, 40.0, 0.01, 0.6])


def make_data(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, 5.0 + 3.0 * np.sin(2.0 * X[:, 0]) + 0.5 * rng.standard_normal(n)


def say(model, X):
    """Everything that a model says of rows."""
    return np.concatenate([*model.predict(X, return_std=True), model.lower_bounds_])


# -- the bound ---------------------------------------------------------------------------------


@each
def test_rows_have_terms_of_their_own_noise(parametrization):
    model, p, q, X, y = make_problem(parametrization)
    evaluation = Evaluation(model, p, q)
    values = [
        evaluation.evaluate(as_rows(X, y, COUNTS, known), 1.7, EVERY_POINT)[0]
        for known in (VARIANCES, None)
    ]
    mean, variance = evaluation.process.moments(X)
    noise, terms = np.exp(p.noise[0]), []
    for own in (noise + VARIANCES, np.full(N, noise)):
        rows = zip(y[:, 0], mean[:, 0], variance[:, 0], own, strict=True)
        terms.append(COUNTS @ [oracles.gaussian_expectation(*row) for row in rows])
    assert_allclose(values[0] - values[1], 1.7 * (terms[0] - terms[1]), rtol=1e-9)


@each
def test_gradient(parametrization):
    model, p, q, X, y = make_problem(parametrization)

    def value(x):
        evaluation = Evaluation(model, p.unpack(x), q)
        return evaluation.evaluate(as_rows(X, y, COUNTS, VARIANCES), 1.7, EVERY_POINT)[0]

    _, gradient, _ = Evaluation(model, p, q).evaluate(
        as_rows(X, y, COUNTS, VARIANCES), 1.7, EVERY_POINT
    )
    gradient = gradient.pack()
    assert_slopes(value, p.pack(), gradient, atol=1e-6 * np.abs(gradient).max())


@pytest.mark.parametrize("parametrization", ["orthogonal", "hybrid"])
def test_what_all_rows_share_is_a_learned_variance(parametrization):
    model, p, q, X, y = make_problem(parametrization)
    more = replace(p, noise=np.log(np.exp(p.noise) + 0.4))
    told, learned = Evaluation(model, p, q), Evaluation(model, more, q)
    found = told.evaluate(as_rows(X, y, COUNTS, np.full(N, 0.4)), 1.3, EVERY_POINT)
    expected = learned.evaluate(as_rows(X, y, COUNTS), 1.3, EVERY_POINT)
    assert_allclose(found[0], expected[0], rtol=1e-11)
    steps = told.natural_step(found[2], 0.3), learned.natural_step(expected[2], 0.3)
    for one, other in zip(*steps, strict=True):
        assert_allclose(one.precision, other.precision, rtol=1e-9)
        assert_allclose(one.shift, other.shift, rtol=1e-9)


@pytest.mark.parametrize("parametrization", ["orthogonal", "hybrid"])
def test_a_row_of_which_next_to_nothing_is_known_is_left_out(parametrization):
    model, p, q, X, y = make_problem(parametrization)
    evaluation, kept = Evaluation(model, p, q), VARIANCES < 1.0
    known = np.where(kept, VARIANCES, 1e13)
    spoiled = np.where(kept[:, None], y, 7.0)
    found = evaluation.evaluate(as_rows(X, spoiled, COUNTS, known), 1.0, EVERY_POINT)[2]
    some = as_rows(X[kept], y[kept], COUNTS[kept], VARIANCES[kept])
    expected = evaluation.evaluate(some, 1.0, EVERY_POINT)[2]
    for one, other in zip(
        evaluation.natural_step(found, 1.0), evaluation.natural_step(expected, 1.0), strict=True
    ):
        assert_allclose(one.precision, other.precision, rtol=1e-9, atol=1e-10)
        assert_allclose(one.shift, other.shift, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("known", [None, VARIANCES], ids=["learned", "known"])
@pytest.mark.parametrize("parametrization", ["orthogonal", "hybrid"])
def test_the_best_q_of_all_rows_is_where_a_whole_natural_step_ends(parametrization, known):
    model, p, q, X, y = make_problem(parametrization)
    evaluation = Evaluation(model, p, q)
    before, _, cotangents = evaluation.evaluate(as_rows(X, y, COUNTS, known), 1.0, EVERY_POINT)
    solved = evaluation.solved(as_rows(X, y, COUNTS, known))
    for one, other in zip(solved.q, evaluation.natural_step(cotangents, 1.0), strict=True):
        assert_allclose(one.precision, other.precision, rtol=1e-9)
        assert_allclose(one.shift, other.shift, rtol=1e-9, atol=1e-12)
    told = as_rows(X, y, COUNTS, known), 1.0, EVERY_POINT
    found, expected = solved.evaluate(*told), Evaluation(model, p, solved.q).evaluate(*told)
    assert found[0] > before
    assert_allclose(found[0], expected[0], rtol=1e-11)
    assert_allclose(found[1].pack(), expected[1].pack(), rtol=1e-9, atol=1e-10)


def test_noise_is_fitted_again_by_a_step_that_raises_its_likelihood(rng):
    square, none = rng.uniform(0.0, 3.0, N), np.zeros(N)

    def expected(theta, *known):
        return Gaussian().expected(theta, none, none, square, *known)

    def value(theta):
        return COUNTS @ expected(theta, VARIANCES).value

    def average(slopes):
        return np.average(slopes, axis=0, weights=COUNTS)

    theta = np.array([-0.5])
    assert_allclose(
        Gaussian().refit(theta, average(expected(theta).dtheta)),
        np.log([np.average(square, weights=COUNTS)]),
    )
    values = [value(theta)]
    for _ in range(300):
        theta = Gaussian().refit(theta, average(expected(theta, VARIANCES).dtheta))
        values.append(value(theta))
    assert np.all(np.diff(values) > -1e-12)
    assert values[1] > values[0] + 0.01
    assert_allclose(numerical_gradient(value, theta), 0.0, atol=1e-6)


# -- the start ---------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [None, COUNTS], ids=["rows", "weighted"])
def test_evidence_and_its_gradient(counts):
    model, _, _, X, y = make_problem()
    rows, x, y = Basis(X), np.append(model.kernel.theta, -0.7), y[:, 0]
    value, gradient = log_evidence(model, x, rows, y, counts, VARIANCES)
    weight = np.ones(N) if counts is None else counts
    K, noise = model.kernel(rows, rows), np.exp(-0.7) + VARIANCES
    assert_allclose(value, oracles.weighted_log_evidence(y, K, noise, weight), rtol=1e-10)
    numerical = numerical_gradient(
        lambda x: log_evidence(model, x, rows, y, counts, VARIANCES)[0], x
    )
    assert_allclose(gradient, numerical, rtol=1e-7, atol=1e-7)
    tried = np.arange(-8.0, 1.0)
    values = [oracles.weighted_log_evidence(y, K, np.exp(one) + VARIANCES, weight) for one in tried]
    best, log_noise = scan_noises(K, y, counts, VARIANCES)
    assert log_noise == tried[np.argmax(values)]
    assert_allclose(best, max(values), rtol=1e-8)


def test_few_rows_are_an_exact_process_with_noise_of_their_own():
    X, y = make_data()
    weight, y_var = np.tile([0.5, 1.0, 3.0, 2.5], 10), np.repeat([0.0, 0.2, 3.0, 0.0, 9.0], 8)
    model = DecoupledGPRegressor(kernel=2.0 * RBF([1.0, 1.0]), random_state=0)
    model.fit(X, y, sample_weight=weight, y_var=y_var)
    check_exact_process(model, X, y, weight, y_var)


# -- what training makes of known noise --------------------------------------------------------


@each
@pytest.mark.every_nth("parametrization", 2)
@pytest.mark.thorough
def test_a_weight_is_a_repetition(parametrization):
    X, y = make_data(120)
    weight, y_var = np.repeat([1, 2, 3, 0], 30), np.tile([0.0, 0.5, 4.0], 40)
    index = np.random.default_rng(1).permutation(np.repeat(np.arange(120), weight))
    weighted, repeated = (
        small(DecoupledGPRegressor, parametrization=parametrization) for _ in range(2)
    )
    weighted.fit(X, y, sample_weight=weight, y_var=y_var)
    repeated.fit(X[index], y[index], y_var=y_var[index])
    assert_allclose(say(weighted, X), say(repeated, X), rtol=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize("parametrization", ["orthogonal", "decoupled"])
@pytest.mark.parametrize("way", ["fit", "stream", "stream without rows"])
@pytest.mark.in_turn("parametrization")
def test_what_is_known_is_not_learned(parametrization, way):
    """Rows of two qualities: the learned noise is that of the good ones."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (300, 1))
    y_var = np.where(rng.uniform(size=300) < 0.5, 0.0, 1.0)
    y = np.sin(X[:, 0]) + np.sqrt(0.01 + y_var) * rng.standard_normal(300)
    model = DecoupledGPRegressor(
        60,
        15,
        parametrization=parametrization,
        replay=0 if way == "stream without rows" else 1000,
        max_iter=60,
        batch_size=100,
        random_state=0,
    )
    told, plain = clone(model), clone(model)
    for rows in np.split(np.arange(300), 1 if way == "fit" else 3):
        told.partial_fit(X[rows], y[rows], y_var=y_var[rows])
        plain.partial_fit(X[rows], y[rows])
    assert told.noise_variance_ < 0.2 < 0.4 < plain.noise_variance_
    places = np.linspace(-3.0, 3.0, 50)[:, None]
    errors = [np.mean((m.predict(places) - np.sin(places[:, 0])) ** 2) for m in (told, plain)]
    assert errors[0] < 0.6 * errors[1]


def test_rows_that_are_kept_keep_their_noise():
    X, y = make_data(60)
    y_var = np.linspace(0.0, 3.0, 60)
    model = small(DecoupledGPRegressor, replay=50).fit(X[:40], y[:40], y_var=y_var[:40])
    targets = model.partial_fit(X[40:], y[40:], y_var=y_var[40:])._state.replay.targets
    places = [np.flatnonzero(y == value)[0] for value in targets.y]
    assert_array_equal(targets.variance, y_var[places])


def test_a_stream_without_rows_knows_the_noise_as_well_as_its_rows_say():
    X, y = make_data(60)
    weight, y_var = np.full(60, 2.5), np.repeat([0.0, 1e9], 30)
    model = small(DecoupledGPRegressor, replay=0).fit(X, y, sample_weight=weight, y_var=y_var)
    assert_allclose(model._state.n_telling, 75.0)
    model.partial_fit(X + 0.1, y, y_var=y_var)
    assert_allclose(model._state.n_telling, 105.0)
    assert_allclose(model.partial_fit(X + 0.2, y)._state.n_telling, 165.0)


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["student_t", "poisson"])
def test_known_noise_needs_noise_that_variances_add_to(likelihood):
    X, y = make_data(30)
    y = np.round(np.abs(y))
    model = small(DecoupledGPRegressor, likelihood=likelihood, max_iter=1)
    for call in (model.fit, model.fit(X, y).partial_fit):
        with pytest.raises(ValueError, match="likelihood"):
            call(X, y, y_var=1.0)
    with pytest.raises(ValueError, match="likelihood"):
        model.predict(X, y_var=1.0)


def test_rows_of_dask_have_no_known_noise():
    da = pytest.importorskip("dask.array")
    X, y = make_data(30)
    lazy = da.from_array(X), da.from_array(y), da.ones(30)
    for X_given, y_given, y_var in (lazy, (*lazy[:2], 2.0), (X, y, lazy[2])):
        with pytest.raises(TypeError, match="y_var"):
            small(DecoupledGPRegressor).fit(X_given, y_given, y_var=y_var)
