"""Expectation propagation on sparse features against dense EP."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._core.gaussian import InducingOutputs
from skvbgp.ep._features import SparsePrior
from skvbgp.ep._inputs import Inputs
from skvbgp.ep._likelihoods import Probit
from skvbgp.ep._posterior import LatentPosterior
from skvbgp.ep._schedules import Schedule
from skvbgp.ep._sites import Fixpoint, SitePosterior, Sites, match_sites
from skvbgp.kernels import RBF, Constant
from tests.ep.problems import (
    APPROXIMATIONS,
    JITTER,
    LENGTH_SCALE,
    PARALLEL,
    SEQUENTIAL,
    VARIANCE,
    small_inputs,
    small_labels,
    small_prior,
)
from tests.oracles import ep as oracles

TOL = 1e-11


def certain(X):
    return Inputs(X, np.zeros_like(X))


@pytest.fixture
def sixty():
    """60 rows, labels and the kernel of a dense problem."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (60, 2))
    t = np.where(np.sin(X[:, 0]) * X[:, 1] + 0.3 * rng.standard_normal(60) > 0.0, 1.0, -1.0)
    return X, t, Constant(3.0) * RBF(0.6)


@pytest.mark.thorough
@pytest.mark.parametrize("schedule", [PARALLEL, SEQUENTIAL], ids=lambda s: s.name)
def test_dtc_at_the_rows_is_dense_ep(sixty, schedule):
    X, t, kernel = sixty
    prior = SparsePrior(InducingOutputs(kernel, X), certain(X), "dtc")
    fixpoint = schedule.run(t, prior.A, prior.noise, Sites.vague(60), TOL)
    tau, nu, mu, Sigma, evidence = oracles.dense_ep(kernel(X), t, oracles.tilted_probit)
    q = fixpoint.posterior
    assert fixpoint.converged
    assert_allclose(q.sites.tau, tau, atol=1e-6)
    assert_allclose(q.sites.nu, nu, atol=1e-6)
    assert_allclose(q.marginal_mean, mu, atol=1e-6)
    assert_allclose(q.marginal_variance, np.diag(Sigma), atol=1e-6)
    trace = -0.5 * tau @ prior.residual
    assert_allclose(fixpoint.log_evidence + trace, evidence, atol=1e-6)

    X_new = np.random.default_rng(1).uniform(-3.0, 3.0, (20, 2))
    predictor = LatentPosterior(prior.inducing, q.mean[None], q.covariance[None])
    expected = oracles.predict(kernel(X), kernel(X_new, X), kernel.diag(X_new), tau, nu)
    actual = [values[:, 0] for values in predictor.moments(certain(X_new))]
    assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("uncertain", [False, True], ids=["certain", "uncertain"])
@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize("schedule", [PARALLEL, SEQUENTIAL], ids=lambda s: s.name)
@pytest.mark.every_nth("uncertain", 2)
def test_sparse_evidence_is_that_of_its_dense_twin(approximation, uncertain, schedule):
    prior = small_prior(approximation, uncertain=uncertain)
    inputs, Z = small_inputs(uncertain=uncertain), prior.inducing.Z
    t = small_labels(inputs)
    fixpoint = schedule.run(t, prior.A, prior.noise, Sites.vague(len(t)), TOL)
    sites = fixpoint.posterior.sites.without_noise(prior.noise)
    expected, tau, nu = oracles.corrected_evidence(
        inputs.mean, inputs.variance, t, Z, VARIANCE, LENGTH_SCALE, approximation, JITTER
    )
    assert_allclose(sites.tau, tau, atol=1e-8)
    assert_allclose(sites.nu, nu, atol=1e-8)
    corrected = fixpoint.log_evidence - 0.5 * sites.tau @ prior.residual
    assert_allclose(corrected, expected, atol=1e-8)


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
def test_schedules_have_the_same_fixed_point(approximation):
    prior = small_prior(approximation, n=40, m=6)
    t = np.where(prior.A[:, 0] + prior.A[:, 1] > 0.5, 1.0, -1.0)
    a = PARALLEL.run(t, prior.A, prior.noise, Sites.vague(40), TOL)
    b = SEQUENTIAL.run(t, prior.A, prior.noise, Sites.vague(40), TOL)
    assert a.converged and b.converged
    assert_allclose(a.posterior.sites.tau, b.posterior.sites.tau, atol=1e-9)
    assert_allclose(a.posterior.sites.nu, b.posterior.sites.nu, atol=1e-9)


@pytest.mark.parametrize("damping", [0.3, 0.9])
def test_damping_changes_the_path_only(damping):
    prior = small_prior(n=40, m=6)
    t = np.where(prior.A[:, 0] > 0.5, 1.0, -1.0)
    undamped = PARALLEL.run(t, prior.A, prior.noise, Sites.vague(40), TOL)
    damped = Schedule("parallel", 500, damping).run(t, prior.A, prior.noise, Sites.vague(40), TOL)
    assert damped.converged and damped.n_iter > undamped.n_iter
    assert_allclose(damped.posterior.sites.tau, undamped.posterior.sites.tau, atol=1e-9)


