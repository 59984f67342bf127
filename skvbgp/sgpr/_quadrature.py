"""How the expectations over Lambda are taken: in closed form, or over which draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import hadamard

from skvbgp._core.linalg import Array

#: Points of `make_sign_draws`.
_MOST_SIGNS = 32


def make_sign_draws(d: int) -> Array:
    """Points (S, d) of +-1 that give the second derivatives along the axes exactly.

    Columns of a Hadamard matrix: the sum over points of e_j e_k is zero for j != k, so that mixed
    derivatives drop out, and that of e_j is, too. From 32 inputs on, columns are used again.
    """
    order = min(_MOST_SIGNS, 2 ** int(np.ceil(np.log2(d + 1))))
    columns = 1 + np.arange(d) % (order - 1)
    return np.asarray(hadamard(order)[:, columns], dtype=np.float64)


@dataclass(frozen=True)
class ClosedForm:
    """Appendix C's expressions."""

    common = None  # draws of all rows

    def __call__(self, shape: tuple[int, ...], rng: np.random.RandomState) -> None:
        return self.common


@dataclass(frozen=True)
class CommonDraws:
    """The same draws for all rows and all time: the bound is a deterministic function."""

    draws: Array  # (S, d)

    @property
    def common(self) -> Array:
        """(S, 1, d)."""
        return self.draws[:, None, :]

    def __call__(self, shape: tuple[int, ...], rng: np.random.RandomState) -> Array:
        return self.common


@dataclass(frozen=True)
class FreshDraws:
    """One new draw for every row, or for every block: unbiased, and cheapest."""

    correlated: bool

    def __call__(self, shape: tuple[int, ...], rng: np.random.RandomState) -> Array:
        n, d = shape
        return rng.standard_normal((1, 1 if self.correlated else n, d))


#: Rules by which the bound is a deterministic function.
FixedRule = ClosedForm | CommonDraws
#: Draws (S, n or 1, d) for rows of the shape (n, d), or None.
DrawRule = FixedRule | FreshDraws
