"""The kernels that kernel="auto" chooses from, and where their training starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.gp._coregion import Coregion
from skvbgp.gp._process import START_SLOPE, Process
from skvbgp.kernels import RBF, Constant, Kernel, Matern, Product, RationalQuadratic, Sum

#: Limits of hyperparameters, for inputs and targets of unit variance.
_LENGTH_SCALES = (1e-2, 1e4)
_AMPLITUDES = (1e-4, 1e4)
_SHAPES = (0.1, 100.0)
#: Where training starts.
_START_NOISE, _START_DOF = 0.1, 20.0
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


def make_leaves(d: int, *, isotropic: bool) -> list[tuple[str, Kernel]]:
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


def make_base_kernels(d: int) -> list[tuple[str, Kernel]]:
    """Names and kernels of the first round of a regression."""
    leaves = make_leaves(d, isotropic=False)
    return [(name, (_amplitude(1.0) * leaf).bind(d)) for name, leaf in leaves]


def start_process(
    kernel: Kernel,
    *,
    gaussian: bool,
    n_gaps: int = 0,
    owners: tuple[int, ...] = (),
    n_outputs: int = 0,
) -> Process:
    """A process of this kernel before training, where some inputs may be missing.

    And rows may be of several outputs.
    """
    slopes = (START_SLOPE,) * n_gaps
    dof = np.inf if gaussian else _START_DOF
    coregion = Coregion.start(n_outputs) if n_outputs else None
    return Process(kernel, _START_NOISE, dof, slopes, owners, coregion)


def follow(name: str, process: Process, before: str, trained: Process) -> Process:
    """Start of a base process from one with another kernel that has been trained.

    Inputs matter as much to the one as to the other.
    """
    ratio = np.log(_TYPICAL_LENGTHS[name] / _TYPICAL_LENGTHS[before])
    log_lengths = np.log(_leaf(trained.kernel).length_scale)
    amplitude, leaf = _amplitude(_value(trained.kernel)), _leaf(process.kernel)
    shift = log_lengths - np.log(leaf.length_scale) + ratio
    return replace(trained, kernel=Product(amplitude, _stretch(leaf, shift)))


def multiply(first: Process, second: Process, rng: np.random.RandomState) -> Process:
    """Start of the product of two trained processes.

    Each input's length scale is stretched in one of the factors, at random, and shrunk in the other
    one: at equal length scales the factors would stay equal.
    """
    d = len(np.atleast_1d(_leaf(first.kernel).length_scale))
    signs = rng.choice([-1.0, 1.0], d)
    factors = [
        _stretch(_leaf(process.kernel), 0.5 * np.log(2.0) + sign * _APART * signs)
        for process, sign in ((first, 1.0), (second, -1.0))
    ]
    kernel = Product(_amplitude(_value(first.kernel)), *factors)
    return replace(first, kernel=kernel)


def add(first: Process, second: Process, rng: np.random.RandomState) -> Process:
    """Start of the sum of two trained processes: of equal parts, the second one of longer scale."""
    d = len(np.atleast_1d(_leaf(first.kernel).length_scale))
    terms = [
        Product(
            _amplitude(0.5 * _value(process.kernel)),
            _stretch(_leaf(process.kernel), np.full(d, stretch)),
        )
        for process, stretch in ((first, 0.0), (second, 2.0 * _APART))
    ]
    return replace(first, kernel=Sum(*terms))


def _amplitude(value: float) -> Constant:
    return Constant(float(np.clip(value, *_AMPLITUDES)), value_bounds=_AMPLITUDES)


def _leaf(kernel: Any) -> Any:
    """The kernel of a base process, amplitude times leaf, without its amplitude."""
    return kernel.kernels[1]


def _value(kernel: Any) -> float:
    return float(kernel.kernels[0].value)


def _stretch(leaf: Any, log_factor: Array) -> Any:
    theta = leaf.theta.copy()
    theta[: len(log_factor)] += log_factor  # the length scales come first
    return leaf.with_theta(np.clip(theta, *leaf.bounds.T))
