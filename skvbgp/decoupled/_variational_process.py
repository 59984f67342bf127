r"""The form of q(f) in which rows are evaluated.

A model has one function, or several with independent q(f) that share kernel and bases. Whatever
the parametrization, the marginals of a function at a row x are

    mean = k_xa a + A w,   variance = k_xx + (A M A')_xx,   A = k_xb T,

with the mean basis a(lpha), the covariance basis b(eta), and T, M, w that a parametrization
makes of its parameters. This module has the data's and the residual's part of the bound in
these terms; where T, M and w come from is that of :mod:`skvbgp.decoupled._coupled` and
:mod:`skvbgp.decoupled._direct`.

A stream without rows knows the posterior of the rows so far, as the prior of the next. Theorem 1
of [Cheng2017]_ has the KL divergence to a prior N(a-bar, B-bar) with bases of its own. Here they
are those of q, which has all points of the past, and more where the past has none:

    KL = (a - a-bar)' G (a - a-bar) / 2 + KL of the covariances,  G = K_a + K_ab B-bar K_ba,

for the direct parametrisation. For the others, u and what it leaves of f are independent under
both processes, and

    KL = KL(q(u) || q-bar(u)) + (a - a-bar)' K~ (a - a-bar) / 2.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array, outer_factors, tril_times, triu_times
from skvbgp.base import pick
from skvbgp.decoupled._basis import Basis, BasisKernel
from skvbgp.decoupled._parameters import Parameters

Indices = NDArray[np.intp]
Gaussians = tuple[WhitenedGaussian, ...]
#: Smallest variance of q(f) relative to the prior's.
_LEAST_VARIANCE = 1e-10


@dataclass(frozen=True)
class PastProcess:
    """The process that the KL divergence is to, at the hyperparameters and in the bases of q."""

    a: Array  # (m_a, k) coefficients a-bar of its mean
    #: Its u of each function, in the orthogonal frame; none for a direct covariance.
    q: Gaussians = ()
    L: Array | None = None  # (k, m_b, m_b) b-bar = L L' of a direct covariance


@dataclass
class Cotangents:
    """Gradients of a part of the bound in what rows are evaluated with.

    That in T follows from the others: all that is asked for is dT' T = dA' A, where the gradient
    in A is dm w' + 2 ds A M of the data, and -c v' of the residual, with c its own.
    """

    value: float
    gradient: Parameters  # in theta, the likelihood and the bases
    a: Array  # (m_a, k)
    M: Array  # (k, m_b, m_b)
    w: Array  # (m_b, k) through the data
    residual: Array  # (m_a, k) in the residual's K_alpha a, whose part in K_beta,alpha is to come
    curvature: Array  # (k, m_b, m_b) -2 A' min(dL/ds, 0) A

    def __iadd__(self, other: Cotangents) -> Self:
        self.value += other.value
        for sums, added in ((vars(self), vars(other)), (vars(self.gradient), vars(other.gradient))):
            for name, part in sums.items():
                if isinstance(part, np.ndarray):
                    part += added[name]
        return self


@dataclass(frozen=True)
class Rows:
    """Scaled rows of data."""

    X: Array  # (n, d)
    y: Array  # (n, k)
    counts: Array  # (n,) how often each counts
    known: Array | None  # (n,) known variances of the noise, besides the learned one

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, some: slice) -> Rows:
        return Rows(self.X[some], self.y[some], self.counts[some], pick(self.known, some))


class Seen(NamedTuple):
    """Places of rows, and what is the same for any q(u)."""

    places: Basis  # n
    Kxa: Array  # (n, m_a)
    Kbx: Array  # (m_b, n)
    At: Array  # (m_b, n)


@dataclass(frozen=True)
class VariationalProcess:
    """q(f) of k functions at given parameters."""

    kernel: BasisKernel
    alpha: Basis
    beta: Basis
    a: Array  # (m_a, k)
    T: Array  # (m_b, m_b) upper triangular
    M: Array  # (k, m_b, m_b)
    w: Array  # (m_b, k)

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of each f at scaled rows X, (n, k)."""
        rows = Basis(X)
        return self._moments_of(rows, self._whiten(self.kernel(self.beta, rows)))

    def _moments_of(self, rows: Basis, At: Array) -> tuple[Array, Array]:
        mean = self.kernel(rows, self.alpha) @ self.a + At.T @ self.w
        return mean, self._variance(self.kernel.diag(rows), At, self.M @ At)

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Mean (n, k) and covariance (k, n, n) of each f at scaled rows X."""
        rows = Basis(X)
        At = self._whiten(self.kernel(self.beta, rows))
        covariance = self.kernel(rows, rows) + At.T @ self.M @ At
        mean, variance = self._moments_of(rows, At)
        every = np.arange(len(X))
        covariance[:, every, every] = variance.T
        return mean, covariance

    def _whiten(self, Kbx: Array) -> Array:
        """A' of rows, (m_b, n): products with triangles like it that way round."""
        return tril_times(self.T.T, Kbx)

    @staticmethod
    def _variance(prior: Array, At: Array, MAt: Array) -> Array:
        prior = prior[:, None]
        return np.maximum(prior + np.einsum("kji,ji->ik", MAt, At), _LEAST_VARIANCE * prior)

    def see(self, X: Array) -> Seen:
        """Scaled rows X as the terms below take them."""
        places = Basis(X)
        Kbx = self.kernel(self.beta, places)
        return Seen(places, self.kernel(places, self.alpha), Kbx, self._whiten(Kbx))

    def information(
        self, likelihood: Any, noise: Array, rows: Rows, seen: Seen
    ) -> tuple[Array, Array]:
        """Shift (m_b, k) and precision (k, m_b, m_b) that rows add to q(u).

        Of a conjugate likelihood: neither depends on variances of f, or on q(u).
        """
        error = replace(rows, y=rows.y - seen.Kxa @ self.a)
        none = np.zeros(rows.y.shape)
        _, _, dm, ds = expect(likelihood, noise, error, none, none)
        return seen.At @ dm, -2.0 * _weigh(seen.At, ds)

    def data_term(
        self,
        zeros: Parameters,
        likelihood: Any,
        noise: Array,
        rows: Rows,
        seen: Seen,
        weight: float,
    ) -> Cotangents:
        """``weight`` times the expected log-likelihood of some rows, and its gradients."""
        places, Kxa, Kbx, At = seen
        MAt = self.M @ At
        prior = self.kernel.diag(places)
        variance = self._variance(prior, At, MAt)
        mean = Kxa @ self.a + At.T @ self.w
        expected, each, dm, ds = expect(likelihood, noise, rows, mean, variance)
        dm, ds = weight * dm, weight * ds
        MAt *= 2.0 * ds.T[:, None, :]
        dAt = MAt.sum(axis=0) if len(MAt) > 1 else MAt[0]
        dAt += np.matmul(*outer_factors(self.w, dm))
        dM = _weigh(At, ds)
        if expected.precision is None:
            concave = np.minimum(ds, 0.0)
        else:
            concave = -0.5 * weight * (each * expected.precision).reshape(ds.shape)
        curvature = -2.0 * (dM if np.array_equal(concave, ds) else _weigh(At, concave))
        dtheta_a, dalpha, da = self.kernel.vjp_data_outer(places, self.alpha, Kxa, dm, self.a)
        dKbx = triu_times(self.T.T, dAt)
        dtheta_b, dbeta = self.kernel.vjp_data(places, self.beta, Kbx.T, dKbx.T)
        dtheta_diag, _ = self.kernel.vjp_diag(places, ds.sum(axis=1))
        gradient = fill(
            zeros,
            theta=dtheta_a + dtheta_b + dtheta_diag,
            noise=weight * (each[:, None] * expected.dtheta).sum(axis=0),
            alpha=dalpha,
            beta=dbeta,
        )
        return Cotangents(
            weight * float((each * expected.value).sum()),
            gradient,
            da,
            dM,
            At @ dm,
            np.zeros_like(self.a),
            curvature,
        )

    def residual_term(
        self, zeros: Parameters, index: Indices, a: Array, explained: Array | None, weight: float
    ) -> Cotangents:
        """``weight`` times the part of -tr(a' K~ a) / 2 that belongs to some rows of K~.

        K~ = K_alpha - A_alpha A_alpha' is what the covariance basis leaves of K_alpha, and
        ``explained`` = A_alpha A_alpha' a, whose gradient is not among those of the result; None
        stands for K~ = K_alpha. Here a (m_a, k) are coefficients of q, or their differences from
        those of the past.
        """
        rows, c = self.alpha[index], -0.5 * weight * a[index]
        Kra = self.kernel(rows, self.alpha)
        r = Kra @ a
        if explained is not None:
            r -= explained[index]
        da = Kra.T @ c
        da[index] -= 0.5 * weight * r
        dtheta, drows, dalpha = self.kernel.vjp_outer(rows, self.alpha, Kra, c, a)
        gradient = fill(zeros, theta=dtheta, alpha=dalpha)
        gradient.alpha[index] += drows.Z
        if drows.log_c is not None:
            gradient.alpha_log_c[index] += drows.log_c
        residual = np.zeros_like(self.a)
        residual[index] = c
        no_M, no_w = np.zeros((1, 1, 1)), np.zeros((1, 1))  # which are added to others
        return Cotangents(float(np.sum(c * r)), gradient, da, no_M, no_w, residual, no_M)


