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

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.parallel import thread_map

#: Exponentials of a tile of Psi2, and those that may be kept for later calls (64 MiB).
_TILE = 2**18
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
    mu, s, Z = _unit(mu, s, Z, length_scale)
    D = 1.0 + s  # (n, d)
    exponent = (mu / D) @ Z.T  # (n, m)
    exponent -= (0.5 / D) @ (Z**2).T
    exponent -= 0.5 * np.sum(mu**2 / D + np.log(D), axis=1)[:, None]
    return np.asarray(variance * np.exp(exponent, out=exponent))


def psi1_vjp(
    mu: Array,
    s: Array,
    Z: Array,
    length_scale: Array,
    value: Array,
    d_psi1: Array,
) -> ExpectationGradients:
    """Gradients of ``sum(d_psi1 * psi1(mu, s, Z, variance, length_scale))``.

    Parameters are those of :func:`psi1`; ``value`` is its result and ``d_psi1`` has its
    shape, (n, m).
    """
    mu, s, Z = _unit(mu, s, Z, length_scale)
    D = 1.0 + s
    W = d_psi1 * value  # (n, m)
    w, WZ = W.sum(axis=1)[:, None], W @ Z
    squares = w * mu**2 - 2.0 * mu * WZ + W @ Z**2  # sum_a W_ia (mu_i - z_a)^2
    d_mu = (WZ - w * mu) / D
    d_s = 0.5 * (squares / D - w) / D
    d_Z = W.T @ (mu / D) - Z * (W.T @ (1.0 / D))
    return _gradients((mu, s, Z), (d_mu, d_s, d_Z), float(W.sum()), length_scale)


