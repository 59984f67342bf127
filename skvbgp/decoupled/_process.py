r"""The form of q(f) in which rows are evaluated.

Whatever the parametrization, the marginals of q(f) at a row x are

    mean = k_xa a + A w,   variance = k_xx + (A M A')_xx,   A = k_xb T,

with the mean basis a(lpha), the covariance basis b(eta), and T, M, w that a parametrization
makes of its parameters. This module has the data's and the residual's part of the bound in
these terms; where T, M and w come from is that of :mod:`skvbgp.decoupled._coupled` and
:mod:`skvbgp.decoupled._direct`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp.decoupled._basis import Basis, BasisKernel
from skvbgp.decoupled._parameters import Parameters

Indices = NDArray[np.intp]
#: Smallest variance of q(f) relative to the prior's.
_LEAST_VARIANCE = 1e-10


@dataclass
class Cotangents:
    """Gradients of a part of the bound in what rows are evaluated with."""

    value: float
    gradient: Parameters  # in theta, the likelihood and the bases
    a: Array  # (m_a,)
    T: Array  # (m_b, m_b)
    M: Array  # (m_b, m_b)
    w: Array  # (m_b,) through the data
    v: Array  # (m_b,) through the residual's w
    curvature: Array  # (m_b, m_b) -2 A' min(dL/ds, 0) A

    def __add__(self, other: Cotangents) -> Cotangents:
        parts = []
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            if f.name == "gradient":
                parts.append(mine.unpack(mine.pack() + theirs.pack()))
            else:
                parts.append(mine + theirs)
        return Cotangents(*parts)


@dataclass(frozen=True)
class Process:
    """q(f) at given parameters."""

    kernel: BasisKernel
    alpha: Basis
    beta: Basis
    a: Array  # (m_a,)
    T: Array  # (m_b, m_b)
    M: Array  # (m_b, m_b)
    w: Array  # (m_b,)

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of f at scaled rows X, each (n,)."""
        rows = Basis(X)
        A = self.kernel(rows, self.beta) @ self.T
        mean = self.kernel(rows, self.alpha) @ self.a + A @ self.w
        return mean, self._variance(self.kernel.diag(rows), A, A @ self.M)

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) and covariance (n, n) of f at scaled rows X."""
        rows = Basis(X)
        A = self.kernel(rows, self.beta) @ self.T
        covariance = self.kernel(rows, rows) + A @ self.M @ A.T
        mean, variance = self.moments(X)
        covariance.flat[:: len(X) + 1] = variance
        return mean, covariance

    @staticmethod
    def _variance(prior: Array, A: Array, AM: Array) -> Array:
        return np.maximum(prior + np.einsum("ij,ij->i", AM, A), _LEAST_VARIANCE * prior)

    def data_term(
        self, zeros: Parameters, likelihood: Any, noise: Array, X: Array, y: Array, weight: float
    ) -> Cotangents:
        """``weight`` times the expected log-likelihood of some rows, and its gradients."""
        rows = Basis(X)
        Kxa, Kxb = self.kernel(rows, self.alpha), self.kernel(rows, self.beta)
        A = Kxb @ self.T
        AM = A @ self.M
        prior = self.kernel.diag(rows)
        variance = self._variance(prior, A, AM)
        expected = likelihood.expected(noise, y, Kxa @ self.a + A @ self.w, variance)
        dm, ds = weight * expected.dm, weight * expected.ds
        dA = np.outer(dm, self.w) + 2.0 * ds[:, None] * AM
        dM = A.T @ (ds[:, None] * A)
        concave = np.minimum(ds, 0.0)
        curvature = -2.0 * (dM if np.array_equal(concave, ds) else A.T @ (concave[:, None] * A))
        dtheta_a, _, dalpha = self.kernel.vjp_outer(rows, self.alpha, Kxa, dm, self.a)
        dtheta_b, _, dbeta = self.kernel.vjp(rows, self.beta, Kxb, dA @ self.T.T)
        dtheta_diag, _ = self.kernel.vjp_diag(rows, ds)
        gradient = fill(
            zeros,
            theta=dtheta_a + dtheta_b + dtheta_diag,
            noise=weight * expected.dtheta.sum(axis=0),
            alpha=dalpha,
            beta=dbeta,
        )
        return Cotangents(
            weight * float(expected.value.sum()),
            gradient,
            Kxa.T @ dm,
            Kxb.T @ dA,
            dM,
            A.T @ dm,
            np.zeros(len(self.w)),
            curvature,
        )

    def residual_term(
        self, zeros: Parameters, index: Indices, v: Array | None, weight: float
    ) -> Cotangents:
        """``weight`` times the part of -a' K~ a / 2 that belongs to some rows of K~.

        K~ = K_alpha - A_alpha A_alpha' is what the covariance basis leaves of K_alpha, and
        v = A_alpha' a; None stands for K~ = K_alpha.
        """
        rows, c = self.alpha[index], -0.5 * weight * self.a[index]
        Kra, Krb = self.kernel(rows, self.alpha), self.kernel(rows, self.beta)
        A = Krb @ self.T
        r = Kra @ self.a
        if v is not None:
            r -= A @ v
        da = Kra.T @ c
        da[index] -= 0.5 * weight * r
        dtheta, drows, dalpha = self.kernel.vjp_outer(rows, self.alpha, Kra, c, self.a)
        parts = [fill(zeros, theta=dtheta, alpha=dalpha)]
        dT, dv = np.zeros_like(self.T), np.zeros(len(self.w))
        moved = drows
        if v is not None:
            dA = -np.outer(c, v)
            dtheta, drows_b, dbeta = self.kernel.vjp_outer(rows, self.beta, Krb, -c, self.T @ v)
            moved = drows + drows_b
            parts.append(fill(zeros, theta=dtheta, beta=dbeta))
            dT, dv = Krb.T @ dA, -A.T @ c
        gradient = add_up(parts)
        gradient.alpha[index] += moved.Z
        if moved.log_c is not None:
            gradient.alpha_log_c[index] += moved.log_c
        zero = np.zeros_like(self.M)
        return Cotangents(float(c @ r), gradient, da, dT, zero, np.zeros(len(self.w)), dv, zero)


def fill(
    zeros: Parameters,
    *,
    theta: Array | None = None,
    noise: Array | None = None,
    alpha: Basis | None = None,
    beta: Basis | None = None,
    L0: Array | None = None,
) -> Parameters:
    """A gradient whose other fields are zero."""
    parts = {"theta": theta, "noise": noise, "L0": L0}
    for name, basis in (("alpha", alpha), ("beta", beta)):
        if basis is not None:
            parts |= {name: basis.Z, f"{name}_log_c": basis.log_c}
    given = {name: part for name, part in parts.items() if part is not None}
    copies = {f.name: getattr(zeros, f.name).copy() for f in fields(zeros)}
    return Parameters(**{**copies, **given})


def add_up(gradients: list[Parameters]) -> Parameters:
    """Sum of some gradients, as one whose fields may be added to."""
    flat = reduce(np.add, [g.pack() for g in gradients], np.zeros(1))
    return gradients[0].unpack(flat)
