"""Numerical derivatives, accurate enough for tolerances far below any plausible mistake."""

import numpy as np

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
