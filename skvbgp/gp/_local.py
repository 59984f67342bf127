"""What neighbours say of places: of many places in one call, each from its own neighbours.

A hundred neighbours take longer to be called for than to be computed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from skvbgp._core.linalg import Array, Bordered, factorise_bordered
from skvbgp.gp._conditional import leave_told
from skvbgp.gp._coregion import Covariance
from skvbgp.gp._row_noise import RowNoise
from skvbgp.gp._stack import measure_stack

if TYPE_CHECKING:
    from skvbgp.gp._process import Process


def measure_matrices(processes: Sequence[Process], X: Array) -> dict[Covariance, Array]:
    """By kernel of processes: the matrices (b, n, n) of some sets of rows (b, n, d)."""
    kernels = {process.covariance for process in processes}
    return {kernel: measure_stack(kernel, X) for kernel in kernels}


def predict_from_matrices(
    processes: Sequence[Process], K: dict[Covariance, Array], y: Array, known: RowNoise | None
) -> Array:
    """What processes say of b places, (b, C, 4), see `predict_places`.

    Those with the same kernel share its matrices.
    """
    lines = [predict_places(one, K[one.covariance], y, known)[0] for one in processes]
    return np.stack(lines, axis=1)


def predict_places(
    process: Process, K: Array, y: Array, known: RowNoise | None
) -> tuple[Array, Bordered]:
    """A line (4,) for each of b places, and what they were made from.

    Mean and variance of the latent function, its noise and the log evidence. K (b, n + 1, n + 1) is
    the kernel's of the neighbours, the nearest one last, and the place. The neighbours have targets
    (b, n), and maybe what is known of their noise.

    The entries of L^-1 y are standardised innovations: how far each row is from what those before
    it say. The nearest rows are the last, and the scale follows their innovations.
    """
    prior, k = K[:, -1, -1], K[:, -1, :-1]
    noise = np.broadcast_to(process.spread_noise(known), y.shape)
    bordered = factorise_bordered(K, y[:, None], noise)
    a, innovations = bordered.place, bordered.targets[:, 0]
    log_diagonal = np.log(np.diagonal(bordered.factor, axis1=1, axis2=2))
    share = process.count_nearest(y.shape[1])
    summary = process.summarise(innovations, log_diagonal, known, share)
    spread, evidence = process.follow(summary)
    least = leave_told(prior, np.sum(k**2 / noise, axis=1))
    variance = np.maximum(prior - np.sum(a**2, axis=1), least)
    lines = np.empty((len(y), 4))
    lines[:, 0], lines[:, 1] = np.sum(innovations * a, axis=1), spread * variance
    lines[:, 2], lines[:, 3] = spread * process.noise, evidence
    return lines, bordered
