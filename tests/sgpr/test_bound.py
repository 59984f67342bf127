"""The complete bound: its value, its optimum, its gradient, and what it is a bound of."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import JITTER
from skvbgp.kernels import RBF, Constant
from skvbgp.sgpr import _data
from skvbgp.sgpr._bound import Evaluation, Prior
from skvbgp.sgpr._data import Coordinates, Data, Rows, Target
from skvbgp.sgpr._noise import HyperPrior, Model, White
from skvbgp.sgpr._parameters import LEARNED, Parameters
from tests.derivatives import assert_slopes, numerical_gradient
from tests.oracles import sgpr as oracles
from tests.sgpr.problems import (
    EXPECTATIONS,
    KINDS,
    NOISE_SCALE,
    Problem,
    common_draws,
    draws_of,
    past_of,
    pseudo_likelihood,
    random_q,
    row_draws,
    row_problem,
    small_problem,
    structure_of,
)

#: kind, expectation, weight of the data terms, whether there is a memory of the past
CASES = [
    (*case, weight, past) for case in EXPECTATIONS for weight, past in [(1.0, False), (2.5, True)]
]


def literal_bound(problem, q, expected_log_likelihood):
    m, S = problem.moments_of_s(q)
    kl_s = oracles.kl_gauss(m, S, np.zeros(len(m)), oracles.sigma_zz(problem.Z, JITTER))
    return expected_log_likelihood(m, S) - kl_s - problem.kl_theta


# --- value ------------------------------------------------------------------------------------
# The twins take the same jitter, and the condition numbers are below 1e3: ten digits remain.


@pytest.mark.parametrize("kind", KINDS)
def test_prior(kind):
    problem = small_problem(kind)
    prior = Prior(problem.parameters)
    assert_allclose(prior.Z, problem.Z)
    assert_allclose(prior.L @ prior.L.T, oracles.sigma_zz(problem.Z, JITTER), rtol=1e-13)
    assert_allclose(prior.L_inv @ prior.L, np.eye(4), atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_value(kind):
    problem, q = small_problem(kind), random_q(4)
    m, S = problem.moments_of_s(q)
    hyperprior = problem.model.hyperprior
    expected = oracles.bound(
        *problem.scaled,
        problem.Z,
        m,
        S,
        *problem.theta,
        problem.C,
        hyperprior.mean,
        hyperprior.variance,
        JITTER,
    )
    assert_allclose(problem.evaluation().gradient(q)[0], expected, rtol=1e-10)


@pytest.mark.parametrize(("kind", "by_row"), [*[(k, False) for k in KINDS], ("fitc", True)])
def test_sampled_value(kind, by_row):
    """The average over the draws of E[log N(y | f, C)] for fixed Lambda, sigma_f integrated.

    Two values of sigma_f, alpha +- sqrt(beta), carry its first two moments, all that occurs.
    """
    problem, q = small_problem(kind), random_q(4)
    nu, xi, alpha, beta = problem.theta
    X, y = problem.scaled
    draws = row_draws(problem) if by_row else common_draws(problem)

    def rows_and_draws():
        """Pieces that share a draw: (rows, S draws)."""
        for index, e in zip(problem.groups, draws, strict=True):
            if by_row:
                yield from ((index[[i]], e[:, i]) for i in range(len(index)))
            else:
                yield index, e[:, 0]

    def expected_log_likelihood(m, S):
        total = 0.0
        for index, e in rows_and_draws():
            values = [
                oracles.conditional_log_likelihood(
                    X[index],
                    y[index],
                    problem.Z,
                    m,
                    S,
                    nu + np.sqrt(xi) * one,
                    alpha + sign * np.sqrt(beta),
                    problem.C[np.ix_(index, index)],
                    JITTER,
                )
                for one in e
                for sign in (-1.0, 1.0)
            ]
            total += np.mean(values)
        return total

    expected = literal_bound(problem, q, expected_log_likelihood)
    assert_allclose(problem.evaluation(draws).gradient(q)[0], expected, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_optimal_q(kind):
    """Eq. (7) and eq. (11)."""
    problem = small_problem(kind)
    evaluation = problem.evaluation()
    q = evaluation.optimal_q
    data = (*problem.scaled, problem.Z, *problem.theta, problem.C)
    m, S = oracles.optimal_q(*data, JITTER)
    for actual, expected in zip(problem.moments_of_s(q), (m, S), strict=True):
        assert_allclose(actual, expected, rtol=1e-9, atol=1e-10)
    prior = problem.model.hyperprior
    expected = oracles.collapsed_bound(*data, prior.mean, prior.variance, JITTER)
    assert_allclose(evaluation.gradient(q)[0], expected, rtol=1e-10)


def test_groups_do_not_matter_where_the_noise_is_independent():
    problem, q = small_problem("fitc"), random_q(4)
    joined = replace(problem, groups=[np.arange(11)])
    first, second = (p.evaluation().gradient(q) for p in (problem, joined))
    assert_allclose(first[0], second[0], rtol=1e-13)
    p = problem.parameters
    assert_allclose(p.pack_gradient(first[1]), p.pack_gradient(second[1]), rtol=1e-9, atol=1e-11)


# --- gradient ---------------------------------------------------------------------------------


def bound_at_fixed_q(kind, expectation, weight, past):
    """The bound as a function of the flat vector, where this is, and the gradient there."""
    problem, q = small_problem(kind), random_q(4)
    start, draws = problem.parameters, draws_of(problem, expectation)
    memory, target = past_of(problem) if past else (None, None)

    def value(x):
        current = problem.at(start.unpack(x))
        evaluation = current.evaluation(draws)
        total, _ = evaluation.gradient(q, weight)
        if past:
            p = current.parameters
            total += pseudo_likelihood(
                memory, evaluation.prior, q, p.alpha, p.alpha**2 + p.beta, target
            )
        return total

    evaluation, term = problem.evaluation(draws), None
    if past:
        term = partial(memory.carry_to(evaluation.prior).backward, target=target)
    _, gradient = evaluation.gradient(q, weight, past=term)
    return value, start.pack(), start.pack_gradient(gradient)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.every_nth("case", 2)
def test_gradient(case):
    """Values of order 100: the stencil's error is below 1e-8 of the largest entry.

    The cotangents leave out that the noise kernel's jitter follows its amplitude, 1e-8 as well.
    """
    value, x, gradient = bound_at_fixed_q(*case)
    assert_slopes(value, x, gradient, atol=1e-7 * np.abs(gradient).max())


def test_the_cases_cover_every_field_of_the_parameters():
    """With a derivative that is not zero, for each way to take the expectation."""
    for expectation in ("closed", "common", "by row"):
        covered = set()
        for case in CASES:
            if case[1] == expectation:
                *_, gradient = bound_at_fixed_q(*case)
                parts = small_problem(case[0]).parameters.split(gradient)
                covered |= {k for k, part in parts.items() if np.any(np.abs(part) > 1e-2)}
        assert covered == set(LEARNED)
    for position, options in enumerate([KINDS, None, (1.0, 2.5), (False, True)]):
        assert options is None or {case[position] for case in CASES} == set(options)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "expectation"), [("dtc", "common"), ("fitc", "closed"), ("pitc", "closed")]
)
def test_gradient_at_the_optimal_q(kind, expectation):
    """The envelope theorem: q may be held fixed in the gradient of eq. (11)."""
    problem = small_problem(kind)
    start, draws = problem.parameters, draws_of(problem, expectation)

    def collapsed(x):
        evaluation = problem.at(start.unpack(x)).evaluation(draws)
        return evaluation.gradient(evaluation.optimal_q)[0]

    evaluation = problem.evaluation(draws)
    _, gradient = evaluation.gradient(evaluation.optimal_q)
    expected = numerical_gradient(collapsed, start.pack())
    scale = np.abs(expected).max()
    assert_allclose(start.pack_gradient(gradient), expected, rtol=1e-7, atol=1e-7 * scale)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("whitened", [False, True])
def test_what_costs_less_than_the_gradient_is_the_same(kind, whitened):
    """At the optimal q(u), what flows through the factor is simpler; and parts of the gradient."""
    problem = small_problem(kind)
    draws, pack = draws_of(problem, "common"), problem.parameters.pack_gradient
    evaluation = problem.evaluation(draws, whitened=whitened)
    best = evaluation.optimal_q
    value, gradient = evaluation.gradient(best)
    another = WhitenedGaussian(best.precision, best.shift)
    expected, expected_gradient = evaluation.gradient(another)
    assert_allclose(value, expected, rtol=1e-14)
    assert_allclose(pack(gradient), pack(expected_gradient), rtol=1e-10, atol=1e-9)
    assert_allclose(evaluation.value(another), expected, rtol=1e-12)
    *_, kl_variance = problem.model.kl_theta(problem.parameters)
    slopes = np.append(gradient.xi, gradient.beta) + kl_variance
    assert_allclose(evaluation.variance_slopes(another), slopes, rtol=1e-10, atol=1e-10)


def test_optimal_q_is_a_maximum(rng):
    problem = small_problem("pitc")
    evaluation = problem.evaluation()
    best = evaluation.optimal_q
    value, _ = evaluation.gradient(best)
    for size in (1e-2, 1e-1):
        root = size * rng.normal(size=(4, 4))
        other = best.with_information(root @ root.T, size * rng.normal(size=4))
        assert evaluation.gradient(other)[0] < value


# --- rows that are whitened one by one --------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expectation"), [*[(k, "common") for k in KINDS], ("fitc", "by row")]
)
def test_whitened_rows_have_the_same_bound(kind, expectation):
    problem, q = small_problem(kind), random_q(4)
    draws = draws_of(problem, expectation)
    plain = problem.evaluation(draws)
    whitened = problem.evaluation(draws, whitened=True)
    assert_allclose(whitened.information, plain.information, rtol=1e-10, atol=1e-12)
    assert_allclose(whitened.shift, plain.shift, rtol=1e-10, atol=1e-12)
    (value, gradient), (expected, expected_gradient) = (
        evaluation.gradient(q, 1.7) for evaluation in (whitened, plain)
    )
    assert_allclose(value, expected, rtol=1e-12)
    pack = problem.parameters.pack_gradient
    assert_allclose(pack(gradient), pack(expected_gradient), rtol=1e-9, atol=1e-9)


def test_whitened_rows_keep_their_digits_where_inducing_inputs_are_close():
    """5e-5 nats from the twin, of which rounding in K leaves no more; summed first, 3e-2."""
    x = np.linspace(-1.0, 1.0, 200)[:, None]
    y = np.sin(5.0 * x[:, 0]) + 1e-2 * np.random.default_rng(0).normal(size=200)
    p = Parameters(
        nu=np.array([4.5]),
        xi=np.array([1e-30]),
        alpha=1.0,
        beta=1e-30,
        noise_variance=1e-4,
        noise_theta=np.empty(0),
        U=np.linspace(-1.0, 1.0, 60)[:, None],
    )
    model = Model(
        Coordinates(np.zeros(1), np.ones(1)), HyperPrior(np.zeros(2), np.ones(2)), White()
    )
    evaluation = Evaluation(model, p, [Rows(x, y)], [np.zeros((1, 1, 1))], whitened=True)
    value, _ = evaluation.gradient(evaluation.optimal_q)
    Z = p.nu * p.U
    root = np.linalg.cholesky(oracles.sigma_zz(Z, JITTER))
    A = np.linalg.solve(root, oracles.se(Z, p.nu * x)).T
    density = multivariate_normal(np.zeros(200), A @ A.T + 1e-4 * np.eye(200)).logpdf(y)
    left = 200.0 - np.sum(A**2)
    expected = density - 0.5 * left / 1e-4 - model.kl_theta(p)[0]
    assert_allclose(value, expected, rtol=0.0, atol=1e-3)


# --- Theorem 2: mini-batches ------------------------------------------------------------------


def average_over_a_pass(problem, q, draws_of_rows, batch_size):
    """Sum of batches' bounds and gradients, each with its share of the rows or blocks.

    For batches of equal size that is the plain average.
    """
    data, start = problem.data, problem.parameters
    n = len(data if data.blocks is None else data.blocks)
    value, gradient, count = 0.0, 0.0, 0
    for batch, weight in data.minibatches(batch_size, np.random.RandomState(0)):
        evaluation = Evaluation(
            problem.model, start, batch, [draws_of_rows(rows) for rows in batch]
        )
        of_batch, in_fields = evaluation.gradient(q, weight)
        share = (len(batch) if data.blocks else sum(len(rows.y) for rows in batch)) / n
        value += share * of_batch
        gradient += share * start.pack_gradient(in_fields)
        count += 1
    return value, gradient, count


@pytest.mark.parametrize("expectation", ["closed", "common"])
@pytest.mark.parametrize(
    ("kind", "batch_size", "n_batches"),
    [
        ("dtc", 11, 1),
        ("dtc", 3, 4),
        ("fitc", 1, 11),
        ("fitc", 6, 2),
        ("pitc", 4, 3),
        ("pitc", 7, 2),
    ],
)
@pytest.mark.every_nth("kind", 3)
def test_average_of_minibatches_is_the_full_gradient(
    monkeypatch, kind, batch_size, n_batches, expectation
):
    """Sums in another order: equal up to rounding."""
    monkeypatch.setattr(_data, "_TILE_ROWS", 2)
    problem, q = small_problem(kind), random_q(4)
    draws = draws_of(problem, expectation)
    full, gradient = problem.evaluation(draws).gradient(q)
    gradient = problem.parameters.pack_gradient(gradient)
    value, average, count = average_over_a_pass(problem, q, lambda rows: draws[0], batch_size)
    assert count == n_batches
    assert_allclose(value, full, rtol=1e-12)
    assert_allclose(average, gradient, rtol=1e-10, atol=1e-10)


def test_batch_information_is_the_share_of_the_whole():
    """The natural gradient's part of Theorem 2."""
    problem = small_problem("pitc")
    whole = problem.evaluation()
    parts = [
        Evaluation(problem.model, problem.parameters, [rows], [None]) for rows in problem.batch
    ]
    information = sum(part.information for part in parts)
    assert_allclose(information, whole.information, rtol=1e-12, atol=1e-13)
    assert_allclose(sum(part.shift for part in parts), whole.shift, rtol=1e-12, atol=1e-13)


