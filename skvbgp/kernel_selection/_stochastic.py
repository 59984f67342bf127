"""Stochastic ascent of one local bound, Sec. 4.1 of [Teng2020]_."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._optim.adam import AdamState, adam_ascent
from skvbgp._optim.ascent import Clock, ascend
from skvbgp._optim.natural_gradient import natural_gradient_step
from skvbgp.kernel_selection._affine_gaussian import AffineGaussian
from skvbgp.kernel_selection._bound import Evaluation, Prior, average_statistics
from skvbgp.kernel_selection._scales import Frame
from skvbgp.kernels import Kernel

#: Step of the natural gradient on q(u): at first, and at the end of training.
_NATURAL_RATE = 0.1
_LAST_NATURAL_RATE = 0.01


class StochasticSettings(NamedTuple):
    """How mini-batches are used."""

    batch_size: int
    n_passes: int
    learning_rate: float


class _Iterate(NamedTuple):
    """Where the ascent stands."""

    x: Array
    q: WhitenedGaussian
    adam: AdamState


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
    n_batches = -(-n // settings.batch_size)

    def draw_batches() -> Iterator[NDArray[np.intp]]:
        for batch in np.array_split(rng.permutation(n), n_batches):
            yield np.sort(batch)  # a memory map is read in order

    def step(at: _Iterate, batch: NDArray[np.intp], clock: Clock) -> tuple[_Iterate, float]:
        if family is None:
            points = at.x[None, :]
        else:
            draws = rng.standard_normal((1, len(family.prior_mean)))
            points = family.points(at.x, draws)
        rows = frame.scale(X[batch], y[batch])
        evaluations = [Evaluation(Prior(kernel, p, Z), *rows, n / len(batch)) for p in points]
        statistics = average_statistics([e.statistics for e in evaluations])
        rate = max(_NATURAL_RATE * clock.annealing, _LAST_NATURAL_RATE, 1.0 / (clock.step + 1.0))
        q = natural_gradient_step(at.q, statistics.information, statistics.shift, rate)
        gradient = np.stack([e.gradient(q) for e in evaluations]) / len(points)
        if family is None:
            gradient = gradient[0]
        else:
            gradient = family.pull_back(at.x, gradient, draws) - family.kl(at.x)[1]
        x, adam = adam_ascent(at.x, gradient, at.adam, settings.learning_rate * clock.annealing)
        if bounds is not None:
            x = np.clip(x, *bounds.T)
        return _Iterate(x, q, adam), statistics.bound(q)

    start = _Iterate(x, WhitenedGaussian.standard(len(Z)), AdamState.zeros(len(x)))
    reached: _Iterate = ascend(
        step, start, draw_batches, n_passes=settings.n_passes, n_batches=n_batches
    ).state
    return reached.x
