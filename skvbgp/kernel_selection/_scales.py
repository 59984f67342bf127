"""Coordinates in which the kernels act."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import Target, check_near


class Frame(NamedTuple):
    """Inputs about their mean, in their own units, and the scaled target."""

    origin: Array  # (d,)
    spread: Array  # (d,)
    target: Target

    def centred(self, X: Array) -> Array:
        with np.errstate(over="ignore"):
            centred = X - self.origin
            check_near(centred / self.spread, "X")
        return centred

    def scaled(self, X: Array, y: Array) -> tuple[Array, Array]:
        return self.centred(X), self.target.scaled(y)