# --- limits -----------------------------------------------------------------------------------


def test_one_row_blocks_turn_pitc_into_fitc():
    problem, q = small_problem("pitc"), random_q(4)
    rows = [np.array([i]) for i in range(11)]
    pitc = replace(problem, groups=rows, data=replace(problem.data, blocks=rows))
    fitc = small_problem("fitc")
    assert_array_equal(fitc.parameters.pack(), problem.parameters.pack())
    (value, gradient), (expected, expected_gradient) = (
        p.evaluation().gradient(q) for p in (pitc, fitc)
    )
    assert_allclose(value, expected, rtol=1e-12)
    pack = problem.parameters.pack_gradient
    assert_allclose(pack(gradient), pack(expected_gradient), rtol=1e-9, atol=1e-10)
    # and blocks of several rows are another model
    assert abs(problem.evaluation().gradient(q)[0] - expected) > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_bound_is_the_exact_log_marginal_likelihood_at_the_data(kind):
    """Z = X and certain hyperparameters, without KL(theta).

    What is left is the trace of the jitter over the noise: n 1e-8 / 0.2 / 2 = 3e-7, as much
    again for its part in the fit; a variance of 1e-12 contributes less than 1e-9.
    """
    problem = small_problem(kind)
    p = problem.parameters
    p = replace(p, xi=np.full(2, 1e-12), beta=1e-12, U=problem.scaled[0])
    problem = problem.at(p)
    evaluation = problem.evaluation()
    value, _ = evaluation.gradient(evaluation.optimal_q)
    kl_theta, _, _ = problem.model.kl_theta(p)
    X, y = problem.scaled
    white = p.noise_variance * np.eye(11)  # the noise kernel is explained at its inducing inputs
    _, _, expected = oracles.exact_gp(
        X, y, X, lambda A, B: oracles.k_xx(A, B, p.nu, p.alpha), white
    )
    assert_allclose(value + kl_theta, expected, rtol=0, atol=2e-6)


