"""Draws of functions that a family evaluates in scaled units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from skvbgp._core.blockwise import by_tile
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import single_blas_thread
from skvbgp._core.scaling import Coordinates, Target


@dataclass(frozen=True)
class ScaledDraws:
    """Functions S of one output on the scale of y, by what they are in scaled units.

    A subclass implements ``_evaluate(X)`` and ``_differentiate(X)``, values (n, S) and derivatives
    (n, d, S) at scaled rows, and maybe ``_map``, which calls them.
    """

    coordinates: Coordinates
    target: Target

    _evaluate: ClassVar[Callable[..., Array]]
    _differentiate: ClassVar[Callable[..., Array]]

    def __call__(self, X: Array) -> Array:
        """Values (n, S)."""
        with single_blas_thread:
            values = self._map(self._evaluate, self.coordinates.scaled(X))
        return self.target.original(values)

    def gradient(self, X: Array) -> Array:
        """Derivatives (n, d, S), in units of y over those of each input."""
        with single_blas_thread:
            slopes = self._map(self._differentiate, self.coordinates.scaled(X))
        return slopes * (self.target.unit / self.coordinates.scale[:, None])

    def _map(self, function: Callable[..., Array], X: Array) -> Array:
        """What a function says of scaled rows, some at a time."""
        return by_tile(function, X)
