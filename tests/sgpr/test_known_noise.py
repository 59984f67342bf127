"""Known variances of rows' noise: they add to the learned ones, in training and in prediction."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPICRegressor
from skvbgp._core.linalg import JITTER
from skvbgp.kernels import RBF
from skvbgp.sgpr import _start
from tests.derivatives import numerical_gradient
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import (
    BLOCKED,
    GIVEN,
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
    small_problem,
)
from tests.weights import assert_same, draw_weights

pytestmark = pytest.mark.usefixtures("quick_block_start")

kinds = pytest.mark.parametrize("kind", KINDS)

#: Of the scaled target; sigma_n^2 is 0.2.
VARIANCES = np.array([0.0, 0.3, 2.0, 0.05, 0.0, 1.0, 40.0, 0.01, 0.6, 0.2, 0.0])


def known_problem(kind, weight=None):
    problem = small_problem(kind)
    return replace(problem, data=replace(problem.data, weight=weight, variance=VARIANCES))


# -- the bound ---------------------------------------------------------------------------------


@kinds
def test_value(kind):
    problem, q = known_problem(kind), random_q(4)
    prior = problem.model.hyperprior
    moments = problem.moments_of_s(q)
    assert_allclose(np.diag(problem.C) - np.diag(small_problem(kind).C), VARIANCES, atol=1e-12)
    arguments = problem.Z, *moments, *problem.theta, problem.C, prior.mean, prior.variance
    expected = oracles.bound(*problem.scaled, *arguments, JITTER)
    assert_allclose(problem.evaluation().gradient(q)[0], expected, rtol=1e-10)


@pytest.mark.parametrize(("kind", "expectation"), EXPECTATIONS)
@pytest.mark.every_nth("kind", 2)
def test_the_bound_is_that_of_the_repeated_rows(kind, expectation):
    weighted = known_problem(kind, REPETITIONS.astype(float))
    check_repetitions(weighted, known_problem(kind), expectation)


@pytest.mark.parametrize(("kind", "expectation"), EXPECTATIONS)
@pytest.mark.parametrize("weight", [None, 0.3 * REPETITIONS], ids=["rows", "weighted"])
@pytest.mark.every_nth("weight", 2)
@pytest.mark.every_nth("kind", 3)
def test_gradient(kind, expectation, weight):
    check_gradient(known_problem(kind, weight), expectation)


@kinds
def test_the_memory_is_that_of_the_rows(kind):
    """Whose sums the dense inverse of C gives."""
    problem = known_problem(kind)
    memory, C_inv = problem.memory(), np.linalg.inv(problem.C)
    X, y = problem.scaled
    targets = np.column_stack([y, np.ones(len(y))])
    prior_means = oracles.omega(X, problem.Z, *problem.theta[:2], 1.0)
    L_inv = memory.prior.L_inv
    assert_allclose(memory.sums.targets_gram, targets.T @ C_inv @ targets, rtol=1e-10)
    expected = L_inv @ prior_means.T @ C_inv @ targets
    assert_allclose(memory.sums.targets_information, expected, rtol=1e-9, atol=1e-10)
    assert_allclose(memory.sums.log_det, np.linalg.slogdet(problem.C)[1], rtol=1e-10)


@kinds
def test_the_memory_is_that_of_the_repeated_rows(kind):
    weighted = known_problem(kind, REPETITIONS.astype(float))
    check_memory_of_repetitions(weighted, known_problem(kind))


# -- the exact posterior -----------------------------------------------------------------------


@kinds
def test_exact_bound(kind):
    problem = known_problem(kind)
    mixture, p, (X, y) = mixture_of(problem), problem.parameters, problem.scaled
    evidences = []
    for e in mixture.draws:
        sigma_f = p.alpha + np.sqrt(p.beta) * e[-1]
        K = oracles.k_xx(X, X, p.nu + np.sqrt(p.xi) * e[:-1], sigma_f)
        C = K + problem.C
        evidences.append(-0.5 * (np.linalg.slogdet(2.0 * np.pi * C)[1] + y @ np.linalg.solve(C, y)))
    assert_allclose(mixture.lower_bound, np.mean(evidences) - problem.kl_theta, rtol=1e-8)


@kinds
@pytest.mark.parametrize("weight", [None, 0.3 * REPETITIONS], ids=["rows", "weighted"])
@pytest.mark.every_nth("weight", 2)
def test_exact_gradient(kind, weight):
    check_exact_gradient(mixture_of(known_problem(kind, weight)))


# -- the start ---------------------------------------------------------------------------------


def test_evidence_of_a_block():
    problem = known_problem("pitc", 0.3 * REPETITIONS)
    p, rows = problem.parameters, problem.data.rows(problem.groups[0])
    x = np.append(p.noise_theta, np.log(p.noise_variance)) + 0.1
    value, gradient = _start._block_evidence(problem.model, x, rows)
    X = problem.data.X[problem.groups[0]]
    scale, *lengths = np.exp(x[:-1])
    K = problem.model.structure.scale * scale * oracles.se(X / lengths, X / lengths)
    expected = oracles.weighted_evidence(rows.y, K, np.exp(x[-1]) + rows.variance, rows.weight)
    assert_allclose(value, expected, rtol=1e-8)
    numerical = numerical_gradient(lambda x: _start._block_evidence(problem.model, x, rows)[0], x)
    assert_allclose(gradient, numerical, rtol=1e-7, atol=1e-8)


def test_a_sample_prefers_rows_that_are_known_well(monkeypatch):
    monkeypatch.setattr(_start, "_SAMPLE_ROWS", 5)
    data = replace(small_problem("dtc").data, variance=np.repeat([1e6, 0.0], [6, 5]))
    chosen = _start._sample(data, np.random.RandomState(0))
    assert_array_equal(np.sort(chosen), np.arange(6, 11))


# -- the estimators ----------------------------------------------------------------------------


def fixed(cls, solver, X, **options):
    """Hyperparameters and inducing inputs stay."""
    if solver != "exact":
        options["inducing_inputs"] = X[::5] + 0.1
    if cls is not VBDTCRegressor:
        options["noise_kernel"] = 0.5 * RBF([1.0, 2.0])
    if cls in BLOCKED:
        options = {"n_blocks": 2, **options}
    return small(cls, solver, learn_hyperparameters=False, **{**GIVEN, **options})


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.every_nth("cls", 2)
def test_what_all_rows_share_is_a_learned_variance(cls, solver):
    X, y = make_data()
    told = fixed(cls, solver, X).fit(X, y, y_var=0.4)
    expected = fixed(cls, solver, X, noise_variance=0.7).fit(X, y)
    assert_allclose(told.lower_bound_, expected.lower_bound_, rtol=1e-8)
    found = told.predict(X + 0.1, return_std=True, y_var=0.4)
    for one, other in zip(found, expected.predict(X + 0.1, return_std=True), strict=True):
        assert_allclose(one, other, rtol=1e-8)
    covariances = [
        model.predict(X[:9], return_cov=True, include_noise=False)[1] for model in (told, expected)
    ]
    assert_allclose(*covariances, atol=1e-8)
    assert_allclose(told.noise_variance_, 0.3)


@pytest.mark.parametrize(
    ("cls", "solver"), [(VBDTCRegressor, "exact"), *product(REGRESSORS, SPARSE_SOLVERS)]
)
@pytest.mark.every_nth("cls", 2)
def test_a_row_of_which_next_to_nothing_is_known_is_left_out(cls, solver, rng):
    """Its place is still one of the noise's inducing inputs, where "exact" has some."""
    X, y = make_data()
    bad = np.arange(40) % 4 == 0
    spoiled = y + 3.0 * bad * rng.standard_normal(40)
    options = {"normalize_y": False} | ({"n_blocks": 1} if cls in BLOCKED else {})
    told = fixed(cls, solver, X, **options).fit(X, spoiled, y_var=1e13 * bad)
    expected = fixed(cls, solver, X, **options).fit(X[~bad], y[~bad])
    found, others = (m.predict(X + 0.1, True, include_noise=False) for m in (told, expected))
    for one, other in zip(found, others, strict=True):
        assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("solver", SPARSE_SOLVERS)