class Psi2:
    """Psi2 of every row, (n, m, m), through its weighted sums and quadratic forms.

    Only the pairs a <= b are formed, n m (m + 1) / 2 exponentials: they are products of row
    and pair features, so a tile is one matrix product and one exponential.

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
        self._mu, self._s, self._Z = _unit(mu, s, Z, length_scale)
        self._length_scale, self._second_moment = length_scale, variance**2
        m = len(Z)
        self._a, self._b = np.triu_indices(m)  # (M,) pairs of inducing inputs
        self._middle = 0.5 * (self._Z[self._a] + self._Z[self._b])  # (M, d)
        self._apart = 0.5 * (self._Z[self._a] - self._Z[self._b])  # (M, d)
        ones = np.ones((len(self._a), 1))
        closeness = -np.sum(self._apart**2, axis=1, keepdims=True)
        self._pair_features = np.hstack([self._middle, self._middle**2, closeness, ones]).T
        step = max(1, _TILE // len(self._a))
        self._tiles = [slice(i, i + step) for i in range(0, len(mu), step)]
        self._multiplicity = np.where(self._a == self._b, 1.0, 2.0)  # (M,)
        self._tile_values: dict[int, Array] = {}
        self._keeps = len(mu) * len(self._a) <= n_kept

    def weighted_sum(self, w: Array) -> Array:
        """Return sum_i w_i Psi2_i, (m, m), for weights (n,); (p, m, m) for weights (n, p)."""
        sums = self._second_moment * sum(self._map(lambda rows, T: w[rows].T @ T))  # (..., M)
        matrices = np.zeros((*w.shape[1:], len(self._Z), len(self._Z)))
        matrices[..., self._a, self._b] = matrices[..., self._b, self._a] = sums
        return matrices

    def quadratic_forms(self, V: Array) -> Array:
        """Return tr(Psi2_i V), (n,), for a symmetric V (m, m); (n, p) for a stack (p, m, m)."""
        v = self._pair_weights(V)
        return np.concatenate(self._map(lambda rows, T: T @ v.T))

    def vjp(self, w: Array, V: Array) -> ExpectationGradients:
        """Gradients of sum_i w_i tr(Psi2_i V), for weights (n,) and a symmetric V (m, m).

        For weights (n, p) and a stack (p, m, m), those of the sum over both.
        """
        w, v = w.reshape(len(w), -1), np.atleast_2d(self._pair_weights(V))  # (n, p), (p, M)
        parts = self._map(lambda rows, T: self._tile_vjp(rows, T * (w[rows] @ v)))
        d_mu, d_s, d_middle, q = zip(*parts, strict=True)
        total, half = sum(q)[:, None], 0.5 * sum(d_middle)  # (M, 1), (M, d)
        d_Z = np.zeros_like(self._Z)
        np.add.at(d_Z, self._a, half - total * self._apart)
        np.add.at(d_Z, self._b, half + total * self._apart)
        return _gradients(
            (self._mu, self._s, self._Z),
            (np.concatenate(d_mu), np.concatenate(d_s), d_Z),
            2.0 * float(total.sum()),
            self._length_scale,
        )

    def _pair_weights(self, V: Array) -> Array:
        """Weights (M,) of the pairs in a trace with V, or (p, M) for a stack."""
        return self._second_moment * self._multiplicity * V[..., self._a, self._b]

    def _map(self, function: Callable[[slice, Array], Any]) -> list[Any]:
        """``function(rows, exponentials)`` of every tile."""
        return thread_map(
            lambda k, rows: function(rows, self._exponentials(k, rows)), enumerate(self._tiles)
        )

    def _exponentials(self, k: int, rows: slice) -> Array:
        """Psi2 of a tile for unit variance, (rows, M)."""
        if k in self._tile_values:
            return self._tile_values[k]
        mu, E = self._mu[rows], 1.0 + 2.0 * self._s[rows]
        constant = -np.sum(mu**2 / E + 0.5 * np.log(E), axis=1, keepdims=True)
        row_features = np.hstack([2.0 * mu / E, -1.0 / E, np.ones_like(constant), constant])
        exponent = row_features @ self._pair_features
        values: Array = np.exp(exponent, out=exponent)
        if self._keeps:
            self._tile_values[k] = values
        return values

    def _tile_vjp(self, rows: slice, Q: Array) -> tuple[Array, Array, Array, Array]:
        """Cotangents of mu, s, the pairs' middles and their closeness, from that of log Psi2."""
        mu, E = self._mu[rows], 1.0 + 2.0 * self._s[rows]
        q, QZ = Q.sum(axis=1)[:, None], Q @ self._middle
        squares = q * mu**2 - 2.0 * mu * QZ + Q @ self._middle**2  # sum_p Q_ip (mu_i - z_p)^2
        d_mu = 2.0 * (QZ - q * mu) / E
        d_s = (2.0 * squares / E - q) / E
        d_middle = 2.0 * (Q.T @ (mu / E) - self._middle * (Q.T @ (1.0 / E)))
        return d_mu, d_s, d_middle, Q.sum(axis=0)


def _unit(mu: Array, s: Array, Z: Array, length_scale: Array) -> tuple[Array, Array, Array]:
    """The arguments in units of the length scales, centred for the sake of rounding."""
    origin = Z.mean(axis=0)
    return (mu - origin) / length_scale, s / length_scale**2, (Z - origin) / length_scale


def _gradients(
    unit: tuple[Array, Array, Array],
    cotangents: tuple[Array, Array, Array],
    d_log_variance: float,
    length_scale: Array,
) -> ExpectationGradients:
    """Gradients in the arguments from those in the units of the length scales."""
    (mu, s, Z), (d_mu, d_s, d_Z) = unit, cotangents
    # mu / l, s / l^2, Z / l: the centre drops out, because a common shift changes nothing
    d_log = -np.sum(mu * d_mu + 2.0 * s * d_s, axis=0) - np.sum(Z * d_Z, axis=0)
    return ExpectationGradients(
        d_mu / length_scale, d_s / length_scale**2, d_Z / length_scale, d_log_variance, d_log
    )
