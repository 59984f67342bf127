"""Starting hyperparameters: those of the exact Gaussian process of a sample of rows.

An ascent changes a length scale by a few per cent in a step, and from one that is far too long
it first learns to call the function noise. A few hundred rows tell the right order of
magnitude, at the cost of a few dozen steps.
"""

from __future__ import annotations

import numpy as np

from skvbgp._core import evidence
from skvbgp._core.linalg import Array
from skvbgp._core.owners import average_shared
from skvbgp._core.parallel import thread_map
from skvbgp._optim.lbfgs import lbfgs_ascent
from skvbgp.base import pick
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._bound import Model

#: Largest number of rows whose evidence is evaluated.
EVIDENCE_ROWS = 512
#: Rows by which a few of the candidates are chosen, which all of these rows then compare.
_CHOOSING_ROWS, _FEW = 256, 4
#: Limits of the log noise variance.
_LOG_NOISE_BOUNDS = (-12.0, 3.0)
#: Iterations of the search, and the relative rise at which it stops.
_MAX_ITER, _TOL = 40, 1e-4


def find_hyperparameters(
    model: Model, X: Array, y: Array, counts: Array | None = None, known: Array | None = None
) -> tuple[Array, float]:
    """Find theta and the log variance of noise of largest posterior density, given some rows.

    The best of the kernel's candidates, after a scan of the noise, is refined by gradients. A
    sparse process, which cannot explain all of f, has more noise.

    The rows X (n, d) are scaled, and y (n,) or (n, k) values of each f with additive noise, or
    nearly. They count as often as ``counts`` (n,) say, None is once; of a single f, variances (n,)
    of the noise may be known besides.
    """
    rows = Basis(X)
    data = y, counts, known

    def log_density(x: Array) -> tuple[float, Array]:
        value, gradient = log_evidence(model, x, rows, *data)
        log_prior, slope = model.log_prior(x[:-1])
        gradient[:-1] = average_shared(gradient[:-1] + slope, model.own_theta)
        return value + log_prior, gradient

    some = slice(_CHOOSING_ROWS)
    chosen, told = rows[some], (y[some], pick(counts, some), pick(known, some))

    def scan(theta: Array) -> tuple[float, Array]:
        K = model.kernel.with_theta(theta)(chosen, chosen)
        value, log_noise = evidence.scan_noises(K, *told)
        return value + model.log_prior(theta)[0], np.append(theta, log_noise)

    scans = thread_map(scan, [(theta,) for theta in model.kernel.candidates])
    best = [x for _, x in sorted(scans, key=lambda scanned: -scanned[0])][:_FEW]
    if len(X) > _CHOOSING_ROWS and len(best) > 1:
        densities = thread_map(lambda x: log_density(x)[0], [(x,) for x in best])
        x = best[int(np.argmax(densities))]
    else:
        x = best[0]
    bounds = np.append(model.kernel.bounds, [_LOG_NOISE_BOUNDS], axis=0)
    x = lbfgs_ascent(log_density, x, max_iter=_MAX_ITER, tol=_TOL, bounds=bounds).x
    return x[:-1], float(x[-1])


def log_evidence(
    model: Model,
    x: Array,
    rows: Basis,
    y: Array,
    counts: Array | None = None,
    known: Array | None = None,
) -> tuple[float, Array]:
    """log N(y | 0, a k(X, X) + s2 I) at x = (theta, log s2), and its gradient.

    a = 1, or s2 for several functions whose likelihood has noise of unit variance, so that k is
    relative to it. (A single one is spared that: where labels are noisy it gets too sure.)
    Every row is there as often as it counts, (n,), see :ref:`decoupled-weights`; variances of the
    noise of a single function may be known, (n,).
    """
    kernel = model.kernel.with_theta(x[:-1])
    relative = model.likelihood.unit_noise and y[0].size > 1
    K = kernel(rows, rows)
    value, dK, d_log_noise = evidence.log_evidence(K, y, x[-1], counts, known, relative=relative)
    dtheta, _ = kernel.vjp_data(rows, rows, K, dK)
    return value, np.append(dtheta, d_log_noise)
