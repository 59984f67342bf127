"""Adapter from scikit-learn's kernel objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from skvbgp.kernels._base import Kernel
from skvbgp.kernels._compose import Product, Sum
from skvbgp.kernels._constant import Constant, White
from skvbgp.kernels._linear import Linear
from skvbgp.kernels._params import has_name
from skvbgp.kernels._periodic import Periodic
from skvbgp.kernels._stationary import RBF, Matern, RationalQuadratic


def name_kernel(entry: Any) -> tuple[str, Kernel]:
    """Name and kernel of what the user gives; a kernel without a name is called as it prints."""
    if has_name(entry):
        name, kernel = entry
        return name, as_kernel(kernel)
    kernel = as_kernel(entry)
    return repr(entry), kernel


def as_kernel(kernel: Any) -> Kernel:
    """Return one of this package's kernels as it is, or the equal of a scikit-learn kernel.

    Values, bounds and fixed hyperparameters are taken over, and a scalar length scale remains one
    shared by all the inputs, as it is in scikit-learn. The order of `theta` may differ.

    Parameters
    ----------
    kernel : Kernel or sklearn.gaussian_process.kernels.Kernel
        From scikit-learn: RBF, Matern (nu 0.5, 1.5, 2.5 or inf), RationalQuadratic,
        ExpSineSquared, DotProduct, ConstantKernel, WhiteKernel and their sums and products.

    Returns
    -------
    kernel : Kernel

    Raises
    ------
    TypeError
        If it is neither, or of another class.
    ValueError
        If it is a Matern kernel of another `nu`.

    Examples
    --------
    >>> from sklearn.gaussian_process import kernels
    >>> from skvbgp.kernels import as_kernel
    >>> as_kernel(2.0 * kernels.RBF([1.0, 3.0], length_scale_bounds="fixed"))
    Constant(value=2.0) * RBF(length_scale=(1.0, 3.0), length_scale_bounds='fixed')
    """
    if isinstance(kernel, Kernel):
        return kernel
    converters = _map_converters()
    if type(kernel) not in converters:  # a subclass may well have another formula
        supported = ", ".join(cls.__name__ for cls in converters)
        raise TypeError(
            "kernel must be a kernel of skvbgp.kernels or one of scikit-learn's "
            f"{supported}; got {kernel!r} of type {type(kernel).__name__}."
        )
    return converters[type(kernel)](kernel)


@cache
def _map_converters() -> dict[type, Callable[[Any], Kernel]]:
    """Map each supported class of scikit-learn, imported on first use, to its converter."""
    from sklearn.gaussian_process import kernels

    return {
        kernels.RBF: lambda k: RBF(**_length_scale(k)),
        kernels.Matern: _matern,
        kernels.RationalQuadratic: lambda k: RationalQuadratic(
            **_length_scale(k), alpha=k.alpha, alpha_bounds=k.alpha_bounds
        ),
        kernels.ExpSineSquared: lambda k: Periodic(
            **_length_scale(k), period=k.periodicity, period_bounds=k.periodicity_bounds
        ),
        kernels.DotProduct: lambda k: Linear(
            length_scale_bounds="fixed",
            offset=k.sigma_0,
            offset_bounds=k.sigma_0_bounds,
            isotropic=True,
        ),
        kernels.ConstantKernel: _constant,
        kernels.WhiteKernel: lambda k: White(
            k.noise_level, noise_level_bounds=k.noise_level_bounds
        ),
        kernels.Sum: lambda k: Sum(as_kernel(k.k1), as_kernel(k.k2)),
        kernels.Product: lambda k: Product(as_kernel(k.k1), as_kernel(k.k2)),
    }


def _constant(kernel: Any) -> Kernel:
    value = kernel.constant_value
    if isinstance(value, Kernel):  # what scikit-learn's operators make of what is not theirs
        raise TypeError(
            f"{value!r} cannot be added to a kernel of scikit-learn, nor multiplied with one: "
            "convert that one first, by as_kernel."
        )
    return Constant(value, value_bounds=kernel.constant_value_bounds)


def _matern(kernel: Any) -> Kernel:
    if kernel.nu == float("inf"):
        return RBF(**_length_scale(kernel))
    return Matern(**_length_scale(kernel), nu=kernel.nu)


def _length_scale(kernel: Any) -> dict[str, Any]:
    """Return the keywords of the length scale; a single one is shared by all the inputs."""
    isotropic = not getattr(kernel, "anisotropic", False)
    length_scale = np.asarray(kernel.length_scale)
    return {
        "length_scale": length_scale.item() if isotropic else length_scale,
        "length_scale_bounds": kernel.length_scale_bounds,
        "isotropic": isotropic,
    }