@pytest.fixture
def line():
    """Eight rows on a line, d = 1, frames those of the user."""
    rng = np.random.default_rng(6)
    X = np.linspace(-3.0, 3.0, 8)[:, None]
    y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=8)
    return X, y


def on_line(line, kind, prior):
    """The problem on the line, blocks of two, with one prior (mean, variance) for all."""
    X, y = line
    frame = Coordinates(np.zeros(1), np.ones(1))
    structure = structure_of(kind, Constant(0.5) * RBF(0.8), NOISE_SCALE)
    hyperprior = HyperPrior(np.full(2, prior[0]), np.full(2, prior[1]))
    model = Model(frame, hyperprior, structure)
    groups = [np.array([k, k + 1]) for k in (0, 2, 4, 6)]
    data = Data(X, y, frame, Target(0.0, 1.0))
    parameters = Parameters(
        nu=np.array([1.0]),
        xi=np.array([min(prior[1], 0.05)]),
        alpha=1.0,
        beta=min(prior[1], 0.05),
        noise_variance=0.2,
        noise_theta=structure.theta,
        U=X[::3] + 0.1,
    )
    return Problem(kind, model, parameters, data, groups)


@pytest.mark.parametrize("kind", ["dtc", "pitc"])
@pytest.mark.parametrize("prior", [(1.0, 0.1), (0.0, 1.0)])
@pytest.mark.in_turn("prior")
@pytest.mark.every_nth("kind", 2)
def test_bound_is_below_the_evidence(line, kind, prior):
    """Brute-force quadrature of p(y) over (lambda, sigma_f), for q of every quality."""
    problem = on_line(line, kind, prior)
    evidence = oracles.evidence_quadrature_1d(*line, problem.C, *prior)
    rng = np.random.default_rng(8)
    for _ in range(10):
        p = replace(
            problem.parameters,
            nu=np.exp(rng.normal(0.0, 0.5, size=1)),
            xi=np.exp(rng.normal(-2.0, 1.5, size=1)),
            alpha=float(np.exp(rng.normal(0.0, 0.5))),
            beta=float(np.exp(rng.normal(-2.0, 1.5))),
        )
        evaluation = problem.at(p).evaluation()
        assert evaluation.gradient(evaluation.optimal_q)[0] < evidence
        assert evaluation.gradient(WhitenedGaussian.standard(3))[0] < evidence


