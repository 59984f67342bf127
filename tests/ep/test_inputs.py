"""Missing entries as Gaussian inputs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from skvbgp.ep import _column_gaussian
from skvbgp.ep._column_gaussian import ColumnGaussian
from skvbgp.ep._inputs import InputModel, Inputs
from tests.derivatives import numerical_gradient
from tests.oracles import ep as oracles

MEAN = np.array([0.3, -0.2, 0.1])
COVARIANCE = np.array([[1.0, 0.7, -0.2], [0.7, 1.5, 0.3], [-0.2, 0.3, 0.8]])


@pytest.fixture
def incomplete(rng):
    X = rng.multivariate_normal(MEAN, COVARIANCE, 200)
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    return X


def test_conditional(incomplete):
    gaussian = ColumnGaussian(MEAN, COVARIANCE)
    mean, covariance = gaussian.condition(incomplete)
    for i, x in enumerate(incomplete):
        expected = oracles.conditional(x, MEAN, COVARIANCE)
        assert_allclose(mean[i], expected[0], atol=1e-12)
        assert_allclose(covariance[i], expected[1], atol=1e-12)
    first, variance = gaussian.moments(incomplete)
    assert_allclose(first, mean)
    assert_allclose(variance, np.einsum("njj->nj", covariance))


def log_posterior(gaussian, X):
    """What EM climbs: likelihood of the seen entries, and one imagined unit row about the mean."""
    total, seen = 0.0, ~np.isnan(X)
    for o in np.unique(seen, axis=0):
        if o.any():  # all rows in which these entries are seen
            part = multivariate_normal(gaussian.mean[o], gaussian.covariance[np.ix_(o, o)])
            total += np.sum(part.logpdf(X[np.all(seen == o, axis=1)][:, o]))
    precision = np.linalg.inv(gaussian.covariance)
    return total - 0.5 * (np.linalg.slogdet(gaussian.covariance)[1] + np.trace(precision))


def test_em_ends_at_a_maximum(incomplete, monkeypatch):
    monkeypatch.setattr(_column_gaussian, "_TOL", 1e-9)
    fitted = ColumnGaussian.fit(incomplete)
    rows, columns = np.tril_indices(3)

    def value(x):
        covariance = np.zeros((3, 3))
        covariance[rows, columns] = covariance[columns, rows] = x[3:]
        return log_posterior(ColumnGaussian(x[:3], covariance), incomplete)

    x = np.append(fitted.mean, fitted.covariance[rows, columns])
    assert_allclose(numerical_gradient(value, x), 0.0, atol=1e-5)


def test_em_finds_the_gaussian(rng):
    X = rng.multivariate_normal(MEAN, COVARIANCE, 5000)
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    fitted = ColumnGaussian.fit(X)
    assert_allclose(fitted.mean, MEAN, atol=0.06)
    assert_allclose(fitted.covariance, COVARIANCE, atol=0.1)


def test_variances_of_many_columns_are_those_of_the_errors(rng):
    """Of columns that tell of each other, from few rows."""
    X = np.sqrt(0.9) * rng.standard_normal((60, 1)) + np.sqrt(0.1) * rng.standard_normal((60, 30))
    missing = rng.uniform(size=X.shape) < 0.3
    holes = np.where(missing, np.nan, X)
    mean, variance = ColumnGaussian.fit(holes).moments(holes)
    error = (mean - X)[missing] ** 2
    assert np.mean(error) < 0.15
    assert 0.5 < np.mean(error / variance[missing]) < 1.5


def test_tiles_change_nothing(incomplete, monkeypatch):
    whole = ColumnGaussian.fit(incomplete)
    monkeypatch.setattr(_column_gaussian, "_TILE", 9 * 7)
    tiled = ColumnGaussian.fit(incomplete)
    assert_allclose(tiled.covariance, whole.covariance)
    assert_allclose(tiled.moments(incomplete), whole.moments(incomplete))


def test_units_do_not_matter(incomplete):
    unit, offset = np.array([1e-3, 1.0, 1e5]), np.array([0.0, 7.0, 1e6])
    X = incomplete * unit + offset
    a = InputModel.of(incomplete).complete(Inputs(incomplete, np.zeros_like(X)))
    b = InputModel.of(X).complete(Inputs(X, np.zeros_like(X)))
    assert_allclose(b.mean, a.mean * unit + offset, rtol=1e-9)
    assert_allclose(b.variance, a.variance * unit**2, rtol=1e-9)


def test_given_variances_stay_and_those_of_missing_entries_are_replaced(incomplete, rng):
    given = rng.uniform(0.1, 1.0, incomplete.shape)
    model = InputModel.of(incomplete).with_refinement(np.full(3, 0.5), np.full(3, 0.2))
    completed = model.complete(Inputs(incomplete, given))
    seen = ~np.isnan(incomplete)
    assert_array_equal(completed.mean[seen], incomplete[seen])
    assert_array_equal(completed.variance[seen], given[seen])
    assert np.all(completed.variance[~seen] != given[~seen])
    assert np.isfinite(completed.mean).all()


def test_refinement_shifts_and_spreads_what_is_missing(incomplete):
    model = InputModel.of(incomplete)
    inputs = Inputs(incomplete, np.zeros_like(incomplete))
    before = model.complete(inputs)
    shift, log_spread = np.array([0.5, -1.0, 0.0]), np.array([0.3, 0.0, -0.7])
    after = model.with_refinement(shift, log_spread).complete(inputs)
    assert_allclose(after.mean, before.mean + shift * np.sqrt(before.variance))
    assert_allclose(after.variance, before.variance * np.exp(log_spread))


def test_kl(rng):
    """Of N(m + b sqrt(v), c v) to N(m, v), summed over the entries of each column."""
    model = InputModel.of(rng.standard_normal((9, 3)))
    counts = np.array([2.0, 0.0, 5.0])
    x = rng.standard_normal(6)

    def kl(x):
        return model.with_refinement(x[:3], x[3:]).kl(counts)

    value, d_shift, d_log_spread = kl(x)
    b, c = x[:3], np.exp(x[3:])
    expected = [
        oracles.expectation(
            lambda e, k=k: (
                -0.5 * np.log(c[k])
                - 0.5 * e[:, 0] ** 2
                + 0.5 * (b[k] + np.sqrt(c[k]) * e[:, 0]) ** 2
            ),
            [0.0],
            np.ones(1),
        )
        for k in range(3)
    ]
    assert_allclose(value, counts @ expected)
    gradient = numerical_gradient(lambda x: kl(x)[0], x)
    assert_allclose(np.append(d_shift, d_log_spread), gradient, atol=1e-9)
    assert model.kl(counts)[0] == 0.0
