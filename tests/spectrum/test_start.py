"""Where training starts: frequencies and hyperparameters from the evidence of some rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_equal
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

from skvbgp.base._exact_process import ExactRows, find_maximum, log_density
from skvbgp.kernels import RBF, Matern
from skvbgp.spectrum import SVBSSGPRegressor
from skvbgp.spectrum._rows import Rows
from skvbgp.spectrum._start import draw_frequencies, find_variances, start_from_evidence
from skvbgp.spectrum._state import VARIANCE_LIMITS, Hyperparameters
from tests.derivatives import numerical_gradient
from tests.oracles import spectrum as oracle


def make_hyperparameters(d):
    return Hyperparameters(np.full(d, 1.4 * np.sqrt(d / 2.0)), 1.0, 0.1, 0.1)


BEFORE = make_hyperparameters(2)
KERNELS = pytest.mark.parametrize(
    "kernel", [RBF(BEFORE.length_scale), Matern(BEFORE.length_scale, nu=0.5)], ids=["SE", "exp"]
)


def make_rows(n=40, seed=0, rough=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    steps = np.sign(np.sin(9.0 * X[:, 0])) if rough else np.sin(3.0 * X[:, 0])
    y = steps + 0.3 * X[:, 1] + 0.05 * rng.standard_normal(n)
    return Rows(X, (y - y.mean()) / y.std())


@KERNELS
def test_log_density(kernel):
    """Literally: the evidence of all copies, and the prior but for its constant."""
    rows = make_rows()
    counts = 1.0 + np.arange(len(rows)) % 3
    X, y = (np.repeat(part, counts.astype(int), axis=0) for part in (rows.X, rows.y))
    x = np.array([0.3, 0.1, 0.9, -2.0])
    C = np.exp(x[0]) * kernel.with_theta(x[1:3])(X) + np.exp(x[3]) * np.eye(len(y))
    prior = norm(kernel.theta, np.sqrt(0.5))
    expected = multivariate_normal(cov=C).logpdf(y)
    expected += np.sum(prior.logpdf(x[1:3]) - prior.logpdf(kernel.theta))
    rows = ExactRows(rows.X, rows.y, counts)
    value, gradient = log_density(x, kernel, rows)
    assert_allclose(value, expected, rtol=1e-10)
    numerical = numerical_gradient(lambda x: log_density(x, kernel, rows)[0], x)
    assert_allclose(gradient, numerical, atol=1e-6)
    of_noise = norm(-3.0, 2.0)
    value, gradient = log_density(x, kernel, rows, (-3.0, 2.0))
    assert_allclose(value, expected + of_noise.logpdf(x[3]) - of_noise.logpdf(-3.0), rtol=1e-10)
    numerical = numerical_gradient(lambda x: log_density(x, kernel, rows, (-3.0, 2.0))[0], x)
    assert_allclose(gradient, numerical, atol=1e-6)


@KERNELS
def test_search_ends_where_the_density_is_largest(kernel):
    rows = ExactRows(make_rows().X, make_rows().y)
    found = find_maximum(kernel, rows)
    value, x = found.value, found.x
    assert value == log_density(x, kernel, rows)[0]
    for i in range(len(x)):
        for change in (-0.3, 0.3):
            moved = x.copy()
            moved[i] += change
            assert log_density(moved, kernel, rows)[0] < value + 0.05  # flat where noise is little


def test_a_smooth_function_has_the_spectrum_of_the_squared_exponential():
    rows = make_rows()
    R, hyper = start_from_evidence(rows, 4_000, BEFORE, np.random.RandomState(0), are_all=True)
    prior = np.log(0.05), 3.0
    x = find_maximum(RBF(BEFORE.length_scale), ExactRows(rows.X, rows.y), prior).x
    assert_allclose(hyper.length_scale, np.exp(x[1:3]))
    assert_allclose([hyper.signal_variance, hyper.noise_variance], np.exp(x[[0, 3]]))
    assert hyper.local_noise_variance == hyper.noise_variance
    assert_allclose(R.std(axis=0) * 2.0 * np.pi * hyper.length_scale, 1.0, rtol=0.05)


def test_rows_that_many_inputs_interpolate_have_noise():
    """By its prior: the evidence alone has a hundredth of what there is."""
    rng = np.random.default_rng([0, 7])
    X = rng.standard_normal((120, 25))
    y = 2.0 * np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(120)
    rows, before = Rows(X, (y - y.mean()) / y.std()), make_hyperparameters(25)
    least = np.exp(find_maximum(RBF(before.length_scale), ExactRows(rows.X, rows.y)).x[-1])
    _, hyper = start_from_evidence(rows, 10, before, np.random.RandomState(0), are_all=True)
    assert 3.0 * least < hyper.noise_variance < 0.1


@pytest.mark.parametrize("are_all", [True, False])
@pytest.mark.every_nth("are_all", 2)
def test_a_rough_function_has_heavy_tailed_frequencies(are_all):
    rows = make_rows(200, rough=True)
    R, hyper = start_from_evidence(rows, 20, BEFORE, np.random.RandomState(0), are_all=are_all)
    expected = draw_frequencies(20, BEFORE.length_scale, np.random.RandomState(0))
    assert_allclose(R, expected)
    assert_equal(hyper, find_variances(rows, R, BEFORE) if are_all else BEFORE)


def test_variances_are_the_most_probable():
    """Literally: evidence of the features, and the prior of the noise; the length scales stay."""
    rows = make_rows(30, rough=True)
    R = draw_frequencies(6, BEFORE.length_scale, np.random.RandomState(0))
    found = find_variances(rows, R, BEFORE)
    assert found.length_scale is BEFORE.length_scale
    assert found.local_noise_variance == found.noise_variance

    def density(signal, noise):
        log_density = oracle.log_evidence(rows.X, rows.y, R, signal, noise)
        return log_density + norm(np.log(0.05), 1.0).logpdf(np.log(noise))

    signal, noise = found.signal_variance, found.noise_variance
    highest = density(signal, noise)
    assert highest > density(BEFORE.signal_variance, BEFORE.noise_variance)
    for factor in (0.9, 1.1):
        assert density(factor * signal, noise) < highest
        assert density(signal, factor * noise) < highest


def test_more_features_than_rows_leave_some_noise():
    """Evidence alone would come to none, as a hundred frequencies come close to any rows."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 2))
    rows = Rows(X, np.sin(X[:, 0]))
    R = draw_frequencies(100, BEFORE.length_scale, np.random.RandomState(0))
    assert find_variances(rows, R, BEFORE).noise_variance > 1e-3


