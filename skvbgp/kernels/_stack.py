"""A kernel of the same pairs of rows at several hyperparameters, which a search compares.

What is small takes longer to be called than to be computed: all hyperparameters take one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from operator import iadd, imul
from typing import Any

import numpy as np

from skvbgp.kernels._base import Array, Kernel
from skvbgp.kernels._compose import Product, Sum
from skvbgp.kernels._constant import Constant
from skvbgp.kernels._distance import centre
from skvbgp.kernels._linear import Linear
from skvbgp.kernels._periodic import Periodic
from skvbgp.kernels._stationary import RBF, Matern, RationalQuadratic

#: Entries of what is kept of the pairs, at most.
_MOST_ENTRIES = 2**20


class Grid:
    """Pairs of rows X (n, d) and Z (m, d); None stands for X itself."""

    def __init__(self, X: Array, Z: Array | None = None) -> None:
        self.X, self.Z = X, Z
        self.left, self.right = centre(X, Z)  # (n, d), (m, d)

    @property
    def n_pairs(self) -> int:
        return len(self.left) * len(self.right)

    @cached_property
    def squares(self) -> Array:
        """Squared differences in each input, (d, n m)."""
        return self._each(np.subtract) ** 2

    @cached_property
    def products(self) -> Array:
        """Products in each input, (d, n m)."""
        return self._each(np.multiply)

    def _each(self, operation: np.ufunc) -> Array:
        sides = (self.X.T, (self.X if self.Z is None else self.Z).T)
        return np.array([operation.outer(x, z).ravel() for x, z in zip(*sides, strict=True)])

    def evaluate(self, kernels: Sequence[Kernel]) -> Array:
        """k(X, Z) of one kernel at s hyperparameters, (s, n, m)."""
        few = self.n_pairs * self.X.shape[1] <= _MOST_ENTRIES
        values = _stack(kernels, self) if few else _stack_any(kernels, self)
        every = np.broadcast_to(values, (len(kernels), self.n_pairs))
        return every.reshape(len(kernels), len(self.left), len(self.right))


def _stack(kernels: Sequence[Kernel], grid: Grid) -> Array:
    """Values (s, t) of all pairs, or (s, 1) if they are equal, which may be overwritten."""
    # by the very class: one that inherits may have another covariance
    return _STACKS.get(type(kernels[0]), _stack_any)(kernels, grid)


def _stack_parts(kernels: Sequence[Sum] | Sequence[Product], grid: Grid) -> Array:
    operation = iadd if isinstance(kernels[0], Sum) else imul
    parts = (_stack(part, grid) for part in zip(*(k.kernels for k in kernels), strict=True))
    values = sorted(parts, key=lambda part: -part.shape[1])
    return reduce(operation, values)


def _stack_stationary(kernels: Sequence[RBF] | Sequence[Matern], grid: Grid) -> Array:
    return kernels[0]._radial(_rates(kernels, "length_scale", grid) ** 2 @ grid.squares)


def _stack_rational(kernels: Sequence[RationalQuadratic], grid: Grid) -> Array:
    r2 = _rates(kernels, "length_scale", grid) ** 2 @ grid.squares
    return np.array([k._radial(row) for k, row in zip(kernels, r2, strict=True)])


def _stack_periodic(kernels: Sequence[Periodic], grid: Grid) -> Array:
    if kernels[0].isotropic:
        return _stack_any(kernels, grid)
    radius = _rates(kernels, "length_scale", grid)[:, None]  # (s, 1, d)
    rate = 2.0 * np.pi * _rates(kernels, "period", grid)[:, None]
    left, right = (
        np.concatenate([radius * np.cos(angles), radius * np.sin(angles)], axis=2)
        for angles in (rate * grid.left, rate * grid.right)
    )
    # -|a - a'|^2 / 2 = a . a' - sum_i 1 / l_i^2 of points on circles of radius 1 / l
    values = (left @ right.swapaxes(1, 2)).reshape(len(kernels), -1)
    values -= np.sum(radius**2, axis=2)
    return np.exp(values, out=values)


def _stack_linear(kernels: Sequence[Linear], grid: Grid) -> Array:
    values = _rates(kernels, "length_scale", grid) ** 2 @ grid.products
    values += np.array([[k.offset**2] for k in kernels])
    return values


def _stack_constant(kernels: Sequence[Constant], grid: Grid) -> Array:
    return np.array([[k.value] for k in kernels])


def _stack_any(kernels: Sequence[Kernel], grid: Grid) -> Array:
    return np.array([k(grid.X, grid.Z).ravel() for k in kernels])


def _rates(kernels: Sequence[Any], name: str, grid: Grid) -> Array:
    """One over a hyperparameter, for each input (s, d)."""
    values = np.array([getattr(k, name) for k in kernels])
    return 1.0 / np.broadcast_to(values.reshape(len(kernels), -1), (len(kernels), grid.X.shape[1]))


_STACKS: dict[type, Callable[[Any, Grid], Array]] = {
    Sum: _stack_parts,
    Product: _stack_parts,
    RBF: _stack_stationary,
    Matern: _stack_stationary,
    RationalQuadratic: _stack_rational,
    Periodic: _stack_periodic,
    Linear: _stack_linear,
    Constant: _stack_constant,
}
