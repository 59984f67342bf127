"""Weights of rows: a weight is a repetition, zero leaves out, and fractions count as such."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from skvbgp import EPDTCClassifier
from skvbgp._core.gaussian import InducingOutputs
from skvbgp.ep._bound import Objective, make_vague, solve
from skvbgp.ep._features import SparsePrior
from skvbgp.ep._inputs import InputModel
from skvbgp.ep._sites import Sites
from tests.derivatives import assert_slopes
from tests.ep.cases import make_labels
from tests.ep.problems import (
    APPROXIMATIONS,
    JITTER,
    KERNEL,
    PARALLEL,
    SEQUENTIAL,
    small_inputs,
    small_labels,
)
from tests.ep.test_bound import small_problem
from tests.oracles import ep as oracles

TOL = 1e-12
each = pytest.mark.parametrize("approximation", APPROXIMATIONS)
schedules = pytest.mark.parametrize("schedule", [PARALLEL, SEQUENTIAL], ids=lambda s: s.name)

REPETITIONS = np.array([1, 3, 2, 1, 4, 1, 2, 1])
REPEATED = np.repeat(np.arange(8), REPETITIONS)
FRACTIONS = np.array([0.3, 2.0, 1.0, 0.7, 3.5, 0.01, 1.2, 5.0, 1.7, 0.5, 2.5, 1.0])


def small(**options):
    return EPDTCClassifier(**{"n_inducing": 8, "max_iter": 3, "random_state": 0, **options})


def say(model, X):
    return np.append(model.predict_proba(X), model.log_marginal_likelihood_value_)


# -- expectation propagation -------------------------------------------------------------------


@each
@schedules
def test_equal_rows_have_equal_sites(approximation, schedule):
    inputs, Z = small_inputs(), np.random.default_rng(1).standard_normal((4, 2))
    inducing, t = InducingOutputs(KERNEL, Z), small_labels(inputs)
    prior = SparsePrior(inducing, inputs, approximation)
    weighted = schedule.run(t, prior.A, prior.noise, Sites.vague(8), TOL, REPETITIONS.astype(float))
    prior = SparsePrior(inducing, inputs.rows(REPEATED), approximation)
    repeated = schedule.run(t[REPEATED], prior.A, prior.noise, Sites.vague(15), TOL)
    assert weighted.converged
    for name in ("tau", "nu"):
        found = getattr(weighted.posterior.sites, name)
        assert_allclose(found[REPEATED], getattr(repeated.posterior.sites, name), atol=1e-10)
    assert_allclose(weighted.posterior.mean, repeated.posterior.mean, atol=1e-10)
    assert_allclose(weighted.posterior.covariance, repeated.posterior.covariance, atol=1e-10)
    assert_allclose(weighted.log_evidence, repeated.log_evidence, rtol=1e-10)
    assert_allclose(
        weighted.d_noise, np.bincount(REPEATED, repeated.d_noise), rtol=1e-8, atol=1e-10
    )


@each
@pytest.mark.every_nth("approximation", 3)
def test_evidence_is_that_of_dense_ep_on_the_repeated_rows(approximation):
    problem, p = small_problem(approximation, n=8)
    solution = solve(
        replace(problem, weight=REPETITIONS.astype(float)), p, make_vague(problem), TOL
    )
    inputs = p.refinement.refine(problem.conditional, problem.missing).rows(REPEATED)
    variance, length_scale = p.kernel.kernels[0].value, np.array(p.kernel.kernels[1].length_scale)
    evidence, tau, _ = oracles.corrected_evidence(
        inputs.mean,
        inputs.variance,
        problem.T[0][REPEATED],
        p.Z,
        variance,
        length_scale,
        approximation,
        JITTER,
    )
    assert_allclose(solution.log_evidence, [evidence], rtol=1e-7)
    assert_allclose(solution.latent_sites[0].tau[REPEATED], tau, rtol=1e-6)


@schedules
@pytest.mark.parametrize("weight", [0.01, 0.1, 0.3])
def test_a_row_of_little_weight_has_a_power_of_its_likelihood(schedule, weight):
    """Of one row, EP is exact."""
    A, power = np.array([[np.sqrt(10.0)]]), np.array([weight])
    fixpoint = schedule.run(np.ones(1), A, np.zeros(1), Sites.vague(1), 1e-9, power)
    log_z, mean, variance = oracles.tempered_probit(1.0, 0.0, 10.0, 0.0, weight)
    assert fixpoint.converged
    assert_allclose(fixpoint.posterior.marginal_mean, mean, rtol=1e-3)
    assert_allclose(fixpoint.posterior.marginal_variance, variance, rtol=1e-3)
    assert_allclose(fixpoint.log_evidence, log_z, rtol=1e-3)


def test_the_weight_of_one_is_no_jump():
    problem, p = small_problem("fitc")
    evidences = []
    for weight in (1.0 - 1e-7, 1.0):
        weighted = replace(problem, weight=np.full(12, weight))
        evidences.append(solve(weighted, p, make_vague(problem), TOL).log_evidence)
    assert_allclose(*evidences, rtol=1e-5)


@each
@pytest.mark.parametrize("per", ["column", "entry", None])
@pytest.mark.every_nth("approximation", 2)
@pytest.mark.every_nth("per", 2)
def test_gradient(approximation, per):
    problem, p = small_problem(approximation, per=per)
    problem = replace(problem, weight=FRACTIONS)
    weights = solve(problem, p, make_vague(problem), TOL).correction_weights
    objective = Objective(problem, p, weights, make_vague(problem), learn_inducing=True, tol=TOL)
    _, gradient = objective(objective.x)
    assert_slopes(lambda x: objective(x)[0], objective.x, gradient, atol=1e-6)


def test_objective_is_that_of_the_repeated_rows():
    problem, p = small_problem(n=8)
    repeated = replace(
        problem,
        T=problem.T[:, REPEATED],
        conditional=problem.conditional.rows(REPEATED),
        missing=problem.missing[REPEATED],
    )
    found = []
    for one in (replace(problem, weight=REPETITIONS.astype(float)), repeated):
        weights = solve(one, p, make_vague(one), TOL).correction_weights
        objective = Objective(one, p, weights, make_vague(one), learn_inducing=True, tol=TOL)
        found.append(objective(objective.x))
    assert_allclose(found[0][0], found[1][0], rtol=1e-10)
    assert_allclose(found[0][1], found[1][1], atol=1e-8)


def test_columns_are_those_of_the_repeated_rows():
    X = make_labels(8, 3, missing=0.2)[0]
    weighted = InputModel.of(X, REPETITIONS.astype(float))
    repeated = InputModel.of(X[REPEATED])
    assert_allclose(weighted.coordinates.offset, repeated.coordinates.offset, rtol=1e-12)
    assert_allclose(weighted.coordinates.scale, repeated.coordinates.scale, rtol=1e-12)
    assert_allclose(weighted.gaussian.mean, repeated.gaussian.mean, atol=1e-10)
    assert_allclose(weighted.gaussian.covariance, repeated.gaussian.covariance, atol=1e-10)


# -- the estimator -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"approximation": "fitc"}, {"refine": "entry"}, {"schedule": "sequential", "max_iter": 1}],
    ids=str,
)
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.in_turn("missing")
@pytest.mark.every_nth("options", 3)
def test_a_weight_is_a_repetition(options, missing):
    X, y = make_labels(60, missing=missing)
    weight = np.tile([1, 2, 0, 3], 15)
    index = np.random.default_rng(1).permutation(np.repeat(np.arange(60), weight))
    weighted = small(**options).fit(X, y, sample_weight=weight)
    repeated = small(**options).fit(X[index], y[index])
    assert_allclose(say(weighted, X), say(repeated, X), rtol=1e-8)
    assert_allclose(weighted.site_precision_[index], repeated.site_precision_, rtol=1e-8)
    assert_array_equal(weighted.site_precision_ == 0.0, weight == 0)
    assert not np.allclose(say(weighted, X), say(small(**options).fit(X, y), X), rtol=1e-3)


@each
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.every_nth("missing", 2)
def test_rows_that_are_not_merged_are_repetitions_all_the_same(approximation, missing, unmerged):
    X, y = make_labels(40, missing=missing)
    weight = np.tile([1, 3], 20)
    index = np.repeat(np.arange(40), weight)
    model = small(
        kernel=KERNEL,
        inducing_inputs=np.random.default_rng(0).standard_normal((8, 2)),
        approximation=approximation,
        learn_hyperparameters=False,
    )
    expected = say(model.fit(X[index], y[index]), X)
    assert len(model.site_precision_) == 80
    assert_allclose(say(model.fit(X, y, sample_weight=weight), X), expected, rtol=1e-8)


def test_uncertain_rows_are_equal_if_their_variances_are():
    X, y = make_labels(30)
    X_var = np.full_like(X, 0.2)
    twice = np.tile(np.arange(30), 2)
    weighted = small().fit(X, y, X_var, sample_weight=2.0)
    repeated = small().fit(X[twice], y[twice], X_var[twice])
    assert_allclose(say(weighted, X), say(repeated, X), rtol=1e-8)
    X_var[::2] = 0.4
    other = small().fit(X[twice], y[twice], np.vstack([X_var, np.full_like(X, 0.2)]))
    assert len(other._state.inputs) == 45


def test_a_weight_is_a_repetition_in_a_stream():
    """Of few rows at first, which are taken again with the next ones."""
    X, y = make_labels(90, missing=0.1)
    weight = np.tile([1, 3, 2, 0, 1], 18)
    weighted, repeated = small(), small()
    for part in np.split(np.arange(90), [20, 50]):
        index = np.repeat(part, weight[part])
        weighted.partial_fit(X[part], y[part], [0, 1], sample_weight=weight[part])
        repeated.partial_fit(X[index], y[index], [0, 1])
    assert_allclose(say(weighted, X), say(repeated, X), rtol=1e-8)
    sites = np.repeat(weighted.site_precision_, weight)
    assert_allclose(sites, repeated.site_precision_, rtol=1e-8)


def test_a_stream_of_few_rows_is_a_fit_to_all_of_them():
    X, y = make_labels(40)
    weight = np.tile([1.0, 0.5, 3.0, 0.0], 10)
    stream = small().partial_fit(X[:12], y[:12], [0, 1], sample_weight=weight[:12])
    stream.partial_fit(X[8:], y[8:], sample_weight=weight[8:])  # some of them again
    expected = small().fit(X, y, sample_weight=weight * np.where(np.arange(40) // 4 == 2, 2.0, 1.0))
    assert_allclose(say(stream, X), say(expected, X), rtol=1e-8)
    assert_allclose(np.delete(stream.site_precision_, np.s_[8:12]), expected.site_precision_)


def test_inducing_inputs_are_weighted_means(rng):
    X, y = make_labels(20)
    weight = rng.uniform(0.1, 5.0, 20)
    options = {"n_inducing": 1, "learn_hyperparameters": False}
    model = small(**options).fit(X, y, sample_weight=weight)
    assert_allclose(model.inducing_inputs_[0], np.average(X, axis=0, weights=weight))
    model = small(**{**options, "n_inducing": 3}).fit(X[:2], y[:2] * 0 + [0, 1])
    model.partial_fit(X, y, sample_weight=weight)
    assert_allclose(model.inducing_inputs_[2], np.average(X, axis=0, weights=weight))


def test_rows_of_almost_no_weight_do_not_matter():
    X, y = make_labels(80)
    wrong = np.arange(80) % 3 == 0
    spoiled = np.where(wrong, 0, y)
    weight = np.where(wrong, 1e-6, 1.0)
    found = small(max_iter=10).fit(X, spoiled, sample_weight=weight).predict_proba(X)
    expected = small(max_iter=10).fit(X[~wrong], y[~wrong]).predict_proba(X)
    assert np.mean(np.abs(found - expected)) < 0.05
    assert np.mean(np.abs(small(max_iter=10).fit(X, spoiled).predict_proba(X) - expected)) > 0.1


@pytest.mark.filterwarnings("ignore:EP has not converged")
@pytest.mark.parametrize(
    ("n", "options"), [(15, {"max_iter": 3}), pytest.param(40, {}, marks=pytest.mark.thorough)]
)
def test_weights_of_all_sizes_leave_finite_probabilities(n, options):
    rng = np.random.RandomState(0)
    X = rng.randn(90, 3)
    y = (X[:, 0] + 0.5 * rng.randn(90) > 0).astype(int)[:n]
    weight = 10.0 ** np.linspace(-6.0, 6.0, n)
    model = EPDTCClassifier(**options, random_state=0).fit(X[:n], y, sample_weight=weight)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.thorough
@pytest.mark.parametrize("n_inducing", [100, 4])
def test_scikit_learns_check(n_inducing):
    model = EPDTCClassifier(n_inducing)
    check_sample_weight_equivalence_on_dense_data(type(model).__name__, model)


# -- weights of classes ------------------------------------------------------------------------


def test_weights_of_classes_multiply_those_of_rows():
    X, y = make_labels(40)
    weight = np.tile([1.0, 2.0], 20)
    model = small(class_weight={1: 3.0}).fit(X, y, sample_weight=weight)
    expected = small().fit(X, y, sample_weight=np.where(y == 1, 3.0, 1.0) * weight)
    assert_allclose(say(model, X), say(expected, X), rtol=1e-8)


def test_balanced_classes_of_a_stream_are_those_of_all_rows():
    X, y = make_labels(80)
    y = y * (np.arange(80) % 3 == 0)
    model = small(class_weight="balanced", learn_hyperparameters=False, kernel=KERNEL)
    model.set_params(inducing_inputs=X[:8]).fit(X, y)
    stream = small(**{**model.get_params(deep=False), "random_state": 0})
    for part in (slice(0, 50), slice(50, 80)):
        stream.partial_fit(X[part], y[part], [0, 1])
    assert_allclose(say(stream, X), say(model, X), rtol=1e-6)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({2: 2.0}, "not among the classes"),
        ({1: 0.0}, "finite and positive"),
        ({1: 1e300}, "sample_weight times class_weight must be between"),
    ],
)
def test_bad_weights_of_classes(class_weight, message):
    with pytest.raises(ValueError, match=message):
        small(class_weight=class_weight).fit(*make_labels(40))
