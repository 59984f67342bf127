"""The most probable hyperparameters of an exact Gaussian process of some rows.

They are the logarithms x of the signal's variance, of the length scales and of the noise's variance
and, where entries of rows had been missing, of mean squared slopes: how much the function varies
along such inputs, see `Gaps`. Noise has the variance t + v_i + sum_j c_j S_ij then, see
:ref:`gap-noise`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.evidence import log_evidence, own_evidence, scan_noises
from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, average_shared, count_inputs, divide_equally
from skvbgp._optim.lbfgs import LbfgsResult, lbfgs_ascent
from skvbgp.kernels import RBF, Constant, Matern

#: Median of the prior of mean squared slopes, for a target of unit variance and inputs of unit
#: spread; standard deviation and limits of their logarithms.
SLOPE, SLOPE_SPREAD = 0.3, 1.0
SLOPE_LIMITS = np.log([1e-4, 1e3])
#: What starting length scales are tried divided by.
_FACTORS = (1.0, 2.0, 4.0)
#: Variance of the prior of their logarithms; limits of a logarithm from its start.
_PRIOR_VARIANCE, _MOST_CHANGE = 0.5, 6.0
#: Iterations of the search, and the relative rise at which it stops.
_MAX_ITER, _TOL = 40, 1e-4

#: Mean and standard deviation of a normal prior of the noise's logarithm.
NoisePrior = tuple[float, float]


class ExactRows(NamedTuple):
    """Scaled rows without gaps, and what is known of their noise."""

    X: Array  # (n, d)
    y: Array  # (n,)
    counts: Array | None = None  # (n,) how often each counts; None is once
    known: Array | None = None  # (n,) known variances of the noise; None is 0
    #: (n, g): variances of entries that had been missing, of the columns that have such.
    gaps: Array | None = None
    owners: Owners = ()  # by column of X: the input that it encodes


def learn_slopes(rows: ExactRows) -> Array:
    """The slopes (g,) at the most probable hyperparameters of rows that have gaps."""
    d = rows.X.shape[1]
    return np.exp(find_maximum(make_usual_kernel(d, rows.owners), rows).x[d + 2 :])


def make_usual_kernel(d: int, owners: Owners) -> RBF:
    """The squared exponential of d columns of unit spread, with length scales as are usual."""
    return RBF(np.full(d, np.sqrt(count_inputs(d, owners))))


def find_maximum(
    start: RBF | Matern, rows: ExactRows, noise_prior: NoisePrior | None = None
) -> LbfgsResult:
    """The largest log density, and where it is, see `log_density`."""
    known, log_slopes = rows.known, np.empty(0)
    if rows.gaps is not None:
        log_slopes = np.full(rows.gaps.shape[1], np.log(SLOPE))
        known = (0.0 if known is None else known) + SLOPE * rows.gaps.sum(axis=1)

    def start_from(factor: float) -> tuple[float, Array]:
        theta = start.theta - np.log(factor)
        K = start.with_theta(theta)(rows.X)
        value, log_noise = scan_noises(K, rows.y, rows.counts, known)
        return value, np.array([0.0, *theta, log_noise, *log_slopes])

    _, x = max((start_from(factor) for factor in _FACTORS), key=lambda scan: scan[0])
    bounds = np.column_stack([x - _MOST_CHANGE, x + _MOST_CHANGE])
    bounds[len(x) - len(log_slopes) :] = SLOPE_LIMITS
    return lbfgs_ascent(
        lambda x: log_density(x, start, rows, noise_prior),
        x,
        max_iter=_MAX_ITER,
        tol=_TOL,
        bounds=bounds,
    )


def log_density(
    x: Array, start: RBF | Matern, rows: ExactRows, noise_prior: NoisePrior | None = None
) -> tuple[float, Array]:
    """log p(y, x) up to a constant, and its gradient in x.

    The length scales of the kernel, at their start, are the middle of their prior, in which one
    that columns share counts once. The noise has a prior if it is given.
    """
    d = rows.X.shape[1]
    lengths, slopes = slice(1, d + 1), slice(d + 2, None)
    kernel = Constant(float(np.exp(x[0]))) * start.with_theta(x[lengths])
    K, away = kernel(rows.X), x[lengths] - start.theta
    value, dK, d_noise = _evaluate(K, x[d + 1 :], rows)
    gradient = np.append(kernel.vjp(rows.X, None, K, dK)[0], d_noise)
    share, unlikely = divide_equally(d, rows.owners), (x[slopes] - np.log(SLOPE)) / SLOPE_SPREAD
    pulled = gradient[lengths] - share * away / _PRIOR_VARIANCE
    gradient[lengths] = average_shared(pulled, rows.owners)
    gradient[slopes] -= unlikely / SLOPE_SPREAD
    value -= 0.5 * float(share @ away**2) / _PRIOR_VARIANCE + 0.5 * float(unlikely @ unlikely)
    if noise_prior is not None:
        mean, std = noise_prior
        z = (x[d + 1] - mean) / std
        value, gradient[d + 1] = value - 0.5 * float(z**2), gradient[d + 1] - z / std
    return value, gradient


def _evaluate(K: Array, x: Array, rows: ExactRows) -> tuple[float, Array, Array]:
    """The log evidence, and its gradients in K and in x, logarithms of noise and slopes."""
    if rows.gaps is None:
        value, dK, d_log_noise = log_evidence(K, rows.y, x[0], rows.counts, rows.known)
        return value, dK, np.array([d_log_noise])
    noise, c = float(np.exp(x[0])), np.exp(x[1:])
    own = noise + (0.0 if rows.known is None else rows.known) + rows.gaps @ c
    value, dK, d_own = own_evidence(K, rows.y, own, rows.counts)
    return value, dK, np.append(noise * d_own.sum(), c * (d_own @ rows.gaps))
