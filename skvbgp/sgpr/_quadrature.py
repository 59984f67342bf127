"""How the expectations over Lambda are taken: in closed form, or over which draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from skvbgp._core.linalg import Array


class HasShape(Protocol):
    """Rows (n, d), of which draws need no more."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def quasi_normal(n_draws: int, d: int, seed: int) -> Array:
    """Standard normal points (n_draws, d) that fill space evenly, in antithetic pairs."""
    half = -(-n_draws // 2)
    generator = np.random.default_rng(seed)
    points = qmc.Halton(d, scramble=True, seed=generator).random(half)  # `rng=` is SciPy 1.15's
    normal = ndtri(np.clip(points, 1e-12, 1.0 - 1e-12))  # (half, d)
    return np.concatenate([normal, -normal])[:n_draws]


@dataclass(frozen=True)
class ClosedForm:
    """Appendix C's expressions."""

    def __call__(self, rows: HasShape, rng: np.random.RandomState) -> None:
        return None


@dataclass(frozen=True)
class CommonDraws:
    """The same draws for all rows and all time: the bound is a deterministic function."""

    draws: Array  # (S, d)

    def __call__(self, rows: HasShape, rng: np.random.RandomState) -> Array:
        return self.draws[:, None, :]


@dataclass(frozen=True)
class FreshDraws:
    """One new draw for every row, or for every block: unbiased, and cheapest."""

    correlated: bool

    def __call__(self, rows: HasShape, rng: np.random.RandomState) -> Array:
        n, d = rows.shape
        return rng.standard_normal((1, 1 if self.correlated else n, d))


DrawRule = ClosedForm | CommonDraws | FreshDraws
