r"""Expectations of the kernel matrices under q(Lambda) q(sigma_f), and their gradients.

The model is f(x) = sigma_f s(Lambda x) with a standard Gaussian process s (squared
exponential, unit variance and length scale), q(lambda_k) = N(nu_k, xi_k) and
q(sigma_f) = N(alpha, beta); Appendices C and E of [Yu2019]_.

References
----------
.. [Yu2019] H. Yu, T. N. Hoang, B. K. H. Low and P. Jaillet, "Stochastic variational
   inference for Bayesian sparse Gaussian process regression", IJCNN 2019,
   arXiv:1711.00221.
"""

from typing import NamedTuple

import numpy as np

from skvbgp._core.expectations import first_moment, first_moment_vjp
from skvbgp._core.linalg import Array
from skvbgp.sgpr._psi import psi_statistic, rotate, rotate_vjp


class ExpectationGradients(NamedTuple):
    """Cotangents of the arguments of an expectation; None where it has no such argument."""

    nu: Array
    xi: Array
    alpha: float
    beta: float
    Z: Array | None = None
    C_inv: Array | float | None = None


def omega(X: Array, Z: Array, nu: Array, xi: Array, alpha: float) -> Array:
    """Omega = E_q[K_DI], the expected cross-covariance.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Inputs.
    Z : ndarray of shape (m, d)
        Rotated inducing inputs, ``Lambda`` times an input.
    nu, xi : ndarray of shape (d,)
        Mean and variance of the inverse length scales.
    alpha : float
        Mean of the signal standard deviation.

    Returns
    -------
    Omega : ndarray of shape (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.sgpr import omega
    >>> omega(np.array([[1.0]]), np.array([[1.0]]), np.array([1.0]), np.array([0.0]), 2.0)
    array([[2.]])
    """
    return alpha * first_moment(*rotate(X, nu, xi), Z)


def omega_vjp(
    X: Array, Z: Array, nu: Array, xi: Array, alpha: float, d_omega: Array
) -> ExpectationGradients:
    """Gradients of ``sum(d_omega * omega(X, Z, nu, xi, alpha))``.

    Parameters are those of :func:`omega`; ``d_omega`` has shape (n, m).
    """
    mu, s = rotate(X, nu, xi)
    W = d_omega * first_moment(mu, s, Z)
    g = first_moment_vjp(mu, s, Z, alpha * W)
    return ExpectationGradients(*rotate_vjp(X, g.mu, g.s), float(W.sum()), 0.0, g.Z)


def upsilon(X: Array, nu: Array, xi: Array, alpha: float, beta: float) -> Array:
    """Upsilon = E_q[K_DD], the expected prior covariance.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Inputs.
    nu, xi : ndarray of shape (d,)
        Mean and variance of the inverse length scales.
    alpha, beta : float
        Mean and variance of the signal standard deviation.

    Returns
    -------
    Upsilon : ndarray of shape (n, n)

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.sgpr import upsilon
    >>> upsilon(np.zeros((1, 2)), np.ones(2), np.ones(2), 1.0, 0.25)
    array([[1.25]])
    """
    n, d = X.shape
    exponent = np.zeros((n, n))
    for k in range(d):
        squared = (X[:, k, None] - X[:, k]) ** 2
        D = xi[k] * squared + 1.0
        exponent -= 0.5 * (nu[k] ** 2 * squared / D + np.log(D))
    return np.asarray((alpha**2 + beta) * np.exp(exponent))


def upsilon_vjp(
    X: Array, nu: Array, xi: Array, alpha: float, beta: float, d_upsilon: Array
) -> ExpectationGradients:
    """Gradients of ``sum(d_upsilon * upsilon(X, nu, xi, alpha, beta))``.

    Parameters are those of :func:`upsilon`; ``d_upsilon`` has shape (n, n).
    """
    W = d_upsilon * upsilon(X, nu, xi, 1.0, 0.0)
    d_nu, d_xi = np.empty_like(nu), np.empty_like(xi)
    for k in range(X.shape[1]):
        squared = (X[:, k, None] - X[:, k]) ** 2
        ratio = squared / (xi[k] * squared + 1.0)
        d_nu[k] = -nu[k] * np.sum(W * ratio)
        d_xi[k] = 0.5 * np.sum(W * ratio * (nu[k] ** 2 * ratio - 1.0))
    second_moment, total = alpha**2 + beta, float(W.sum())
    return ExpectationGradients(
        second_moment * d_nu, second_moment * d_xi, 2.0 * alpha * total, total
    )


def psi(
    X: Array, Z: Array, nu: Array, xi: Array, alpha: float, beta: float, C_inv: float | Array
) -> Array:
    """Psi = E_q[K_ID C^-1 K_DI], the expected information of the data.

    Costs n m^2 / 2 exponentials for a diagonal ``C_inv`` and n^2 m^2 / 2 for a dense one.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Inputs.
    Z : ndarray of shape (m, d)
        Rotated inducing inputs.
    nu, xi : ndarray of shape (d,)
        Mean and variance of the inverse length scales.
    alpha, beta : float
        Mean and variance of the signal standard deviation.
    C_inv : float or ndarray of shape (n,) or (n, n)
        Inverse noise covariance: a multiple of the identity, a diagonal, or dense
        and symmetric.

    Returns
    -------
    Psi : ndarray of shape (m, m)

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.sgpr import psi
    >>> X = np.zeros((3, 1))
    >>> psi(X, np.zeros((1, 1)), np.ones(1), np.ones(1), 1.0, 0.0, 2.0)
    array([[6.]])
    """
    statistic = psi_statistic(X, Z, nu, xi, _as_precision(C_inv, len(X)))
    return (alpha**2 + beta) * statistic.value


def psi_vjp(
    X: Array,
    Z: Array,
    nu: Array,
    xi: Array,
    alpha: float,
    beta: float,
    C_inv: float | Array,
    d_psi: Array,
) -> ExpectationGradients:
    """Gradients of ``sum(d_psi * psi(X, Z, nu, xi, alpha, beta, C_inv))``.

    Parameters are those of :func:`psi`; ``d_psi`` is symmetric, of shape (m, m).
    """
    statistic = psi_statistic(X, Z, nu, xi, _as_precision(C_inv, len(X)))
    second_moment, inner = alpha**2 + beta, float(np.sum(d_psi * statistic.value))
    g = statistic.vjp(second_moment * d_psi)
    d_C_inv = g.C_inv if np.ndim(C_inv) else float(g.C_inv.sum())
    return ExpectationGradients(g.nu, g.xi, 2.0 * alpha * inner, inner, g.Z, d_C_inv)


def _as_precision(C_inv: float | Array, n: int) -> Array:
    return np.full(n, float(C_inv)) if np.ndim(C_inv) == 0 else np.asarray(C_inv)
