"""Numerical derivatives, accurate enough for tolerances far below any plausible mistake."""

import numpy as np
from numpy.testing import assert_allclose

_STEP = 1e-3


def numerical_gradient(function, x):
    """Gradient of a scalar function of an array (or a number), by a five-point stencil.

    Its error is h^4 / 30 of the fifth derivative plus about 2 eps / h of the value: for
    functions of order 10 to 100, whose derivatives grow no faster than factorials, 1e-10.
    """
    x = np.asarray(x, dtype=float)
    gradient = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[index] = _STEP
        near = function(x + step) - function(x - step)
        far = function(x + 2.0 * step) - function(x - 2.0 * step)
        gradient[index] = (8.0 * near - far) / (12.0 * _STEP)
    return gradient


def numerical_slopes(function, places):
    """Derivatives (n, d, ...) of a function (n, d) -> (n, ...) of each row, by the same stencil."""
    slopes = []
    for step in _STEP * np.eye(places.shape[1]):
        near = function(places + step) - function(places - step)
        far = function(places + 2.0 * step) - function(places - 2.0 * step)
        slopes.append((8.0 * near - far) / (12.0 * _STEP))
    return np.stack(slopes, axis=1)


def assert_slopes(function, x, gradient, *, atol, where=True):
    """A gradient is that of a function of many numbers along two directions of signs.

    An entry that is wrong is as wrong in both; entries where ``where`` is false do not count. A
    whole `numerical_gradient` of another case says which entry it is.
    """
    unit = 1.0 / np.sqrt(x.size)
    for signs in np.random.default_rng(0).choice([-1.0, 1.0], (2, *x.shape)):
        direction = np.where(where, signs, 0.0)
        slope = numerical_gradient(lambda t, d=direction: function(x + unit * t * d), 0.0) / unit
        assert_allclose(np.sum(gradient * direction), slope, rtol=0.0, atol=atol)


def symmetric_gradient(function, K):
    """Gradient G of a function of a symmetric matrix: it changes by sum(G * delta), delta = delta'.

    Both triangles move together, as they do in use, and share the derivative.
    """
    m = len(K)
    rows, columns = np.tril_indices(m)

    def of_entries(entries):
        matrix = np.zeros((m, m))
        matrix[rows, columns] = matrix[columns, rows] = entries
        return function(matrix)

    G = np.zeros((m, m))
    G[rows, columns] = numerical_gradient(of_entries, K[rows, columns])
    return 0.5 * (G + G.T)


def check_mean_gradient(model, places, *, atol=0.0):
    """The gradient that a regressor predicts is that of the mean of f, row by row."""
    mean, std = model.predict_gradient(places)
    assert mean.shape == std.shape == places.shape
    numeric = numerical_slopes(lambda X: model.predict(X, include_noise=False), places)
    assert_allclose(mean, numeric, rtol=1e-5, atol=1e-5)
    one_by_one = [model.predict_gradient(x[None])[0][0] for x in places]
    assert_allclose(one_by_one, mean, rtol=1e-10, atol=atol)


def check_gradient_moments(model, x, *, atol, rtol):
    """What is predicted of the slopes at a place are the moments of differences around it."""
    mean, std = model.predict_gradient(x[None])
    h = 1e-3
    for j, step in enumerate(h * np.eye(len(x))):
        ends, cov = model.predict([x + step, x - step], return_cov=True, include_noise=False)
        difference = np.array([0.5, -0.5]) / h
        assert_allclose(mean[0, j], ends @ difference, rtol=1e-4, atol=atol)
        assert_allclose(std[0, j], np.sqrt(difference @ cov @ difference), rtol=rtol)
