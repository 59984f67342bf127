"""Kernels of the same pairs of rows at many hyperparameters.

What depends on the rows alone is kept. `Pairs` are for training, which asks for one matrix after
the other: a matrix is its lower triangle, row by row, and the gradient in the hyperparameters goes
back through the values that are there already. `Grid` is for a search that compares several
hyperparameters: what is small takes longer to be called than to be computed, so that all of them
take one call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.linalg import Array, pack_lower, unpack_lower
from skvbgp.kernels._base import Kernel
from skvbgp.kernels._compose import Product, Sum
from skvbgp.kernels._constant import Constant
from skvbgp.kernels._distance import centre, factors, squared_distances
from skvbgp.kernels._linear import Linear
from skvbgp.kernels._periodic import Periodic
from skvbgp.kernels._stationary import (
    RBF,
    Matern,
    RationalQuadratic,
    Split,
    multiply,
    shares_exponential,
)

#: Rows up to which triangles beat blocks; inputs of which the differences of rows are kept, and
#: entries of a grid.
_FEW_ROWS, _FEW_INPUTS, _MOST_IN_GRID = 512, 4, 2**20
#: Gradient in theta (p,) from a cotangent (t,): of log k, if the kernel is positive, and else of k.
#: It leaves that as it is, and is to be called once.
_Pull = Callable[[Array], Array]


class _InEachInput(ABC):
    """What t pairs of rows have in each of d inputs."""

    @cached_property
    def squares(self) -> Array:
        """Squared differences, (d, t)."""
        return self._each(np.subtract) ** 2

    @cached_property
    def products(self) -> Array:
        """Products, (d, t)."""
        return self._each(np.multiply)

    @abstractmethod
    def _each(self, operation: np.ufunc) -> Array:
        """What an operation makes of all pairs, (d, t)."""


class Pairs(_InEachInput):
    """Pairs i >= j of rows X (n, d), t = n (n + 1) / 2 of them."""

    def __init__(self, X: Array) -> None:
        self.X = X

    def _each(self, operation: np.ufunc) -> Array:
        return np.array([pack_lower(operation.outer(x, x)) for x in self.X.T])

    @cached_property
    def _centred(self) -> Array:
        """The rows (n, d), whose distances are rounded less."""
        return centre(self.X, None)[0]

    def measure_distances(self, length_scale: Any) -> tuple[Array, _Pull]:
        """r^2 (t,), and its gradient in the logarithms of the length scales (d,)."""
        n, d = self.X.shape
        if d <= _FEW_INPUTS:
            squares, precision = self.squares, np.full(d, length_scale) ** -2.0
            return precision @ squares, lambda dr2: -2.0 * precision * (squares @ dr2)
        A = self._centred / np.asarray(length_scale)  # (n, d)

        def pull(dr2: Array) -> Array:
            # sum_ij W_ij (a_i - a_j)^2, in every input
            W = unpack_lower(dr2, n)
            ends = W.sum(axis=0) + W.sum(axis=1)
            return 4.0 * np.sum(A * (W @ A), axis=0) - 2.0 * (ends @ A**2)

        return pack_lower(squared_distances(*factors(A, A), own=0)), pull

    def multiply_inputs(self, length_scale: Any) -> tuple[Array, _Pull]:
        """Sums of products over squared length scales (t,), and the same gradient."""
        n, d = self.X.shape
        if d <= _FEW_INPUTS:
            products, precision = self.products, np.full(d, length_scale) ** -2.0
            return precision @ products, lambda dv: -2.0 * precision * (products @ dv)
        A = self.X / np.asarray(length_scale)
        return pack_lower(A @ A.T), lambda dv: -2.0 * np.sum(A * (unpack_lower(dv, n) @ A), axis=0)

    @cached_property
    def _n_entries(self) -> Array:
        """How many entries of the matrix are a pair's, 2 or 1, (t,)."""
        return pack_lower(2.0 - np.eye(len(self.X)))

    def evaluate(self, kernel: Kernel) -> tuple[Array, Callable[[Array], Array]]:
        """k(X, X) (n, n), of which what is above the diagonal may be missing, and its gradient.

        The latter, in theta (p,) from a symmetric cotangent (n, n), is to be called once.
        """
        n = len(self.X)
        if n > _FEW_ROWS:
            return evaluate_once(kernel, self.X)
        values, pull, is_positive = _trace(kernel, self)

        def pull_back(dK: Array) -> Array:
            d_values = pack_lower(dK)
            d_values *= self._n_entries
            if is_positive:
                d_values *= values
            return pull(d_values)

        return unpack_lower(np.broadcast_to(values, n * (n + 1) // 2), n), pull_back


def evaluate_once(kernel: Kernel, X: Array) -> tuple[Array, Callable[[Array], Array]]:
    """The same as `Pairs.evaluate`, for rows of which nothing is kept."""
    K = kernel(X)
    return K, lambda dK: kernel.vjp(X, None, K, dK)[0]


def evaluate_rows(
    kernel: Kernel, X: Array, pairs: Pairs | None
) -> tuple[Array, Callable[[Array], Array]]:
    """The same for rows of which pairs may be known, or (None) nothing is kept."""
    return evaluate_once(kernel, X) if pairs is None else pairs.evaluate(kernel)


class _Trace(NamedTuple):
    """Values of a kernel, (t,) or (1,) if all are one, and its gradient."""

    values: Array
    pull: _Pull
    is_positive: bool = True


def _trace(kernel: Kernel, pairs: Pairs) -> _Trace:
    return _forms_of(kernel)[0](kernel, pairs)


def _trace_sum(kernel: Sum, pairs: Pairs) -> _Trace:
    parts = [_trace(k, pairs) for k in kernel.kernels]

    def pull(d: Array) -> Array:
        return np.concatenate([p.pull(d * p.values if p.is_positive else d) for p in parts])

    return _Trace(_fold(np.add, [p.values for p in parts]), pull, is_positive=False)


def _trace_product(kernel: Product, pairs: Pairs) -> _Trace:
    together = {i: k for i, k in enumerate(kernel.kernels) if shares_exponential(k)}
    alone = {i: _trace(k, pairs) for i, k in enumerate(kernel.kernels) if i not in together}
    shared, pulls = _trace_exponentials(list(together.values()), pairs)
    values = _fold(np.multiply, [*shared, *(p.values for p in alone.values())])
    is_positive = all(p.is_positive for p in alone.values())

    def pull(d: Array) -> Array:
        dlog = d if is_positive else d * values  # that of every positive factor's logarithm
        gradients = {i: pull_one(dlog) for i, pull_one in zip(together, pulls, strict=True)}
        for i, part in alone.items():
            others = [*shared, *(p.values for p in alone.values() if p is not part)]
            gradients[i] = part.pull(dlog if part.is_positive else _fold(np.multiply, [d, *others]))
        return np.concatenate([gradients[i] for i in range(len(kernel.kernels))])

    return _Trace(values, pull, is_positive)


def _fold(operation: np.ufunc, values: list[Array]) -> Array:
    """All values (..., t) or (..., 1) joined, in few arrays."""
    largest, *others = sorted(values, key=np.size, reverse=True)
    if not others:
        return largest
    result: Array = operation(largest, others[0])
    for other in others[1:]:
        operation(result, other, out=result)
    return result


def _trace_exponential(kernel: RBF | Matern | RationalQuadratic, pairs: Pairs) -> _Trace:
    (values,), (pull,) = _trace_exponentials([kernel], pairs)
    return _Trace(values, pull)


def _trace_exponentials(
    kernels: Sequence[RBF | Matern | RationalQuadratic], pairs: Pairs
) -> tuple[list[Array], list[_Pull]]:
    """The product of kernels, if there are any, with one exponential; and the gradient of each."""
    traces = [_trace_radial(kernel, pairs) for kernel in kernels]
    values = [multiply(split for split, _ in traces)] if traces else []
    return values, [pull for _, pull in traces]


def _trace_radial(kernel: RBF | Matern | RationalQuadratic, pairs: Pairs) -> tuple[Split, _Pull]:
    r2, pull_distances = pairs.measure_distances(kernel.length_scale)
    split, pull_radial = kernel._trace(r2)

    def pull(dlog: Array) -> Array:
        dr2, dshape = pull_radial(dlog)
        return kernel._dtheta(length_scale=pull_distances(dr2), alpha=dshape)

    return split, pull


def _trace_periodic(kernel: Periodic, pairs: Pairs) -> _Trace:
    if kernel.isotropic:
        return _trace_any(kernel, pairs)
    # points a on circles of radius 1 / l: -|a - a'|^2 / 2 = a . a' - sum_i 1 / l_i^2
    n, d = pairs.X.shape
    angles, _ = kernel._angles(pairs.X, None)
    circles = kernel._circles(angles)  # (n, 2 d)
    precision = np.full(d, kernel.length_scale) ** -2.0
    values = pack_lower(circles @ circles.T)
    values -= precision.sum()
    np.exp(values, out=values)

    def pull(dlog: Array) -> Array:
        W = unpack_lower(dlog, n)
        dangles, dlength_scale = kernel._circles_vjp(circles, W @ circles + W.T @ circles)
        return kernel._dtheta(
            length_scale=dlength_scale + 2.0 * precision * dlog.sum(),
            period=-np.sum(angles * dangles, axis=0),
        )

    return _Trace(values, pull)


def _trace_linear(kernel: Linear, pairs: Pairs) -> _Trace:
    values, pull_products = pairs.multiply_inputs(kernel.length_scale)
    constant = kernel.offset**2
    values += constant

    def pull(d: Array) -> Array:
        return kernel._dtheta(length_scale=pull_products(d), offset=2.0 * constant * d.sum())

    return _Trace(values, pull, is_positive=False)


def _trace_constant(kernel: Constant, pairs: Pairs) -> _Trace:
    return _Trace(np.array([kernel.value]), lambda dlog: kernel._dtheta(value=dlog.sum()))


def _trace_any(kernel: Kernel, pairs: Pairs) -> _Trace:
    X = pairs.X
    K = kernel(X)

    def pull(d: Array) -> Array:
        dK = unpack_lower(d, len(X))
        return kernel.vjp(X, None, np.ones_like(K) if kernel.positive else K, dK)[0]

    return _Trace(pack_lower(K), pull, kernel.positive)


# -- several hyperparameters at once ------------------------------------------------------------


class Grid(_InEachInput):
    """Pairs of rows X (n, d) and Z (m, d); None stands for X itself."""

    def __init__(self, X: Array, Z: Array | None = None) -> None:
        self.X, self.Z = X, Z
        self.left, self.right = centre(X, Z)  # (n, d), (m, d)

    @property
    def n_pairs(self) -> int:
        return len(self.left) * len(self.right)

    def _each(self, operation: np.ufunc) -> Array:
        sides = (self.X.T, (self.X if self.Z is None else self.Z).T)
        return np.array([operation.outer(x, z).ravel() for x, z in zip(*sides, strict=True)])

    def evaluate(self, kernels: Sequence[Kernel]) -> Array:
        """k(X, Z) of one kernel at s hyperparameters, (s, n, m)."""
        few = self.n_pairs * self.X.shape[1] <= _MOST_IN_GRID
        values = _stack(kernels, self) if few else _stack_any(kernels, self)
        every = np.broadcast_to(values, (len(kernels), self.n_pairs))
        return every.reshape(len(kernels), len(self.left), len(self.right))


def _stack(kernels: Sequence[Kernel], grid: Grid) -> Array:
    """Values (s, t) of all pairs, or (s, 1) if they are equal."""
    return _forms_of(kernels[0])[1](kernels, grid)


def _stack_parts(kernels: Sequence[Sum] | Sequence[Product], grid: Grid) -> Array:
    operation = np.add if isinstance(kernels[0], Sum) else np.multiply
    parts = zip(*(k.kernels for k in kernels), strict=True)
    return _fold(operation, [_stack(part, grid) for part in parts])


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


_Forms = tuple[Callable[[Any, Pairs], _Trace], Callable[[Any, Grid], Array]]

#: With its gradient, and for several hyperparameters.
_FORMS: dict[type, _Forms] = {
    Sum: (_trace_sum, _stack_parts),
    Product: (_trace_product, _stack_parts),
    RBF: (_trace_exponential, _stack_stationary),
    Matern: (_trace_exponential, _stack_stationary),
    RationalQuadratic: (_trace_exponential, _stack_rational),
    Periodic: (_trace_periodic, _stack_periodic),
    Linear: (_trace_linear, _stack_linear),
    Constant: (_trace_constant, _stack_constant),
}


def _forms_of(kernel: Kernel) -> _Forms:
    # by the very class: one that inherits may have another covariance
    return _FORMS.get(type(kernel), (_trace_any, _stack_any))
