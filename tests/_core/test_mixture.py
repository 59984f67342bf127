"""Mixtures of normal distributions, one for every row."""

import numpy as np
from numpy.testing import assert_allclose

from skvbgp._core.mixture import NormalMixture


def test_noise_adds_to_the_variances():
    given = NormalMixture(np.zeros((2, 1)), np.array([[1.0], [3.0]]), np.ones((1, 1)))
    assert_allclose(given.with_noise(np.array([0.0, 16.0])).std, [[1.0], [5.0]])


def test_errors_of_another_shape(rng):
    """Literally: every component is a mixture, whose parts follow those of the others."""
    weights = rng.dirichlet(np.ones(3), 5)
    given = NormalMixture(rng.standard_normal((5, 3)), rng.uniform(0.5, 2.0, (5, 3)), weights)
    errors = NormalMixture(np.array([[-1.0, 0.5]]), np.array([[0.3, 0.8]]), np.array([[0.2, 0.8]]))
    y, density = rng.standard_normal(5), np.zeros(5)
    for c in range(3):
        z = (y - given.mean[:, c]) / given.std[:, c]
        density += weights[:, c] * np.exp(errors.log_density(z)) / given.std[:, c]
    assert_allclose(given.with_errors(errors).log_density(y), np.log(density))


def test_errors_of_rows_with_the_same_weights(rng):
    given = NormalMixture(rng.standard_normal((5, 2)), np.ones((5, 2)), np.array([[0.3, 0.7]]))
    errors = NormalMixture(np.array([[-1.0, 0.5]]), np.array([[0.3, 0.8]]), np.array([[0.2, 0.8]]))
    repeated = NormalMixture(given.mean, given.std, np.repeat(given.weights, 5, axis=0))
    y = rng.standard_normal(5)
    expected = repeated.with_errors(errors).log_density(y)
    assert_allclose(given.with_errors(errors).log_density(y), expected)
