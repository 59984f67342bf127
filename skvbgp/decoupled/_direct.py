r"""The directly parametrised covariance: B = L L' with L = diag(K_beta)^-1 L0.

The covariance of q(f) is k - k_xb R k_bx with R = (B^-1 + K_beta)^-1 = L H^-1 L' and
H = I + L' K_beta L, whose eigenvalues are at least 1: nothing here needs K_beta to be
invertible. The mean is k_xa a alone, and

    KL = a' K_alpha a / 2 + log|H| / 2 - tr(I - H^-1) / 2        (Theorem 1 of [Cheng2017]_).
"""

from __future__ import annotations

import numpy as np

from skvbgp._core.linalg import Array, cholesky, inverse_from_cholesky, log_determinant
from skvbgp.decoupled._basis import Basis, BasisKernel
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._process import Cotangents, Process, fill


class DirectCovariance:
    """The part of the bound that lives on the covariance basis alone.

    Attributes
    ----------
    process : Process
    v : None
        The residual of the mean basis is the whole of it.
    negative_kl : float
        Minus the second and third term of the KL divergence.
    """

    v = None

    def __init__(self, kernel: BasisKernel, alpha: Basis, a: Array, parameters: Parameters) -> None:
        beta = parameters.cov_basis
        m = len(beta)
        self._kernel, self._beta = kernel, beta
        self._K = kernel(beta, beta)  # (m_b, m_b)
        self._diag = kernel.diag(beta)
        self._L = np.tril(parameters.L0) / self._diag[:, None]
        self._KL = self._K @ self._L  # (k, m_b, m_b), as all that follow
        H = np.swapaxes(self._L, 1, 2) @ self._KL + np.eye(m)
        factors = [cholesky(one, "matrix H of the covariance basis") for one in H]
        self._H_inv = np.stack([inverse_from_cholesky(factor) for factor in factors])
        self._LH = self._L @ self._H_inv  # L H^-1
        self._R = self._LH @ np.swapaxes(self._L, 1, 2)
        trace = m * len(H) - float(np.trace(self._H_inv, axis1=1, axis2=2).sum())
        self.negative_kl = 0.5 * (trace - sum(map(log_determinant, factors)))
        w = np.zeros((m, len(H)))
        self.process = Process(kernel, alpha, beta, a, np.eye(m), -self._R, w)

    def backward(self, zeros: Parameters, c: Cotangents) -> tuple[Parameters, Array]:
        """Gradient through L, K_beta and the KL divergence: in the parameters, and in a."""
        dR, R = -c.M, self._R
        KLH = self._KL @ self._H_inv  # K L H^-1
        # Omega = (I + B K)^-1 = I - R K and Omega L = L H^-1
        dL = 2.0 * (dR @ self._LH - self._K @ (R @ (dR @ self._LH)))
        dL -= KLH - KLH @ self._H_inv  # Proposition 2, times 2 L
        dK = -np.sum(R @ (dR + 0.5 * self._K) @ R, axis=0)
        dL0 = np.tril(dL / self._diag[:, None])
        ddiag = -np.sum(dL * self._L, axis=(0, 2)) / self._diag
        dtheta, dleft, dright = self._kernel.vjp(self._beta, self._beta, self._K, dK)
        dtheta_diag, dbeta = self._kernel.vjp_diag(self._beta, ddiag)
        gradient = fill(zeros, theta=dtheta + dtheta_diag, beta=dleft + dright + dbeta, L0=dL0)
        return gradient, np.zeros_like(self.process.a)
