"""What the parameter `kernel` of the flagships says: which kernels, and in which units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates, RunningScale, check_unit
from skvbgp.kernels import Kernel
from skvbgp.kernels._compose import Composite
from skvbgp.kernels._sklearn import name_kernel


def is_auto(kernel: Any) -> bool:
    """Whether kernels are searched for."""
    if isinstance(kernel, str) and kernel != "auto":
        raise ValueError(f"kernel must be 'auto', a kernel or a list; got {kernel!r}.")
    return isinstance(kernel, str)


def count_known(estimator: Any) -> int:
    """Kernels of an estimator's last fit, if a warm start may go on from them."""
    is_known = estimator.warm_start and hasattr(estimator, "_state")
    return int(estimator._state.n_kernels) if is_known else 0


def name_kernels(kernel: Any) -> list[tuple[str, Kernel]]:
    """Names and kernels that the user gives."""
    if not isinstance(kernel, Sequence):
        return [name_kernel(kernel)]
    pairs = [name_kernel(entry) for entry in kernel]
    if not pairs:
        raise ValueError("kernel must not be an empty list.")
    return pairs


def frame_inputs(
    inputs: RunningScale, owners: tuple[int, ...] = (), *, standardised: bool
) -> Coordinates:
    """Units of unit variance, or those of X; columns that share an owner keep these."""
    check_unit(inputs.unit, "X")
    scale = inputs.unit if standardised else np.ones(len(inputs.mean))
    if owners:
        scale = np.where(np.bincount(owners)[list(owners)] > 1, 1.0, scale)
    return Coordinates(inputs.mean, scale)


def bind_columns(kernel: Kernel, d: int, owners: tuple[int, ...]) -> Kernel:
    """A given kernel for d columns, which speaks of the inputs that these encode."""
    if not owners:
        return kernel.bind(d)
    return take_inputs(kernel.bind(max(owners) + 1), list(owners))


def find_first_columns(d: int, owners: tuple[int, ...]) -> Index:
    """Of d columns, the first one that encodes each input."""
    return np.unique(owners or range(d), return_index=True)[1]


def express_by_input(kernel: Any, scale: Array, owners: tuple[int, ...]) -> Any:
    """A kernel of columns in units of ``scale`` (d,) as one of the inputs, in theirs."""
    kernel = express_in_units(kernel, scale)
    return take_inputs(kernel, find_first_columns(len(scale), owners)) if owners else kernel


def number_categories(X: Array, owners: tuple[int, ...]) -> Array:
    """One column for each input, whose numbers differ where those of rows (n, d) do."""
    parts = [X[:, np.array(owners) == one] for one in dict.fromkeys(owners)]
    columns = [part[:, 0] if part.shape[1] == 1 else part.argmax(axis=1) for part in parts]
    return np.column_stack(columns) if owners else X


def take_inputs(kernel: Any, index: Any) -> Any:
    """The same kernel of other inputs, each with the hyperparameters of one of its own."""
    if isinstance(kernel, Composite):
        return type(kernel)(*(take_inputs(part, index) for part in kernel.kernels))
    values: dict[str, Any] = {}
    for name in getattr(kernel, "_per_input", ()):
        value, bounds = np.asarray(getattr(kernel, name)), getattr(kernel, f"{name}_bounds")
        if value.ndim:
            values[name] = value[index]
            is_vector = not isinstance(bounds, str) and np.ndim(bounds) == 2
            values[f"{name}_bounds"] = np.asarray(bounds)[index] if is_vector else bounds
    return replace(kernel, **values) if values else kernel


def express_in_units(kernel: Any, scale: Array) -> Any:
    """The same kernel for inputs that are ``scale`` times as large, one factor for each."""
    if isinstance(kernel, Composite):
        return type(kernel)(*(express_in_units(part, scale) for part in kernel.kernels))
    if not hasattr(kernel, "length_scale") or np.all(scale == 1.0):
        return kernel
    fixed = {"length_scale_bounds": "fixed", "isotropic": False}
    return replace(kernel, length_scale=np.asarray(kernel.length_scale) * scale, **fixed)
