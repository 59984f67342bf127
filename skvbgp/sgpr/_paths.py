r"""Draws of the function, by pathwise conditioning.

Given theta = (Lambda, sigma_f), f(x) = sigma_f g(Lambda x), where g has unit variance and unit
length scales. A draw g0 of its prior, from random features, becomes one of the posterior by the
correction that its values at some rotated places Z ask for,

    f(x) = sigma_f [ g0(Lambda x) + k(Lambda x, Z) c ].

Of a sparse posterior, c = Sigma^-1 (s - g0(Z)) with a draw s of the inducing outputs; of an exact
one, where Z are the rows, c = sigma_f C^-1 (y - sigma_f g0(Z) - e) with a draw e of their noise.
See :doc:`/theory/prediction`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from skvbgp._core.draws import join_members
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp.base import ScaledDraws
from skvbgp.kernels import RBF
from skvbgp.kernels._features import (
    FREQUENCIES,
    Features,
    PriorPaths,
    draw_features,
    share_functions,
)
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._slopes import se_slopes


@dataclass(frozen=True)
class Paths:
    """Functions s of scaled rows that have Lambda and random frequencies in common."""

    Lambda: Array  # (d,)
    scale: Array | float  # sigma_f, (s,) or of all
    prior: PriorPaths  # of rotated rows
    Z: Array  # (m, d) rotated
    corrections: Array  # (m, s)

    def __call__(self, X: Array) -> Array:
        """Values (n, s) at scaled rows."""
        x = X * self.Lambda
        return self.scale * (self.prior(x) + unit_se(x, self.Z) @ self.corrections)

    def gradient(self, X: Array) -> Array:
        """Derivatives (n, d, s)."""
        x = X * self.Lambda
        corrections = [dK @ self.corrections for dK in se_slopes(x, self.Z)]
        prior = np.array([self.prior.gradient(row) for row in x])
        slopes = prior + np.stack(corrections, axis=1)
        return self.scale * self.Lambda[:, None] * slopes


@dataclass(frozen=True)
class FunctionDraws(ScaledDraws):
    """Functions S from the posterior of one output, on the scale of y."""

    sets: tuple[tuple[Index, Paths], ...]  # which of all functions they are

    def _evaluate(self, X: Array) -> Array:
        return self._gather([paths(X) for _, paths in self.sets])

    def _differentiate(self, X: Array) -> Array:
        return self._gather([paths.gradient(X) for _, paths in self.sets])

    def _gather(self, parts: list[Array]) -> Array:
        return join_members([members for members, _ in self.sets], parts)


def draw_unit_functions(d: int, s: int, rng: np.random.RandomState) -> PriorPaths:
    """Functions s of rotated rows a priori."""
    return PriorPaths(draw_unit_features(d, rng), rng.standard_normal((2 * FREQUENCIES, s)))


def draw_unit_features(d: int, rng: np.random.RandomState) -> Features:
    """Features of `unit_se`."""
    return draw_features(RBF(1.0), d, FREQUENCIES, rng)


def share_points(n: int, k: int, rng: np.random.RandomState) -> Iterator[tuple[int, Index]]:
    """Sets of some of n functions, and which of k points of theta each set goes by."""
    return share_functions(n, np.full(k, 1.0 / k), rng)
