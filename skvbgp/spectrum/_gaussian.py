r"""Gaussian q(alpha) over alpha = vec(theta, s), and its prior.

Lemma 1 of [Hoang2017]_: alpha = M z + b with standard normal z. M is lower triangular, which
loses nothing for normal z, and the inverse of M M' is kept as well, because each of its groups
is a sum over the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skvbgp._core.linalg import (
    Array,
    cholesky,
    log_determinant,
    pack_lower,
    tril_inverse,
    unpack_symmetric,
)
from skvbgp._core.pickling import PickledByFields


@dataclass(frozen=True)
class Structure:
    """Which entries of alpha depend on one another in q."""

    m: int  # frequencies
    d: int  # inputs
    #: One Gaussian of everything; independent r_1, ..., r_m and s; or theta without any
    #: uncertainty.
    posterior: str

    @property
    def size(self) -> int:
        """Length of alpha."""
        return self.m * (self.d + 2)

    @property
    def weights(self) -> slice:
        """Where s is in alpha."""
        return slice(self.m * self.d, self.size)

    @cached_property
    def groups(self) -> tuple[slice, ...]:
        """Entries that depend on one another."""
        if self.posterior == "joint":
            return (slice(0, self.size),)
        d = self.d
        return (*(slice(i * d, (i + 1) * d) for i in range(self.m)), self.weights)

    @property
    def random_groups(self) -> range:
        """Indices of the groups that are uncertain."""
        n = len(self.groups)
        return range(n - 1, n) if self.posterior == "point" else range(n)

    def frequencies(self, alpha: Array) -> Array:
        return alpha[: self.m * self.d].reshape(self.m, self.d)

    def curvatures(self, J: Array) -> list[Array]:
        """J' J, group by group."""
        return [J[:, group].T @ J[:, group] for group in self.groups]


@dataclass(frozen=True)
class Prior:
    """p(alpha): r_i ~ N(0, 1 / (2 pi l)^2), s ~ N(0, signal_variance / m)."""

    structure: Structure
    precision: Array  # (D,)

    @classmethod
    def of(cls, structure: Structure, length_scale: Array, signal_variance: float) -> Prior:
        precision = np.empty(structure.size)
        structure.frequencies(precision)[:] = (2.0 * np.pi * length_scale) ** 2
        precision[structure.weights] = structure.m / signal_variance
        return cls(structure, precision)

    @property
    def mean(self) -> Array:
        return np.zeros(self.structure.size)

    @property
    def precisions(self) -> tuple[Array, ...]:
        """By group, as those of a `Gaussian`."""
        return tuple(np.diag(self.precision[group]) for group in self.structure.groups)

    def times_precision(self, vector: Array) -> Array:
        return self.precision * vector


class Affine(ABC):
    """q(alpha) as alpha = M z + b: what M and b alone are enough for."""

    structure: Structure
    mean: Array  # b, (D,)

    @property
    @abstractmethod
    def factors(self) -> tuple[Array, ...]:
        """M of each group, lower triangular with a positive diagonal."""

    def sample(self, Z: Array) -> Array:
        """M z + b for each row of Z, (S, D)."""
        alpha = np.tile(self.mean, (len(Z), 1))
        for k in self.structure.random_groups:
            group = self.structure.groups[k]
            alpha[:, group] += Z[:, group] @ self.factors[k].T
        return alpha

    def second_moment(self) -> Array:
        """E[alpha^2], entry by entry, (D,)."""
        moment = self.mean**2
        for k in self.structure.random_groups:
            moment[self.structure.groups[k]] += np.sum(self.factors[k] ** 2, axis=1)
        return moment

    def cholesky(self, units: Array) -> Array:
        """M as one matrix, (D, D), in units (D,); zero where q is certain."""
        M = np.zeros((self.structure.size,) * 2)
        for k in self.structure.random_groups:
            group = self.structure.groups[k]
            M[group, group] = self.factors[k] * units[group, None]
        return M

    def kl_to(self, prior: Prior) -> float:
        """KL(self || prior) of what is uncertain."""
        moment, total = self.second_moment(), 0.0
        for k in self.structure.random_groups:
            precision = prior.precision[self.structure.groups[k]]
            total += float(precision @ moment[self.structure.groups[k]] - np.sum(np.log(precision)))
            total -= len(precision) + log_determinant(self.factors[k])
        return 0.5 * total


@dataclass(frozen=True)
class Gaussian(PickledByFields, Affine):
    """N(mean, M M'), by the precision of each group."""

    structure: Structure
    mean: Array  # (D,)
    precisions: tuple[Array, ...]  # by group

    def __getstate__(self) -> dict[str, Any]:
        """Of each precision one triangle."""
        return super().__getstate__() | {"precisions": tuple(map(pack_lower, self.precisions))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, precisions=tuple(map(unpack_symmetric, state["precisions"])))

    @cached_property
    def factors(self) -> tuple[Array, ...]:
        """M of each group, lower triangular with M M' = precision^-1."""
        return tuple(
            # With the entries in reverse order the Cholesky factor is the transposed one.
            tril_inverse(cholesky(P[::-1, ::-1], "precision of q(alpha)"))[::-1, ::-1].T
            for P in self.precisions
        )

    def at_frequencies(self, R: Array) -> Gaussian:
        """The same spread around other frequencies."""
        return replace(self, mean=np.concatenate([R.ravel(), self.mean[self.structure.weights]]))

    def solve(self, vector: Array) -> Array:
        """Every group's covariance times its part of a vector."""
        pairs = zip(self.factors, self.structure.groups, strict=True)
        return np.concatenate([M @ (M.T @ vector[group]) for M, group in pairs])

    def times_precision(self, vector: Array) -> Array:
        """Every group's precision times its part of a vector."""
        parts = [P @ vector[g] for P, g in zip(self.precisions, self.structure.groups, strict=True)]
        return np.concatenate(parts)
