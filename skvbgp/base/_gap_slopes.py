"""How much a function varies along inputs that may be missing: mean squared slopes, see `Gaps`.

They are hyperparameters of an exact Gaussian process of some rows, with a squared exponential
kernel and noise of the variance t + v_i + sum_j c_j S_ij. See :ref:`gap-noise`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.evidence import own_evidence, scan_noises
from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, average_shared, count_inputs, divide_equally
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.kernels import RBF, Constant

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


class GapRows(NamedTuple):
    """Scaled rows without gaps, and how uncertain those entries are that had been missing."""

    X: Array  # (n, d)
    inputs: Array  # (n, g) variances of the entries of the columns that have gaps
    y: Array  # (n,)
    counts: Array  # (n,) how often each counts
    known: Array  # (n,) known variances of the noise
    owners: Owners = ()  # by column of X: the input that it encodes


def learn_slopes(rows: GapRows) -> Array:
    """The slopes (g,) at the most probable hyperparameters."""
    g, start = rows.inputs.shape[1], start_kernel(rows)
    known = rows.known + SLOPE * rows.inputs.sum(axis=1)

    def start_from(factor: float) -> tuple[float, Array]:
        theta = start.theta - np.log(factor)
        K = start.with_theta(theta)(rows.X)
        value, log_noise = scan_noises(K, rows.y, rows.counts, known)
        return value, np.array([0.0, *theta, log_noise, *np.full(g, np.log(SLOPE))])

    _, x = max((start_from(factor) for factor in _FACTORS), key=lambda scan: scan[0])
    bounds = np.column_stack([x - _MOST_CHANGE, x + _MOST_CHANGE])
    bounds[len(x) - g :] = SLOPE_LIMITS
    found = lbfgs_ascent(
        lambda x: log_density(x, rows), x, max_iter=_MAX_ITER, tol=_TOL, bounds=bounds
    )
    return np.exp(found.x[len(x) - g :])


def start_kernel(rows: GapRows) -> RBF:
    """The kernel whose length scales are the middle of their prior."""
    d = rows.X.shape[1]
    return RBF(np.full(d, np.sqrt(count_inputs(d, rows.owners))))


def log_density(x: Array, rows: GapRows) -> tuple[float, Array]:
    """log p(y, x) up to a constant, and its gradient in x.

    x are the logarithms of signal, length scales (d,), noise and slopes (g,). A length scale that
    columns share counts once.
    """
    d, start, owners = rows.X.shape[1], start_kernel(rows), rows.owners
    lengths, slopes = slice(1, d + 1), slice(d + 2, None)
    noise, c = float(np.exp(x[d + 1])), np.exp(x[slopes])
    kernel = Constant(float(np.exp(x[0]))) * start.with_theta(x[lengths])
    K = kernel(rows.X)
    own = noise + rows.known + rows.inputs @ c
    value, dK, d_own = own_evidence(K, rows.y, own, rows.counts)
    d_theta = kernel.vjp(rows.X, None, K, dK)[0]
    gradient = np.array([*d_theta, noise * d_own.sum(), *(c * (d_own @ rows.inputs))])
    share, away = divide_equally(d, owners), x[lengths] - start.theta
    gradient[lengths] = average_shared(gradient[lengths] - share * away / _PRIOR_VARIANCE, owners)
    unlikely = (x[slopes] - np.log(SLOPE)) / SLOPE_SPREAD
    gradient[slopes] -= unlikely / SLOPE_SPREAD
    value -= 0.5 * float(share @ away**2) / _PRIOR_VARIANCE + 0.5 * float(unlikely @ unlikely)
    return value, gradient