def expect(
    likelihood: Any, noise: Array, rows: Rows, mean: Array, variance: Array
) -> tuple[Any, Array, Array, Array]:
    """The expected log-likelihood of each target, and how often it counts, (n k,).

    And its slopes (n, k) in the mean and the variance of f, as often.
    """
    told = () if rows.known is None else (rows.known,)
    expected = likelihood.expected(noise, rows.y.ravel(), mean.ravel(), variance.ravel(), *told)
    each = np.repeat(rows.counts, rows.y.shape[1])
    dm, ds = ((each * part).reshape(rows.y.shape) for part in (expected.dm, expected.ds))
    return expected, each, dm, ds


def _weigh(At: Array, weights: Array) -> Array:
    """A' diag(weights) A for each column of weights (n, k), (k, m, m)."""
    if weights.max() > 0.0:
        return (weights.T[:, None, :] * At) @ At.T
    roots = [np.sqrt(-own) * At for own in weights.T]
    return -np.stack([root @ root.T for root in roots])  # BLAS makes half of each


def fill(zeros: Parameters, **given: Array | Basis) -> Parameters:
    """A gradient in some parameters and bases, by the names of their fields; others are zero."""
    parts = {f.name: getattr(zeros, f.name).copy() for f in fields(zeros)}
    for name, part in given.items():
        if not isinstance(part, Basis):
            parts[name] = part
            continue
        parts[name] = part.Z
        if part.log_c is not None:
            parts[f"{name}_log_c"] = part.log_c
    return Parameters(**parts)


def add_up(gradients: list[Parameters]) -> Parameters:
    """Sum of some gradients, as one whose fields may be added to."""
    flat = reduce(np.add, [g.pack() for g in gradients], np.zeros(1))
    return gradients[0].unpack(flat)
