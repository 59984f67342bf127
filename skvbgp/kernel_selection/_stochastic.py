"""Stochastic ascent of one local bound, Sec. 4.1 of [Teng2020]_."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp._optim.natural_gradient import natural_gradient_step
from skvbgp._optim.schedule import cosine_annealing
from skvbgp.kernel_selection._affine import AffineGaussian
from skvbgp.kernel_selection._bound import Evaluation, Prior, mean_statistics
from skvbgp.kernel_selection._frame import Frame
from skvbgp.kernels import Kernel

#: Step of the natural gradient on q(u): at first, and at the end of training.
_NATURAL_RATE = 0.1
_LAST_NATURAL_RATE = 0.01


class StochasticSettings(NamedTuple):
    """How mini-batches are used."""

    batch_size: int
    n_passes: int
    learning_rate: float


def solve_stochastic(
    kernel: Kernel,
    x: Array,
    X: Array,
    y: Array,
    frame: Frame,
    Z: Array,
    settings: StochasticSettings,
    rng: np.random.RandomState,
    *,
    family: AffineGaussian | None = None,
    bounds: Array | None = None,
) -> Array:
    """Parameters at the end of some passes of natural gradients on q(u) and Adam on x.

    The step sizes fall along a cosine, Adam's to zero.

    Parameters
    ----------
    x : ndarray of shape (p + 1,) or (p + 1 + (p + 1) (p + 2) / 2,)
        Start: a point estimate of (theta, log s2), or the flat vector of q(theta).
    family : AffineGaussian or None
        Given if `x` is the latter.
    bounds : ndarray of shape (p + 1, 2) or None
        Limits of a point estimate.
    """
    n = len(X)
    q = WhitenedGaussian.standard(len(Z))
    adam = AdamState.zeros(len(x))
    n_steps = settings.n_passes * -(-n // settings.batch_size)
    for step, batch in enumerate(_batches(n, settings, rng)):
        if family is None:
            points = x[None, :]
        else:
            draws = rng.standard_normal((1, len(family.prior_mean)))
            points = family.points(x, draws)
        weight = n / len(batch)
        rows = frame.scaled(X[batch], y[batch])
        evaluations = [Evaluation(Prior(kernel, p, Z), *rows, weight) for p in points]
        statistics = mean_statistics([e.statistics for e in evaluations])
        annealing = cosine_annealing(step, n_steps)
        rate = max(_NATURAL_RATE * annealing, _LAST_NATURAL_RATE, 1.0 / (step + 1.0))
        q = natural_gradient_step(q, statistics.information, statistics.shift, rate)
        gradient = np.stack([e.gradient(q) for e in evaluations]) / len(points)
        if family is None:
            gradient = gradient[0]
        else:
            gradient = family.pull_back(x, gradient, draws) - family.kl(x)[1]
        x, adam = adam_ascent(x, gradient, adam, settings.learning_rate * annealing)
        if bounds is not None:
            x = np.clip(x, *bounds.T)
    return x


def _batches(
    n: int, settings: StochasticSettings, rng: np.random.RandomState
) -> Iterator[NDArray[np.intp]]:
    """Rows of each mini-batch, every row once in a pass."""
    n_batches = -(-n // settings.batch_size)
    for _ in range(settings.n_passes):
        for batch in np.array_split(rng.permutation(n), n_batches):
            yield np.sort(batch)  # a memory map is read in order
