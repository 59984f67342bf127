"""Kernels of columns that encode categories, as functions of what the columns of one share.

Any two categories of an input are equally far from one another, which is all that a kernel may know
of them: a squared exponential, rational quadratic or Matern kernel has one length scale for the
columns of an input, and a linear one gives each category an effect of its own, with one variance
for all. A periodic kernel winds a column around a circle. Entries of a column differ by nothing or
by the distance of two categories, so that period and length scale say the same, and the period is
held where categories are opposite each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.owners import Owners, find_shared
from skvbgp.kernels import Kernel
from skvbgp.kernels._by_input import bind_columns, join_columns, own_hyperparameters

#: Where two categories, whose columns differ by the root of 1/2, are half a period apart.
_PERIOD = float(np.sqrt(2.0))


@dataclass(frozen=True)
class SharedKernel:
    """A kernel of columns, by the hyperparameters that are learned, each of them once."""

    columns: Kernel  # bound to the columns
    owners: Owners  # by column: the input that it encodes

    @cached_property
    def _is_learned(self) -> NDArray[np.bool_]:
        """Which entries of the columns' theta are learned: all but the periods of categories."""
        shared = find_shared(len(self.owners), self.owners)
        pairs = [name.rstrip("]").partition("[") for name in self.columns.hyperparameters]
        fixed = [stem.endswith("period") and bool(i) and shared[int(i)] for stem, _, i in pairs]
        return ~np.array(fixed, dtype=bool)

    @cached_property
    def _numbers(self) -> Index:
        """By entry of the columns' theta that is learned: which hyperparameter it is."""
        numbers = np.array(own_hyperparameters(self.columns, self.owners), dtype=np.intp)
        return np.unique(numbers[self._is_learned], return_inverse=True)[1]

    @cached_property
    def _first(self) -> Index:
        """By hyperparameter: the first entry of the columns' theta that has it."""
        return np.flatnonzero(self._is_learned)[np.unique(self._numbers, return_index=True)[1]]

    @property
    def theta(self) -> Array:
        return self.pick(self.columns.theta)

    def with_theta(self, theta: Array) -> Kernel:
        """The kernel of the columns."""
        return self.columns.with_theta(self.spread(theta[None, :])[0])

    def pick(self, values: Array) -> Array:
        """Of values (p, ...) by entry of the columns' theta, those of the first with each."""
        return values[self._first]

    def spread(self, thetas: Array) -> Array:
        """Entries of the columns' theta (S, p), from hyperparameters (S, q)."""
        entries = np.full((len(thetas), len(self._is_learned)), np.log(_PERIOD))
        entries[:, self._is_learned] = thetas[:, self._numbers]
        return entries

    def gather(self, gradient: Array) -> Array:
        """Gradient in the hyperparameters (q,), from that in the columns' theta (p,)."""
        learned = gradient[self._is_learned]
        return np.asarray(np.bincount(self._numbers, learned, len(self._first)), dtype=np.float64)


AnyKernel = Kernel | SharedKernel


def bind(kernel: AnyKernel, d: int, owners: Owners) -> AnyKernel:
    """A kernel for d columns, which may encode fewer inputs."""
    if isinstance(kernel, SharedKernel):
        return kernel
    return SharedKernel(bind_columns(kernel, d, owners), owners) if owners else kernel.bind(d)


def of_columns(kernel: AnyKernel) -> Kernel:
    """The kernel of the columns, at its first values."""
    return kernel.columns if isinstance(kernel, SharedKernel) else kernel


def of_inputs(kernel: AnyKernel, theta: Array | None) -> Kernel:
    """The kernel of the inputs, by its hyperparameters or (None) at its first values."""
    learned = kernel.with_theta(kernel.theta if theta is None else theta)
    return join_columns(learned, getattr(kernel, "owners", ()))


def pick_own(kernel: AnyKernel, values: Array) -> Array:
    """Of values (p, ...) by entry of the columns' theta, one for each hyperparameter."""
    return kernel.pick(values) if isinstance(kernel, SharedKernel) else values


def gather(kernel: AnyKernel, gradient: Array) -> Array:
    """Gradient in the hyperparameters, from that in the columns' theta."""
    return kernel.gather(gradient) if isinstance(kernel, SharedKernel) else gradient


def spread_points(kernel: AnyKernel, points: Array) -> Array:
    """Draws of the columns' theta and log s2 (S, p + 1), from those of the hyperparameters."""
    if not isinstance(kernel, SharedKernel):
        return points
    return np.column_stack([kernel.spread(points[:, :-1]), points[:, -1]])
