r"""The belief about the kernel: q(g) = N(m, C C') maximised on eq. (8) of [Teng2020]_.

With p(k_i | g) = softmax(g)_i and the prior g ~ N(0, v I), the bound in q(g) is

    L(m, C) = E[ sum_i softmax(m + C e)_i L_i ] - KL(N(m, C C') || N(0, v I)),   e ~ N(0, I).

The expectation is taken over draws of e fixed beforehand, which makes the bound an ordinary
function of m and C. Adding a number to every L_i changes nothing but the value, so differences
to the best L_i are used.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from skvbgp._core.draws import draw_antithetic
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import concurrently
from skvbgp._optim.lbfgs import LbfgsResult, lbfgs_ascent
from skvbgp.kernel_selection._affine_gaussian import AffineGaussian

#: Prior variance v of each g_i. The wider the prior, the closer the belief comes to p(k | y)
#: at uniform p(k); from here on it changes little (see the theory page).
PRIOR_VARIANCE = 100.0
_MAX_ITER = 200
_TOL = 1e-5


class KernelBelief(NamedTuple):
    """Optimal q(g), and the kernel's posterior by eq. (13)."""

    mean: Array  # (K,)
    covariance: Array  # (K, K)
    posterior: Array  # (K,)
    lower_bound: float  # L(q) of eq. (8)


def kernel_belief(local_bounds: Array, *, n_samples: int, seed: int) -> KernelBelief:
    """Maximise eq. (8), by so many draws of g.

    A kernel whose bound L_i, of (K,), is -inf has failed and gets no belief; one has not.
    """
    valid = np.isfinite(local_bounds)
    best = float(np.max(local_bounds))
    L = local_bounds[valid] - best  # (k,) <= 0
    k = len(L)
    draws = draw_antithetic(n_samples, k, np.random.RandomState(seed))
    family = AffineGaussian(np.zeros(k), np.full(k, PRIOR_VARIANCE))
    units = family.units

    def objective(z: Array) -> tuple[float, Array]:
        value, gradient = belief_bound(units * z, family, L, draws)
        return value, units * gradient

    def search() -> LbfgsResult:
        return lbfgs_ascent(objective, _start(L, family) / units, max_iter=_MAX_ITER, tol=_TOL)

    (result,) = concurrently(search)  # with one BLAS thread
    m, C = family.unpack(units * result.x)
    posterior = softmax(m + draws @ C.T, axis=1).mean(axis=0)
    moments = _average_exchanges(L, m, C @ C.T, posterior)
    K = len(local_bounds)
    belief = KernelBelief(np.zeros(K), PRIOR_VARIANCE * np.eye(K), np.zeros(K), best + result.value)
    belief.mean[valid], belief.covariance[np.ix_(valid, valid)], belief.posterior[valid] = moments
    return belief


def belief_bound(x: Array, family: AffineGaussian, L: Array, draws: Array) -> tuple[float, Array]:
    """L(q) of eq. (8) and its gradient in the flat vector x.

    The draws (S, k) are those of `draw_antithetic`, in two halves of opposite signs.
    """
    m, C = family.unpack(x)
    half = draws[: len(draws) // 2]
    shift = half @ C.T
    p = softmax(np.concatenate([m + shift, m - shift]), axis=1)  # (S, k)
    expected = p @ L  # (S,)
    p *= L - expected[:, None]
    p /= len(draws)  # gradient in the g
    gradient = family.pull_back(x, p[: len(half)] - p[len(half) :], half)
    gradient[: len(m)] = p.sum(axis=0)
    kl, dkl = family.kl(x)
    return float(expected.mean()) - kl, gradient - dkl


def _start(L: Array, family: AffineGaussian) -> Array:
    """Means that follow the L_i as far as the prior allows.

    From the mean of the prior the way is longer, to no higher place (see the theory page).
    """
    std = np.sqrt(family.prior_variance)
    informed = np.maximum(L, -3.0 * std)
    return family.pack(informed - informed.mean(), std)


def _average_exchanges(
    L: Array, m: Array, covariance: Array, posterior: Array
) -> tuple[Array, ...]:
    """Average over the exchanges of kernels with one and the same L_i.

    Eq. (8) does not tell them apart: every exchange of theirs turns an optimum into another.
    """
    same = L[:, None] == L
    size = same.sum(axis=1)
    P = same / size  # (k, k) projection
    mean_covariance = P @ covariance @ P
    excess = P @ np.diagonal(covariance) - np.diagonal(mean_covariance)
    own = excess * size / np.maximum(size - 1, 1)
    return P @ m, mean_covariance + own[:, None] * (np.eye(len(L)) - P), P @ posterior
