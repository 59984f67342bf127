"""Starting values "from the data"."""

from dataclasses import replace

import numpy as np

from skvbgp._core.gaussian import ZeroMeanNormal, scan_log_normal_density
from skvbgp._core.linalg import Array, cholesky
from skvbgp._core.parallel import thread_map
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp._optim.schedule import cosine_annealing
from skvbgp.kernels import Kernel
from skvbgp.sgpr._bound import Model
from skvbgp.sgpr._data import Data, RowIndex, Rows
from skvbgp.sgpr._groups import unit_se
from skvbgp.sgpr._parameters import LOG_LIMITS, Parameters

#: Rows that the starting length scales are judged by, and what these are divided by.
_SAMPLE_ROWS = 512
_FACTORS = (1.0, 4.0, 16.0, 64.0)
#: Logarithms of the variances of signal and noise that are tried with each factor.
_LOG_VARIANCES = np.arange(-8.0, 2.1)
#: Steps of the noise's start on the blocks' evidence, their size, and blocks in each.
_BLOCK_STEPS = 300
_BLOCK_STEP_SIZE = 0.05
_BLOCKS_PER_STEP = 2


def shorten(model: Model, parameters: Parameters, data: Data, seed: int) -> Parameters:
    """Length scales divided by the factor that makes a sample of the rows most probable.

    Training changes a length scale by a few per cent in a step: from one that is far too long
    it first learns to call the function noise, and stays there. The factors are coarse, since
    one that is four times too long is no harm.
    """
    rows = data.rows(_sample(len(data), np.random.RandomState(seed)))
    nu, d = parameters.nu, len(parameters.nu)
    mean, variance = model.hyperprior.mean[:d], model.hyperprior.variance[:d]
    signal, noise = map(np.ravel, np.exp(np.meshgrid(_LOG_VARIANCES, _LOG_VARIANCES)))

    def log_posterior(factor: float) -> float:
        X = factor * nu * rows.X
        log_evidence = float(scan_log_normal_density(unit_se(X, X), rows.y, signal, noise).max())
        return log_evidence - 0.5 * float(np.sum((factor * nu - mean) ** 2 / variance))

    factor = max(_FACTORS, key=log_posterior)
    return replace(parameters, nu=factor * nu, xi=factor**2 * parameters.xi)


def _sample(n: int, rng: np.random.RandomState) -> RowIndex:
    """A random row of each of some equal parts of the data: always as many, in O(1) memory."""
    ends = np.arange(min(n, _SAMPLE_ROWS) + 1) * n // min(n, _SAMPLE_ROWS)
    return rng.randint(ends[:-1], ends[1:])


def fit_noise_to_blocks(
    model: Model, parameters: Parameters, data: Data, rng: np.random.RandomState
) -> Parameters:
    """Noise parameters that explain each block of y on its own, as if there were no f.

    Stochastic ascent on the blocks' evidence, sum_i log N(y_i | 0, k^eps(X_i, X_i) +
    sigma_n^2 I): a start that has the right roughness, at a small part of the cost of the
    bound, whose optimum is then reached from there.
    """
    kernel, blocks = model.noise_kernel, data.blocks
    assert kernel is not None and blocks is not None
    lower, upper = np.append(kernel.bounds, [LOG_LIMITS["noise_variance"]], axis=0).T
    x = np.append(parameters.noise_theta, np.log(parameters.noise_variance))
    state = AdamState.zeros(len(x))
    for step in range(_BLOCK_STEPS):
        chosen = rng.randint(len(blocks), size=_BLOCKS_PER_STEP)
        groups = [(x, kernel, model, data.rows(blocks[k])) for k in chosen]
        gradient = sum(thread_map(_block_evidence_gradient, groups))
        size = _BLOCK_STEP_SIZE * cosine_annealing(step, _BLOCK_STEPS)
        x, state = adam_ascent(x, gradient, state, size)
        x = np.clip(x, lower, upper)
    return replace(parameters, noise_theta=x[:-1], noise_variance=float(np.exp(x[-1])))


def _block_evidence_gradient(x: Array, kernel: Kernel, model: Model, rows: Rows) -> Array:
    """Gradient of log N(y | 0, k(X, X) + sigma_n^2 I) in (theta, log sigma_n^2)."""
    kernel, noise_variance = kernel.with_theta(x[:-1]), float(np.exp(x[-1]))
    X = model.coordinates.original(rows.X)
    K = kernel(X)
    C = model.noise_scale * K
    C.flat[:: len(C) + 1] += noise_variance
    dC = ZeroMeanNormal.of(cholesky(C, "noise covariance of a block"), rows.y).gradient()
    d_theta, _, _ = kernel.vjp(X, None, K, model.noise_scale * dC)
    return np.append(d_theta, np.trace(dC) * noise_variance)
