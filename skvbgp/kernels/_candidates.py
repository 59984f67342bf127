"""The kernels that searches choose from, and what grows out of the best two.

A kernel of the first round is the product of an amplitude and a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels._anova import Anova
from skvbgp.kernels._base import Kernel
from skvbgp.kernels._compose import Product, Sum
from skvbgp.kernels._constant import Constant
from skvbgp.kernels._linear import Linear
from skvbgp.kernels._stationary import RBF, Matern, RationalQuadratic

#: A kernel and what it is called.
Named = tuple[str, Kernel]
#: Signs (d,) by which length scales of two factors are moved apart, of every start of a product.
Divide = Callable[[Kernel, Kernel], list[Array]]

#: Limits of hyperparameters, for inputs and targets of unit variance.
_LENGTH_SCALES = (1e-2, 1e4)
_AMPLITUDES = (1e-4, 1e4)
_SHAPES = (0.1, 100.0)
#: Length scales of kernels that explain the same rows, by experience.
_TYPICAL_LENGTHS = {
    "Matern-1/2": 1.0,
    "Matern-3/2": 0.25,
    "Matern-5/2": 0.15,
    "RQ": 0.12,
    "SE": 0.1,
}
#: Spread of the logarithms that tells the length scales of two equal factors apart.
_APART = 0.7
#: Length scale of an ANOVA kernel before training.
_ANOVA_LENGTH = 2.0
#: The kernel that has one length scale for all inputs, too.
_ISOTROPIC = "Matern-5/2"
#: How far lines reach until they fade, in length scales of a kernel before training.
_REACH = 10.0


def make_leaves(d: int, *, isotropic: bool) -> list[Named]:
    """Names and kernels without an amplitude, with one length scale or with one per input."""
    scale: dict[str, Any] = {
        "length_scale": float(np.sqrt(d)),
        "length_scale_bounds": _LENGTH_SCALES,
        "isotropic": isotropic,
    }
    return [
        ("Matern-1/2", Matern(nu=0.5, **scale)),
        ("Matern-3/2", Matern(nu=1.5, **scale)),
        ("Matern-5/2", Matern(nu=2.5, **scale)),
        ("RQ", RationalQuadratic(alpha_bounds=_SHAPES, **scale)),
        ("SE", RBF(**scale)),
    ]


def make_anova_kernel() -> Kernel:
    """Start of functions of single inputs, of pairs and so on, of inputs of unit variance."""
    limits: dict[str, Any] = {
        "length_scale_bounds": _LENGTH_SCALES,
        "variance_bounds": _AMPLITUDES,
    }
    return Anova(_ANOVA_LENGTH, isotropic=True, **limits)


def make_base_kernels(d: int, unit: Array | None = None) -> list[Named]:
    """Names and kernels of the first round of a regression, for inputs of spread ``unit`` (d,)."""
    leaves: list[tuple[str, Any]] = make_leaves(d, isotropic=False)
    if unit is not None:
        bounds = np.outer(unit, _LENGTH_SCALES)
        leaves = [
            (name, replace(leaf, length_scale=np.sqrt(d) * unit, length_scale_bounds=bounds))
            for name, leaf in leaves
        ]
    return [(name, (_amplitude(1.0) * leaf).bind(d)) for name, leaf in leaves]


def follow(name: str, kernel: Kernel, before: str, trained: Kernel) -> Kernel:
    """Start of a kernel of the first round from another one that has been trained.

    Inputs matter as much to the one as to the other.
    """
    ratio = np.log(_TYPICAL_LENGTHS[name] / _TYPICAL_LENGTHS[before])
    log_lengths = np.log(_leaf(trained).length_scale)
    amplitude, leaf = _amplitude(_value(trained)), _leaf(kernel)
    shift = log_lengths - np.log(leaf.length_scale) + ratio
    return Product(amplitude, _stretch(leaf, shift))


def combine(
    best: Sequence[Named], divide: Divide, *, few: bool
) -> Iterator[tuple[str, int, list[Kernel]]]:
    """Products and sums of the two best kernels of the first round, which have been trained.

    Each with its name, the number of the one that it goes on from, and its starts, those of a
    product as `divide` says. With ``few``, only the products that the best one is part of.
    """
    pairs = [(0, 0), (0, 1)]
    for i, j in pairs if few else [*pairs, (1, 1)]:
        (a, first), (b, second) = best[i], best[j]
        ways = divide(first, second)
        yield f"{a} * {b}", i, [multiply(first, second, _APART * way) for way in ways]
    for i, j in [] if few else pairs:
        (a, first), (b, second) = best[i], best[j]
        yield f"{a} + {b}", i, [add(first, second)]


def divide_at_random(rng: np.random.RandomState) -> Divide:
    """One way to divide inputs among factors, another one for each product."""

    def divide(first: Kernel, second: Kernel) -> list[Array]:
        return [rng.choice([-1.0, 1.0], count_length_scales(first))]

    return divide


def count_length_scales(kernel: Kernel) -> int:
    """Of a kernel of the first round."""
    return len(np.atleast_1d(_leaf(kernel).length_scale))


def multiply(first: Kernel, second: Kernel, apart: Array) -> Kernel:
    """Start of the product of two kernels that have been trained.

    The logarithms of the length scales are raised by `apart` (d,) in one of the factors, and
    lowered in the other one: at equal length scales the factors would stay equal.
    """
    factors = [
        _stretch(_leaf(kernel), 0.5 * np.log(2.0) + way * apart)
        for kernel, way in ((first, 1.0), (second, -1.0))
    ]
    return Product(_amplitude(_value(first)), *factors)


def add(first: Kernel, second: Kernel) -> Kernel:
    """Start of the sum of two trained kernels: of equal parts, the second one of longer scale."""
    d = count_length_scales(first)
    terms = [
        Product(_amplitude(0.5 * _value(kernel)), _stretch(_leaf(kernel), np.full(d, stretch)))
        for kernel, stretch in ((first, 0.0), (second, 2.0 * _APART))
    ]
    return Sum(*terms)


def add_lines(name: str, kernel: Kernel, d: int, factor: float = 1.0) -> Named:
    """Start of a trained kernel plus straight lines of d inputs.

    Their slopes have one variance, so that they cost one hyperparameter.
    """
    return f"{name} + LIN", Sum(kernel, _lines(d, factor))


def steepen(total: Any, factor: float) -> Kernel:
    """The start of `add_lines` with steeper lines, and next to nothing of a product besides."""
    product, lines = total.kernels
    rest = Product(_amplitude(0.0), *product.kernels[1:])
    return Sum(rest, Product(_amplitude(factor * _value(lines)), _leaf(lines)))


def add_fading_lines(name: str, kernel: Kernel, d: int) -> Named:
    """The same for inputs of unit variance, of lines that fade where all rows are far away."""
    length_scale = _REACH * float(np.sqrt(d))
    fading = RBF(length_scale, length_scale_bounds="fixed", isotropic=True)
    return f"{name} + LIN", Sum(kernel, Product(_lines(d), fading))


def make_isotropic_kernel(base: Kernel) -> Named:
    """Start of one length scale for all inputs, which are those of a kernel of the first round."""
    d = len(_leaf(base).length_scale)
    leaf = dict(make_leaves(d, isotropic=True))[_ISOTROPIC]
    return f"{_ISOTROPIC} isotropic", Product(_amplitude(1.0), leaf).bind(d)


def _lines(d: int, factor: float = 1.0) -> Kernel:
    fixed: dict[str, Any] = {"length_scale_bounds": "fixed", "offset_bounds": "fixed"}
    return Product(_amplitude(factor / d), Linear(offset=0.0, isotropic=True, **fixed))


def _amplitude(value: float) -> Constant:
    return Constant(float(np.clip(value, *_AMPLITUDES)), value_bounds=_AMPLITUDES)


def _leaf(kernel: Any) -> Any:
    """A kernel of the first round without its amplitude."""
    return kernel.kernels[1]


def _value(kernel: Any) -> float:
    return float(kernel.kernels[0].value)


def _stretch(leaf: Any, log_factor: Array) -> Any:
    theta = leaf.theta.copy()
    theta[: len(log_factor)] += log_factor  # the length scales come first
    return leaf.with_theta(np.clip(theta, *leaf.bounds.T))
