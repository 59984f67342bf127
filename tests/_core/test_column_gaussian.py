"""The joint Gaussian of the columns."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from skvbgp._core import column_gaussian
from skvbgp._core.column_gaussian import ColumnGaussian, DenseGaussian, WideGaussian
from tests.derivatives import numerical_gradient
from tests.incomplete import COVARIANCE, MEAN, draw_incomplete
from tests.oracles import ep as oracles


@pytest.fixture
def incomplete(rng):
    return draw_incomplete(rng)


def test_conditional(incomplete):
    gaussian = DenseGaussian(MEAN, COVARIANCE)
    rows, mean, covariance = gaussian.incomplete(incomplete)
    gaps = np.isnan(incomplete).any(axis=1)
    assert_array_equal(rows, np.flatnonzero(gaps))
    for i, x in enumerate(incomplete[rows]):
        expected = oracles.conditional(x, MEAN, COVARIANCE)
        assert_allclose(mean[i], expected[0], atol=1e-12)
        assert_allclose(covariance[i], expected[1], atol=1e-12)
    first, variance = gaussian.moments(incomplete)
    assert_allclose(first[rows], mean)
    assert_allclose(variance[rows], np.einsum("njj->nj", covariance))
    assert_array_equal(first[~gaps], incomplete[~gaps])
    assert not variance[~gaps].any()


def test_a_row_alone_is_as_among_others(incomplete):
    gaussian = DenseGaussian(MEAN, COVARIANCE)
    mean, variance = gaussian.moments(incomplete)
    alone = [gaussian.moments(x[None]) for x in incomplete]
    assert_array_equal(np.vstack([m for m, _ in alone]), mean)
    assert_array_equal(np.vstack([v for _, v in alone]), variance)


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
    monkeypatch.setattr(column_gaussian, "_TOL", 1e-9)
    fitted = ColumnGaussian.fit(incomplete)
    rows, columns = np.tril_indices(3)

    def value(x):
        covariance = np.zeros((3, 3))
        covariance[rows, columns] = covariance[columns, rows] = x[3:]
        return log_posterior(DenseGaussian(x[:3], covariance), incomplete)

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


@pytest.mark.parametrize("weighted", [False, True])
def test_more_columns_than_rows(rng, weighted):
    X, weight = rng.standard_normal((5, 9)) + 1.0, rng.uniform(0.5, 2.0, 5) if weighted else None
    wide, dense = ColumnGaussian.fit(X, 2.0, weight), DenseGaussian.of(X, 0.0, 2.0, weight)
    assert isinstance(wide, WideGaussian)
    holes = np.where(rng.uniform(size=X.shape) < 0.4, np.nan, X)
    for found, expected in zip(wide.incomplete(holes), dense.incomplete(holes), strict=True):
        assert_allclose(found, expected, atol=1e-12)


def test_tiles_change_nothing(incomplete, monkeypatch):
    whole = ColumnGaussian.fit(incomplete)
    monkeypatch.setattr(column_gaussian, "_TILE", 9 * 7)
    tiled = ColumnGaussian.fit(incomplete)
    assert_allclose(tiled.covariance, whole.covariance)
    assert_allclose(tiled.moments(incomplete), whole.moments(incomplete))