@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.in_turn("solver")
@pytest.mark.every_nth("cls", 2)
def test_a_weight_is_a_repetition_and_zero_leaves_out(cls, solver, rng, unmerged):
    X, y = make_data()
    y_var = rng.choice([0.0, 0.5], 40)
    weight, repeated = draw_weights(rng, 40)
    options = {"n_blocks": 1} if cls in BLOCKED else {}  # copies are not parted
    model = fixed(cls, solver, X, **options)
    expected = clone(model).fit(X[repeated], y[repeated], y_var=y_var[repeated])
    assert_same(model.fit(X, y, sample_weight=weight, y_var=y_var), expected, X + 0.1)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.in_turn("solver")
@pytest.mark.every_nth("cls", 4)
def test_training_cannot_tell_a_weight_from_a_repetition(cls, solver, rng):
    X, y = make_data(60)
    y_var = rng.uniform(0.0, 0.5, 60)
    weight, repeated = draw_weights(rng, 60)
    model = small(cls, solver).fit(X, y, sample_weight=weight, y_var=y_var)
    expected = small(cls, solver).fit(X[repeated], y[repeated], y_var=y_var[repeated])
    for one, other in zip(model.predict(X, True), expected.predict(X, True), strict=True):
        assert_allclose(one, other, rtol=1e-10)


