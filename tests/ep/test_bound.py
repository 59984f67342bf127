"""The log evidence and its gradient, and the rounds that maximise it."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._optim.ascent import go_on
from skvbgp.ep._bound import (
    Objective,
    Parameters,
    Problem,
    ScalePrior,
    make_default_kernel,
    make_vague,
    solve,
)
from skvbgp.ep._inputs import InputModel, Inputs
from skvbgp.ep._learner import maximise
from skvbgp.ep._refinement import Refinement
from skvbgp.ep._sites import Sites
from skvbgp.kernels import RBF, Constant
from tests.derivatives import assert_slopes, numerical_gradient
from tests.ep.problems import APPROXIMATIONS, JITTER, PARALLEL, small_labels
from tests.oracles import ep as oracles

TOL = 1e-12
each = pytest.mark.parametrize("approximation", APPROXIMATIONS)


def small_problem(approximation="dtc", *, missing=True, n=12, per="column"):
    """A problem and parameters at which a refinement of missing entries is not zero."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 2)) * [1.0, 3.0] + [0.0, 2.0]
    t = small_labels(Inputs(X, np.zeros_like(X)))
    if missing:
        X[::3, 0], X[1::4, 1] = np.nan, np.nan
    inputs = Inputs(X, np.zeros_like(X))
    columns = InputModel.of(X)
    refinement = Refinement.start(per, np.isnan(X))
    refinement = refinement.with_x(np.resize([0.2, -0.3, 0.1, -0.2], len(refinement.x)))
    kernel = make_default_kernel(columns.coordinates.scale)
    hyperprior = ScalePrior(kernel.theta)
    kernel = kernel.with_theta(kernel.theta + [0.5, 0.3, -0.4])
    Z = columns.coordinates.original(rng.standard_normal((3, 2)))
    problem = Problem(
        t[None], columns.condition(inputs), np.isnan(X), approximation, PARALLEL, hyperprior
    )
    return problem, Parameters(kernel, Z, columns, refinement)


@each
@pytest.mark.parametrize(
    ("missing", "per"),
    [(False, "column"), (True, "column"), (True, "entry"), (True, None)],
    ids=["complete", "by column", "by entry", "missing"],
)
@pytest.mark.parametrize("learn_inducing", [False, True])
@pytest.mark.every_nth("learn_inducing", 2)
@pytest.mark.every_nth("missing", 4)
def test_gradient(approximation, missing, per, learn_inducing):
    """With EP run to its fixed point at every point: the envelope argument."""
    problem, p = small_problem(approximation, missing=missing, per=per)
    solution = solve(problem, p, make_vague(problem), TOL)
    weights = solution.correction_weights
    objective = Objective(
        problem,
        p,
        weights,
        make_vague(problem),
        learn_inducing=learn_inducing,
        tol=TOL,
    )
    x = objective.x
    n_refined = {"column": 4 * missing, "entry": 2 * problem.missing.sum(), None: 0}[per]
    assert len(x) == len(objective.bounds) == 3 + 6 * learn_inducing + n_refined
    _, gradient = objective(x)
    assert_slopes(lambda x: objective(x)[0], x, gradient, atol=2e-7)


def test_an_evaluation_that_fails_leaves_no_sites(monkeypatch):
    problem, p = small_problem(missing=False)
    weights, sites = np.zeros(len(problem.conditional)), make_vague(problem)
    objective = Objective(problem, p, weights, sites, learn_inducing=False, tol=TOL)
    expected, _ = objective(objective.x)
    with monkeypatch.context() as broken:
        one = Sites(np.full(len(weights), np.nan), np.zeros(len(weights)))
        broken.setattr("skvbgp.ep._bound.solve", lambda *_: solve(problem, p, (one,), TOL))
        assert np.isnan(objective(objective.x)[0])
    assert_allclose(objective(objective.x)[0], expected)


def test_gradient_of_the_whole_evidence_at_fixed_sites():
    """The trace correction included, against the dense log marginal of the sites' targets."""
    problem, p = small_problem(missing=False)
    X = problem.conditional.mean
    (sites,) = solve(problem, p, make_vague(problem), TOL).latent_sites
    objective = Objective(
        replace(problem, hyperprior=None),
        p,
        sites.tau,
        make_vague(problem),
        learn_inducing=False,
        tol=TOL,
    )
    _, gradient = objective(objective.x)

    def bound(theta):
        """(S.21) up to what does not depend on theta: the collapsed bound on pseudo-targets."""
        kernel = p.kernel.with_theta(theta)
        K_fu, K_uu = kernel(X, p.Z), kernel(p.Z)
        Q = K_fu @ np.linalg.solve(K_uu + JITTER * kernel.diag(p.Z).mean() * np.eye(3), K_fu.T)
        C, target = Q + np.diag(1.0 / sites.tau), sites.nu / sites.tau
        trace = sites.tau @ (kernel.diag(X) - np.diag(Q))
        log_det = np.linalg.slogdet(C)[1]
        return -0.5 * (target @ np.linalg.solve(C, target) + log_det + trace)

    assert_allclose(gradient, numerical_gradient(bound, p.kernel.theta), atol=1e-6)


