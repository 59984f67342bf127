"""The exact solver's structured posterior against dense Gaussian processes, draw by draw."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_friedman1

from skvbgp import VBDTCRegressor, VBPICRegressor
from skvbgp._core.draws import quasi_normal
from skvbgp.kernels import Matern
from skvbgp.sgpr._exact import Mixture
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import REGRESSORS, WITH_NOISE_KERNEL, make_data, small
from tests.sgpr.problems import KINDS, check_exact_gradient, mixture_of, row_problem, small_problem


@pytest.fixture(params=KINDS)
def problem(request):
    return small_problem(request.param)


@pytest.fixture
def posterior(problem):
    return mixture_of(problem)


def twins(posterior, Xs, C):
    """Means, covariances of f and log evidence of the Gaussian process of each draw."""
    p, (X, y) = posterior.parameters, (posterior.rows.X, posterior.rows.y)
    means, covariances, evidences = [], [], []
    for e in posterior.draws:
        lam = p.nu + np.sqrt(p.xi) * e[:-1]
        sigma_f = p.alpha + np.sqrt(p.beta) * e[-1]

        def kernel(A, B, lam=lam, sigma_f=sigma_f):
            return oracles.k_xx(A, B, lam, sigma_f)

        mean, _, evidence = oracles.exact_gp(X, y, Xs, kernel, C)
        cross = kernel(Xs, X)
        means.append(mean)
        covariances.append(kernel(Xs, Xs) - cross @ np.linalg.inv(kernel(X, X) + C) @ cross.T)
        evidences.append(evidence)
    return np.array(means), np.array(covariances), np.array(evidences)


def test_bound(problem, posterior):
    _, _, evidences = twins(posterior, posterior.rows.X[:1], problem.C)
    assert_allclose(posterior.lower_bound, np.mean(evidences) - problem.kl_theta, rtol=1e-10)


def test_gradient(posterior):
    check_exact_gradient(posterior)


def test_mixture(problem, posterior):
    """Law of total (co)variance over the draws."""
    Xs = np.random.default_rng(3).normal(size=(5, 2))
    means, covariances, _ = twins(posterior, Xs, problem.C)
    total = np.mean(covariances, axis=0) + np.cov(means, rowvar=False, bias=True)
    mean, variance = posterior.moments(Xs)
    assert_allclose(mean, np.mean(means, axis=0), rtol=1e-9)
    assert_allclose(variance, np.diagonal(total), rtol=1e-9)
    mean, covariance = posterior.joint(Xs)
    assert_allclose(mean, np.mean(means, axis=0), rtol=1e-9)
    assert_allclose(covariance, total, rtol=1e-9, atol=1e-12)


def test_between_the_factorised_bound_and_the_evidence():
    """d = 1, a wide q(theta): one q(s) for all theta costs more than the structured one."""
    problem = row_problem(12, 1, 4)
    X, y = problem.scaled
    p = replace(problem.parameters, U=X)
    p = replace(p, xi=0.09 * p.nu**2, beta=0.09 * p.alpha**2)
    model, rows = problem.model, problem.data.rows(slice(None))
    draws = quasi_normal(512, 2, seed=0)
    structured = Mixture(model, p, rows, draws).lower_bound
    evaluation = problem.at(p).evaluation()
    factorised, _ = evaluation.gradient(evaluation.optimal_q)
    prior = model.hyperprior
    evidence = oracles.evidence_quadrature_1d(
        X, y, p.noise_variance * np.eye(len(y)), prior.mean, prior.variance
    )
    assert factorised + 0.1 < structured < evidence


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize(
    "cls",
    [VBDTCRegressor, *(pytest.param(c, marks=pytest.mark.thorough) for c in WITH_NOISE_KERNEL)],
)
def test_auto_is_exact_for_few_rows(cls):
    X, y = make_data(40)
    auto = cls(random_state=0, max_iter=3).fit(X, y)
    exact = cls(solver="exact", random_state=0, max_iter=3).fit(X, y)
    assert_array_equal(auto.predict(X), exact.predict(X))
    assert auto.lower_bound_ == exact.lower_bound_
    # training has the triangle of a kernel's matrix alone, whose last digits are others
    assert_allclose(auto.lower_bounds_[-1], auto.lower_bound_, rtol=1e-13)
    for other in ({"n_inducing": 20}, {"psi": "sampled"}, {"learn_hyperparameters": False}):
        model = cls(random_state=0, max_iter=1, **other).fit(X, y)
        collapsed = model.set_params(solver="collapsed").fit(X, y)
        assert model.lower_bound_ == collapsed.lower_bound_
        assert model.lower_bound_ < exact.lower_bound_


def test_needs_every_row_as_an_inducing_input():
    X, y = make_data(40)
    with pytest.raises(ValueError, match="n_inducing=30 at least the number of rows, 40"):
        VBDTCRegressor(30, solver="exact").fit(X, y)
    with pytest.raises(ValueError, match="inducing_inputs has to be None"):
        VBDTCRegressor(solver="exact", inducing_inputs=X).fit(X, y)


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.every_nth("cls", 2)
def test_a_stream_of_few_rows_equals_one_fit(cls):
    X, y = make_data(30)
    model = cls(random_state=0, max_iter=5)
    for rows in (slice(0, 12), slice(12, 13), slice(13, 30)):
        model.partial_fit(X[rows], y[rows])
    whole = cls(random_state=0, max_iter=5).fit(X, y)
    assert model.n_samples_seen_ == 30
    assert_array_equal(model.predict(X), whole.predict(X))


@pytest.mark.thorough
@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.in_turn("cls")
def test_a_stream_outgrows_the_exact_posterior(cls):
    """Past n_inducing rows the model turns sparse, keeps what it has seen, and improves."""
    X, y = make_data(200, seed=2)
    X_test, y_test = make_data(200, seed=3)
    model = cls(40, random_state=0)
    errors = []
    for rows in np.split(np.arange(200), 5):
        model.partial_fit(X[rows], y[rows])
        errors.append(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
    assert model.n_samples_seen_ == 200
    assert len(model.inducing_inputs_) == 40
    assert errors[-1] < errors[0]
    assert errors[-1] < 0.4 * np.std(y_test)


def test_without_learning_only_f_is_solved_for():
    X, y = make_data(25)
    model = VBDTCRegressor(solver="exact", learn_hyperparameters=False, noise_variance=0.3)
    model.fit(X, y)
    assert model.noise_variance_ == pytest.approx(0.3)
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.9


@pytest.mark.slow
def test_small_data_are_predicted_better_than_by_a_factorised_posterior():
    """Fifty noisy rows of ten inputs, five of them irrelevant."""
    for seed in range(3):
        X, y = make_friedman1(250, noise=1.0, random_state=seed)
        scores = []
        for solver in ("exact", "collapsed"):
            model = VBDTCRegressor(solver=solver, random_state=0).fit(X[:50], y[:50])
            mean, std = model.predict(X[50:], return_std=True)
            scores.append(np.mean(0.5 * ((y[50:] - mean) / std) ** 2 + np.log(std)))
        assert scores[0] < scores[1] - 0.2


def test_a_pickle_holds_the_data_and_not_the_factors():
    X, y = make_data(100)
    model = VBDTCRegressor(random_state=0, max_iter=2).fit(X, y)
    prediction = model.predict(X, return_std=True)
    pickled = pickle.dumps(model)
    assert len(pickled) < 8 * 100 * 100 * 8  # the factor of each of eight draws
    assert_array_equal(pickle.loads(pickled).predict(X, return_std=True), prediction)


# --- noise kernels ------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", WITH_NOISE_KERNEL)
@pytest.mark.every_nth("cls", 2)
@pytest.mark.thorough
def test_a_noise_kernel_is_learned_from_few_rows(cls):
    """Noise of 0.05, of which a kernel that stays at its start makes 0.5."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 4))
    y = np.sin(X[:, 0]) + 0.05 * rng.standard_normal(100)
    model = cls(noise_kernel=Matern(nu=0.5), random_state=0, max_iter=40).fit(X, y)
    _, std = model.predict(rng.standard_normal((200, 4)), return_std=True)
    assert np.mean(std) < 0.1


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.parametrize("include_noise", [True, False])
@pytest.mark.in_turn("include_noise")
@pytest.mark.every_nth("include_noise", 2)
def test_covariance_agrees_with_std(cls, include_noise):
    X, y = make_data()
    model = small(cls, "exact").fit(X, y)
    X_new, _ = make_data(20, seed=1)
    mean, std = model.predict(X_new, return_std=True, include_noise=include_noise)
    same, cov = model.predict(X_new, return_cov=True, include_noise=include_noise)
    assert_allclose(same, mean, rtol=1e-9)
    assert_allclose(model.predict(X_new, include_noise=include_noise), mean, rtol=1e-9)
    assert_allclose(np.diagonal(cov), std**2, rtol=1e-8)
    assert np.linalg.eigvalsh(cov)[0] > -1e-10 * np.max(cov)


