"""Bounds without their gradients, which cost as much again, at many hyperparameters of a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from skvbgp._core.evidence import own_log_evidence
from skvbgp._core.linalg import Array, NotPositiveDefiniteError
from skvbgp.base import Targets
from skvbgp.kernel_selection._bound import Evaluation, Prior, add_known, parameters
from skvbgp.kernel_selection._categories import AnyKernel
from skvbgp.kernels._stack import Grid

#: Entries of the kernel at several hyperparameters, that stay in the cache of a core.
_MOST_ENTRIES = 2**16


class Comparison:
    """Rows by which hyperparameters of kernels are compared.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : Targets
    Z : ndarray of shape (m, d) or None
        Inducing inputs; None stands for Z = X.
    """

    def __init__(self, X: Array, y: Targets, Z: Array | None = None) -> None:
        self._y, self._rows = y, Grid(X, Z)
        self._inducing = None if Z is None else Grid(Z)

    def bounds(self, kernel: AnyKernel, points: Sequence[Array]) -> Array:
        """The bound at each x, (S,); -inf where it fails."""
        values = np.full(len(points), -np.inf)
        size = max(1, _MOST_ENTRIES // self._rows.n_pairs)
        for start in range(0, len(points), size):
            for i, value in self._measure(kernel, points, range(start, start + size)):
                values[i] = value
        return np.where(np.isfinite(values), values, -np.inf)

    def _measure(
        self, kernel: AnyKernel, points: Sequence[Array], some: range
    ) -> Iterator[tuple[int, float]]:
        """Bounds of those of the points that have one."""
        learned = {}
        for i in some[: len(points) - some.start]:
            with suppress(NotPositiveDefiniteError):
                learned[i] = parameters(kernel, points[i])
        if not learned:
            return
        kernels = [given for given, _ in learned.values()]
        K = self._rows.evaluate(kernels)
        K_inducing = [None] * len(K) if self._inducing is None else self._inducing.evaluate(kernels)
        for i, K_rows, K_own in zip(learned, K, K_inducing, strict=True):
            with suppress(NotPositiveDefiniteError):
                yield i, self._weigh(kernel, points[i], learned[i][1], K_rows, K_own)

    def _weigh(
        self, kernel: AnyKernel, x: Array, noise: float, K: Array, K_inducing: Array | None
    ) -> float:
        X, y, Z = self._rows.X, self._y, self._rows.Z
        if Z is None:
            return own_log_evidence(K, y.y, add_known(noise, y), y.weight, exact=True)
        return Evaluation(Prior(kernel, x, Z, K_inducing), X, y, K=K).statistics.highest_bound
