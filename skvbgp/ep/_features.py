r"""The sparse prior of f at the rows of the data, and its vector-Jacobian product.

With K_uu = L L' and whitened inducing outputs v, a row's latent value is f_i = a_i' v + e_i plus
a residual that only the trace correction sees:

    A = E[K_fu] L^-T (n, m),    noise_i = Var(e_i),    residual_i.

For "dtc", noise_i = E[q_ii] - |a_i|^2 is Lambda_ii of (S.35), 0 for a certain input, and the
residual E[k_ii] - E[q_ii]; for "fitc", all of E[k_ii] - |a_i|^2 is noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skvbgp._core.gaussian import InducingOutputs
from skvbgp._core.linalg import Array, triu_congruence
from skvbgp._core.order import cut_evenly
from skvbgp._core.parallel import thread_map
from skvbgp.ep._inputs import Inputs
from skvbgp.ep.expectations import KEPT_EXPONENTIALS, Psi2, psi1, psi1_vjp
from skvbgp.kernels._squared_exponential import SquaredExponential

#: Most rows that one thread works on at a time.
TILE_ROWS = 1024


def cut_tiles(n: int) -> list[slice]:
    """Every one of n rows once, in tiles of about equal sizes."""
    return cut_evenly(n, -(-n // TILE_ROWS))


class RowGradients(NamedTuple):
    """What a tile of rows adds to the gradients."""

    theta: Array  # (p,)
    Z: Array  # (m, d)
    mean: Array  # (n, d)
    variance: Array  # (n, d)
    LtdL: Array  # (m, m)
    d_K_inv: Array | None  # (m, m), for uncertain rows


class RowFeatures:
    """Features A (n, m), noise (n,) and residual (n,) of some rows.

    Parameters are those of `SparsePrior`, and how many exponentials of Psi2 may be kept.
    """

    def __init__(
        self,
        inducing: InducingOutputs,
        inputs: Inputs,
        approximation: str,
        n_kept: int = KEPT_EXPONENTIALS,
    ) -> None:
        self._inducing, self._inputs, self._n_kept = inducing, inputs, n_kept
        self._fitc = approximation == "fitc"
        self._K_fu = self._cross_covariance()  # (n, m)
        self.A = self._K_fu @ inducing.L_inv.T
        explained = np.einsum("nm,nm->n", self.A, self.A)  # |a_i|^2
        total = inducing.kernel.diag(inputs.mean)  # E[k_ii]
        if self._fitc:
            in_model = total
        else:
            in_model = explained.copy()  # E[q_ii]
            if inputs.uncertain.any():
                in_model[inputs.uncertain] = self._psi2.quadratic_forms(inducing.K_inv)
        self.noise = np.maximum(in_model - explained, 0.0)
        self.residual = np.maximum(total - in_model, 0.0)

    @cached_property
    def _blurred(self) -> Inputs:
        """The uncertain rows."""
        return self._inputs.rows(self._inputs.uncertain)

    @cached_property
    def _se(self) -> SquaredExponential:
        """The kernel as uncertain rows need it."""
        return SquaredExponential.of(self._inducing.kernel, self._inducing.Z.shape[1])

    @cached_property
    def _psi2(self) -> Psi2:
        """Psi2 of the uncertain rows."""
        rows, se = self._blurred, self._se
        arguments = (self._inducing.Z, se.variance, se.length_scale)
        return Psi2(rows.mean, rows.variance, *arguments, n_kept=self._n_kept)

    def _cross_covariance(self) -> Array:
        """E[K_fu]: Psi1 in the uncertain rows."""
        kernel, Z = self._inducing.kernel, self._inducing.Z
        mean, uncertain = self._inputs.mean, self._inputs.uncertain
        if not uncertain.any():
            return kernel(mean, Z)
        rows, se = self._blurred, self._se
        K_fu = np.empty((len(mean), len(Z)))
        K_fu[~uncertain] = kernel(mean[~uncertain], Z)
        K_fu[uncertain] = psi1(rows.mean, rows.variance, Z, se.variance, se.length_scale)
        return K_fu

    def moments(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean and variance (n,) of f under v ~ N(mean, covariance), residual included.

        For "dtc", where a new row has the exact conditional given u.
        """
        uncertain = self._inputs.uncertain
        first = self.A @ mean  # (n,)
        variance = self.residual + np.einsum("nm,nm->n", self.A @ covariance, self.A)
        if uncertain.any():
            L_inv = self._inducing.L_inv
            second = self._psi2.quadratic_forms(
                triu_congruence(L_inv, covariance + np.outer(mean, mean))
            )
            variance[uncertain] = self.residual[uncertain] + second - first[uncertain] ** 2
        return first, np.maximum(variance, 0.0)

    def vjp(self, d_A: Array, d_noise: Array, d_residual: Array) -> RowGradients:
        """Gradients from the cotangents of A (n, m), noise (n,) and residual (n,)."""
        inducing, uncertain = self._inducing, self._inputs.uncertain
        kernel, mean = inducing.kernel, self._inputs.mean
        # total = E[k_ii] and expected = E[q_ii], where that is not |a_i|^2
        d_total, d_expected = d_residual, d_noise - d_residual
        if self._fitc:
            d_total, d_expected = d_noise, np.zeros_like(d_noise)
        d_explained = np.where(uncertain, 0.0, d_expected) - d_noise
        d_A = d_A + 2.0 * d_explained[:, None] * self.A
        d_K_fu = d_A @ inducing.L_inv

        theta, d_mean = kernel.vjp_diag(mean, d_total)
        d_theta, d_mean[~uncertain], d_Z = kernel.vjp(
            mean[~uncertain], inducing.Z, self._K_fu[~uncertain], d_K_fu[~uncertain]
        )
        assert d_Z is not None  # as there is a Z
        theta = theta + d_theta
        d_variance, d_K_inv = np.zeros_like(d_mean), None
        if uncertain.any():
            q, se, Psi1 = self._blurred, self._se, self._K_fu[uncertain]
            arguments = q.mean, q.variance, inducing.Z, se.length_scale
            parts = [psi1_vjp(*arguments, Psi1, d_K_fu[uncertain])]
            if not self._fitc:
                d_K_inv = self._psi2.weighted_sum(d_expected[uncertain])
                parts.append(self._psi2.vjp(d_expected[uncertain], inducing.K_inv))
            for part in parts:
                theta += se.dtheta(part.log_variance, part.log_length_scale)
                d_mean[uncertain] += part.mu
                d_variance[uncertain] += part.s
                d_Z += part.Z
        return RowGradients(theta, d_Z, d_mean, d_variance, -(d_A.T @ self.A), d_K_inv)


