"""Draws of the function: of a kernel each, with one draw of its hyperparameters.

A draw g of the prior from random features becomes f(x) = g(x) + k(x, Z) c, where c replaces its
values at the inducing inputs with a draw of q(u). See :doc:`/theory/kernel_selection`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skvbgp._core.blockwise import by_tile
from skvbgp._core.draws import join_members
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.parallel import single_blas_thread
from skvbgp.kernel_selection._bound import Prior
from skvbgp.kernel_selection._scales import Frame
from skvbgp.kernels import Kernel
from skvbgp.kernels._features import FREQUENCIES, PriorPaths, draw_features


class Paths(NamedTuple):
    """Functions s of centred rows that have a kernel and random features in common."""

    members: Index  # which of all functions they are
    frame: Frame
    kernel: Kernel
    Z: Array  # (m, d) centred
    prior: PriorPaths
    corrections: Array  # (m, s)

    @classmethod
    def draw(
        cls,
        members: Index,
        frame: Frame,
        prior: Prior,
        q: WhitenedGaussian,
        rng: np.random.RandomState,
    ) -> Paths:
        s, Z = len(members), prior.Z
        features = draw_features(prior.kernel, Z.shape[1], FREQUENCIES, rng)
        known = features(Z)
        weights = rng.standard_normal((known.shape[1], s))
        corrections = prior.L_inv.T @ (q.draw(s, rng) - prior.L_inv @ (known @ weights))
        return cls(members, frame, prior.kernel, Z, PriorPaths(features, weights), corrections)

    def evaluate(self, X: Array) -> Array:
        """The transform of y (n, s) that the functions say, at rows in the user's units."""
        X = self.frame.centre(X)
        f = self.prior(X) + self.kernel(X, self.Z) @ self.corrections
        return self.frame.target.original(f)

    def __call__(self, X: Array) -> Array:
        """Values (n, s) of y."""
        return self.frame.target.inverse(self.evaluate(X))

    def gradient(self, X: Array) -> Array:
        """Derivatives (n, d, s) of y."""
        target = self.frame.target
        centred = self.frame.centre(X)
        told = np.swapaxes(self.kernel.gradient(centred, self.Z), 1, 2) @ self.corrections
        slopes = told + np.array([self.prior.gradient(x) for x in centred])
        return target.unit * target.inverse_slope(self.evaluate(X))[:, None] * slopes


@dataclass(frozen=True)
class FunctionDraws:
    """Functions S from the posterior of one output, on the scale of y."""

    sets: tuple[Paths, ...]

    def __call__(self, X: Array) -> Array:
        """Values (n, S)."""
        return self._join(X, [paths.__call__ for paths in self.sets])

    def gradient(self, X: Array) -> Array:
        """Derivatives (n, d, S), in units of y over those of each input."""
        return self._join(X, [paths.gradient for paths in self.sets])

    def _join(self, X: Array, functions: list[Callable[[Array], Array]]) -> Array:
        members = [paths.members for paths in self.sets]
        with single_blas_thread:
            return by_tile(lambda X: join_members(members, [f(X) for f in functions]), X)


def measure_slopes(prior: Prior, q: WhitenedGaussian, X: Array) -> tuple[Array, Array, Array]:
    """Of the scaled function at centred rows: slopes' mean, covariance with f and variance, (n, d).

    Given the hyperparameters of a draw.
    """
    kernel = prior.kernel
    excess = q.covariance - np.eye(len(q.mean))
    B = prior.L_inv @ kernel.gradient(X, prior.Z)  # (n, m, d)
    A = prior.whiten(X) @ excess  # (n, m)
    _, prior_slope = kernel.vjp_diag(X, np.ones(len(X)))
    together = 0.5 * prior_slope + (A[:, None, :] @ B)[:, 0]
    own = kernel.curvature(X)
    variance = own + np.einsum("nmd,nmd->nd", np.einsum("ml,nld->nmd", excess, B), B)
    return q.mean @ B, together, np.maximum(variance, 1e-10 * own)
