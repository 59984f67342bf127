"""Kernels of columns, some of which encode one input together, as kernels of the inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.owners import Owners, find_first_columns, spread_inputs
from skvbgp.kernels._base import Kernel
from skvbgp.kernels._compose import Composite


def bind_columns(kernel: Kernel, d: int, owners: Owners) -> Kernel:
    """A given kernel for d columns, which speaks of the inputs that these encode."""
    if not owners:
        return kernel.bind(d)
    return take_inputs(kernel.bind(max(owners) + 1), list(owners))


def express_by_input(kernel: Any, scale: Array, owners: Owners) -> Any:
    """A kernel of columns in units of ``scale`` (d,) as one of the inputs, in theirs."""
    return join_columns(express_in_units(kernel, scale), owners)


def join_columns(kernel: Any, owners: Owners) -> Any:
    """A kernel of columns as one of the inputs that these encode."""
    return take_inputs(kernel, find_first_columns(len(owners), owners)) if owners else kernel


def name_by_input(kernel: Kernel, owners: Owners) -> list[str]:
    """Names of the kernel's theta; hyperparameters that columns of an input share have the same."""
    names = kernel.hyperparameters
    if not owners:
        return names
    pairs = [name.rstrip("]").partition("[") for name in names]
    return [f"{stem}[{owners[int(i)]}]" if i else stem for stem, _, i in pairs]


def own_hyperparameters(kernel: Kernel, owners: Owners) -> Owners:
    """By entry of theta: the number of its hyperparameter, in the order in which they are there."""
    names = name_by_input(kernel, owners)
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return tuple(numbers[name] for name in names)


def share_hyperparameters(kernel: Kernel, owners: Owners) -> Kernel:
    """The kernel whose columns of an input have the hyperparameters of the first one of them."""
    if not owners:
        return kernel
    numbers = own_hyperparameters(kernel, owners)
    first = find_first_columns(len(numbers), numbers)
    return kernel.with_theta(spread_inputs(kernel.theta[first], numbers))


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
