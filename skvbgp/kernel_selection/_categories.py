"""Kernels of columns that encode categories, as functions of what the columns of one share.

Any two categories of an input are equally far from one another, which is all that a kernel may know
of them: a squared exponential, rational quadratic or Matern kernel has one length scale for the
columns of an input, and a linear one gives each category an effect of its own, with one variance
for all. A periodic kernel winds a column around a circle. Entries of a column differ by nothing or
by the distance of two categories, so that period and length scale say the same, and the period is
held where categories are opposite each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
class ColumnsKernel:
    """A kernel of columns, by the hyperparameters that are learned, each of them once.

    Where every column is an input of its own, these are all that the columns have.
    """

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
        """The kernel of the columns, by hyperparameters (q,)."""
        if not self.owners:
            return self.columns.with_theta(theta)
        entries = np.full(len(self._is_learned), np.log(_PERIOD))
        entries[self._is_learned] = theta[self._numbers]
        return self.columns.with_theta(entries)

    def at(self, theta: Array) -> ColumnsKernel:
        """The same at other values."""
        return replace(self, columns=self.with_theta(theta))

    @property
    def of_inputs(self) -> Kernel:
        """The kernel of the inputs."""
        return join_columns(self.columns, self.owners)

    def pick(self, values: Array) -> Array:
        """Of values (p, ...) by entry of the columns' theta, one for each hyperparameter."""
        return values[self._first] if self.owners else values

    def gather(self, gradient: Array) -> Array:
        """Gradient in the hyperparameters (q,), from that in the columns' theta (p,)."""
        if not self.owners:
            return gradient
        learned = gradient[self._is_learned]
        return np.asarray(np.bincount(self._numbers, learned, len(self._first)), dtype=np.float64)


def bind(kernel: Kernel, d: int, owners: Owners) -> ColumnsKernel:
    """A kernel for d columns, which may encode fewer inputs."""
    return ColumnsKernel(bind_columns(kernel, d, owners), owners)
