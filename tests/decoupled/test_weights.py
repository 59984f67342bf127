"""Weights of rows: a weight is a repetition, zero leaves out, and fractions count as such."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from skvbgp.base import Targets
from skvbgp.decoupled import DecoupledGPClassifier, DecoupledGPRegressor
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._bound import Evaluation
from skvbgp.decoupled._likelihoods import Gaussian, Poisson, Probit, StudentT
from skvbgp.decoupled._start import find_hyperparameters, log_evidence
from skvbgp.decoupled._state import Replay
from skvbgp.kernels import RBF
from tests.decoupled.cases import check_exact_process, small
from tests.decoupled.problems import (
    LIKELIHOODS,
    M_ALPHA,
    PARAMETRIZATIONS,
    N,
    as_rows,
    make_problem,
)
from tests.derivatives import assert_slopes, numerical_gradient
from tests.oracles import decoupled as oracles

both = pytest.mark.parametrize("cls", [DecoupledGPRegressor, DecoupledGPClassifier])
each = pytest.mark.parametrize("parametrization", PARAMETRIZATIONS)
likelihoods = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda one: type(one).__name__)

EVERY_POINT = np.arange(M_ALPHA)
FRACTIONS = np.array([0.3, 2.0, 1.0, 0.7, 3.5, 0.01, 1.2, 5.0, 1.7])
REPETITIONS = np.array([1, 2, 3, 1, 4, 2, 1, 2, 1])
REPEATED = np.repeat(np.arange(N), REPETITIONS)


def make_data(cls, n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    y = 5.0 + 3.0 * np.sin(2.0 * X[:, 0]) + 0.5 * rng.standard_normal(n)
    return X, y if cls is DecoupledGPRegressor else np.where(y > 5.0, "high", "low")


def say(model, X):
    """Everything that a model says of rows."""
    if isinstance(model, DecoupledGPClassifier):
        return np.append(model.predict_proba(X), model.lower_bounds_)
    return np.concatenate([*model.predict(X, return_std=True), model.lower_bounds_])


# -- the bound ---------------------------------------------------------------------------------


@each
def test_a_weight_multiplies_a_rows_term(parametrization):
    model, p, q, X, y = make_problem(parametrization)
    evaluation = Evaluation(model, p, q)
    values = [
        evaluation.evaluate(as_rows(X, y, counts), 1.7, EVERY_POINT)[0]
        for counts in (FRACTIONS, None)
    ]
    mean, variance = evaluation.process.moments(X)
    terms = [
        oracles.gaussian_expectation(y[i, 0], mean[i, 0], variance[i, 0], np.exp(p.noise[0]))
        for i in range(N)
    ]
    assert_allclose(values[0] - values[1], 1.7 * (FRACTIONS - 1.0) @ terms, rtol=1e-9)


@each
@likelihoods
@pytest.mark.every_nth("parametrization", 2)
def test_the_bound_is_that_of_the_repeated_rows(parametrization, likelihood):
    model, p, q, X, y = make_problem(parametrization, likelihood=likelihood, n_functions=2)
    evaluation = Evaluation(model, p, q)
    weighted = evaluation.evaluate(as_rows(X, y, REPETITIONS.astype(float)), 1.3, EVERY_POINT)
    repeated = evaluation.evaluate(as_rows(X[REPEATED], y[REPEATED]), 1.3, EVERY_POINT)
    assert_allclose(weighted[0], repeated[0], rtol=1e-11)
    assert_allclose(weighted[1].pack(), repeated[1].pack(), rtol=1e-9, atol=1e-10)
    if q is not None:
        steps = [evaluation.natural_step(c, 0.3) for *_, c in (weighted, repeated)]
        for one, other in zip(*steps, strict=True):
            assert_allclose(one.precision, other.precision, rtol=1e-9, atol=1e-11)
            assert_allclose(one.shift, other.shift, rtol=1e-9, atol=1e-11)


@each
@likelihoods
@pytest.mark.in_turn("parametrization")
@pytest.mark.every_nth("likelihood", 2)
def test_gradient(parametrization, likelihood):
    model, p, q, X, y = make_problem(parametrization, likelihood=likelihood)

    def value(x):
        evaluation = Evaluation(model, p.unpack(x), q)
        return evaluation.evaluate(as_rows(X, y, FRACTIONS), 1.7, EVERY_POINT)[0]

    _, gradient, _ = Evaluation(model, p, q).evaluate(as_rows(X, y, FRACTIONS), 1.7, EVERY_POINT)
    gradient = gradient.pack()
    assert_slopes(value, p.pack(), gradient, atol=1e-6 * np.abs(gradient).max())


def test_minibatches_of_weighted_rows_are_unbiased():
    model, p, q, X, y = make_problem()
    evaluation = Evaluation(model, p, q)
    whole = evaluation.evaluate(as_rows(X, y, FRACTIONS), 1.0, EVERY_POINT)
    parts = [
        evaluation.evaluate(
            as_rows(X[i : i + 3], y[i : i + 3], FRACTIONS[i : i + 3]), 3.0, EVERY_POINT
        )
        for i in range(0, N, 3)
    ]
    assert_allclose(np.mean([value for value, *_ in parts]), whole[0], rtol=1e-11)
    gradients = [gradient.pack() for _, gradient, _ in parts]
    assert_allclose(np.mean(gradients, axis=0), whole[1].pack(), rtol=1e-9, atol=1e-11)


# -- the start ---------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", [Gaussian(), Probit()], ids=["absolute", "relative"])
def test_evidence_and_its_gradient(likelihood):
    model, _, _, X, y = make_problem(likelihood=likelihood, n_functions=2)
    rows, x = Basis(X), np.append(model.kernel.theta, -0.7)
    value, gradient = log_evidence(model, x, rows, y, FRACTIONS)
    noise = np.exp(-0.7)
    K = model.kernel(rows, rows) * (noise if likelihood.unit_noise else 1.0)
    expected = sum(oracles.weighted_log_evidence(column, K, noise, FRACTIONS) for column in y.T)
    assert_allclose(value, expected, rtol=1e-10)
    numerical = numerical_gradient(lambda x: log_evidence(model, x, rows, y, FRACTIONS)[0], x)
    assert_allclose(gradient, numerical, rtol=1e-7, atol=1e-7)


def test_evidence_is_that_of_the_repeated_rows():
    model, _, _, X, y = make_problem()
    x = np.append(model.kernel.theta, -0.7)
    weighted = log_evidence(model, x, Basis(X), y, REPETITIONS.astype(float))
    repeated = log_evidence(model, x, Basis(X[REPEATED]), y[REPEATED], np.ones(len(REPEATED)))
    assert_allclose(weighted[0], repeated[0], rtol=1e-10)
    assert_allclose(weighted[1], repeated[1], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n_functions", [1, 3])
@pytest.mark.every_nth("n_functions", 2)
def test_search_finds_the_hyperparameters_of_the_repeated_rows(n_functions):
    model, _, _, X, y = make_problem(n_functions=n_functions)
    model = replace(model, prior_variance=0.5)
    weighted = find_hyperparameters(model, X, y, REPETITIONS.astype(float))
    repeated = find_hyperparameters(model, X[REPEATED], y[REPEATED])
    assert_allclose(weighted[0], repeated[0], rtol=1e-5, atol=1e-6)
    assert_allclose(weighted[1], repeated[1], rtol=1e-5)


@pytest.mark.parametrize("likelihood", [StudentT(), Poisson(0.3)], ids=["student", "poisson"])
@pytest.mark.parametrize("y", [[3.0, 0.0, 1.0, 7.0, 2.0, 90.0, 4.0, 1.0, 5.0], [2.0] * 7 + [5, 9]])
def test_latent_values_are_those_of_the_repeated_rows(likelihood, y):
    y = np.array(y, dtype=float)
    weighted = likelihood.latent_values(y, REPETITIONS.astype(float))
    assert_allclose(weighted[REPEATED], likelihood.latent_values(y[REPEATED]), rtol=1e-12)


def test_few_rows_are_an_exact_process_with_less_noise_where_weights_are_large():
    X, y = make_data(DecoupledGPRegressor)
    weight = np.tile([0.5, 1.0, 3.0, 2.5], 10)
    model = DecoupledGPRegressor(kernel=2.0 * RBF([1.0, 1.0]), random_state=0)
    model.fit(X, y, sample_weight=weight)
    check_exact_process(model, X, y, weight)


# -- what training makes of weights ------------------------------------------------------------


@both
@each
@pytest.mark.in_turn("cls")
@pytest.mark.every_nth("parametrization", 2)
def test_a_weight_is_a_repetition(cls, parametrization):
    """Even with several mini-batches, as equal rows are one."""
    X, y = make_data(cls, 120)
    weight = np.repeat([1, 2, 3, 0], 30)
    index = np.random.default_rng(1).permutation(np.repeat(np.arange(120), weight))
    weighted, repeated = (small(cls, parametrization=parametrization) for _ in range(2))
    weighted.fit(X, y, sample_weight=weight)
    repeated.fit(X[index], y[index])
    assert_allclose(say(weighted, X), say(repeated, X), rtol=1e-8)
    assert weighted.n_samples_seen_ == 90
    assert repeated.n_samples_seen_ == 180
    assert not np.allclose(say(weighted, X), say(clone(weighted).fit(X, y), X), rtol=1e-3)


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "poisson"])
@pytest.mark.every_nth("likelihood", 2)
@pytest.mark.thorough
def test_rows_that_are_not_merged_are_repetitions_for_the_coefficients(likelihood, unmerged):
    """One natural-gradient step on all rows, with every place in the basis."""
    X, y = make_data(DecoupledGPRegressor, 20)
    y = np.round(np.abs(y))
    index = np.repeat(np.arange(20), np.tile([1, 3], 10))
    options = {"kernel": RBF(1.0), "learn_hyperparameters": False, "max_iter": 40}
    model = small(DecoupledGPRegressor, likelihood=likelihood, n_mean_basis=0, n_cov_basis=60)
    model.set_params(batch_size=60, **options)
    weighted = clone(model).fit(X, y, sample_weight=np.tile([1.0, 3.0], 10))
    repeated = clone(model).fit(X[index], y[index])
    assert len(repeated.cov_basis_) == 40
    said = say(weighted, X)[:40]
    assert_allclose(said, say(repeated, X)[:40], rtol=1e-4)
    assert_allclose(weighted.lower_bound_, repeated.lower_bound_, rtol=1e-5)


@both
def test_a_row_of_weight_zero_is_left_out(cls):
    X, y = make_data(cls)
    weight = np.tile([1.0, 0.0], 20)
    model = small(cls).fit(X, y, sample_weight=weight)
    assert_array_equal(say(model, X), say(small(cls).fit(X[::2], y[::2]), X))
    assert model.n_samples_seen_ == 20


def test_the_label_of_a_row_of_weight_zero_is_a_class():
    X, y = make_data(DecoupledGPClassifier)
    y[0] = "none"
    model = small(DecoupledGPClassifier).fit(X, y, sample_weight=(y != "none").astype(float))
    assert_array_equal(model.classes_, ["high", "low", "none"])


@both
@pytest.mark.parametrize("replay", [50_000, 40, 0])
@pytest.mark.in_turn("replay")
@pytest.mark.every_nth("cls", 2)
@pytest.mark.thorough
def test_a_weight_is_a_repetition_in_a_stream(cls, replay):
    """Of few rows at first, which are taken again with the next ones."""
    X, y = make_data(cls, 150)
    weight = np.tile([1, 3, 2, 1, 0], 30)
    options = {"classes": np.unique(y)} if cls is DecoupledGPClassifier else {}
    weighted, repeated = (small(cls, replay=replay) for _ in range(2))
    for part in np.split(np.arange(150), [20, 70, 130]):
        index = np.repeat(part, weight[part])
        weighted.partial_fit(X[part], y[part], sample_weight=weight[part], **options)
        repeated.partial_fit(X[index], y[index], **options)
    assert_allclose(say(weighted, X), say(repeated, X), rtol=1e-8)
    assert weighted.n_samples_seen_ == 120
    assert repeated.n_samples_seen_ == weight.sum()


def test_a_stream_of_few_rows_is_a_fit_to_all_of_them():
    X, y = make_data(DecoupledGPRegressor, 30)
    weight = np.tile([1.0, 0.5, 3.0], 10)
    stream = small(DecoupledGPRegressor).partial_fit(X[:12], y[:12], sample_weight=weight[:12])
    stream.partial_fit(X[10:], y[10:], sample_weight=weight[10:])  # two of them again
    weight[10:12] *= 2.0
    expected = small(DecoupledGPRegressor).fit(X, y, sample_weight=weight)
    assert_allclose(say(stream, X), say(expected, X), rtol=1e-10)
    assert stream.n_samples_seen_ == 32


def test_a_stream_without_rows_knows_the_noise_as_well_as_its_weights_say():
    X, y = make_data(DecoupledGPRegressor, 60)
    state = small(DecoupledGPRegressor, replay=0).fit(X, y, sample_weight=2.5)._state
    assert state.summary.n == 150.0
    past = Evaluation(state.model, state.parameters, state.q).as_past(state.summary.n)
    assert_allclose(past.noise_precision, 75.0)


def test_a_sample_has_the_weights_of_its_rows():
    rng, rows = np.random.RandomState(0), np.arange(400.0)
    replay = Replay.of(rows[:30, None], Targets(rows[:30]), 50, rng)
    assert replay.targets.weight is None
    replay = replay.add(rows[30:, None], Targets(rows[30:], rows[30:] + 1.0), rng)
    expected = np.where(replay.targets.y < 30.0, 1.0, replay.targets.y + 1.0)
    assert_array_equal(replay.targets.weight, expected)
    assert_array_equal(replay.targets.y, replay.X[:, 0])


@pytest.mark.thorough
@both
def test_rows_of_almost_no_weight_do_not_matter(cls):
    """Wrong rows, which would otherwise spoil what is learned."""
    X, y = make_data(cls, 80)
    wrong = np.arange(80) % 3 == 0
    weight = np.where(wrong, 1e-6, 1.0)
    spoiled = y.copy()
    spoiled[wrong] = y[wrong] + 50.0 if cls is DecoupledGPRegressor else "low"
    model = small(cls, max_iter=20)
    right = model.fit(X, spoiled, sample_weight=weight).score(X[~wrong], y[~wrong])
    assert right > 0.8
    assert right > model.fit(X, spoiled).score(X[~wrong], y[~wrong]) + 0.05


@both
@pytest.mark.every_nth("cls", 2)
def test_scikit_learns_check(cls):
    check_sample_weight_equivalence_on_dense_data(cls.__name__, cls(max_iter=5))


# -- weights of classes ------------------------------------------------------------------------


def test_weights_of_classes_multiply_those_of_rows():
    X, y = make_data(DecoupledGPClassifier)
    weight = np.tile([1.0, 2.0], 20)
    model = small(DecoupledGPClassifier, class_weight={"high": 3.0})
    expected = small(DecoupledGPClassifier).fit(
        X, y, sample_weight=np.where(y == "high", 3.0, 1.0) * weight
    )
    assert_array_equal(say(model.fit(X, y, sample_weight=weight), X), say(expected, X))


@pytest.mark.parametrize("sizes", [[100], [20, 80], [50, 10, 40]], ids=str)
@pytest.mark.every_nth("sizes", 2)
def test_balanced_classes_of_a_stream_are_those_of_all_rows(sizes):
    X, y = make_data(DecoupledGPClassifier, 100)
    y[:90][y[:90] == "low"] = "high"
    y[:4] = "low"
    model = small(DecoupledGPClassifier, class_weight="balanced")
    for part in np.split(np.arange(100), np.cumsum(sizes)[:-1]):
        model.partial_fit(X[part], y[part], ["high", "low"], np.full(len(part), 2.0))
    totals = np.array([np.sum(y == "high"), np.sum(y == "low")])
    assert_allclose(model._state.class_weights, 50.0 / totals)
    targets = model._state.functions.replay.targets
    for sign, total in zip([-1.0, 1.0], totals, strict=True):
        assert_allclose(targets.counts[targets.y[:, 0] == sign], 2.0 * 50.0 / total)


@pytest.mark.parametrize("change", [False, True])
@pytest.mark.every_nth("change", 2)
def test_a_stream_with_weights_of_classes_that_begins_again_is_the_fit_to_all_rows(change):
    """Of weights w, 1 / w times w is not always 1."""
    X, y = make_data(DecoupledGPClassifier)
    class_weight = {"high": 0.73, "low": 0.91}
    assert any(w * (1.0 / w) != 1.0 for w in class_weight.values())
    model = small(DecoupledGPClassifier, class_weight=class_weight)
    model.partial_fit(X[:20], y[:20], ["high", "low"])
    if change:
        model.set_params(class_weight={"high": 0.37, "low": 1.9})
    expected = clone(model).fit(X, y)
    assert_array_equal(say(model.partial_fit(X[20:], y[20:]), X), say(expected, X))


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({"other": 2.0}, "not among the classes"),
        ({"low": 0.0}, "finite and positive"),
        ({"low": "many"}, "class_weight must hold numbers"),
        ({"low": None}, "class_weight must be finite and positive"),
        ({"low": 1e300}, "sample_weight times class_weight must be between"),
    ],
)
def test_bad_weights_of_classes(class_weight, message):
    X, y = make_data(DecoupledGPClassifier)
    with pytest.raises(ValueError, match=message):
        small(DecoupledGPClassifier, class_weight=class_weight).fit(X, y)
