"""Columns of X, and the map from a row's entries to its latents."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.ep.hybrid._columns import ColumnModel
from skvbgp.ep.hybrid._recognition import Recognition
from tests.derivatives import numerical_gradient
from tests.oracles import ep as oracles


def table(rng, n=30):
    """Two continuous columns and a binary one, with missing entries."""
    X = rng.standard_normal((n, 3)) * [2.0, 30.0, 1.0] + [0.0, 100.0, 0.0]
    X[:, 2] = np.where(X[:, 0] + X[:, 2] > 0.0, 7.0, 3.0)
    X[rng.uniform(size=X.shape) < 0.25] = np.nan
    return X


@pytest.fixture
def model(rng):
    X = table(rng)
    return X, ColumnModel.of(X, np.array([False, False, True]))


def test_entries_are_scaled_and_missing_ones_are_zero(model):
    X, columns = model
    Y, seen = columns.continuous(X)
    assert_array_equal(seen, ~np.isnan(X[:, :2]))
    assert_allclose(np.nanmean(np.where(seen, Y, np.nan), axis=0), 0.0, atol=1e-12)
    assert_allclose(np.nanstd(np.where(seen, Y, np.nan), axis=0), 1.0)
    assert np.all(Y[~seen] == 0.0)
    expected = np.where(np.isnan(X[:, 2:]), 0.0, np.where(X[:, 2:] == 7.0, 1.0, -1.0))
    assert_array_equal(columns.signs(X), expected)


def test_completed_rows_are_conditional_gaussians(model):
    X, columns = model
    rows = columns.complete(X)
    Y = columns.coordinates.scaled(X)
    assert_array_equal(rows.incomplete, np.flatnonzero(np.isnan(X).any(axis=1)))
    for i, covariance in zip(rows.incomplete, rows.covariance, strict=True):
        mean, expected = oracles.conditional(
            Y[i], columns.gaussian.mean, columns.gaussian.covariance
        )
        assert_allclose(rows.mean[i], mean, atol=1e-12)
        assert_allclose(covariance, expected, atol=1e-12)


def test_original_units(model, rng):
    X, columns = model
    Y, _ = columns.continuous(X)
    p = rng.uniform(size=(len(X), 1))
    values, std = columns.original(Y, np.full(Y.shape, 0.25), p)
    seen = ~np.isnan(X[:, :2])
    assert_allclose(values[:, :2][seen], X[:, :2][seen])
    assert_allclose(std[:, :2], 0.5 * columns.coordinates.scale[:2] + np.zeros((len(X), 2)))
    assert_allclose(values[:, 2], 3.0 + 4.0 * p[:, 0])
    assert_allclose(std[:, 2], 4.0 * np.sqrt(p[:, 0] * (1.0 - p[:, 0])))


def test_latents_are_moments_of_the_projected_entries(model, rng):
    X, columns = model
    rows = columns.complete(X)
    recognition = Recognition(rng.standard_normal((3, 2)), rng.standard_normal(2), np.ones(2))
    latents = recognition.latents(rows)
    i, k = rows.incomplete[0], 0
    draws = rng.multivariate_normal(rows.mean[i], rows.covariance[k], size=200_000)
    projected = draws @ recognition.projection + recognition.offset
    assert_allclose(latents.mean[i], projected.mean(axis=0), atol=0.02)
    assert_allclose(latents.variance[i], 1.0 + projected.var(axis=0), rtol=0.02)


def test_gradient_of_the_recognition_map(model, rng):
    X, columns = model
    rows = columns.complete(X)
    C, c, s = rng.standard_normal((3, 2)), rng.standard_normal(2), rng.uniform(0.1, 1.0, 2)
    recognition, (d_mean, d_variance) = Recognition(C, c, s), rng.standard_normal((2, len(X), 2))

    def value(x):
        latents = recognition.with_x(x).latents(rows)
        return np.sum(d_mean * latents.mean) + np.sum(d_variance * latents.variance)

    gradient = recognition.gradient(rows, d_mean, d_variance)
    assert_allclose(gradient, numerical_gradient(value, recognition.x), atol=1e-8)


def test_prior_of_the_recognition_map(rng):
    """Rows of independent unit columns are one length scale apart in each latent, on average."""
    recognition = Recognition(rng.standard_normal((3, 2)), np.zeros(2), np.ones(2))
    x, log_l = recognition.x, np.log([0.5, 2.0])

    def value(x, log_l):
        return recognition.with_x(x).log_prior(np.exp(log_l))[0]

    _, d_x, d_log_l = recognition.log_prior(np.exp(log_l))
    assert_allclose(d_x, numerical_gradient(lambda x: value(x, log_l), x), atol=1e-8)
    assert_allclose(d_log_l, numerical_gradient(lambda log_l: value(x, log_l), log_l), atol=1e-8)
    draws = rng.standard_normal((20_000, 3)) / np.sqrt(2.0 * 3.0)  # entries of a column of C / l
    apart = rng.standard_normal((20_000, 3)) - rng.standard_normal((20_000, 3))
    assert_allclose(np.mean(np.sum(draws * apart, axis=1) ** 2), 1.0, rtol=0.05)


def test_recognition_starts_at_the_principal_components(rng):
    X = rng.standard_normal((50, 4)) @ np.diag([5.0, 3.0, 1.0, 0.5]) @ rng.standard_normal((4, 4))
    columns = ColumnModel.of(X, np.zeros(4, bool))
    rows = columns.complete(X)
    mean = Recognition.principal(rows, 2, rng).latents(rows).mean
    assert_allclose(mean.mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(np.cov(mean.T, bias=True), np.eye(2), atol=1e-12)
    spare = Recognition.principal(rows, 6, rng).latents(rows)
    assert np.isfinite(spare.mean).all() and spare.mean.shape == (50, 6)
