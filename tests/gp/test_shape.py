"""The shape of errors: skewed, or with heavy tails."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import softmax
from scipy.stats import norm

from skvbgp.gp import _shape
from skvbgp.gp._shape import learn_shape, score_shape
from tests.derivatives import numerical_gradient
from tests.gp.cases import small
from tests.oracles import gp as oracle

pytestmark = pytest.mark.usefixtures("quick_searches")

SEEN = _shape._PRIOR_ROWS / _shape._COMPONENTS


def skewed(rng, n):
    """Errors with mean zero and variance one, none below -1."""
    return rng.exponential(size=n) - 1.0


def test_objective(rng):
    pi, a, b = np.array([0.2, 0.5, 0.3, 0.0]) + 0.1, rng.standard_normal(4), rng.uniform(0.1, 2, 4)
    z, weight = rng.standard_normal(12), rng.uniform(0.5, 2.0, 12)
    value, shares = score_shape(pi, a, b, z, weight)
    assert_allclose(value, oracle.score_shape(pi, a, b, z, weight, SEEN))
    joint = pi[:, None] * norm(a[:, None], np.sqrt(b)[:, None]).pdf(z)
    assert_allclose(shares, weight * joint / joint.sum(axis=0))


def test_the_end_is_a_maximum(rng, monkeypatch):
    monkeypatch.setattr(_shape, "_TOL", -np.inf)
    monkeypatch.setattr(_shape, "_MAX_ITER", 2000)
    z, weight = skewed(rng, 60), rng.uniform(0.5, 2.0, 60)
    pi, a, b = _shape._explain(z, weight)

    def score(x):
        logits, means, log_variances = x.reshape(3, -1)
        return oracle.score_shape(softmax(logits), means, np.exp(log_variances), z, weight, SEEN)

    gradient = numerical_gradient(score, np.concatenate([np.log(pi), a, np.log(b)]))
    assert_allclose(gradient, 0.0, atol=1e-4)


def test_mean_and_variance_stay(rng):
    shape = learn_shape(0.5 * skewed(rng, 80))
    (pi,), (mean,), (std,) = shape.weights, shape.mean, shape.std
    assert_allclose([pi.sum(), pi @ mean, pi @ (std**2 + mean**2)], [1.0, 0.0, 1.0], atol=1e-12)


def test_it_is_of_errors_in_any_unit(rng):
    z, other = skewed(rng, 80), skewed(rng, 20)
    shape, shifted = learn_shape(z / 2.0), learn_shape(z / 5.0 - 3.0)
    assert_allclose(shape.log_density(other), shifted.log_density(other), rtol=1e-6)


def test_it_is_as_wide_as_errors_that_are_larger_than_predicted(rng):
    """As a few that are huge do not widen what is predicted of all."""
    z, other = skewed(rng, 80), skewed(rng, 20)
    z /= z.std()
    shape, wide = learn_shape(z), learn_shape(3.0 * z)
    assert_allclose(wide.log_density(3.0 * other), shape.log_density(other) - np.log(3.0))


def test_weights_are_repetitions(rng):
    z, count, other = skewed(rng, 50), rng.integers(0, 4, 50), skewed(rng, 20)
    weighted, repeated = learn_shape(z, count.astype(float)), learn_shape(np.repeat(z, count))
    assert_allclose(weighted.log_density(other), repeated.log_density(other), rtol=1e-6)


def test_what_it_gains(rng):
    """Of exponential errors: a density that is .419 higher than a normal one has it all."""
    shape, others = learn_shape(skewed(rng, 400)), skewed(rng, 5000)
    assert 0.25 < np.mean(shape.log_density(others) - norm.logpdf(others)) < 0.45


def test_what_it_loses(rng):
    shape, others = learn_shape(rng.standard_normal(400)), rng.standard_normal(5000)
    assert -0.02 < np.mean(shape.log_density(others) - norm.logpdf(others)) < 0.0


def test_few_errors_say_little(rng):
    places = np.linspace(-2.0, 2.0, 9)
    shape = learn_shape(skewed(rng, 3))
    assert np.max(np.abs(shape.log_density(places) - norm.logpdf(places))) < 0.5


def test_errors_that_are_all_the_same_have_none():
    assert learn_shape(np.full(5, 2.0)) is None


@pytest.fixture(
    scope="module",
    params=[{}, pytest.param({"n_neighbors": 40}, marks=pytest.mark.thorough)],
    ids=["all rows", "near rows"],
)
def fitted(request):
    """A model of skewed noise, and other rows."""
    rng = np.random.RandomState(1)
    X = rng.uniform(-2.0, 2.0, (600, 1))
    y = np.sin(X[:, 0]) + 0.3 * skewed(rng, 600)
    n = 200
    return small(**request.param).fit(X[:n], y[:n]), X[n:], y[n:]


def test_predictions_are_skewed_as_the_noise_is(fitted):
    model, X, y = fitted
    mean, std = model.predict(X, return_std=True)
    gain = model.log_predictive_density(X, y) - norm(mean, std).logpdf(y)
    assert gain.mean() > 0.2
    lower, upper = model.predict_interval(X, 0.9)
    assert np.all(upper - mean > 1.5 * (mean - lower))
    assert np.mean((y >= lower) & (y <= upper)) > 0.87


def test_the_function_is_not(fitted):
    model, X, _ = fitted
    lower, upper = model.predict_interval(X, 0.9, include_noise=False)
    mean = model.predict(X)
    assert_allclose(upper - mean, mean - lower, rtol=0.2)


def test_no_shape_is_learned_with_fixed_hyperparameters():
    rng = np.random.RandomState(2)
    X = rng.uniform(-2.0, 2.0, (50, 1))
    y = 0.3 * skewed(rng, 50)
    model = small(learn_hyperparameters=False).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert_allclose(model.log_predictive_density(X, y), norm(mean, std).logpdf(y))
