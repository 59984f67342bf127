"""Starting hyperparameters: those of the exact Gaussian process of a sample of rows.

An ascent changes a length scale by a few per cent in a step, and from one that is far too long
it first learns to call the function noise. A few hundred rows tell the right order of
magnitude, at the cost of a few dozen steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skvbgp._core import evidence
from skvbgp._core.linalg import Array
from skvbgp._core.owners import average_shared
from skvbgp._core.parallel import thread_map
from skvbgp._optim.lbfgs import LbfgsResult, lbfgs_ascent
from skvbgp.base import pick
from skvbgp.decoupled._basis import Basis
from skvbgp.decoupled._bound import Model

#: Largest number of rows whose evidence is evaluated.
EVIDENCE_ROWS = 512
#: Rows by which a few of the candidates are chosen, which all of these rows then compare.
_CHOOSING_ROWS, _FEW = 256, 4
#: Nats by which a start has to lead to more than the first one.
_LEAST_LEAD = 0.5
#: Limits of the log noise variance, and a small one.
_LOG_NOISE_BOUNDS, _LITTLE_LOG_NOISE = (-12.0, 3.0), float(np.log(0.01))
#: Iterations of the search, and the relative rise at which it stops.
_MAX_ITER, _TOL = 40, 1e-4


def find_hyperparameters(
    model: Model, X: Array, y: Array, counts: Array | None = None, known: Array | None = None
) -> tuple[Array, float]:
    """Find theta and the log variance of noise of largest posterior density, given some rows.

    The best of the kernel's candidates, after a scan of the noise, are refined by gradients, and so
    is the first one with little noise: where one of several inputs matters, length scales that are
    all alike say that nearly everything is noise, and from there no gradient leads away. A sparse
    process, which cannot explain all of f, has more noise.

    The rows X (n, d) are scaled, and y (n,) or (n, k) values of each f with additive noise, or
    nearly. They count as often as ``counts`` (n,) say, None is once; of a single f, variances (n,)
    of the noise may be known besides.
    """

    def log_density(x: Array, rows: Basis, *data: Any) -> tuple[float, Array]:
        value, gradient = log_evidence(model, x, rows, *data)
        log_prior, slope = model.log_prior(x[:-1])
        gradient[:-1] = average_shared(gradient[:-1] + slope, model.own_theta)
        return value + log_prior, gradient

    def refine(x: Array, rows: Basis, *data: Any) -> LbfgsResult:
        return lbfgs_ascent(
            lambda x: log_density(x, rows, *data), x, max_iter=_MAX_ITER, tol=_TOL, bounds=bounds
        )

    everything = Basis(X), y, counts, known
    some = slice(_CHOOSING_ROWS)
    told: tuple[Any, ...] = y[some], pick(counts, some), pick(known, some)
    rows = Basis(X[some])

    def scan(theta: Array) -> tuple[float, Array]:
        K = model.kernel.with_theta(theta)(rows, rows)
        value, log_noise = evidence.scan_noises(K, *told)
        return value + model.log_prior(theta)[0], np.append(theta, log_noise)

    def compare(starts: list[Array]) -> Array:
        """Their densities, of all rows."""
        return np.array(
            thread_map(lambda x: log_density(x, *everything)[0], [(x,) for x in starts])
        )

    bounds = np.append(model.kernel.bounds, [_LOG_NOISE_BOUNDS], axis=0)
    scans = thread_map(scan, [(theta,) for theta in model.kernel.candidates])
    best = [x for _, x in sorted(scans, key=lambda scanned: -scanned[0])][:_FEW]
    is_whole = len(X) <= _CHOOSING_ROWS
    if not is_whole:
        best = [best[i] for i in np.argsort(-compare(best), kind="stable")]
    if counts is None or counts.max() <= 1.0:  # copies, which agree, would say that it is little
        best.append(np.append(best[0][:-1], min(best[0][-1], _LITTLE_LOG_NOISE)))
    found = thread_map(refine, [(x, rows, *told) for x in best])
    refined = [one.x for one in found]
    densities = np.array([one.value for one in found]) if is_whole else compare(refined)
    leader = 0 if densities.max() < densities[0] + _LEAST_LEAD else int(np.argmax(densities))
    x = refined[leader]
    if not is_whole:
        x = refine(x if leader else best[0], *everything).x
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