def test_noise_of_the_own_block_is_part_of_an_observation(problem):
    """One block, whose noise is known like f: both together are one Gaussian process."""
    if problem.kind != "pitc":
        pytest.skip("blocks alone have noise that tells of a new row's")
    data, p = problem.data, problem.parameters
    Xs = np.random.default_rng(3).normal(size=(5, 2))
    mixture = Mixture(
        problem.model, p, data.rows(slice(None)), np.zeros((1, 3)), [np.arange(len(data))]
    )
    X_new = problem.model.coordinates.original(Xs)
    cross = mixture.noise.cross_covariance(X_new, data.X).T
    own = mixture.noise.covariance(X_new)
    mean, variance = mixture.moments(Xs, cross, np.diagonal(own))
    X, y = problem.scaled
    K = oracles.k_xx(np.concatenate([X, Xs]), np.concatenate([X, Xs]), p.nu, p.alpha)
    K[:11, :11] += mixture.noise.covariance(data.X)
    K[:11, 11:] += cross
    K[11:, :11] += cross.T
    K[11:, 11:] += own
    gain = K[11:, :11] @ np.linalg.inv(K[:11, :11])
    assert_allclose(mean, gain @ y, rtol=1e-9)
    assert_allclose(mixture.mean(Xs, cross), mean, rtol=1e-12)
    assert_allclose(variance, np.diagonal(K[11:, 11:] - gain @ K[:11, 11:]), rtol=1e-9)


def test_blocks_and_draws_are_those_that_are_asked_for():
    X, y = make_data()
    kernel = Matern(nu=0.5)
    one, two = (
        small(VBPICRegressor, "exact", n_blocks=k, noise_kernel=kernel).fit(X, y) for k in (1, 2)
    )
    assert one.lower_bound_ != two.lower_bound_
    few = one.predict(X)
    assert np.any(one.set_params(n_samples=2).predict(X) != few)
    assert_array_equal(one.set_params(n_samples=8).predict(X), few)
