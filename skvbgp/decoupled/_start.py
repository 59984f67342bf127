"""Starting hyperparameters: those of the exact Gaussian process of a sample of rows.

An ascent changes a length scale by a few per cent in a step, and from one that is far too long
it first learns to call the function noise. A few hundred rows tell the right order of
magnitude, at the cost of a few dozen steps.
"""

from __future__ import annotations

import numpy as np

from skvbgp._core.copies import noise_log_density, rotate_copies
from skvbgp._core.gaussian import ZeroMeanNormal, scan_log_normal_density
from skvbgp._core.linalg import Array, cholesky
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._bound import Model

#: Largest number of rows whose evidence is evaluated.
EVIDENCE_ROWS = 512
#: Logarithms of the noise variances that are tried with each candidate.
_LOG_NOISES = np.arange(-8.0, 0.1)
#: Limits of the log noise variance.
_LOG_NOISE_BOUNDS = (-12.0, 3.0)
#: Iterations of the search, and the relative rise at which it stops.
_MAX_ITER, _TOL = 40, 1e-4


def find_hyperparameters(
    model: Model, X: Array, y: Array, counts: Array | None = None
) -> tuple[Array, float]:
    """Find theta and the log variance of noise of largest posterior density, given some rows.

    The best of the kernel's candidates, after a scan of the noise, is refined by gradients.
    A sparse process, which cannot explain all of f, has more noise.

    Parameters
    ----------
    model : Model
    X : ndarray of shape (n, d)
        Scaled rows.
    y : ndarray of shape (n,) or (n, k)
        Values of each f with additive noise, or nearly.
    counts : ndarray of shape (n,) or None
        How often each row counts; None is once.
    """
    rows = Basis(X)
    counts = np.ones(len(X)) if counts is None else counts
    scans = [_best_noise(model, theta, rows, y, counts) for theta in model.kernel.candidates]
    _, x = max(scans, key=lambda scan: scan[0])

    def log_density(x: Array) -> tuple[float, Array]:
        value, gradient = log_evidence(model, x, rows, y, counts)
        log_prior, slope = model.log_prior(x[:-1])
        gradient[:-1] += slope
        return value + log_prior, gradient

    bounds = np.append(model.kernel.bounds, [_LOG_NOISE_BOUNDS], axis=0)
    x = lbfgs_ascent(log_density, x, max_iter=_MAX_ITER, tol=_TOL, bounds=bounds).x
    return x[:-1], float(x[-1])


def _best_noise(
    model: Model, theta: Array, rows: Basis, y: Array, counts: Array
) -> tuple[float, Array]:
    """Log density at the best of some noise variances; theta and its log."""
    noises = np.exp(_LOG_NOISES)
    K = model.kernel.with_theta(theta)(rows, rows)
    y, scales, n_others = rotate_copies(y, counts)
    values = scan_log_normal_density(scales * K, y, np.ones_like(noises), noises)
    values += noise_log_density(n_others, _LOG_NOISES)
    best = int(np.argmax(values))
    return float(values[best]) + model.log_prior(theta)[0], np.append(theta, _LOG_NOISES[best])


def log_evidence(
    model: Model, x: Array, rows: Basis, y: Array, counts: Array
) -> tuple[float, Array]:
    """log N(y | 0, a k(X, X) + s2 I) at x = (theta, log s2), and its gradient.

    a = 1, or s2 for several functions whose likelihood has noise of unit variance, so that k is
    relative to it. (A single one is spared that: where labels are noisy it gets too sure.)
    Every row is there as often as it counts, (n,), see :ref:`decoupled-weights`.
    """
    kernel, noise = model.kernel.with_theta(x[:-1]), float(np.exp(x[-1]))
    is_relative = model.likelihood.unit_noise and y[0].size > 1
    scale = noise if is_relative else 1.0
    K = kernel(rows, rows)
    y, scales, n_others = rotate_copies(y, counts)
    merged = scales * K
    C = scale * merged
    C.flat[:: len(C) + 1] += noise
    L = cholesky(C, "covariance of a sample of rows")
    normal = ZeroMeanNormal.of(L, y)
    dC = normal.gradient()
    dtheta, _, _ = kernel.vjp(rows, rows, K, scale * scales * dC)
    dnoise = float(np.trace(dC))
    if is_relative:
        dnoise += float(np.vdot(dC, merged))
    value = normal.log_density + float(noise_log_density(n_others, x[-1]))
    return value, np.append(dtheta, noise * dnoise - 0.5 * n_others)
