"""Scores of rows that are left out, see :ref:`decoupled-link`."""

from __future__ import annotations

import numpy as np

from skvbgp._core.linalg import Array, cholesky, tril_inverse
from skvbgp._core.parallel import thread_map
from skvbgp._core.sites import MAX_SHARE
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._likelihoods import Probit
from skvbgp.decoupled._variational_process import Rows, VariationalProcess


def leave_out(process: VariationalProcess, likelihood: Probit, rows: Rows, total: float) -> Array:
    """Scores (n, k) of rows, each by all others, which with these count ``total`` times.

    Of a row that counts more than once, one copy is left out.
    """
    mean, variance = process.moments(rows.X)  # each (n, k)
    targets = rows.y.ravel(), mean.ravel(), variance.ravel()
    expected = likelihood.expected(np.empty(0), *targets)
    slope = expected.dm.reshape(mean.shape)
    precision = np.maximum(-2.0 * expected.ds, 0.0).reshape(mean.shape)
    places = Basis(rows.X)
    K = process.kernel(places, places)
    counts = total / rows.counts.sum() * rows.counts
    own = thread_map(lambda told: _measure_variance(K, counts * told), [(t,) for t in precision.T])
    reach = np.minimum(rows.counts, 1.0)[:, None] * np.column_stack(own)
    rest = 1.0 - np.minimum(precision * reach, MAX_SHARE)
    mean = mean - slope * reach / rest
    variance = variance + precision * reach * np.column_stack(own) / rest
    return likelihood.score(mean, variance)


def _measure_variance(K: Array, precision: Array) -> Array:
    """Variances (n,) of f ~ N(0, K) given sites of some precisions (n,)."""
    root = np.sqrt(precision)
    B = root[:, None] * K * root
    B.flat[:: len(B) + 1] += 1.0
    known = 1.0 - np.sum(tril_inverse(cholesky(B)) ** 2, axis=0)  # shares of 1 / variance
    prior = np.diagonal(K)
    variance = np.divide(known, precision, out=prior.copy(), where=precision > 0.0)
    return np.clip(variance, 0.0, prior)