class PriorGradients(NamedTuple):
    """Gradients in the kernel's theta, the inducing inputs and the moments of the inputs."""

    theta: Array  # (p,)
    Z: Array  # (m, d)
    mean: Array  # (n, d)
    variance: Array  # (n, d)


class SparsePrior:
    """Features A (n, m), noise (n,) and residual (n,) of all rows, by "dtc" or "fitc"."""

    def __init__(self, inducing: InducingOutputs, inputs: Inputs, approximation: str) -> None:
        self.inducing = inducing
        self._slices = cut_tiles(len(inputs))
        self._tiles = thread_map(
            lambda rows: RowFeatures(
                inducing, inputs.rows(rows), approximation, KEPT_EXPONENTIALS // len(self._slices)
            ),
            [(rows,) for rows in self._slices],
        )
        self.A = np.concatenate([tile.A for tile in self._tiles])
        self.noise = np.concatenate([tile.noise for tile in self._tiles])
        self.residual = np.concatenate([tile.residual for tile in self._tiles])

    def vjp(
        self, d_A: Callable[[slice], Array], d_noise: Array, d_residual: Array
    ) -> PriorGradients:
        """Gradients from the cotangents of A, given tile by tile, noise (n,) and residual (n,)."""
        parts = thread_map(
            lambda tile, rows: tile.vjp(d_A(rows), d_noise[rows], d_residual[rows]),
            zip(self._tiles, self._slices, strict=True),
        )
        inducing = self.inducing
        d_K_inv = [part.d_K_inv for part in parts if part.d_K_inv is not None]
        d_K = -(inducing.K_inv @ sum(d_K_inv) @ inducing.K_inv) if d_K_inv else 0.0
        theta, d_Z = inducing.vjp(sum(part.LtdL for part in parts), d_K)
        return PriorGradients(
            theta + sum(part.theta for part in parts),
            d_Z + sum(part.Z for part in parts),
            np.concatenate([part.mean for part in parts]),
            np.concatenate([part.variance for part in parts]),
        )
