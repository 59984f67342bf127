"""Coordinates in which the kernels act."""

from __future__ import annotations

from typing import NamedTuple

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import Target


class Frame(NamedTuple):
    """Inputs about their mean, in their own units, and the scaled target."""

    origin: Array  # (d,)
    target: Target

    def scaled(self, X: Array, y: Array) -> tuple[Array, Array]:
        return X - self.origin, self.target.scaled(y)
