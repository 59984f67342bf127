r"""A conventional part on the covariance basis: q(u) of whitened inducing variables.

With K_beta = L L', the variables u = L^-1 f(beta) have the prior N(0, I) and q(u) = N(m, S).
The residual mean basis adds k_xa a to the mean, in one of two frames. With v = A_alpha' a, for
the whitened cross-covariances A_alpha = K_alpha,beta L^-T:

- hybrid (A.3 of [Cheng2017]_): the mean is A m + k_xa a;
- orthogonal [Salimbeni2018]_: the mean is A m + (k_xa - A v'), so that a only acts on what the
  covariance basis cannot express, and m is the mean of u.

They are the same family, as the m of the second is m + v of the first, and both have

    KL = KL(N(m_orthogonal, S) || N(0, I)) + a' K~ a / 2,   K~ = K_alpha - A_alpha A_alpha'.

They differ in what stays fixed while the bases and the hyperparameters move.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import (
    Array,
    cholesky,
    cholesky_vjp,
    inverse_from_cholesky,
    jittered_cholesky,
    tril_inverse,
)
from skvbgp._core.parallel import concurrently
from skvbgp._optim.natural_gradient import natural_gradient_step
from skvbgp.decoupled._basis import Basis, BasisKernel
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._variational_process import (
    Cotangents,
    Gaussians,
    PastProcess,
    VariationalProcess,
    add_up,
    fill,
)


def keep_points(K: Array, q: Gaussians, kept: NDArray[np.intp]) -> Gaussians:
    """q(u) of some points of a basis of covariance K, as it is: their marginals."""
    L, name = jittered_cholesky(K, "covariance of the basis"), "covariance of kept points"
    T = tril_inverse(jittered_cholesky(K[kept[:, None], kept], name)) @ L[kept]
    after = []
    for one in q:
        precision = inverse_from_cholesky(cholesky(T @ one.covariance @ T.T, name))
        after.append(WhitenedGaussian(precision, precision @ (T @ one.mean)))
    return tuple(after)


class CoupledCovariance:
    """The part of the bound that lives on the covariance basis alone.

    Besides the ``process`` it has v = A_alpha' a (m_b, k), and minus the first term of the KL
    divergence. The norm of the ``residual``, of coefficients (m_a, k), is the second: those of q or
    their differences from the past's, and A_alpha A_alpha' times these.
    """

    def __init__(
        self,
        kernel: BasisKernel,
        alpha: Basis,
        a: Array,  # (m_a, k) of the mean
        beta: Basis,
        q: Gaussians,
        past: PastProcess | None = None,
        *,
        orthogonal: bool,
    ) -> None:
        self._kernel, self._alpha, self._beta, self._a = kernel, alpha, beta, a
        self._past, self._orthogonal = past, orthogonal
        self._Kbb = kernel(beta, beta)  # (m_b, m_b)
        self._L_inv, self._Kba, _ = concurrently(
            lambda: tril_inverse(jittered_cholesky(self._Kbb, "covariance of the basis")),
            lambda: kernel(beta, alpha),  # (m_b, m_a)
            lambda: [one.covariance for one in q],  # which q keeps
        )
        self.v = self._L_inv @ (self._Kba @ a)
        self._take(q)

    def holding(self, q: Gaussians) -> CoupledCovariance:
        """The same with another q(u)."""
        other = copy(self)
        other._take(q)
        return other

    def _take(self, q: Gaussians) -> None:
        """Make all that depends on q(u)."""
        self._q, mean = q, np.column_stack([one.mean for one in q])
        self._mean = mean if self._orthogonal else mean + self.v
        # ``_pull`` is the gradient of ``negative_kl`` in the mean of u, (m_b, k)
        if self._past is None:
            self._residual, self._pull = (self._a, self.v), -self._mean
            # divergences of q have half its squared mean; that of u is another one, by v, if hybrid
            shift = float(np.sum(self._mean**2) - np.sum(mean**2))
            self.negative_kl = -sum(one.kl_to_prior for one in q) - 0.5 * shift
        else:
            self._meet(self._past)
        a, v = self._residual
        self._Tv = self._L_inv.T @ v
        self.residual = a, self._Kba.T @ self._Tv
        M = np.stack([one.covariance for one in q]) - np.eye(len(self._beta))
        w = self._mean - self.v
        self.process = VariationalProcess(
            self._kernel, self._alpha, self._beta, self._a, self._L_inv.T, M, w
        )

    def _meet(self, past: PastProcess) -> None:
        """Make the KL divergence that to the past."""
        d = self._a - past.a
        self._residual = d, self._L_inv @ (self._Kba @ d)
        pairs = zip(self._in_orthogonal_frame(), past.q, strict=True)
        self.negative_kl = -sum(one.kl_to(before) for one, before in pairs)
        pull = [
            before.shift - before.precision @ mean
            for before, mean in zip(past.q, self._mean.T, strict=True)
        ]
        self._pull = np.column_stack(pull)

    def as_past(self) -> PastProcess:
        """The process as the past of others in its bases."""
        return PastProcess(self._a, self._in_orthogonal_frame())

    def draw_coefficients(self, values: Array, rng: np.random.RandomState) -> Array:
        """What makes prior draws of the first function posterior ones, but for k_xa a: (m_b, s).

        ``values`` (m_b, s) are theirs at the points of the basis.
        """
        q, w = self._q[0], self.process.w[:, :1]
        u = q.draw(values.shape[1], rng) - q.mean[:, None] + w
        return np.asarray(self._L_inv.T @ (u - self._L_inv @ values))

    def _in_orthogonal_frame(self) -> Gaussians:
        if self._orthogonal:
            return self._q
        return tuple(one.moved(v) for one, v in zip(self._q, self.v.T, strict=True))

    def backward(self, zeros: Parameters, c: Cotangents) -> tuple[Parameters, Array]:
        """Gradient through L, v and the KL divergence: in the parameters, and in a."""
        has_past, v, a = self._past is not None, self.v, self._a
        residual_v = -(self._L_inv @ (self._Kba @ c.residual))  # gradient in A_alpha' a of its
        dv = -c.w if has_past else residual_v - c.w
        if not self._orthogonal:
            dv = dv + c.w + self._pull
        if has_past:  # the residual has coefficients of its own
            own = self._residual
            v, a, dv = (np.hstack(pair) for pair in ((v, own[1]), (a, own[0]), (dv, residual_v)))
        # v = L^-1 K_ba a, and T = L^-T of the rows' A = K_xb T, of which dA' A is known
        left = np.hstack([self.process.w, self._residual[1], dv])
        LtdL = left @ -np.hstack([c.w, residual_v, v]).T
        for M, dM in zip(self.process.M, c.M, strict=True):
            LtdL -= 2.0 * (M @ dM)
        du = self._L_inv.T @ dv

        def through_Kba() -> Parameters:
            pair = np.hstack([du, -self._Tv]), np.hstack([a, c.residual])
            dtheta, dbeta, dalpha = self._kernel.vjp_outer(
                self._beta, self._alpha, self._Kba, *pair
            )
            return fill(zeros, theta=dtheta, alpha=dalpha, beta=dbeta)

        def through_Kbb() -> Parameters:
            dKbb = cholesky_vjp(LtdL, self._L_inv)
            dtheta, left, right = self._kernel.vjp(self._beta, self._beta, self._Kbb, dKbb)
            return fill(zeros, theta=dtheta, beta=left + right)

        da = self._Kba.T @ du
        if has_past:
            da = sum(np.hsplit(da, 2))
        return add_up(concurrently(through_Kba, through_Kbb)), da

    def solve(self, shift: Array, information: Array) -> Gaussians:
        """The best q(u), given shift (m_b, k) and precision (k, m_b, m_b) of rows about u - v."""
        pairs = zip(information, shift.T, self.v.T, strict=True)
        best = tuple(WhitenedGaussian.of_information(P, b + P @ v) for P, b, v in pairs)
        if self._orthogonal:
            return best
        return tuple(one.moved(-v) for one, v in zip(best, self.v.T, strict=True))

    def natural_step(self, c: Cotangents, rate: float) -> Gaussians:
        """q(u) after a natural-gradient step, for any likelihood [Khan2017]_."""
        mean, shift, information = self._mean, c.w, c.curvature
        if self._past is not None:  # the past is information as that of rows is
            shift = shift + self._pull + mean
            before = np.stack([one.precision for one in self._past.q])
            information = information + before - np.eye(len(self._beta))
        if not self._orthogonal:  # the optimum is the other frame's, less v
            mean, shift = mean - self.v, shift - self.v
        return tuple(
            natural_gradient_step(q, added, shift[:, k] + added @ mean[:, k], rate)
            for k, (q, added) in enumerate(zip(self._q, information, strict=True))
        )
