"""Everything the bound is maximised over, except a q(u) with natural gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp.decoupled._basis import Basis


@dataclass(frozen=True)
class Parameters:
    """Hyperparameters and bases, in scaled coordinates.

    The same class holds the gradient in each field, and Adam's moments.
    """

    theta: Array  # (p,) log hyperparameters of the prior kernel
    noise: Array  # (q,) log parameters of the likelihood
    alpha: Array  # (m_a, d) mean basis
    alpha_log_c: Array  # (m_a,) or (m_a, d) its log multipliers, of length 0 for a plain basis
    a0: Array  # (m_a, k) coefficients of each function times diag(K_alpha)
    beta: Array  # (m_b, d) covariance basis
    beta_log_c: Array  # (m_b,), (m_b, d) or of length 0
    L0: Array  # (k, m_b, m_b) lower, diag(K_beta) L with B = L L'; empty where q(u) stands for B

    @classmethod
    def without_points(
        cls, theta: Array, noise: Array, d: int, k: int, *, inputwise: bool
    ) -> Parameters:
        """Hyperparameters, and empty bases of d inputs for k functions.

        A point's multipliers, if it is to have any, are one, or ``inputwise`` one for each input.
        """
        rows, a0, L0 = np.zeros((0, d)), np.zeros((0, k)), np.zeros((k, 0, 0))
        log_c = rows if inputwise else np.zeros(0)
        return cls(theta, noise, rows, log_c, a0, rows, log_c, L0)

    @property
    def mean_basis(self) -> Basis:
        return _make_basis(self.alpha, self.alpha_log_c)

    @property
    def cov_basis(self) -> Basis:
        return _make_basis(self.beta, self.beta_log_c)

    def pack(self) -> Array:
        """One flat vector."""
        return np.concatenate([np.ravel(getattr(self, f.name)) for f in fields(self)])

    def unpack(self, x: Array) -> Parameters:
        """The parameters whose :meth:`pack` is ``x``; shapes are those of self."""
        parts, start = {}, 0
        for f in fields(self):
            like = getattr(self, f.name)
            stop = start + like.size
            parts[f.name] = x[start:stop].reshape(like.shape)
            start = stop
        return Parameters(**parts)

    def spread(self, by_name: Mapping[str, float | Array]) -> Array:
        """A flat vector of values by field, broadcast to it; 1 where a field is not named."""
        shapes = {f.name: getattr(self, f.name).shape for f in fields(self)}
        return np.concatenate(
            [np.broadcast_to(by_name.get(name, 1.0), shapes[name]).ravel() for name in shapes]
        )

    def zeros(self) -> Parameters:
        return self.unpack(np.zeros(len(self.pack())))

    def add_points(
        self, alpha: Array, beta: Array, *, generalized: bool, new_L0: float | None
    ) -> Parameters:
        """More points of both bases, with zero coefficients.

        Those of a ``generalized`` basis have the multiplier 1. ``new_L0`` is the diagonal of
        L0 at the new points, None if there is no L0.
        """
        k, present, _ = self.L0.shape
        L0, m = self.L0, present + len(beta)
        if new_L0 is not None:
            L0 = np.zeros((k, m, m))
            L0[:, :present, :present] = self.L0
            L0[:, range(present, m), range(present, m)] = new_L0
        return Parameters(
            self.theta,
            self.noise,
            np.concatenate([self.alpha, alpha]),
            _add_ones(self.alpha_log_c, len(alpha) if generalized else 0),
            np.concatenate([self.a0, np.zeros((len(alpha), k))]),
            np.concatenate([self.beta, beta]),
            _add_ones(self.beta_log_c, len(beta) if generalized else 0),
            L0,
        )

    def keep_points(self, kept: NDArray[np.intp]) -> Parameters:
        """The same with some points of the covariance basis, and their part of L0."""
        log_c, L0 = self.beta_log_c, self.L0
        return replace(
            self,
            beta=self.beta[kept],
            beta_log_c=log_c[kept] if len(log_c) else log_c,
            L0=L0[:, kept[:, None], kept] if L0.shape[1] else L0,
        )


def _add_ones(log_c: Array, k: int) -> Array:
    """Log multipliers, and those of k more points, which are 1."""
    return np.concatenate([log_c, np.zeros((k, *log_c.shape[1:]))])


def _make_basis(Z: Array, log_c: Array) -> Basis:
    return Basis(Z, log_c if len(log_c) == len(Z) else None)
