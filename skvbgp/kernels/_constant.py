"""Kernels that do not look at the inputs: a constant and white noise."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels._base import Gradients
from skvbgp.kernels._leaf import DEFAULT_BOUNDS, Bounds, Leaf


class Blind(Leaf):
    """A kernel that does not look at the inputs, of a function without slopes."""

    def gradient(self, X: Array, Z: Array) -> Array:
        return np.zeros((*X.shape[:-1], *Z.shape))

    def curvature(self, X: Array) -> Array:
        return np.zeros_like(X)


@dataclass(frozen=True, repr=False)
class Constant(Blind):
    """Constant kernel k = value, the amplitude (a variance) of other kernels.

    Parameters
    ----------
    value : float, default=1.0
        The covariance of any two points. ``2.0 * RBF()`` is ``Constant(2.0) * RBF()``.
    value_bounds : "fixed" or pair of floats, default=(1e-5, 1e5)
        Bounds, in natural units. A fixed hyperparameter is not in `theta`.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import Constant
    >>> Constant(3.0)(np.zeros((2, 1)))
    array([[3., 3.],
           [3., 3.]])
    """

    _names = ("value",)

    value: float = 1.0
    _: KW_ONLY
    value_bounds: Bounds = DEFAULT_BOUNDS

    @property
    def positive(self) -> bool:
        return True

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        return np.full((len(X), len(X if Z is None else Z)), self.value)

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.value)

    def vjp(self, X: Array, Z: Array | None, K: Array, dK: Array) -> Gradients:
        dtheta = self._dtheta(value=float(np.vdot(dK, K)))
        return dtheta, np.zeros_like(X), None if Z is None else np.zeros_like(Z)

    def vjp_diag(self, X: Array, ddiag: Array) -> tuple[Array, Array]:
        return self._dtheta(value=self.value * ddiag.sum()), np.zeros_like(X)


@dataclass(frozen=True, repr=False)
class White(Blind):
    """White noise: `noise_level` between a point and itself, 0 between any two points.

    As in scikit-learn, ``kernel(X)`` and ``kernel.diag(X)`` have the noise and ``kernel(X, Z)``
    never has, whatever `Z` holds.

    Parameters
    ----------
    noise_level : float, default=1.0
        Variance of the noise.
    noise_level_bounds : "fixed" or pair of floats, default=(1e-5, 1e5)
        Bounds, in natural units. A fixed hyperparameter is not in `theta`.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import White
    >>> White(0.5)(np.zeros((2, 1)))
    array([[0.5, 0. ],
           [0. , 0.5]])
    """

    _names = ("noise_level",)

    noise_level: float = 1.0
    _: KW_ONLY
    noise_level_bounds: Bounds = DEFAULT_BOUNDS

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        if Z is None:
            return np.diag(self.diag(X))
        return np.zeros((len(X), len(Z)))

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.noise_level)

    def vjp(self, X: Array, Z: Array | None, K: Array, dK: Array) -> Gradients:
        if Z is None:
            return *self.vjp_diag(X, np.diagonal(dK)), None
        return self._dtheta(noise_level=0.0), np.zeros_like(X), np.zeros_like(Z)

    def vjp_diag(self, X: Array, ddiag: Array) -> tuple[Array, Array]:
        return self._dtheta(noise_level=self.noise_level * ddiag.sum()), np.zeros_like(X)
