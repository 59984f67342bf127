"""Hyperparameters of the elementary kernels: values, bounds, log-vector and names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp.kernels._base import CheckedKernel
from skvbgp.kernels._distance import centre

Scales = float | Sequence[float] | NDArray[Any]  # stored as a float or a tuple of floats
Bounds = str | Sequence[Any] | NDArray[Any]  # "fixed", a pair, or one pair per element
DEFAULT_BOUNDS = (1e-5, 1e5)


@dataclass(frozen=True, repr=False)
class Leaf(CheckedKernel):
    """An elementary kernel.

    A subclass is a frozen dataclass that lists its hyperparameters in `_names` and has, for each
    of them, one field ``name`` and one field ``name_bounds``.
    """

    _names: ClassVar[tuple[str, ...]]
    _per_input: ClassVar[tuple[str, ...]] = ()  # may be vectors
    _zero_if_fixed: ClassVar[tuple[str, ...]] = ()  # may be 0, whose log must stay out of theta

    def __post_init__(self) -> None:
        for name in self._names:
            label = f"{type(self).__name__}: {name}"
            given = getattr(self, name)
            try:
                value = np.asarray(given, dtype=np.float64)
            except (TypeError, ValueError):
                raise ValueError(f"{label} must hold numbers; got {given!r}.") from None
            bounds = getattr(self, f"{name}_bounds")
            if value.ndim > (name in self._per_input) or value.size == 0:
                raise ValueError(f"{label} has shape {value.shape}.")
            zero = name in self._zero_if_fixed and isinstance(bounds, str)
            self._set_value(name, _as_tuple(value), zero)
            object.__setattr__(self, f"{name}_bounds", _check_bounds(label, bounds, value.shape))

    def bind(self, n_features: int) -> Self:
        return self

    @property
    def theta(self) -> Array:
        return np.concatenate([np.empty(0), *(np.log(value) for _, value in self._free())])

    def _take_theta(self, theta: Array, values: list[float], start: int) -> tuple[Self, int]:
        new = object.__new__(type(self))  # training does this often: what has been checked is kept
        vars(new).update(vars(self))
        for name, size in self._layout:
            stop = start + (size or 1)
            new._set_value(name, tuple(values[start:stop]) if size else values[start])
            start = stop
        return new, start

    @property
    def bounds(self) -> Array:
        pairs = [np.empty((0, 2))]
        for name, value in self._free():
            pairs.append(np.broadcast_to(getattr(self, f"{name}_bounds"), (value.size, 2)))
        with np.errstate(divide="ignore"):  # a lower bound of 0 is -inf in theta
            return np.log(np.concatenate(pairs))

    @property
    def hyperparameters(self) -> list[str]:
        return [
            f"{name}[{i}]" if isinstance(getattr(self, name), tuple) else name
            for name, value in self._free()
            for i in range(value.size)
        ]

    def __repr__(self) -> str:
        arguments = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.name in self._names or getattr(self, field.name) != field.default
        )
        return f"{type(self).__name__}({', '.join(arguments)})"

    @cached_property  # which `_take_theta` hands on
    def _layout(self) -> list[tuple[str, int]]:
        """Names of the hyperparameters in `theta`, and their lengths, 0 for a number."""
        values = ((name, getattr(self, name)) for name in self._names if not self._is_fixed(name))
        return [(name, len(v) if isinstance(v, tuple) else 0) for name, v in values]

    @cached_property
    def n_free(self) -> int:
        return sum(size or 1 for _, size in self._layout)

    def _is_fixed(self, name: str) -> bool:
        return isinstance(getattr(self, f"{name}_bounds"), str)  # "fixed", as has been checked

    def _set_value(self, name: str, value: float | tuple[float, ...], zero: bool = False) -> None:
        """Check the values of a hyperparameter, which may be 0 if `zero`, and keep them."""
        numbers = value if isinstance(value, tuple) else (value,)  # few: NumPy would take longer
        for v in numbers:
            if not (0.0 < v < np.inf or (zero and v == 0.0)):
                label = f"{type(self).__name__}: {name}"
                raise ValueError(f"{label} must be positive and finite, got {np.array(value)}.")
        vars(self)[name] = value

    def _free(self) -> Iterator[tuple[str, Array]]:
        """Yield the name and the values, as a vector, of every hyperparameter in `theta`."""
        for name, _ in self._layout:
            yield name, np.atleast_1d(getattr(self, name))

    def _dtheta(self, **gradients: Array | float) -> Array:
        """Assemble gradients in the log hyperparameters, dropping those of the fixed ones.

        A gradient with one entry per input is summed when its hyperparameter is shared.
        """
        free: list[float] = []
        for name, size in self._layout:
            gradient = gradients[name]
            if size:
                free.extend(np.ravel(gradient).tolist())
            else:
                free.append(gradient if isinstance(gradient, float) else np.sum(gradient))
        return np.array(free, dtype=np.float64)


@dataclass(frozen=True, repr=False)
class ScaledLeaf(Leaf):
    """An elementary kernel with a length scale per input, or one shared by all of them."""

    _names: ClassVar[tuple[str, ...]] = ("length_scale",)
    _per_input: ClassVar[tuple[str, ...]] = ("length_scale",)
    _always_per_input: ClassVar[tuple[str, ...]] = ()  # even those of an isotropic kernel

    length_scale: Scales = 1.0
    _: KW_ONLY
    length_scale_bounds: Bounds = DEFAULT_BOUNDS
    isotropic: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        shared = set(self._per_input) - set(self._vectors)
        if any(np.ndim(getattr(self, name)) for name in shared):
            raise ValueError(f"{self!r} is isotropic: its hyperparameters must be scalars.")

    def bind(self, n_features: int) -> Self:
        values = {name: self._scale(name, n_features) for name in self._per_input}
        vectors: dict[str, Any] = {
            name: np.broadcast_to(values[name], n_features) for name in self._vectors
        }
        return replace(self, **vectors) if vectors else self

    @property
    def _vectors(self) -> tuple[str, ...]:
        """Hyperparameters with one value per input."""
        return self._always_per_input if self.isotropic else self._per_input

    def _width(self, X: Array, Z: Array | None) -> int:
        """Return the number of features of both inputs, which have to be matrices."""
        for inputs in (X,) if Z is None else (X, Z):
            if np.ndim(inputs) != 2:
                raise ValueError(
                    f"{type(self).__name__}: inputs must have shape (n_samples, n_features); "
                    f"got {np.shape(inputs)}."
                )
            if inputs.shape[1] != X.shape[1]:
                raise ValueError(
                    f"{type(self).__name__}: the inputs have {X.shape[1]} and {inputs.shape[1]} "
                    "features."
                )
        return X.shape[1]

    def _scale(self, name: str, n_features: int) -> Array:
        """Return a hyperparameter as an array of shape () or, one per input, (n_features,)."""
        value = np.asarray(getattr(self, name))
        if value.ndim == 1 and len(value) != n_features:
            raise ValueError(
                f"{type(self).__name__}: {name} has {len(value)} entries, "
                f"but the inputs have {n_features} features."
            )
        return value

    def _scaled(self, X: Array, Z: Array | None) -> tuple[Array, Array]:
        """Return both inputs in units of the length scales."""
        length_scale = self._scale("length_scale", self._width(X, Z))
        A = X / length_scale
        return A, A if Z is None else Z / length_scale

    def _centre_and_scale(self, X: Array, Z: Array | None) -> tuple[Array, Array]:
        """Return both inputs centred and in units of the length scales."""
        self._width(X, Z)
        A, B = centre(X, Z)
        return self._scaled(A, None if Z is None else B)

    def _pull_inputs(self, Z: Array | None, dA: Array, dB: Array) -> tuple[Array, Array | None]:
        """Pull cotangents of the inputs in units of the length scales back to the inputs."""
        if Z is None:
            return (dA + dB) / self.length_scale, None
        return dA / self.length_scale, dB / self.length_scale


def _check_bounds(label: str, bounds: Bounds, shape: tuple[int, ...]) -> Any:
    """Return the bounds of a hyperparameter of that shape in hashable form."""
    if isinstance(bounds, str) and bounds == "fixed":
        return bounds
    try:
        array = np.asarray(bounds, dtype=np.float64)
    except ValueError:
        array = np.empty(0)
    if array.shape == (1, 2):
        array = array[0]
    if array.shape not in {(2,), (*shape, 2)}:
        raise ValueError(
            f"{label}_bounds must be 'fixed', a pair, or one pair per element, got {bounds!r}."
        )
    lower, upper = array[..., 0], array[..., 1]
    if not np.all((lower >= 0) & (lower <= upper)):
        raise ValueError(f"{label}_bounds must satisfy 0 <= lower <= upper, got {bounds!r}.")
    return _as_tuple(array)


def _as_tuple(array: Array) -> Any:
    """Return a number, or nested tuples of numbers: values that compare and hash."""
    if array.ndim < 2:
        return tuple(array.tolist()) if array.ndim else array.item()
    return tuple(map(_as_tuple, array))