@each
@pytest.mark.parametrize("per", ["column", "entry"])
@pytest.mark.every_nth("approximation", 2)
@pytest.mark.every_nth("per", 2)
def test_value_is_the_dense_evidence_with_prior_and_kl(approximation, per):
    problem, p = small_problem(approximation, per=per)
    inputs = p.refinement.refine(problem.conditional, problem.missing)
    variance, length_scale = p.kernel.kernels[0].value, np.array(p.kernel.kernels[1].length_scale)
    evidence, tau, _ = oracles.corrected_evidence(
        inputs.mean,
        inputs.variance,
        problem.T[0],
        p.Z,
        variance,
        length_scale,
        approximation,
        JITTER,
    )
    vague = make_vague(problem)
    objective = Objective(problem, p, tau, vague, learn_inducing=True, tol=TOL)
    expected = evidence + problem.hyperprior.log_density(p.kernel.theta)[0]
    expected -= p.refinement.kl(problem.missing)
    assert_allclose(objective(objective.x)[0], expected, atol=1e-6)
    assert_allclose(solve(problem, p, vague, TOL).log_evidence, evidence, atol=1e-6)


def test_parameters_and_x_are_inverse():
    problem, p = small_problem()
    objective = Objective(
        problem, p, problem.T[0], make_vague(problem), learn_inducing=True, tol=TOL
    )
    again = objective.parameters(objective.x)
    assert_allclose(again.kernel.theta, p.kernel.theta)
    assert_allclose(again.Z, p.Z)
    assert_allclose(again.refinement.shift, p.refinement.shift)
    assert_allclose(again.refinement.log_spread, p.refinement.log_spread)


def test_hyperprior(rng):
    start = rng.standard_normal(4)
    prior = ScalePrior(start)
    theta = start + rng.standard_normal(4)
    _, gradient = prior.log_density(theta)
    assert_allclose(gradient, numerical_gradient(lambda x: prior.log_density(x)[0], theta))
    assert prior.log_density(start)[0] == 0.0
    together = prior.log_density(start + [0.0, 1.0, 1.0, 1.0])[0]
    apart = prior.log_density(start + [0.0, 1.0, -1.0, 0.0])[0]
    assert apart < together < 0.0  # a common length scale is free, others have to be learned


def test_default_kernel_starts_at_the_distance_of_the_rows(rng):
    X = rng.standard_normal((2000, 5)) * np.arange(1, 6)
    kernel = make_default_kernel(InputModel.of(X).frame.scale).kernels[1]
    r2 = np.sum(((X[::2] - X[1::2]) / kernel.length_scale) ** 2, axis=1)
    assert_allclose(np.mean(r2), 2.0, rtol=0.05)


@pytest.mark.thorough
@each
def test_training_ends_at_a_stationary_point(approximation):
    """Of the evidence whose trace correction has the sites of that point."""
    problem, p = small_problem(approximation)
    calls = []
    optimum = maximise(
        problem,
        p,
        max_iter=400,
        tol=1e-13,
        learn_inducing=True,
        end_pass=lambda make: calls.append(make()),
    )
    solution = solve(problem, optimum.parameters, optimum.sites, 1e-4)
    objective = Objective(
        problem,
        solution.parameters,
        solution.correction_weights,
        solution.sites,
        learn_inducing=True,
        tol=TOL,
    )
    value, gradient = objective(objective.x)
    assert_allclose(gradient, 0.0, atol=5e-3)
    assert_allclose(value, optimum.value, atol=1e-4)
    assert len(calls) == len(optimum.values)
    start = Objective(
        problem, p, solution.correction_weights, objective.sites, learn_inducing=True, tol=TOL
    )
    assert value > start(start.x)[0] + 0.1


def test_training_stops_when_it_is_told_to():
    problem, p = small_problem()
    calls = []

    def end_pass(make):
        calls.append(len(make().values))
        return len(calls) == 3

    optimum = maximise(problem, p, max_iter=50, tol=0.0, learn_inducing=True, end_pass=end_pass)
    assert optimum.stopped and len(optimum.values) == len(calls) == calls[-1] == 3
    optimum = maximise(problem, p, max_iter=25, tol=0.0, learn_inducing=True, end_pass=go_on)
    assert not optimum.stopped and len(optimum.values) <= 25


def test_inducing_inputs_are_kept_where_they_are_not_learned():
    problem, p = small_problem()
    optimum = maximise(problem, p, max_iter=30, tol=1e-6, learn_inducing=False, end_pass=go_on)
    assert optimum.parameters.Z is p.Z


def test_a_kernel_of_the_user_has_no_prior_but_bounds():
    problem, p = small_problem(missing=False)
    kernel = Constant(1.0, value_bounds=(0.5, 2.0)) * RBF([1.0, 1.0], length_scale_bounds="fixed")
    optimum = maximise(
        replace(problem, hyperprior=None),
        replace(p, kernel=kernel),
        max_iter=30,
        tol=1e-9,
        learn_inducing=False,
        end_pass=go_on,
    )
    constant, rbf = optimum.parameters.kernel.kernels
    assert 0.5 <= constant.value <= 2.0 and constant.value != 1.0
    assert rbf.length_scale == (1.0, 1.0)


@pytest.mark.thorough
def test_problems_of_several_classes_add_up():
    """On one prior, whose hyperparameters and missing entries count once."""
    problem, p = small_problem()
    T = np.array([problem.T[0], -problem.T[0], np.roll(problem.T[0], 1)])
    weights = np.linspace(0.1, 0.3, T.shape[1])

    def pose(T, weights):
        own = replace(problem, T=T)
        return Objective(own, p, weights, make_vague(own), learn_inducing=True, tol=TOL)

    objective = pose(T, weights)
    value, gradient = objective(objective.x)
    parts = [pose(t[None], weights / 3.0)(objective.x)[0] for t in T]
    once = problem.hyperprior.log_density(p.kernel.theta)[0]
    once -= p.refinement.kl(problem.missing)
    assert_allclose(value, sum(parts) - 2.0 * once, rtol=1e-9)
    assert_allclose(gradient, numerical_gradient(lambda x: objective(x)[0], objective.x), atol=1e-6)
