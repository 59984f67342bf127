"""What the new rows of a stream that keeps rows change besides its steps: points, and the noise.

See :doc:`/theory/decoupled`, "New places".
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array, inverse_from_cholesky, jittered_cholesky
from skvbgp.decoupled._basis import Basis, BasisKernel
from skvbgp.decoupled._state import State
from skvbgp.decoupled._variational_process import Rows, expect

#: Jitter of the points that are compared, of which some are nearly copies of others.
_JITTER = 1e-6
#: A new point has to be worth so many times what one that goes is worth.
_LEAST_GAIN = 10.0


class Sample(NamedTuple):
    """Rows, old and new, that stand for all rows of a stream."""

    rows: Rows  # each counts for those that it stands for, too
    familiar: Array  # (n,) share of the variance that was explained before the new rows came

    @property
    def mean_familiarity(self) -> float:
        """Average over all rows that these stand for."""
        return float(np.average(self.familiar, weights=self.rows.counts))


def choose_points(
    kernel: BasisKernel, basis: Basis, new: Basis, rows: Array, counts: Array, size: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which points (m,) of a basis stay, and which new ones (c,) join it.

    All of them explain most of the rows' prior variance. Again and again the one goes without which
    the least of it is lost, until no more than ``size`` are left. The rows (n, d) count as often as
    ``counts`` (n,) say.
    """
    m, points = len(basis), basis.joined(new)
    stays = np.ones(len(points), dtype=bool)
    L = jittered_cholesky(kernel(points, points), "covariance of basis points", jitter=_JITTER)
    P = inverse_from_cholesky(L)
    W = kernel(Basis(rows), points) @ P  # of the rows' regression on the points
    worth = np.where(np.arange(len(points)) < m, 1.0, 1.0 / _LEAST_GAIN)
    for _ in range(len(points) - size):
        losses = worth * (counts @ W**2) / np.diagonal(P)
        i = int(np.argmin(np.where(stays, losses, np.inf)))
        stays[i] = False
        share = P[i] / P[i, i]  # the others take over what the point has explained
        W -= W[:, i, None] * share
        P -= P[i, :, None] * share
        P[i, i] = 1.0
    return stays[:m], stays[m:]


def refit_noise(state: State, sample: Sample) -> State:
    """The state with the noise after a step of EM, as rows in familiar places say.

    What is not yet explained of a new place would look like noise.
    """
    p = state.parameters
    if not len(p.noise):
        return state
    rows, likelihood = sample.rows, state.model.likelihood
    mean, variance = state.posterior.process.moments(rows.X)
    expected, *_ = expect(likelihood, p.noise, rows, mean, variance)
    average = np.average(expected.dtheta, axis=0, weights=rows.counts * sample.familiar)
    return replace(state, parameters=replace(p, noise=likelihood.refit(p.noise, average)))