def test_a_target_of_noise_alone_has_no_other_variance():
    rng = np.random.default_rng(5)
    rows = Rows(rng.standard_normal((80, 3)), rng.standard_normal(80))
    R = draw_frequencies(100, np.ones(3), np.random.RandomState(0))
    found = find_variances(rows, R, BEFORE)
    assert_allclose(found.noise_variance, np.mean(rows.y**2), rtol=0.1)
    assert VARIANCE_LIMITS[0] <= found.signal_variance < 0.1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.every_nth("seed", 3)
def test_few_rows_of_noise_are_predicted_as_noise(seed):
    """NLPD is not above that of the mean and the variance by more than a twentieth."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((380, 3)), rng.exponential(size=380)
    model = SVBSSGPRegressor(20, random_state=0).fit(X[:80], y[:80])
    constant = norm(y[:80].mean(), y[:80].std()).logpdf(y[80:]).mean()
    assert model.log_predictive_density(X[80:], y[80:]).mean() > constant - 0.05


@pytest.mark.parametrize(
    "given", [{"length_scale": 2.0}, {"signal_variance": 2.0}, {"noise_variance": 0.1}], ids=repr
)
def test_a_start_that_is_given_is_not_searched_for(given, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError

    monkeypatch.setattr("skvbgp.spectrum._learner.start_from_evidence", refuse)
    rows = make_rows(20)
    X, y = rows.X, rows.y
    SVBSSGPRegressor(4, **given, max_iter=1, random_state=0).fit(X, y)
    with pytest.raises(AssertionError):
        SVBSSGPRegressor(4, max_iter=1, random_state=0).fit(X, y)


@pytest.mark.parametrize("n", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_few_rows_are_predicted_as_by_an_exact_process(n):
    rows = make_rows(n + 300, seed=1)
    X, y = rows.X, rows.y
    ours = SVBSSGPRegressor(random_state=0).fit(X[:n], y[:n])
    kernel = sklearn_kernels.RBF([1.0, 1.0]) + sklearn_kernels.WhiteKernel(0.1)
    exact = GaussianProcessRegressor(kernel).fit(X[:n], y[:n])
    errors = [np.sqrt(np.mean((model.predict(X[n:]) - y[n:]) ** 2)) for model in (ours, exact)]
    assert errors[0] < 1.25 * errors[1]
