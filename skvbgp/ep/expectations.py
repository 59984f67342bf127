r"""Expectations of the squared-exponential kernel under Gaussian inputs, with gradients.

The inputs are q(x_i) = N(mu_i, diag(s_i)), the kernel is k(x, x') = variance *
exp(-sum_k (x_k - x'_k)^2 / l_k^2 / 2), and Z are inducing inputs. Then

    psi0_i = E[k(x_i, x_i)] = variance,
    Psi1[i, a] = E[k(x_i, z_a)],
    Psi2_i[a, b] = E[k(z_a, x_i) k(x_i, z_b)];

section S6 of [Andrade2014]_, derived in :doc:`/theory/ep`.

References
----------
.. [Andrade2014] R. Andrade-Pacheco, J. Hensman, M. Zwiessele and N. D. Lawrence, "Hybrid
   discriminative-generative approach with Gaussian processes", AISTATS 2014, supplement.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.expectations import (
    FirstMomentGradients,
    SecondMoment,
    SecondMomentGradients,
    first_moment,
    first_moment_vjp,
)
from skvbgp._core.linalg import Array

#: Exponentials of Psi2 that may be kept for later calls (64 MiB).
KEPT_EXPONENTIALS = 2**23


class ExpectationGradients(NamedTuple):
    """Gradients of a scalar in the arguments of an expectation."""

    mu: Array  # (n, d)
    s: Array  # (n, d)
    Z: Array  # (m, d)
    log_variance: float
    log_length_scale: Array  # (d,)


def psi1(mu: Array, s: Array, Z: Array, variance: float, length_scale: Array) -> Array:
    """Psi1 = E_q[K_fu], the expected cross-covariance.

    Parameters
    ----------
    mu, s : ndarray of shape (n, d)
        Means and variances of the inputs.
    Z : ndarray of shape (m, d)
        Inducing inputs.
    variance : float
        Variance of the kernel.
    length_scale : ndarray of shape (d,)
        Length scales of the kernel.

    Returns
    -------
    Psi1 : ndarray of shape (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.ep import psi1
    >>> psi1(np.zeros((1, 1)), np.array([[3.0]]), np.zeros((1, 1)), 2.0, np.ones(1))
    array([[1.]])
    """
    return variance * first_moment(*_unit(mu, s, Z, length_scale))


def psi1_vjp(
    mu: Array, s: Array, Z: Array, length_scale: Array, value: Array, d_psi1: Array
) -> ExpectationGradients:
    """Gradients of ``sum(d_psi1 * psi1(mu, s, Z, variance, length_scale))``.

    Parameters are those of :func:`psi1`; ``value`` is its result and ``d_psi1`` has its
    shape, (n, m).
    """
    arguments, W = _unit(mu, s, Z, length_scale), d_psi1 * value
    return _gradients(arguments, first_moment_vjp(*arguments, W), float(W.sum()), length_scale)


class Psi2:
    """Psi2 of every row, (n, m, m), through its weighted sums and quadratic forms.

    It takes n m (m + 1) / 2 exponentials, those of the pairs a <= b.

    Parameters
    ----------
    mu, s : ndarray of shape (n, d)
        Means and variances of the inputs.
    Z : ndarray of shape (m, d)
        Inducing inputs.
    variance : float
        Variance of the kernel.
    length_scale : ndarray of shape (d,)
        Length scales of the kernel.
    n_kept : int, default=2**23
        The exponentials are kept for later calls if there are no more than this.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.ep import Psi2
    >>> statistic = Psi2(np.zeros((2, 1)), np.full((2, 1), 4.0), np.zeros((1, 1)), 3.0, np.ones(1))
    >>> statistic.weighted_sum(np.array([1.0, 2.0]))
    array([[9.]])
    >>> statistic.quadratic_forms(np.array([[2.0]]))
    array([6., 6.])
    """

    def __init__(
        self,
        mu: Array,
        s: Array,
        Z: Array,
        variance: float,
        length_scale: Array,
        *,
        n_kept: int = KEPT_EXPONENTIALS,
    ) -> None:
        self._arguments = _unit(mu, s, Z, length_scale)
        self._moment = SecondMoment(*self._arguments, n_kept)
        self._length_scale, self._scale = length_scale, variance**2

    def weighted_sum(self, w: Array) -> Array:
        """Return sum_i w_i Psi2_i, (m, m), for weights (n,); (p, m, m) for weights (n, p)."""
        return self._scale * self._moment.weighted_sum(w)

    def quadratic_forms(self, V: Array) -> Array:
        """Return tr(Psi2_i V), (n,), for a symmetric V (m, m); (n, p) for a stack (p, m, m)."""
        return self._moment.quadratic_forms(self._scale * V)

    def vjp(self, w: Array, V: Array) -> ExpectationGradients:
        """Gradients of sum_i w_i tr(Psi2_i V), for weights (n,) and a symmetric V (m, m).

        For weights (n, p) and a stack (p, m, m), those of the sum over both.
        """
        mixture = None
        if w.ndim == 2:
            w, mixture = np.ones(len(w)), w
        g = self._moment.vjp(w, self._scale * V, mixture)
        return _gradients(self._arguments, g, 2.0 * float(w @ g.w), self._length_scale)


def _unit(mu: Array, s: Array, Z: Array, length_scale: Array) -> tuple[Array, Array, Array]:
    """The arguments in units of the length scales, centred for the sake of rounding."""
    origin = Z.mean(axis=0)
    return (mu - origin) / length_scale, s / length_scale**2, (Z - origin) / length_scale


def _gradients(
    arguments: tuple[Array, Array, Array],
    g: FirstMomentGradients | SecondMomentGradients,
    d_log_variance: float,
    length_scale: Array,
) -> ExpectationGradients:
    """Gradients in the arguments from those in the units of the length scales."""
    mu, s, Z = arguments
    # mu / l, s / l^2, Z / l: the centre drops out, because a common shift changes nothing
    d_log = -np.sum(mu * g.mu + 2.0 * s * g.s, axis=0) - np.sum(Z * g.Z, axis=0)
    return ExpectationGradients(
        g.mu / length_scale, g.s / length_scale**2, g.Z / length_scale, d_log_variance, d_log
    )
