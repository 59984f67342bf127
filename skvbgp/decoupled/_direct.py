r"""The directly parametrised covariance: B = L L' with L = diag(K_beta)^-1 L0.

The covariance of q(f) is k - k_xb R k_bx with R = (B^-1 + K_beta)^-1 = L H^-1 L' and
H = I + L' K_beta L, whose eigenvalues are at least 1: nothing here needs K_beta to be
invertible. The mean is k_xa a alone, and

    KL = a' K_alpha a / 2 + log|H| / 2 - tr(I - H^-1) / 2        (Theorem 1 of [Cheng2017]_).

To a past N(a-bar, B-bar) in the same bases, with d = a - a-bar and H-bar as H, it is

    KL = d' (K_alpha + K_ab B-bar K_ba) d / 2 + (log|H| - log|H-bar|) / 2 - tr(I - H^-1) / 2
         + tr(B-bar (K_beta - K_beta R K_beta)) / 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import (
    Array,
    cholesky,
    inverse_from_cholesky,
    jittered_cholesky,
    log_determinant,
)
from skvbgp.decoupled._basis import Basis, BasisKernel
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._variational_process import (
    Cotangents,
    PastProcess,
    VariationalProcess,
    add_up,
    fill,
)


def keep_points(K: Array, L: Array, kept: NDArray[np.intp]) -> Array:
    """Factors L (k, m, m) of a basis of covariance K with some of its points alone.

    L' f(beta) is what has been seen with standard normal noise. Now f(beta) is there what the kept
    points predict of it.
    """
    factor = jittered_cholesky(K[kept[:, None], kept], "covariance of kept points")
    roots = inverse_from_cholesky(factor) @ K[kept] @ L
    return np.stack([np.linalg.qr(root.T)[1].T for root in roots])


class DirectCovariance:
    """The part of the bound that lives on the covariance basis alone.

    Besides the ``process`` it has the ``residual``, whose norm is the first term of the KL
    divergence: coefficients (m_a, k) of q or their differences from the past's, and None, as the
    residual of the mean basis is the whole of it. ``negative_kl`` is minus the other terms.
    """

    def __init__(
        self,
        kernel: BasisKernel,
        alpha: Basis,
        a: Array,  # (m_a, k) of the mean
        beta: Basis,
        L0: Array,
        past: PastProcess | None = None,
    ) -> None:
        m = len(beta)
        self._kernel, self._alpha, self._beta, self._past = kernel, alpha, beta, past
        self._K = kernel(beta, beta)  # (m_b, m_b)
        self._diag = kernel.diag(beta)
        self._L = np.tril(L0) / self._diag[:, None]
        self._KL = self._K @ self._L  # (k, m_b, m_b), as all that follow
        H = np.swapaxes(self._L, 1, 2) @ self._KL + np.eye(m)
        self._H_inv, log_det = _invert(H, "matrix H of the covariance basis")
        self._LH = self._L @ self._H_inv  # L H^-1
        self._R = self._LH @ np.swapaxes(self._L, 1, 2)
        trace = m * len(H) - float(np.trace(self._H_inv, axis1=1, axis2=2).sum())
        self.negative_kl = 0.5 * (trace - log_det)
        self.residual = a, None
        if past is not None and past.L is not None:
            self._meet(past.a, past.L)
        w = np.zeros((m, len(H)))
        self.process = VariationalProcess(kernel, alpha, beta, a, np.eye(m), -self._R, w)

    def as_past(self) -> PastProcess:
        """The process as the past of others in its bases."""
        return PastProcess(self.process.a, L=self._L)

    def draw_coefficients(self, values: Array, rng: np.random.RandomState) -> Array:
        """What makes prior draws of the first function posterior ones, but for k_xa a: (m_b, s).

        ``values`` (m_b, s) are theirs at the points of the basis. That is as if L' f(beta) had been
        observed with standard normal noise.
        """
        normal = rng.standard_normal(values.shape)
        return np.asarray(-self._LH[0] @ (self._L[0].T @ values + normal))

    def _meet(self, a_bar: Array, L: Array) -> None:
        """Put the past's terms into the KL divergence."""
        m, Lt = len(self._beta), np.swapaxes(L, 1, 2)
        self.residual = self.residual[0] - a_bar, None
        self._B = L @ Lt
        self._Kba = self._kernel(self._beta, self._alpha)
        z = self._Kba @ self.residual[0]  # (m_b, k)
        self._Bz = np.einsum("kij,jk->ik", self._B, z)
        H_inv, log_det = _invert(Lt @ self._K @ L + np.eye(m), "matrix H of the past")
        self._past_R = L @ H_inv @ Lt
        remains = self._K - self._K @ self._R @ self._K  # covariance of f(beta)
        distance = log_det - np.vdot(self._B, remains) - np.vdot(z, self._Bz)
        self.negative_kl += 0.5 * float(distance)

    def backward(self, zeros: Parameters, c: Cotangents) -> tuple[Parameters, Array]:
        """Gradient through L, K_beta and the KL divergence: in the parameters, and in a."""
        dR, R = -c.M, self._R
        if self._past is not None:
            dR = dR + 0.5 * self._K @ self._B @ self._K
        KLH = self._KL @ self._H_inv  # K L H^-1
        # Omega = (I + B K)^-1 = I - R K and Omega L = L H^-1
        dL = 2.0 * (dR @ self._LH - self._K @ (R @ (dR @ self._LH)))
        dL -= KLH - KLH @ self._H_inv  # Proposition 2, times 2 L
        dK = -np.sum(R @ (dR + 0.5 * self._K) @ R, axis=0)
        if self._past is not None:
            BKR = self._B @ self._K @ R
            dK = dK + 0.5 * np.sum(BKR + np.swapaxes(BKR, 1, 2) - self._B + self._past_R, axis=0)
        dL0 = np.tril(dL / self._diag[:, None])
        ddiag = -np.sum(dL * self._L, axis=(0, 2)) / self._diag
        dtheta, dleft, dright = self._kernel.vjp(self._beta, self._beta, self._K, dK)
        dtheta_diag, dbeta = self._kernel.vjp_diag(self._beta, ddiag)
        gradient = fill(zeros, theta=dtheta + dtheta_diag, beta=dleft + dright + dbeta, L0=dL0)
        if self._past is None:
            return gradient, np.zeros_like(self.process.a)
        dtheta, dbeta, dalpha = self._kernel.vjp_outer(
            self._beta, self._alpha, self._Kba, -self._Bz, self.residual[0]
        )
        through_Kba = fill(zeros, theta=dtheta, alpha=dalpha, beta=dbeta)
        return add_up([gradient, through_Kba]), -self._Kba.T @ self._Bz


def _invert(H: Array, name: str) -> tuple[Array, float]:
    """Inverses (k, m, m) of some matrices, and the sum of their log determinants."""
    factors = [cholesky(one, name) for one in H]
    return np.stack(list(map(inverse_from_cholesky, factors))), sum(map(log_determinant, factors))
