"""The joint bound of the latent-variable model against its dense twin, and its gradient."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._core.gaussian import InducingOutputs
from skvbgp.ep import Psi2
from skvbgp.ep._inputs import Inputs
from skvbgp.ep.hybrid._bound import CollapsedBound, LatentFeatures
from skvbgp.ep.hybrid._learner import maximise
from skvbgp.ep.hybrid._objective import (
    ColumnSites,
    HybridObjective,
    HybridSolution,
    solve,
)
from skvbgp.ep.hybrid._posterior import HybridPosterior
from skvbgp.kernels import RBF
from tests.derivatives import assert_slopes, numerical_gradient
from tests.ep.hybrid.problems import JITTER, LENGTH_SCALE, dense_arguments, small_problem
from tests.ep.problems import PARALLEL
from tests.oracles import ep, hybrid


def test_continuous_columns_have_the_bayesian_gplvm_bound():
    """Written literally, without missing entries, labels or binary columns."""
    _, data, p, _ = small_problem(binary=False, labels=False, missing=False)
    expected = 0.0
    for j in range(2):
        mu, s, Z, variance, length_scale = dense_arguments(data, p, j)
        beta = np.exp(p.log_precision[j])
        expected += hybrid.gplvm_column(
            data.Y[:, j], mu, s, Z, variance, length_scale, beta, JITTER
        )
    expected -= hybrid.kl_to_standard(mu, s)
    solution = HybridSolution(data, p, ColumnSites.vague(data.t), p.features(data.rows))
    assert_allclose(solution.lower_bound, expected, rtol=1e-8)


@pytest.mark.parametrize("free", [False, True], ids=["map", "free"])
@pytest.mark.parametrize(
    ("prior_weight", "likelihood"), [(1.0, "logistic"), (0.3, "logistic"), (1.0, "probit")]
)
@pytest.mark.every_nth("free", 2)
@pytest.mark.every_nth("prior_weight", 3)
def test_joint_bound_is_the_dense_one(prior_weight, likelihood, free):
    """The corrected (S.35), missing entries and binary columns included."""
    _, data, p, _ = small_problem(prior_weight=prior_weight, likelihood=likelihood, free=free)
    tilted = {"logistic": ep.tilted_logistic, "probit": ep.tilted_probit}[likelihood]
    mu, s = dense_arguments(data, p, 0)[:2]
    columns = []
    for j in range(2):
        _, _, Z, variance, length_scale = dense_arguments(data, p, j)
        rows = data.seen[:, j]
        columns.append(
            hybrid.gplvm_column(
                data.Y[rows, j],
                mu[rows],
                s[rows],
                Z,
                variance,
                length_scale,
                np.exp(p.log_precision[j]),
                JITTER,
            )
        )
    for j in range(2, 4):
        _, _, Z, variance, length_scale = dense_arguments(data, p, j)
        t = data.t[:, j - 2]
        rows = t != 0.0
        columns.append(
            hybrid.discrete_column(
                t[rows], mu[rows], s[rows], Z, variance, length_scale, tilted, JITTER
            )[0]
        )
    expected = data.weight @ columns - prior_weight * hybrid.kl_to_standard(mu, s)
    solution = solve(data, p, ColumnSites.vague(data.t), 1e-7)
    assert solution.sites.converged
    assert_allclose(solution.lower_bound, expected, rtol=1e-6)


def test_certain_latents_have_the_evidence_of_ep(rng):
    """With its trace correction: (S.21)."""
    n = 6
    t = np.where(rng.uniform(size=(n, 1)) < 0.5, 1.0, -1.0)
    mu, Z = rng.standard_normal((n, 2)), rng.standard_normal((3, 2))
    features = LatentFeatures(
        InducingOutputs(RBF(LENGTH_SCALE), Z, 1e-4), Inputs(mu, np.zeros((n, 2)))
    )
    sites = ColumnSites.vague(t).refresh(t, features, np.array([1.3]), PARALLEL, 1e-12)
    bound = CollapsedBound(features, 1.3**2 * sites.tau, 1.3 * sites.nu)
    expected, _, _ = ep.corrected_evidence(
        mu, np.zeros((n, 2)), t[:, 0], Z, 1.3**2, LENGTH_SCALE, "dtc", JITTER
    )
    assert_allclose(bound.value + sites.log_scale, expected, rtol=1e-6)


@pytest.mark.parametrize("free", [False, True], ids=["map", "free"])
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@pytest.mark.every_nth("missing", 3)
def test_gradient(labels, missing, free):
    _, data, p, _ = small_problem(labels=labels, missing=missing, free=free)
    sites = solve(data, p, ColumnSites.vague(data.t), 1e-6).sites
    objective = HybridObjective(data, p, sites)
    x = objective.x
    assert len(x) == len(objective.bounds)
    value, gradient = objective(x)
    assert_slopes(lambda x: objective(x)[0], x, gradient, atol=1e-7)
    solution = HybridSolution(data, p, sites, p.features(data.rows))
    assert_allclose(value, solution.objective, rtol=1e-13)  # logarithms are taken and undone
    assert (solution.objective == solution.lower_bound) == free  # the map has a prior


def test_gradient_in_free_latents(rng):
    """Of the collapsed bound, in means and variances that no map ties together."""
    n, Q, m, P = 6, 2, 3, 4
    mu, Z = rng.standard_normal((n, Q)), rng.standard_normal((m, Q))
    s = rng.uniform(0.1, 0.9, (n, Q))
    w, r = rng.uniform(0.0, 2.0, (n, P)), rng.standard_normal((n, P))
    w[0, 0] = w[2, 1] = 0.0
    weight = np.array([1.0, 0.3, 2.0, 0.5])

    def bound(mu, s, Z, w=w, r=r, theta=None):
        kernel = RBF(LENGTH_SCALE) if theta is None else RBF(LENGTH_SCALE).with_theta(theta)
        features = LatentFeatures(InducingOutputs(kernel, Z, 1e-4), Inputs(mu, s))
        return CollapsedBound(features, w, r)

    def value(*arguments, **options):
        return weight @ bound(*arguments, **options).value

    here = bound(mu, s, Z)
    gradients = here.vjp(weight)
    assert_allclose(gradients.mean, numerical_gradient(lambda x: value(x, s, Z), mu), atol=1e-8)
    assert_allclose(gradients.variance, numerical_gradient(lambda x: value(mu, x, Z), s), atol=1e-8)
    assert_allclose(gradients.Z, numerical_gradient(lambda x: value(mu, s, x), Z), atol=1e-8)
    assert_allclose(
        gradients.theta,
        numerical_gradient(lambda x: value(mu, s, Z, theta=x), np.log(LENGTH_SCALE)),
        atol=1e-8,
    )
    d_w, d_r = here.d_log_scale
    in_w = numerical_gradient(lambda a: value(mu, s, Z, w=np.exp(a) * w), np.zeros(P))
    in_r = numerical_gradient(lambda a: value(mu, s, Z, r=np.exp(a) * r), np.zeros(P))
    assert_allclose(weight * d_w, in_w, atol=1e-8)
    assert_allclose(weight * d_r, in_r, atol=1e-8)


def test_stacks_of_psi2_are_those_of_single_matrices(rng):
    mu, Z = rng.standard_normal((5, 2)), rng.standard_normal((3, 2))
    s = rng.uniform(0.1, 0.6, (5, 2))
    statistic = Psi2(mu, s, Z, 1.7, LENGTH_SCALE)
    w, V = rng.standard_normal((5, 4)), rng.standard_normal((4, 3, 3))
    V = V + V.transpose(0, 2, 1)
    sums, forms, gradients = statistic.weighted_sum(w), statistic.quadratic_forms(V), None
    for j in range(4):
        assert_allclose(sums[j], statistic.weighted_sum(w[:, j]))
        assert_allclose(forms[:, j], statistic.quadratic_forms(V[j]))
        part = statistic.vjp(w[:, j], V[j])
        gradients = part if gradients is None else map(np.add, gradients, part)
    for together, one_by_one in zip(statistic.vjp(w, V), gradients, strict=True):
        assert_allclose(together, one_by_one)


def test_predictions_are_the_dense_ones(rng):
    columns, data, p, _ = small_problem()
    solution = solve(data, p, ColumnSites.vague(data.t), 1e-7)
    bound, inducing = solution.bound, solution.features.inducing
    model = HybridPosterior(columns, p, data.likelihood, inducing, bound.mean, bound.covariance)
    new = Inputs(rng.standard_normal((4, 2)), rng.uniform(0.0, 0.5, (4, 2)))
    found = model.moments(new)
    tau = np.hstack([data.seen * np.exp(p.log_precision), solution.sites.tau])
    nu = np.hstack([data.Y * np.exp(p.log_precision), solution.sites.nu])
    for j in range(4):
        expected = hybrid.moments(
            tau[:, j], nu[:, j], *dense_arguments(data, p, j), JITTER, new.mean, new.variance
        )
        assert_allclose(found.mean[:, j], expected[0], rtol=1e-6)
        assert_allclose(found.variance[:, j], expected[1], rtol=1e-6)


@pytest.mark.thorough
def test_training_ends_at_a_stationary_point_of_the_bound_at_its_sites():
    _, data, p, _ = small_problem(n=12)
    calls = []
    optimum, sites, _, values, _ = maximise(
        data, p, max_iter=600, tol=1e-11, end_pass=lambda make: calls.append(make().values[-1])
    )
    assert tuple(calls) == values
    objective = HybridObjective(data, optimum, solve(data, optimum, sites, 1e-9).sites)
    value, gradient = objective(objective.x)
    lower, upper = objective.bounds.T
    free = (objective.x > lower + 1e-9) & (objective.x < upper - 1e-9)
    assert_allclose(gradient[free], 0.0, atol=2e-2)
    assert value > calls[0] and len(calls) <= 600


def test_training_stops_when_it_is_told_to():
    _, data, p, _ = small_problem()
    calls = []

    def end_pass(make):
        calls.append(make())
        return len(calls) == 3

    maximise(data, p, max_iter=50, tol=0.0, end_pass=end_pass)
    assert len(calls) == 3


@pytest.mark.parametrize("free", [False, True], ids=["map", "free"])
def test_parameters_and_x_are_inverse(free):
    _, data, p, _ = small_problem(free=free)
    objective = HybridObjective(data, p, ColumnSites.vague(data.t))
    again = objective.parameters(objective.x)
    assert_allclose(again.kernel.theta, p.kernel.theta)
    assert_allclose(again.Z, p.Z)
    latents, expected = (q.recognition.latents(data.rows) for q in (again, p))
    assert_allclose(latents.mean, expected.mean)
    assert_allclose(latents.variance, expected.variance)
