"""Where training starts: the evidence of a sample, and the units of the steps."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skvbgp._core.scaling import Coordinates
from skvbgp.decoupled import DecoupledGPClassifier, DecoupledGPRegressor
from skvbgp.decoupled._basis import Basis, GeneralizedSE, PlainKernel
from skvbgp.decoupled._bound import Model
from skvbgp.decoupled._likelihoods import Gaussian, Poisson, Probit, StudentT
from skvbgp.decoupled._start import find_hyperparameters, log_evidence
from skvbgp.kernels import RBF, Linear, Matern
from tests.decoupled.problems import D, kernels
from tests.derivatives import numerical_gradient
from tests.signals import chirp


def model_of(kernel, prior_variance=np.inf, likelihood=None):
    return Model(kernel, likelihood or Gaussian(), "orthogonal", False, prior_variance)


@pytest.mark.parametrize("kind", ["generalized", "inputwise", "plain"])
@pytest.mark.parametrize("likelihood", [Gaussian(), Probit()], ids=["one", "several"])
@pytest.mark.every_nth("likelihood", 2)
def test_evidence_and_its_gradient(kind, likelihood):
    """Several functions of noise of unit variance have kernels relative to the noise."""
    rng, k = np.random.default_rng(0), 3 if likelihood.unit_noise else 1
    kernel, X, y = kernels(rng)[kind], rng.standard_normal((7, D)), rng.standard_normal((7, k))
    model, rows, x = (
        model_of(kernel, likelihood=likelihood),
        Basis(X),
        np.append(kernel.theta, -1.0),
    )
    value, gradient = log_evidence(model, x, rows, y)
    noise = np.exp(-1.0)
    covariance = (noise if k > 1 else 1.0) * kernel(rows, rows) + noise * np.eye(7)
    expected = multivariate_normal(np.zeros(7), covariance).logpdf(y.T).sum()
    assert_allclose(value, expected, rtol=1e-10)
    numerical = numerical_gradient(lambda x: log_evidence(model, x, rows, y)[0], x)
    assert_allclose(gradient, numerical, rtol=1e-7, atol=1e-8)


def test_prior_and_its_gradient():
    model = model_of(GeneralizedSE(0.3, np.array([0.1, 0.2])), prior_variance=0.5)
    theta = np.array([1.0, -0.5, 0.4])
    value, gradient = model.log_prior(theta)
    assert_allclose(value, -np.sum((theta - model.kernel.theta) ** 2))
    assert_allclose(gradient, numerical_gradient(lambda x: model.log_prior(x)[0], theta))
    assert model_of(model.kernel).log_prior(theta)[0] == 0.0


def test_search_finds_length_scales_that_are_far_away():
    X, y = chirp(150)
    scaled = Coordinates.of(X).scaled(X)
    start = GeneralizedSE(0.0, np.zeros(1))
    theta, _ = find_hyperparameters(model_of(start, 0.5), scaled, y / np.std(y))
    assert 0.02 < np.exp(theta[1]) < 0.1


@pytest.mark.parametrize("parametrization", ["hybrid", "orthogonal"])
@pytest.mark.every_nth("parametrization", 2)
def test_few_rows_are_an_exact_process_at_the_maximum_of_its_evidence(parametrization):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (70, 2))
    y = 5.0 + 3.0 * np.sin(3.0 * X[:, 0]) + 0.3 * rng.standard_normal(70)
    model = DecoupledGPRegressor(basis_growth=30, parametrization=parametrization, random_state=0)
    model.fit(X, y)
    assert model.n_iter_ == 4  # three in which the bases grow, and one
    K, noise = model.kernel_(X), model.noise_variance_
    centred = y - y.mean()
    C, k = K + noise * np.eye(70), model.kernel_(X, X[:9] + 0.3)
    mean, std = model.predict(X[:9] + 0.3, return_std=True, include_noise=False)
    assert_allclose(mean, y.mean() + k.T @ np.linalg.solve(C, centred), atol=1e-4)
    variance = model.kernel_.diag(X[:9]) - np.sum(k * np.linalg.solve(C, k), axis=0)
    assert_allclose(std**2, variance, atol=1e-4)
    evidence = multivariate_normal(np.zeros(70), C).logpdf(centred)
    assert_allclose(model.lower_bound_, evidence, atol=1e-2)
    for change in (0.97, 1.03):  # beyond what the prior and the end of the search leave open
        C = K + change * noise * np.eye(70)
        assert multivariate_normal(np.zeros(70), C).logpdf(centred) < evidence + 1e-2


def make_few_rows(n):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(4.0 * X[:, 0] * X[:, 1]) + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize(
    "options",
    [{"n_cov_basis": 40}, {"batch_size": 40}, {"likelihood": "student_t"}, {"replay": 0}],
    ids=str,
)
@pytest.mark.usefixtures("quick_searches")
@pytest.mark.every_nth("options", 4)
def test_other_models_take_all_passes(options):
    model = DecoupledGPRegressor(max_iter=9, random_state=0, **options).fit(*make_few_rows(50))
    assert model.n_iter_ == 9


def test_a_warm_start_after_an_exact_fit_learns():
    X, y = make_few_rows(50)
    model = DecoupledGPRegressor(max_iter=9, warm_start=True, random_state=0).fit(X, y)
    before = model.kernel_.theta
    model.fit(X, 3.0 * np.cos(9.0 * X[:, 1]))
    assert model.n_iter_ == 9
    assert np.all(model.kernel_.theta != before)


def make_rows_without_noise(n):
    X = np.random.default_rng(0).standard_normal((n, 2))
    return X, np.sin(X[:, 0]) + X[:, 1] ** 2


@pytest.mark.thorough
@pytest.mark.parametrize("parametrization", ["orthogonal", "hybrid"])
def test_a_function_without_noise_is_learned_as_one_in_fit_and_in_a_stream(parametrization):
    """Adam's steps of the noise ended at .02 of y's spread, and gradients at an old q(u) beyond."""
    X, y = make_rows_without_noise(180)
    model = DecoupledGPRegressor(60, 60, parametrization=parametrization, random_state=0)
    model.fit(X[:120], y[:120])
    for rows in (slice(150, 180), slice(120, 150)):
        mean, std = model.predict(X[rows], return_std=True)
        assert np.sqrt(np.mean((mean - y[rows]) ** 2)) < 0.02 * np.std(y)
        assert np.mean(std) < 0.01 * np.std(y)
        model.partial_fit(X[120:150], y[120:150])


def test_a_stream_whose_rows_are_all_in_the_bases_is_a_fit():
    X, y = make_few_rows(70)
    stream = DecoupledGPRegressor(random_state=0)
    for rows in (slice(40), slice(40, 41), slice(41, 70)):
        stream.partial_fit(X[rows], y[rows])
    fitted = DecoupledGPRegressor(random_state=0).fit(X, y)
    assert stream.n_samples_seen_ == 70
    assert_allclose(stream.predict(X, return_std=True), fitted.predict(X, return_std=True))


@pytest.mark.parametrize("n_new", [1, 50])
@pytest.mark.parametrize("n", [50, 250])
@pytest.mark.every_nth("n", 2)
@pytest.mark.every_nth("n_new", 2)
def test_noise_of_an_update_is_what_is_left_of_rows_in_familiar_places(n, n_new):
    """After an exact fit whose rows can no longer all be kept, and one whose bases are full."""
    X, y = make_few_rows(n)
    options = {"random_state": 0, "learning_rate": 1e-12, "normalize_y": False, "max_iter": 5}
    options["replay"] = n
    model = DecoupledGPRegressor(**options).fit(X, y)
    X_new = np.full((n_new, 2), 0.9)
    y_new = np.full(n_new, 2.0)
    X_all, y_all = np.vstack([X, X_new]), np.append(y, y_new)
    _, std = model.predict(X_new, return_std=True, include_noise=False)
    familiar = np.append(np.ones(n), 1.0 - std**2 / model.kernel_.diag(X_new))
    mean, std = model.partial_fit(X_new, y_new).predict(X_all, return_std=True, include_noise=False)
    expected = np.average((y_all - mean) ** 2 + std**2, weights=familiar)
    assert_allclose(model.noise_variance_, expected, rtol=1e-6)


def test_length_unit_of_any_kernel():
    frame = Coordinates(np.array([1.0, -2.0]), np.array([0.5, 4.0]))
    rbf = PlainKernel(RBF([0.1, 1.0]).bind(2), frame)
    ratio = rbf.length_unit / (np.array([0.1, 1.0]) / frame.scale)
    assert np.all((ratio >= 1.0) & (ratio <= 2.0))
    everywhere = PlainKernel(Linear().bind(2), frame).length_unit
    assert np.all(everywhere > 0.0)
    assert np.isfinite(everywhere).all()


def test_latent_values():
    y = np.append(np.arange(9.0), 1e6)
    assert_allclose(StudentT().latent_values(y)[:-1], y[:-1])
    assert np.max(StudentT().latent_values(y)) < 40.0
    assert_allclose(StudentT().latent_values(np.ones(3)), 1.0)
    mostly_equal, weight = np.array([1.0, 5.0]), np.array([9.0, 1.0])
    assert_allclose(StudentT().latent_values(np.repeat(mostly_equal, [9, 1]))[-1], 5.0)
    assert_allclose(StudentT().latent_values(mostly_equal, weight), mostly_equal)
    counts = Poisson(0.0).latent_values(np.array([0.0, 1.0, 20.0]))
    assert np.all(np.diff(counts) > 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", [None, Matern(0.2, nu=2.5)], ids=["default", "user"])
def test_function_with_much_detail(kernel):
    X, y = chirp(800)
    model = DecoupledGPRegressor(100, 100, kernel=kernel, max_iter=25, random_state=0)
    mean, std = model.fit(X[:400], y[:400]).predict(X[400:], return_std=True)
    assert np.sqrt(np.mean((mean - y[400:]) ** 2)) < 0.2
    assert np.mean(np.abs(mean - y[400:]) < 1.96 * std) > 0.9


@pytest.mark.parametrize("n", [70, pytest.param(300, marks=pytest.mark.thorough)])
def test_search_finds_the_one_input_that_matters(rng, n):
    """Where length scales that are all alike say that nearly everything is noise."""
    X = rng.uniform(-1.7, 1.7, (n, 6))
    y = np.sin(2.6 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    model = model_of(GeneralizedSE(0.0, np.zeros(6)), 0.5)
    _, log_noise = find_hyperparameters(model, X, y / np.std(y))
    assert np.exp(log_noise) < 0.1


def test_search_starts_with_little_noise_besides():
    """From all candidates it ends where most of y is noise, of which there is little."""
    rng = np.random.default_rng(14)
    X = rng.uniform(-2.0, 2.0, (100, 14))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.sin(3.4 * X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.1 * rng.standard_normal(100)
    model = model_of(GeneralizedSE(0.0, np.full(14, 0.5 * np.log(14))), 0.5)
    _, log_noise = find_hyperparameters(model, X, (y - y.mean()) / y.std())
    assert np.exp(log_noise) < 0.1


@pytest.mark.slow
def test_ten_classes():
    """Ten functions on one basis are good after few steps: they start in units of the noise."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, train_size=500, test_size=300)
    scaler = StandardScaler().fit(X)
    model = DecoupledGPClassifier(200, 60, max_iter=10, random_state=0)
    probabilities = model.fit(scaler.transform(X), y).predict_proba(scaler.transform(X_test))
    assert log_loss(y_test, probabilities) < 0.35
