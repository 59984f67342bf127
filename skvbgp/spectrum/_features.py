"""Trigonometric features of the sparse spectrum.

Feature 2i is cos(2 pi r_i' x), feature 2i + 1 is sin(2 pi r_i' x), as in eq. (2) of [Hoang2017]_.
"""

from collections.abc import Callable

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut

#: What is asked about rows, (L, 2 m), at frequencies R (m, d).
Lines = Callable[[Array], Array]
#: Entries of a tile of phases, so that its temporary arrays stay in the cache.
_TILE = 2**14


def _turn_series() -> tuple[list[float], list[float]]:
    """Polynomials in v^2 for sin(2 pi v) / v and cos(2 pi v), |v| <= 1/4; highest power first.

    Interpolated at Chebyshev points: the error is at rounding level.
    """

    def coefficients(function: Callable[[Array], Array], degree: int) -> list[float]:
        fit = Chebyshev.interpolate(function, degree, domain=[0.0, 0.0625])
        return list(fit.convert(kind=Polynomial).coef[::-1])

    sine = coefficients(lambda w: 2.0 * np.pi * np.sinc(2.0 * np.sqrt(w)), 8)
    return sine, coefficients(lambda w: np.cos(2.0 * np.pi * np.sqrt(w)), 9)


_SINE, _COSINE = _turn_series()


def features(X: Array, R: Array) -> Array:
    """Phi(X)' (n, 2 m), the features of every row at frequencies R (m, d).

    NumPy's double precision cosine is four times slower than the two polynomials at half the angle
    that are used here.
    """
    turns = X @ R.T  # (n, m)
    Phi = np.empty((len(X), 2 * len(R)))
    for rows in cut(len(X), max(1, _TILE // len(R))):
        v = turns[rows]
        v = 0.5 * (v - np.rint(v))  # half the angle, in turns
        w = v * v
        sine, cosine = np.full_like(w, _SINE[0]), np.full_like(w, _COSINE[0])
        for coefficient in _SINE[1:]:
            sine *= w
            sine += coefficient
        for coefficient in _COSINE[1:]:
            cosine *= w
            cosine += coefficient
        sine *= v
        cosine *= sine
        np.multiply(cosine, 2.0, out=Phi[rows, 1::2])  # sin 2a = 2 sin a cos a
        np.square(sine, out=sine)
        sine *= -2.0
        np.add(sine, 1.0, out=Phi[rows, 0::2])  # cos 2a = 1 - 2 sin^2 a
    return Phi


def feature_slopes(X: Array, R: Array) -> Array:
    """Derivatives of the features in each input, row by row, (n d, 2 m)."""
    Phi, angular = features(X, R), 2.0 * np.pi * R.T
    slopes = np.empty((*X.shape, Phi.shape[1]))
    np.multiply(-angular, Phi[:, None, 1::2], out=slopes[:, :, 0::2])
    np.multiply(angular, Phi[:, None, 0::2], out=slopes[:, :, 1::2])
    return slopes.reshape(-1, Phi.shape[1])


def features_vjp(X: Array, Phi: Array, dPhi: Array) -> Array:
    """Gradient of ``sum(dPhi * features(X, R))`` in R, (m, d)."""
    d_phase = dPhi[:, 1::2] * Phi[:, 0::2] - dPhi[:, 0::2] * Phi[:, 1::2]  # (n, m)
    return np.asarray(2.0 * np.pi * d_phase.T @ X)


def function_jacobian(X: Array, Phi: Array, s: Array) -> Array:
    """Derivative of f(X) = Phi(X)' s in alpha = vec(theta, s), (n, m d + 2 m)."""
    n, d = X.shape
    slope = Phi[:, 0::2] * s[1::2] - Phi[:, 1::2] * s[0::2]  # (n, m): df / d phase
    J = np.empty((n, slope.shape[1] * d + Phi.shape[1]))
    by_frequency = J[:, : slope.shape[1] * d].reshape(n, -1, d)
    np.multiply((2.0 * np.pi) * slope[:, :, None], X[:, None, :], out=by_frequency)
    J[:, by_frequency.shape[1] * d :] = Phi
    return J
