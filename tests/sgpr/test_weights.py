"""Weights of rows: a weight is a repetition, zero leaves out, and fractions count as such."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from skvbgp import VBDTCRegressor, VBFITCRegressor
from skvbgp._core.linalg import JITTER
from skvbgp.base import _start as base_start
from skvbgp.base import choose_inducing_inputs
from skvbgp.sgpr import _start
from skvbgp.sgpr._bound import Evaluation
from skvbgp.sgpr._start import Sample
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import (
    BLOCKED,
    INDEPENDENT,
    REGRESSORS,
    SOLVERS,
    SPARSE_SOLVERS,
    make_data,
    small,
)
from tests.sgpr.problems import (
    EXPECTATIONS,
    KINDS,
    REPETITIONS,
    check_exact_gradient,
    check_gradient,
    check_memory_of_repetitions,
    check_repetitions,
    mixture_of,
    random_q,
    row_problem,
    small_problem,
)
from tests.weights import (
    assert_same,
    check_streams_of_copies,
    draw_weights,
)

pytestmark = pytest.mark.usefixtures("quick_block_start")

independent = pytest.mark.parametrize("cls", INDEPENDENT)
kinds = pytest.mark.parametrize("kind", KINDS)

FRACTIONS = np.array([0.3, 2.0, 1.0, 0.7, 3.5, 1.0, 0.01, 1.2, 5.0, 0.5, 1.7])


def weighted_problem(kind, weight=FRACTIONS):
    problem = small_problem(kind)
    return replace(problem, data=replace(problem.data, weight=weight))


# -- the bound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dtc", "fitc"])
def test_a_weight_multiplies_a_rows_term(kind):
    problem, q = weighted_problem(kind), random_q(4)
    plain, n = small_problem(kind), len(FRACTIONS)
    arguments = problem.Z, *problem.moments_of_s(q), *problem.theta, problem.C, JITTER
    terms = [
        oracles.weighted_log_likelihood(*problem.scaled, weight, *arguments)
        for weight in (FRACTIONS, np.ones(n))
    ]
    values = [p.evaluation().gradient(q)[0] for p in (problem, plain)]
    assert_allclose(values[0] - values[1], terms[0] - terms[1], rtol=1e-9)


def test_copies_share_the_residual_of_their_block():
    problem, q = weighted_problem("pitc"), random_q(4)
    twins = []
    for weight in (FRACTIONS, np.ones(11)):
        twins.append(
            oracles.weighted_block_log_likelihood(
                *problem.scaled,
                weight,
                problem.Z,
                *problem.moments_of_s(q),
                *problem.theta,
                problem.C,
                problem.parameters.noise_variance,
                JITTER,
            )
        )
    values = [p.evaluation().gradient(q)[0] for p in (problem, small_problem("pitc"))]
    assert_allclose(values[0] - values[1], twins[0] - twins[1], rtol=1e-9)


@pytest.mark.parametrize(("kind", "expectation"), EXPECTATIONS)
def test_the_bound_is_that_of_the_repeated_rows(kind, expectation):
    weighted = weighted_problem(kind, REPETITIONS.astype(float))
    check_repetitions(weighted, small_problem(kind), expectation)


@pytest.mark.parametrize(("kind", "expectation"), EXPECTATIONS)
@pytest.mark.every_nth("kind", 2)
def test_gradient(kind, expectation):
    check_gradient(weighted_problem(kind), expectation)


@kinds
def test_the_memory_is_that_of_the_repeated_rows(kind):
    weighted = weighted_problem(kind, REPETITIONS.astype(float))
    check_memory_of_repetitions(weighted, small_problem(kind))


def test_minibatches_of_weighted_rows_are_unbiased():
    problem, q = row_problem(12, 2, 4), random_q(4)
    weight = np.tile(FRACTIONS[:4], 3)
    data = replace(problem.data, weight=weight)
    problem = replace(problem, data=data)
    parts = []
    for batch, factor in data.minibatches(4, np.random.RandomState(0)):
        evaluation = Evaluation(problem.model, problem.parameters, batch, [None] * len(batch))
        parts.append((factor * evaluation.information, evaluation.gradient(q, factor)[0]))
    assert len(parts) == 3
    whole = problem.evaluation()
    assert_allclose(np.mean([p for p, _ in parts], axis=0), whole.information, rtol=1e-11)
    assert_allclose(np.mean([v for _, v in parts]), whole.gradient(q)[0], rtol=1e-11)


# -- the exact posterior -----------------------------------------------------------------------


@kinds
def test_exact_bound(kind):
    problem = weighted_problem(kind)
    mixture, p, (X, y) = mixture_of(problem), problem.parameters, problem.scaled
    own = np.full(11, p.noise_variance) if kind == "pitc" else np.diag(problem.C)
    shared = problem.C - np.diag(own)  # by copies
    evidences = []
    for e in mixture.draws:
        sigma_f = p.alpha + np.sqrt(p.beta) * e[-1]
        K = oracles.k_xx(X, X, p.nu + np.sqrt(p.xi) * e[:-1], sigma_f)
        evidences.append(oracles.weighted_evidence(y, K + shared, own, FRACTIONS))
    assert_allclose(mixture.lower_bound, np.mean(evidences) - problem.kl_theta, rtol=1e-8)


@kinds
def test_exact_gradient(kind):
    check_exact_gradient(mixture_of(weighted_problem(kind)))


# -- the estimators ----------------------------------------------------------------------------


def fixed(cls, solver, X, **options):
    """Hyperparameters and inducing inputs stay."""
    if solver != "exact":
        options["inducing_inputs"] = X[::5] + 0.1
    return small(cls, solver, learn_hyperparameters=False, **options)


@pytest.mark.parametrize("solver", SPARSE_SOLVERS)
@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.parametrize("normalize_y", [True, False])
@pytest.mark.in_turn("solver")
@pytest.mark.every_nth("normalize_y", 2)
def test_a_weight_is_a_repetition_and_zero_leaves_out(cls, solver, normalize_y, rng, unmerged):
    X, y = make_data(40)
    weight, repeated = draw_weights(rng, 40)
    options = {"n_blocks": 1} if cls in BLOCKED else {}  # copies are not parted
    model = fixed(cls, solver, X, normalize_y=normalize_y, **options)
    expected = clone(model).fit(X[repeated], y[repeated])
    assert_same(model.fit(X, y, sample_weight=weight), expected, X + 0.1)
    assert model.n_samples_seen_ == np.sum(weight > 0)
    assert expected.n_samples_seen_ == weight.sum()


@pytest.mark.parametrize("normalize_y", [True, False])
def test_a_weight_is_a_repetition_to_the_exact_solver(normalize_y, rng, unmerged):
    X, y = make_data(40)
    weight, repeated = draw_weights(rng, 40)
    model = fixed(VBDTCRegressor, "exact", X, normalize_y=normalize_y)
    expected = clone(model).fit(X[repeated], y[repeated])
    assert_same(model.fit(X, y, sample_weight=weight), expected, X + 0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.in_turn("solver")
def test_training_cannot_tell_a_weight_from_a_repetition(cls, solver, rng):
    """Wherever rows are picked at random: k-means, mini-batches, draws and blocks."""
    X, y = make_data(60)
    check_streams_of_copies(small(cls, solver), [X, X + 0.2], y, rng)


def test_equal_weights_of_one_are_none(rng):
    X, y = make_data(40)
    model = small(VBDTCRegressor, "stochastic")
    expected = clone(model).fit(X, y).predict(X)
    assert_array_equal(model.fit(X, y, sample_weight=np.ones(40)).predict(X), expected)


@independent
def test_a_weight_is_a_repetition_in_a_stream(cls):
    X, y = make_data(120)
    weight = np.repeat([1, 2, 3, 0, 2, 1], 20)
    options = {"noise_variance": 0.3}
    model, stream = (fixed(cls, "collapsed", X, **options) for _ in range(2))
    model.fit(X[:50], y[:50], sample_weight=weight[:50])
    model.partial_fit(X[50:100], y[50:100], sample_weight=weight[50:100])
    model.partial_fit(X[100:], y[100:])  # of weight 1
    for times in (1, 2, 3):
        stream.partial_fit(X[weight >= times], y[weight >= times])
    assert_same(model, stream, X + 0.1)


def test_a_stream_of_few_rows_keeps_their_weights():
    X, y = make_data(40)
    weight = np.repeat([1.0, 0.5, 3.0, 1.0], 10)
    model = small(VBDTCRegressor, "exact").fit(X[:15], y[:15], sample_weight=weight[:15])
    model.partial_fit(X[15:30], y[15:30], sample_weight=weight[15:30])
    model.partial_fit(X[30:], y[30:])
    expected = small(VBDTCRegressor, "exact").fit(X, y, sample_weight=weight)
    assert_same(model, expected, X + 0.1)
    assert model.n_samples_seen_ == 40


@pytest.mark.thorough
@pytest.mark.parametrize("cls", REGRESSORS)
def test_scikit_learns_check(cls):
    """Of the default settings; `test_common` has others."""
    check_sample_weight_equivalence_on_dense_data(cls.__name__, cls())


def test_evidence_of_a_block_is_that_of_the_repeated_rows():
    problem = small_problem("pitc")
    x = np.append(problem.parameters.noise_theta, np.log(problem.parameters.noise_variance)) + 0.1
    index = np.repeat(np.arange(11), REPETITIONS)
    weighted = replace(problem.data.rows(slice(None)), weight=REPETITIONS.astype(float))
    value, gradient = _start._block_evidence(problem.model, x, weighted)
    expected, expected_gradient = _start._block_evidence(problem.model, x, problem.data.rows(index))
    assert_allclose(value, expected, rtol=1e-10)
    assert_allclose(gradient, expected_gradient, rtol=1e-8, atol=1e-9)


@independent
def test_hyperparameters_are_learned_from_halves_as_from_wholes(cls):
    X, y = make_data(30)
    model = small(cls, "collapsed", inducing_inputs=X[::4])
    half = clone(model).fit(np.tile(X, (2, 1)), np.tile(y, 2), sample_weight=0.5)
    model.fit(X, y)
    assert_same(half, model, X, rtol=1e-6)
    assert_allclose(half.noise_variance_, model.noise_variance_, rtol=1e-6)


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.in_turn("solver")
@pytest.mark.every_nth("cls", 2)
@pytest.mark.every_nth("solver", 2)
def test_rows_of_almost_no_weight_do_not_matter(cls, solver):
    """Wrong rows, which would otherwise spoil the noise."""
    X, y = make_data(80)
    wrong = np.arange(80) % 4 == 0
    weight = np.where(wrong, 1e-6, 1.0)
    model = small(cls, solver, max_iter=8, n_inducing=20 if solver != "exact" else 500)
    spoiled = np.where(wrong, y + 50.0, y)
    model.fit(X, spoiled, sample_weight=weight)
    right = np.mean((model.predict(X[~wrong]) - y[~wrong]) ** 2)
    model.fit(X, spoiled)
    assert right < 0.2 * np.mean((model.predict(X[~wrong]) - y[~wrong]) ** 2)


# -- what picks rows ---------------------------------------------------------------------------


def test_starting_rows_are_drawn_by_weight(monkeypatch):
    monkeypatch.setattr(_start, "_SAMPLE_ROWS", 100)
    data = row_problem(1000, 1, 2).data
    weight = np.where(np.arange(1000) < 500, 3.0, 1.0)
    chosen = _start._sample(replace(data, weight=weight), np.random.RandomState(0))
    assert np.sum(chosen < 500) == 75
    assert chosen.max() < 1000


def test_a_sample_has_the_weights_of_its_rows(monkeypatch):
    monkeypatch.setattr(base_start, "SUBSAMPLE", 10)
    X, rng = np.arange(50.0)[:, None], np.random.RandomState(0)
    sample = Sample.of(X, np.arange(50.0), rng)
    assert_array_equal(sample.X[:, 0], sample.weight)
    assert len(sample.weight) == 10
    assert Sample.of(X, None, rng).weight is None


def test_inducing_inputs_are_weighted_means():
    X, weight = np.array([[0.0], [1.0], [4.0]]), np.array([1.0, 2.0, 5.0])
    U = choose_inducing_inputs(X, 1, np.random.RandomState(0), weight)
    assert_allclose(U, [[22.0 / 8.0]])


def test_inducing_inputs_of_a_fit_and_of_later_rows_are_weighted_means(rng):
    X, y = make_data(20)
    weight = rng.uniform(0.1, 5.0, 20)
    model = VBDTCRegressor(1, learn_hyperparameters=False, solver="collapsed")
    model.fit(X, y, sample_weight=weight)
    assert_allclose(model.inducing_inputs_[0], np.average(X, axis=0, weights=weight))
    model = model.set_params(n_inducing=3).fit(X[:2], y[:2])
    model.partial_fit(X, y, sample_weight=weight)
    assert_allclose(model.inducing_inputs_[2], np.average(X, axis=0, weights=weight))


def test_inducing_inputs_of_the_noise_of_few_rows_are_weighted_means():
    X, y = make_data(4)
    weight = np.array([1.0, 2.0, 5.0, 0.5])
    model = VBFITCRegressor(learn_hyperparameters=False, solver="exact")
    model.fit(X, y, sample_weight=weight)
    assert_allclose(model.inducing_inputs_[0], np.average(X, axis=0, weights=weight))


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", REGRESSORS)
def test_rows_of_dask_have_no_weights(cls):
    da = pytest.importorskip("dask.array")
    X, y = make_data(30)
    lazy = da.from_array(X), da.from_array(y), da.ones(30)
    for collections in (lazy, (*lazy[:2], 2.0), (X, y, lazy[2])):
        with pytest.raises(TypeError, match="sample_weight"):
            small(cls, "stochastic").fit(*collections)