@pytest.mark.parametrize("kind", ["dtc", "pitc"])
@pytest.mark.every_nth("kind", 2)
def test_bound_is_close_to_the_evidence_under_a_narrow_prior(line, kind):
    """q(theta) = p(theta) of variance 1e-4 and rich Z: no constant can be missing.

    The log likelihood's slopes and curvatures in theta are of order n = 8, so averaging it
    instead of the likelihood loses of the order of 8^2 / 2 times 1e-4. The inducing inputs are
    dense for f, of length scale 2.5, but leave a residual of the noise kernel's 0.8.
    """
    prior = (0.4, 1e-4)
    problem = on_line(line, kind, prior)
    variance = np.array([1e-4])
    U = np.linspace(-3.43, 3.43, 9)[:, None]
    p = replace(problem.parameters, nu=np.array([0.4]), xi=variance, alpha=0.4, beta=1e-4, U=U)
    problem = problem.at(p)
    assert (np.abs(problem.C[0, 1]) > 1e-3) == (kind == "pitc")
    evidence = oracles.evidence_quadrature_1d(*line, problem.C, *prior)
    evaluation = problem.evaluation()
    gap = evidence - evaluation.gradient(evaluation.optimal_q)[0]
    assert 0.0 < gap < 0.01


# --- frames -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_frame_of_the_inputs_does_not_matter(kind):
    """Other units with the parameters that mean the same: the same bound without KL(theta)."""
    problem, q = small_problem(kind), random_q(4)
    p, factor = problem.parameters, np.array([3.0, 0.2])
    old = problem.model.coordinates
    frame = Coordinates(old.offset, old.scale / factor)
    moved = replace(
        problem,
        model=replace(problem.model, coordinates=frame),
        data=replace(problem.data, coordinates=frame),
        parameters=replace(p, nu=p.nu / factor, xi=p.xi / factor**2, U=p.U * factor),
    )
    values = [
        case.evaluation().gradient(q)[0] + case.model.kl_theta(case.parameters)[0]
        for case in (problem, moved)
    ]
    assert_allclose(values[1], values[0], rtol=1e-11)


def test_row_problem_is_what_the_solvers_are_tested_on():
    """Guards the other factory: the twin's bound for its rows too."""
    problem = row_problem(9, 3, 4)
    prior = problem.model.hyperprior
    evaluation = problem.evaluation()
    data = (*problem.scaled, problem.Z, *problem.theta, problem.C)
    expected = oracles.collapsed_bound(*data, prior.mean, prior.variance, JITTER)
    assert_allclose(evaluation.gradient(evaluation.optimal_q)[0], expected, rtol=1e-9)
