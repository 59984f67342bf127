"""Sums and products of kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from math import prod
from numbers import Real
from operator import add, iadd, imul
from typing import Any, Self

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import cut
from skvbgp.kernels._base import CheckedKernel, Gradients, Kernel
from skvbgp.kernels._constant import Constant
from skvbgp.kernels._distance import radial
from skvbgp.kernels._stationary import Exponential, multiply_at, shares_exponential

#: Rows of which all pairs take less time than as many calls.
_OWN_ROWS = 32


@dataclass(frozen=True, init=False, repr=False)
class Composite(CheckedKernel):
    """Several kernels combined by one associative operation; nested ones are flattened."""

    kernels: tuple[Kernel, ...]

    def __init__(self, *kernels: Kernel) -> None:
        if len(kernels) < 2 or not all(isinstance(k, Kernel) for k in kernels):
            raise TypeError(f"{type(self).__name__} takes at least two kernels, got {kernels!r}.")
        groups = (k.kernels if isinstance(k, type(self)) else (k,) for k in kernels)
        object.__setattr__(self, "kernels", tuple(k for group in groups for k in group))

    @abstractmethod
    def _combine(self, values: Iterable[Array]) -> Array:
        """Return the value of the combination; the first value may be overwritten."""

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        return self._combine(k(X, Z) for k in self.kernels)

    def diag(self, X: Array) -> Array:
        return self._combine(k.diag(X) for k in self.kernels)

    @property
    def theta(self) -> Array:
        return np.concatenate([k.theta for k in self.kernels])

    def _take_theta(self, theta: Array, values: list[float], start: int) -> tuple[Self, int]:
        kernels = []
        for k in self.kernels:
            new, start = k._take_theta(theta, values, start)
            kernels.append(new)
        composite = object.__new__(type(self))  # training does this often
        vars(composite).update(vars(self), kernels=tuple(kernels))
        return composite, start

    @property
    def bounds(self) -> Array:
        return np.concatenate([k.bounds for k in self.kernels])

    @property
    def hyperparameters(self) -> list[str]:
        return [f"{i}.{name}" for i, k in enumerate(self.kernels) for name in k.hyperparameters]

    @cached_property  # which `_take_theta` hands on
    def n_free(self) -> int:
        return sum(k.n_free for k in self.kernels)

    def bind(self, n_features: int) -> Self:
        return type(self)(*(k.bind(n_features) for k in self.kernels))

    @property
    def _parts(self) -> dict[str, Any]:
        return {f"k{i}": k for i, k in enumerate(self.kernels, start=1)}

    def _with_parts(self, parts: dict[str, Any]) -> Self:
        return type(self)(*parts.values())


class Sum(Composite):
    """Sum of kernels, what ``k1 + k2`` makes.

    Parameters
    ----------
    *kernels : Kernel
        Two or more terms. Sums among them are flattened.

    Examples
    --------
    >>> from skvbgp.kernels import RBF, White
    >>> kernel = RBF(2.0) + White(0.1)
    >>> kernel
    RBF(length_scale=2.0) + White(noise_level=0.1)
    >>> kernel.hyperparameters
    ['0.length_scale', '1.noise_level']
    """

    def _combine(self, values: Iterable[Array]) -> Array:
        return reduce(iadd, values)

    def vjp(self, X: Array, Z: Array | None, K: Array, dK: Array) -> Gradients:
        return _join(k.vjp(X, Z, k(X, Z), dK) for k in self.kernels)

    def vjp_diag(self, X: Array, ddiag: Array) -> tuple[Array, Array]:
        return _join((*k.vjp_diag(X, ddiag), None) for k in self.kernels)[:2]

    def gradient(self, X: Array, Z: Array) -> Array:
        return reduce(add, (k.gradient(X, Z) for k in self.kernels))

    def curvature(self, X: Array) -> Array:
        return reduce(add, (k.curvature(X) for k in self.kernels))

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.kernels))


class Product(Composite):
    """Product of kernels, what ``k1 * k2`` makes.

    Parameters
    ----------
    *kernels : Kernel
        Two or more factors. Products among them are flattened.

    Examples
    --------
    >>> from skvbgp.kernels import RBF, White
    >>> kernel = 2.0 * (RBF() + White(0.1))
    >>> kernel
    Constant(value=2.0) * (RBF(length_scale=1.0) + White(noise_level=0.1))
    >>> kernel.hyperparameters
    ['0.value', '1.0.length_scale', '1.1.noise_level']
    """

    @property
    def positive(self) -> bool:
        return all(k.positive for k in self.kernels)

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        exponential, constant, others = self._groups
        if not exponential:
            return super().__call__(X, Z)
        inputs = [k._centre_and_scale(X, Z) for k in exponential]
        K = radial(lambda *r2: multiply_at(exponential, constant, r2), *inputs)
        return self._combine([K, *(k(X, Z) for k in others)])

    @property  # not a cached one, which `_take_theta` would hand on
    def _groups(self) -> tuple[list[Exponential], float, list[Kernel]]:
        """Factors that may share one exponential, the product of the constants, and the others."""
        exponential: list[Exponential] = [k for k in self.kernels if shares_exponential(k)]
        others = [k for k in self.kernels if not shares_exponential(k)]
        constants = [k.value for k in others if type(k) is Constant]
        return exponential, prod(constants), [k for k in others if type(k) is not Constant]

    def _combine(self, values: Iterable[Array]) -> Array:
        return reduce(imul, values)

    def vjp(self, X: Array, Z: Array | None, K: Array, dK: Array) -> Gradients:
        # The factors' logarithms add up to log K: those of positive factors have its cotangent
        # dK * K. Only the others ask for the values of the factors.
        values = [] if self.positive else [k(X, Z) for k in self.kernels]
        return _join(
            k.vjp(X, Z, K, dK)
            if k.positive
            else k.vjp(X, Z, values[i], _times_others(dK, values, i))
            for i, k in enumerate(self.kernels)
        )

    def vjp_diag(self, X: Array, ddiag: Array) -> tuple[Array, Array]:
        values = [k.diag(X) for k in self.kernels]
        return _join(
            (*k.vjp_diag(X, _times_others(ddiag, values, i)), None)
            for i, k in enumerate(self.kernels)
        )[:2]

    def gradient(self, X: Array, Z: Array) -> Array:
        shape = (*X.shape[:-1], len(Z), 1)
        values = [k(np.atleast_2d(X), Z).reshape(shape) for k in self.kernels]
        return reduce(
            iadd,
            (
                k.gradient(X, Z) * _times_others(np.ones(shape), values, i)
                for i, k in enumerate(self.kernels)
            ),
        )

    def curvature(self, X: Array) -> Array:
        # with value v, slope s = dk/dx = dk/dx' and curvature c of two factors at x' = x, those of
        # the product are v v', s v' + s' v and c v' + c' v + 2 s s'
        value, slope, curvature = np.ones((len(X), 1)), np.zeros_like(X), np.zeros_like(X)
        for k in self.kernels:  # without noise, which k(x, Z) never has
            v, s = (_map_own(one, X) for one in (k, k.gradient))
            v, c = v[:, None], k.curvature(X)
            curvature = _multiply(curvature, v) + _multiply(c, value) + 2.0 * slope * s
            value, slope = value * v, slope * v + s * value
        return curvature

    def __repr__(self) -> str:
        return " * ".join(f"({k!r})" if isinstance(k, Sum) else repr(k) for k in self.kernels)


def leaves(kernel: Kernel) -> list[Any]:
    """The elementary kernels that a kernel is made of, in the order of theta."""
    if isinstance(kernel, Composite):
        return [leaf for part in kernel.kernels for leaf in leaves(part)]
    return [kernel]


def list_terms(kernel: Kernel) -> list[list[Any]]:
    """The elementary factors of each term of a kernel that is multiplied out."""
    if isinstance(kernel, Sum):
        return [term for part in kernel.kernels for term in list_terms(part)]
    if isinstance(kernel, Product):
        choices = product(*(list_terms(part) for part in kernel.kernels))
        return [[leaf for term in terms for leaf in term] for terms in choices]
    return [leaves(kernel)]


def _combine_operands(operation: str, *operands: Kernel | float) -> Kernel:
    """Return the Sum or Product of two operands; numbers become `Constant` kernels."""
    for operand in operands:
        if not isinstance(operand, Kernel | Real):
            raise TypeError(
                f"A kernel combines with kernels of skvbgp.kernels and numbers, got {operand!r}; "
                "as_kernel converts those of scikit-learn."
            )
    kernels = (k if isinstance(k, Kernel) else Constant(k) for k in operands)
    return Sum(*kernels) if operation == "+" else Product(*kernels)


Kernel._combine_operands = staticmethod(_combine_operands)


def _times_others(cotangent: Array, values: Sequence[Array], i: int) -> Array:
    """Return the cotangent of the i-th factor given that of the product."""
    first, *others = (*values[:i], *values[i + 1 :])
    return reduce(imul, others, cotangent * first)


def _map_own(function: Callable[[Array, Array], Array], X: Array) -> Array:
    """What a function of pairs of rows says of each and itself, (n, ...), some rows at a time."""
    parts = (function(X[rows], X[rows]) for rows in cut(len(X), _OWN_ROWS))
    return np.concatenate([np.einsum("ii...->i...", part) for part in parts])


def _multiply(curvature: Array, value: Array) -> Array:
    """Return the product (n, d), in which a value (n, 1) of zero outweighs what is infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(value == 0.0, 0.0, curvature * value)


def _join(gradients: Iterable[Gradients]) -> Gradients:
    """Concatenate the gradients in theta of several kernels, and add up those in the inputs."""
    dtheta, dX, dZ = zip(*gradients, strict=True)
    return np.concatenate(dtheta), reduce(iadd, dX), None if dZ[0] is None else reduce(iadd, dZ)