def test_oscillating_sites_are_damped():
    """Separable classes and a large variance of f: undamped, it would take 133 passes."""
    X = np.random.default_rng(0).standard_normal((60, 2))
    t = np.where(X.sum(axis=1) > 0.0, 1.0, -1.0)
    prior = SparsePrior(InducingOutputs(Constant(300.0) * RBF(4.0), X[:10]), certain(X), "dtc")
    parallel = PARALLEL.run(t, prior.A, prior.noise, Sites.vague(60), 1e-9)
    sequential = SEQUENTIAL.run(t, prior.A, prior.noise, Sites.vague(60), 1e-9)
    assert parallel.converged and parallel.n_iter < 50
    assert_allclose(parallel.log_evidence, sequential.log_evidence, rtol=1e-9)


def test_damping_decreases_once_the_sites_creep():
    """Where some moves repeat and others are taken back: with the smallest step, 54 passes."""
    X = np.random.default_rng(0).standard_normal((100, 4))
    t = np.where(X[:, :3].sum(axis=1) > 2.5, 1.0, -1.0)
    prior = SparsePrior(InducingOutputs(Constant(100.0) * RBF(4.0), X[:20]), certain(X), "dtc")
    run = PARALLEL.run(t, prior.A, prior.noise, Sites.vague(100), 1e-9)
    assert run.converged and run.n_iter < 45


def test_first_pass_is_damped_by_the_share_that_is_asked_for():
    prior = small_prior()
    t = small_labels(small_inputs())
    vague = Sites.vague(len(t))
    one = np.ones(len(t))
    cavity = SitePosterior(prior.A, vague, one).cavity
    full, _ = match_sites(Probit(), t, *cavity, prior.noise, one)
    half = Schedule("parallel", 2, 0.5).run(t, prior.A, prior.noise, vague, 0.0)
    assert_allclose(half.posterior.sites.tau, 0.5 * full.tau)
    assert half.n_iter == 2 and not half.converged


def test_evidence_is_stationary_in_the_sites():
    """So that its gradient is the one for fixed sites."""
    prior = small_prior()
    t = small_labels(small_inputs())
    sites = PARALLEL.run(t, prior.A, prior.noise, Sites.vague(len(t)), TOL).posterior.sites

    def evidence(step, seed):
        rng = np.random.default_rng(seed)
        d_tau, d_nu = step * rng.standard_normal((2, len(t)))
        moved, one = Sites(sites.tau + d_tau, sites.nu + d_nu), np.ones(len(t))
        posterior = SitePosterior(prior.A, moved, one)
        _, moments = match_sites(Probit(), t, *posterior.cavity, prior.noise, one)
        return Fixpoint(posterior, moments, n_iter=1, converged=False).log_evidence

    for seed in range(3):
        assert abs(evidence(1e-5, seed) - evidence(-1e-5, seed)) / 2e-5 < 1e-6


def test_a_row_that_carries_no_information():
    """Far from every inducing input the features vanish: the site is vague, log Z is log 1/2."""
    kernel = Constant(2.0) * RBF(1.0)
    X = np.array([[0.0], [1e3]])
    prior = SparsePrior(InducingOutputs(kernel, X[:1]), certain(X), "dtc")
    alone = SparsePrior(InducingOutputs(kernel, X[:1]), certain(X[:1]), "dtc")
    both = PARALLEL.run(np.array([1.0, 1.0]), prior.A, prior.noise, Sites.vague(2), TOL)
    one = PARALLEL.run(np.array([1.0]), alone.A, alone.noise, Sites.vague(1), TOL)
    assert_allclose(both.log_evidence, one.log_evidence + np.log(0.5))
    assert_allclose(both.posterior.marginal_mean[1], 0.0)


@pytest.mark.parametrize("variance", [1e-12, 1e4, 1e8, 1e18])
def test_extreme_variances_of_f(variance):
    X = np.linspace(-1.0, 1.0, 9)[:, None]
    t = np.where(np.arange(9) % 4 < 2, 1.0, -1.0)
    prior = SparsePrior(InducingOutputs(Constant(variance) * RBF(0.5), X), certain(X), "dtc")
    fixpoint = PARALLEL.run(t, prior.A, prior.noise, Sites.vague(9), 1e-8)
    q = fixpoint.posterior
    assert fixpoint.converged
    assert np.isfinite(fixpoint.log_evidence) and np.all(q.marginal_variance > 0.0)
    assert np.all(q.sites.tau >= 0.0)
    if variance < 1.0:
        assert_allclose(fixpoint.log_evidence, 9.0 * np.log(0.5), rtol=1e-6)
    else:
        assert np.all(np.sign(q.marginal_mean) == t)


def test_moves_know_no_scale():
    a, b = Sites(np.array([1.0, 2.0]), np.array([3.0, 4.0])), Sites.vague(2)
    variance = np.array([0.1, 0.2])
    expected = [-0.1, -0.4, -3.0 * np.sqrt(0.1), -4.0 * np.sqrt(0.2)]
    assert_allclose(a.measure_move(b, variance), expected)
    scaled = Sites(1e-6 * a.tau, 1e-3 * a.nu)
    assert_allclose(scaled.measure_move(b, 1e6 * variance), expected)
