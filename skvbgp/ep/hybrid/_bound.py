r"""The collapsed bound of columns that are Gaussian processes of shared, uncertain latents.

Column j is f_j = s_j g_j, where all g_j have the same squared exponential kernel of unit
variance and the same inducing inputs Z. What the data say of f_ij is a Gaussian factor
exp(nu_ij f_ij - tau_ij f_ij^2 / 2), of Gaussian noise as of expectation propagation: a column
needs no more than its weights w_ij = s_j^2 tau_ij and shifts r_ij = s_j nu_ij, 0 where an entry
is missing. See :ref:`hybrid-bound`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from skvbgp._core.gaussian import InducingOutputs
from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp.ep._features import PriorGradients
from skvbgp.ep._inputs import Inputs
from skvbgp.ep.expectations import ExpectationGradients, Psi2, psi1, psi1_vjp
from skvbgp.kernels._squared_exponential import SquaredExponential


class LatentFeatures:
    """Features A = Psi1 L^-T (n, m) of latents q(x_i), and their second moments.

    The kernel has unit variance.
    """

    def __init__(self, inducing: InducingOutputs, latents: Inputs) -> None:
        self.inducing, self.latents = inducing, latents
        se = SquaredExponential.of(inducing.kernel, inducing.Z.shape[1])
        self._length_scale = se.length_scale
        arguments = (latents.mean, latents.variance, inducing.Z, 1.0, se.length_scale)
        self._psi1 = psi1(*arguments)  # (n, m)
        self._psi2 = Psi2(*arguments)
        self.A = self._psi1 @ inducing.L_inv.T  # (n, m)

    def second_moments(self, w: Array) -> Array:
        """Return sum_i w_ij L^-1 Psi2_i L^-T, (p, m, m), for weights (n, p)."""
        L_inv = self.inducing.L_inv
        return np.asarray(L_inv @ self._psi2.weighted_sum(w) @ L_inv.T)

    def quadratic_forms(self, H: Array) -> Array:
        """Return tr(L^-1 Psi2_i L^-T H_j), (n, p), for symmetric H (p, m, m)."""
        L_inv = self.inducing.L_inv
        return self._psi2.quadratic_forms(L_inv.T @ H @ L_inv)

    @cached_property
    def noise(self) -> Array:
        """What the latents' uncertainty adds to the variance of g, (n,): Lambda of (S.35)."""
        explained = self.quadratic_forms(np.eye(self.A.shape[1]))
        return np.maximum(explained - np.einsum("nm,nm->n", self.A, self.A), 0.0)

    def vjp(self, d_A: Array, w: Array, H: Array) -> ExpectationGradients:
        """Gradients, for a fixed L, of sum(d_A * A) + sum_j w_ij tr(L^-1 Psi2_i L^-T H_j)."""
        q, inducing = self.latents, self.inducing
        L_inv, length_scale = inducing.L_inv, self._length_scale
        first = psi1_vjp(q.mean, q.variance, inducing.Z, length_scale, self._psi1, d_A @ L_inv)
        second = self._psi2.vjp(w, L_inv.T @ H @ L_inv)
        pairs: Any = zip(first, second, strict=True)
        return ExpectationGradients(*(a + b for a, b in pairs))


class ColumnMoments:
    """Mean and variance (n, p) of f_j at some latents, averaged over their uncertainty.

    The functions have amplitudes (p,) and q(v_j) means (p, m) and covariances (p, m, m).
    """

    def __init__(
        self, features: LatentFeatures, amplitude: Array, mean: Array, covariance: Array
    ) -> None:
        self._features, self._amplitude, self._q_mean = features, amplitude, mean
        H = covariance + mean[:, :, None] * mean[:, None, :]
        self._H = H - np.eye(H.shape[1])
        self._first = features.A @ mean.T
        second = features.quadratic_forms(self._H)
        self.mean = amplitude * self._first
        self.variance = amplitude**2 * np.maximum(1.0 + second - self._first**2, 0.0)

    def vjp(self, d_mean: Array, d_variance: Array) -> tuple[Array, Array]:
        """Gradients in the latents' mean and variance (n, Q), from cotangents (n, p)."""
        w = self._amplitude**2 * d_variance
        d_A = (self._amplitude * d_mean - 2.0 * w * self._first) @ self._q_mean
        part = self._features.vjp(d_A, w, self._H)
        return part.mu, part.s


class CollapsedBound:
    """log of the integral of p(v_j) exp E_q(x)[sum_i nu_ij f_ij - tau_ij f_ij^2 / 2], by column.

    The weights w and shifts r are (n, p). Besides the ``value`` (p,), there are ``mean`` (p, m) and
    ``covariance`` (p, m, m) of the optimal Gaussian q(v_j) of the whitened inducing outputs.
    """

    def __init__(self, features: LatentFeatures, w: Array, r: Array) -> None:
        self._features, self._w, self._r = features, w, r
        self._B = features.second_moments(w)  # (p, m, m)
        P = self._B + np.eye(self._B.shape[1])
        try:
            factor = np.linalg.cholesky(P)
        except np.linalg.LinAlgError:
            raise NotPositiveDefiniteError(
                "The precision of the inducing outputs is not positive definite."
            ) from None
        self.covariance = np.asarray(np.linalg.inv(P), dtype=np.float64)
        c = r.T @ features.A  # (p, m)
        self.mean = np.einsum("pab,pb->pa", self.covariance, c)
        self._fit = np.einsum("pa,pa->p", c, self.mean)
        self._total = w.sum(axis=0)  # sum_i w_ij E[k_ii]
        log_det = 2.0 * np.sum(np.log(np.einsum("pmm->pm", factor)), axis=1)
        self.value = 0.5 * (self._fit - log_det - self._total + np.einsum("pmm->p", self._B))

    @cached_property
    def _H(self) -> Array:
        """Derivative of a column's value in its B, (p, m, m)."""
        moment = self.covariance + self.mean[:, :, None] * self.mean[:, None, :]
        return 0.5 * (np.eye(moment.shape[1]) - moment)

    @property
    def d_log_scale(self) -> tuple[Array, Array]:
        """Derivatives (p,) in the logarithm of a factor of w, and of one of r."""
        return np.einsum("pab,pab->p", self._B, self._H) - 0.5 * self._total, self._fit

    def vjp(self, weight: Array) -> PriorGradients:
        """Gradients of ``weight @ value``."""
        features, inducing = self._features, self._features.inducing
        H = weight[:, None, None] * self._H
        d_A = (self._r * weight) @ self.mean  # (n, m)
        part = features.vjp(d_A, self._w, H)
        LtdL = -(d_A.T @ features.A) - 2.0 * np.einsum("pab,pbc->ac", H, self._B)
        theta, d_Z = inducing.vjp(LtdL)
        return PriorGradients(theta + part.log_length_scale, d_Z + part.Z, part.mu, part.s)
