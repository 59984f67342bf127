"""The evidence of an exact Gaussian process with independent noise, for rows and their copies.

K (n, n) is the covariance of f at rows whose targets y are (n,), or (n, k) of independent
functions. Every row is there as often as it counts, (n,), see `copies`; None is once. The noise has
the variance t of all rows and, of a single function, what is known of each row, (n,).
"""

import numpy as np

from skvbgp._core.copies import (
    extra_log_dets,
    noise_log_density,
    own_gradient,
    rotate_copies,
)
from skvbgp._core.gaussian import ZeroMeanNormal, scan_log_normal_density
from skvbgp._core.linalg import Array, cholesky

#: Logarithms of the noise variances that are tried.
_LOG_NOISES = np.arange(-8.0, 0.1)


def scan_noises(
    K: Array, y: Array, counts: Array | None = None, known: Array | None = None
) -> tuple[float, float]:
    """log N(y | 0, K + t I) at the best of some t from e^-8 to 1, and log t."""
    noises = np.exp(_LOG_NOISES)
    if known is None:
        y, scales, n_others = _rotate(y, counts)
        values = scan_log_normal_density(scales * K, y, np.ones_like(noises), noises)
        values += noise_log_density(n_others, _LOG_NOISES)
    else:
        values = np.array([_normal(K, y, t + known, counts)[1] for t in noises])
    best = int(np.argmax(values))
    return float(values[best]), float(_LOG_NOISES[best])


def log_evidence(
    K: Array,
    y: Array,
    log_noise: float,
    counts: Array | None = None,
    known: Array | None = None,
    *,
    relative: bool = False,
) -> tuple[float, Array, float]:
    """log N(y | 0, K + t I), and its gradients in K (n, n) and in log t.

    A ``relative`` K is in units of t: the covariance is t (K + I).
    """
    noise = float(np.exp(log_noise))
    if known is not None:
        normal, value = _normal(K, y, noise + known, counts)
        dC = normal.gradient()
        d_own = own_gradient(noise + known, counts, np.diagonal(dC))
        return value, dC, noise * float(d_own.sum())
    scale = noise if relative else 1.0
    y, scales, n_others = _rotate(y, counts)
    merged = scales * K
    C = scale * merged
    C.flat[:: len(C) + 1] += noise
    normal = ZeroMeanNormal.of(cholesky(C, "covariance of the rows"), y)
    dC = normal.gradient()
    d_noise = float(np.trace(dC))
    if relative:
        d_noise += float(np.vdot(dC, merged))
    value = normal.log_density + float(noise_log_density(n_others, log_noise))
    return value, scale * scales * dC, noise * d_noise - 0.5 * n_others


def _normal(K: Array, y: Array, own: Array, counts: Array | None) -> tuple[ZeroMeanNormal, float]:
    """y with noise of variances (n,), and the log density of all copies."""
    w = np.ones(len(y)) if counts is None else counts
    C = K + np.diag(own / w)
    normal = ZeroMeanNormal.of(cholesky(C, "covariance of the rows"), y)
    more = float(np.sum(w - 1.0)) * np.log(2.0 * np.pi) + extra_log_dets(own, w).sum()
    return normal, normal.log_density - 0.5 * float(more)


def _rotate(y: Array, counts: Array | None) -> tuple[Array, Array, float]:
    return rotate_copies(y, np.ones(len(y)) if counts is None else counts)
