"""The evidence of an exact Gaussian process with independent noise, for rows and their copies.

K (n, n) is the covariance of f at rows whose targets y are (n,), or (n, k) of independent
functions. Every row is there as often as it counts, (n,), see `copies`; None is once. The noise has
the variance t of all rows and, of a single function, what is known of each row, (n,).
"""

import numpy as np

from skvbgp._core.copies import Copies, noise_log_density, own_gradient, rotate_copies
from skvbgp._core.gaussian import ZeroMeanNormal, log_normal_density, scan_log_normal_density
from skvbgp._core.linalg import Array, cholesky, exact_cholesky, whiten_bordered

#: Logarithms of the noise variances that are tried, and of the signal's and the noise's.
_LOG_NOISES, _LOG_VARIANCES = np.arange(-8.0, 0.1), np.arange(-8.0, 2.1)


def scan_variances(K: Array, y: Array) -> float:
    """log N(y | 0, a K + t I) at the best of some a and t, each from e^-8 to e^2."""
    signal, noise = map(np.ravel, np.exp(np.meshgrid(_LOG_VARIANCES, _LOG_VARIANCES)))
    return float(scan_log_normal_density(K, y, signal, noise).max())


def scan_noises(
    K: Array, y: Array, counts: Array | None = None, known: Array | None = None
) -> tuple[float, float]:
    """log N(y | 0, K + t I) at the best of some t from e^-8 to 1, and log t."""
    noises = np.exp(_LOG_NOISES)
    if known is None:
        y, scales, n_others = rotate_copies(y, counts)
        values = scan_log_normal_density(scales * K, y, np.ones_like(noises), noises)
        values += noise_log_density(n_others, _LOG_NOISES)
    else:
        values = np.array([own_log_evidence(K, y, t + known, counts) for t in noises])
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

    A ``relative`` K is in units of t: the covariance is t (K + I). There is no known noise then.
    """
    assert known is None or not relative
    noise = float(np.exp(log_noise))
    if known is not None:
        value, dK, d_own = own_evidence(K, y, noise + known, counts)
        return value, dK, noise * float(d_own.sum())
    scale = noise if relative else 1.0
    y, scales, n_others = rotate_copies(y, counts)
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


def own_evidence(
    K: Array, y: Array, own: float | Array, counts: Array | None = None, *, exact: bool = False
) -> tuple[float, Array, Array]:
    """log N(y | 0, K + T) of a single function, and its gradients in K and in T, by row (n,).

    ``own`` is the diagonal of T, the noise of one copy of each row. Of K the lower triangle is
    read. An ``exact`` one has no jitter, which would be other noise, but an error.
    """
    normal = _normal_of(_add_own(K, own, counts), y, exact)
    value, dC = normal.log_density + Copies.of(own, counts).log_density, normal.gradient()
    return value, dC, own_gradient(own, counts, np.diagonal(dC))


def own_log_evidence(
    K: Array, y: Array, own: float | Array, counts: Array | None = None, *, exact: bool = False
) -> float:
    """The same without its gradients."""
    C, least = _add_own(K, own, counts), float(np.min(own if counts is None else own / counts))
    try:
        log_det, white = whiten_bordered(C, y, least)
    except np.linalg.LinAlgError:  # rounding asks for more, or for an error
        log_density = _normal_of(C, y, exact).log_density
    else:
        log_density = log_normal_density(white, log_det)
    return log_density + Copies.of(own, counts).log_density


def _add_own(K: Array, own: float | Array, counts: Array | None) -> Array:
    """The covariance of single copies, with noise of their own."""
    C = K.copy()
    C.flat[:: len(C) + 1] += own if counts is None else own / counts
    return C


def _normal_of(C: Array, y: Array, exact: bool) -> ZeroMeanNormal:
    factorise = exact_cholesky if exact else cholesky
    return ZeroMeanNormal.of(factorise(C, "covariance of the rows"), y)