@pytest.mark.parametrize("cls", INDEPENDENT)
@pytest.mark.parametrize("normalize_y", [True, False])
@pytest.mark.every_nth("normalize_y", 2)
def test_chunks_are_a_fit_to_all(cls, normalize_y):
    """Though the unit of y is another with each, and some chunks know nothing."""
    X, y = make_data(120)
    y[60:] *= 3.0
    y_var = np.repeat([0.0, 0.5, 0.0, 2.0, 0.0, 0.1], 20)
    whole, stream = (fixed(cls, "collapsed", X, normalize_y=normalize_y) for _ in range(2))
    whole.fit(X, y, y_var=y_var)
    for rows in np.split(np.arange(120), 6):
        stream.partial_fit(X[rows], y[rows], y_var=y_var[rows] if y_var[rows[0]] else None)
    for one, other in zip(stream.predict(X, True), whole.predict(X, True), strict=True):
        assert_allclose(one, other, rtol=1e-7)


def test_known_noise_stays_on_the_scale_of_y():
    """Where the rest is relative to y's spread: what is learned of later rows moves none of it."""
    X, y = make_data(400)
    model = VBDTCRegressor(
        10, solver="collapsed", learn_hyperparameters=False, noise_variance=None, random_state=0
    )
    model.fit(X[:200], y[:200], y_var=0.5)
    before = model.noise_variance_
    assert_allclose(before, 0.1 * np.var(y[:200]))
    model.partial_fit(X[200:], 3.0 * y[200:])
    assert_allclose(model.noise_variance_, before)


def test_blocks_that_are_kept_keep_their_noise():
    X, y = make_data(120)
    y[60:] *= 2.0
    y_var = np.repeat([0.0, 0.5, 2.0, 0.1], 30)
    model = fixed(VBPICRegressor, "collapsed", X, normalize_y=False)
    model.fit(X[:60], y[:60], y_var=y_var[:60]).partial_fit(X[60:], y[60:], y_var=y_var[60:])
    blocks = model._state.blocks
    kept = np.concatenate([targets.variance for targets in blocks.targets])
    assert_array_equal(np.sort(kept), np.sort(y_var))
    posterior = model._learner().posterior(model._state)
    rows, unit = posterior._rows(3), model._state.target.unit
    assert_allclose(rows.variance * unit**2, blocks.targets[3].variance)


@pytest.mark.parametrize("cls", [VBDTCRegressor, VBFITCRegressor])
@pytest.mark.every_nth("cls", 2)
def test_a_stream_of_few_rows_keeps_their_noise(cls):
    X, y = make_data()
    y_var = np.repeat([0.0, 0.5, 2.0, 0.0], 10)
    model = small(cls, "exact").fit(X[:15], y[:15], y_var=y_var[:15])
    model.partial_fit(X[15:30], y[15:30], y_var=y_var[15:30])
    model.partial_fit(X[30:], y[30:])
    assert_same(model, small(cls, "exact").fit(X, y, y_var=y_var), X + 0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("cls", INDEPENDENT)
@pytest.mark.in_turn("cls")
def test_what_is_known_is_not_learned(cls, solver):
    """Rows of two qualities: the learned noise is that of the good ones."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (200, 1))
    y_var = np.where(rng.uniform(size=200) < 0.5, 0.0, 1.0)
    y = np.sin(X[:, 0]) + np.sqrt(0.01 + y_var) * rng.standard_normal(200)
    places = np.linspace(-3.0, 3.0, 50)[:, None]
    model = cls(
        200 if solver == "exact" else 15, solver=solver, max_iter=60, batch_size=50, random_state=0
    )
    told = clone(model).fit(X, y, y_var=y_var)
    model.fit(X, y)
    noise = [m.predict(places, return_std=True)[1] for m in (told, model)]
    assert np.median(noise[0]) < 0.2 < 0.5 < np.median(noise[1])
    errors = [np.mean((m.predict(places) - np.sin(places[:, 0])) ** 2) for m in (told, model)]
    assert errors[0] < 0.5 * errors[1]


def test_a_stream_learns_on_with_known_noise():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (600, 1))
    y_var = np.where(rng.uniform(size=600) < 0.5, 0.0, 1.0)
    y = np.sin(X[:, 0]) + np.sqrt(0.01 + y_var) * rng.standard_normal(600)
    model = VBDTCRegressor(15, solver="collapsed", random_state=0)
    for rows in np.split(np.arange(600), 3):
        model.partial_fit(X[rows], y[rows], y_var=y_var[rows])
    assert 0.005 < model.noise_variance_ < 0.03


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.every_nth("cls", 2)
def test_rows_of_dask_have_no_known_noise(cls):
    da = pytest.importorskip("dask.array")
    X, y = make_data(30)
    lazy = da.from_array(X), da.from_array(y), da.ones(30)
    model = small(cls, "stochastic")
    for X_given, y_given, y_var in (lazy, (*lazy[:2], 2.0), (X, y, lazy[2])):
        with pytest.raises(TypeError, match="y_var"):
            model.fit(X_given, y_given, y_var=y_var)
    model.fit(X, y)
    with pytest.raises(TypeError, match="y_var"):
        model.predict(lazy[0], y_var=1.0)
