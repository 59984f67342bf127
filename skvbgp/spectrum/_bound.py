r"""The paper's bound L(q) = E_q[log p(y | alpha)] - KL(q || p) and what its steps are made of.

Expectations are averages over draws alpha = M z + b, sums over data are sums over blocks:
the doubly stochastic estimates of App. G of [Hoang2017]_. The divergence is in closed form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut
from skvbgp.spectrum._features import features_vjp, function_jacobian
from skvbgp.spectrum._gaussian import Gaussian, Prior, Structure
from skvbgp.spectrum._rows import Rows

#: Rows of which Jacobians are held at a time.
_TILE_ROWS = 256


class Statistics(NamedTuple):
    """Averages over draws of sums over rows, all for sigma_n^2 = 1."""

    squared_error: float  # |v|^2, v = y - Phi' s (Lemma 2)
    shift: Array  # (D,): J' v, the gradient of log p(y | alpha) in alpha (App. F)
    curvatures: list[Array]  # by group: J' J

    def times(self, factor: float) -> Statistics:
        return Statistics(
            factor * self.squared_error, factor * self.shift, [factor * C for C in self.curvatures]
        )

    def plus(self, other: Statistics) -> Statistics:
        """Those of both sets of rows."""
        return Statistics(
            self.squared_error + other.squared_error,
            self.shift + other.shift,
            [C + D for C, D in zip(self.curvatures, other.curvatures, strict=True)],
        )


def sum_statistics(structure: Structure, alphas: Array, rows: Rows) -> Statistics:
    """Sums over some rows, averaged over the draws ``alphas`` (S, D)."""
    squared_error, shift = 0.0, np.zeros(structure.size)
    curvatures = [np.zeros((g.stop - g.start,) * 2) for g in structure.groups]
    for alpha in alphas:
        R, s = structure.frequencies(alpha), alpha[structure.weights]
        for some in cut(len(rows), _TILE_ROWS):
            tile = rows.take(some)
            Phi = tile.features(R)
            v = tile.target - Phi @ s
            J = function_jacobian(tile.X, Phi, s)
            squared_error += float(v @ v)
            shift += J.T @ v
            for total, C in zip(curvatures, structure.curvatures(J), strict=True):
                total += C
    return Statistics(squared_error, shift, curvatures).times(1.0 / len(alphas))


def sum_shifts(structure: Structure, alphas: Array, rows: Rows) -> tuple[float, Array]:
    """|v|^2, an average over the draws, and J' v of each draw, (S, D): sums over rows."""
    squared_error, shifts = 0.0, np.empty(alphas.shape)
    for alpha, shift in zip(alphas, shifts, strict=True):
        Phi, s = rows.features(structure.frequencies(alpha)), alpha[structure.weights]
        v = rows.target - Phi @ s
        squared_error += float(v @ v)
        structure.frequencies(shift)[:] = features_vjp(rows.X, Phi, np.outer(v, s))
        shift[structure.weights] = Phi.T @ v
    return squared_error / len(alphas), shifts


def expected_squared_error(structure: Structure, alphas: Array, rows: Rows) -> float:
    """Average over draws of |y - Phi' s|^2."""
    total = 0.0
    for alpha in alphas:
        v = rows.target - rows.features(structure.frequencies(alpha)) @ alpha[structure.weights]
        total += float(v @ v)
    return total / len(alphas)


def expected_own_error(
    structure: Structure, alphas: Array, rows: Rows, noise_variance: float
) -> float:
    """Average over draws of E[|learned noise|^2 | y, alpha], where some noise is known.

    Its ratio to the number of rows is the noise variance after a step of EM.
    """
    squared_error = expected_squared_error(structure, alphas, rows.as_weighted(noise_variance, 2))
    return squared_error + noise_variance * float(rows.counts @ (1.0 - rows.share(noise_variance)))


def expected_log_likelihood(n: float, squared_error: float, noise_variance: float) -> float:
    """E_q[log p(y | alpha)] (Lemma 2)."""
    return -0.5 * (n * np.log(2.0 * np.pi * noise_variance) + squared_error / noise_variance)


def newton_step(
    q: Gaussian,
    prior: Gaussian | Prior,
    information: Statistics,
    noise_variance: float,
    rate: float,
    *,
    moves_frequencies: bool = True,
) -> Gaussian:
    """Natural-gradient step on q, with the Gauss-Newton matrix for the expected Hessian.

    ``information`` belongs to all data (or estimates it). A ``rate`` of 1 forgets the past
    precision, and is exact for a q(s) given certain frequencies.
    """
    precisions = tuple(
        (1.0 - rate) * P + rate * (P_0 + C / noise_variance)
        for P, P_0, C in zip(q.precisions, prior.precisions, information.curvatures, strict=True)
    )
    moved = Gaussian(q.structure, q.mean, precisions)
    gradient = information.shift / noise_variance - prior.times_precision(q.mean - prior.mean)
    if moves_frequencies:
        step = moved.solve(gradient)
    else:  # the step of s with the frequencies held
        s, n_weights = q.structure.weights, 2 * q.structure.m
        precision = precisions[-1][-n_weights:, -n_weights:]  # of s given theta
        step = np.zeros_like(gradient)
        step[s] = np.linalg.solve(precision, gradient[s])
    return Gaussian(q.structure, q.mean + rate * step, precisions)
