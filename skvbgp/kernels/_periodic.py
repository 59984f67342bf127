"""The periodic kernel."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels._base import Gradients
from skvbgp.kernels._distance import centre, radial, radial_vjp
from skvbgp.kernels._leaf import DEFAULT_BOUNDS, Bounds, Scales
from skvbgp.kernels._stationary import UnitLeaf, squared_exponential, squared_exponential_vjp


@dataclass(frozen=True, repr=False)
class Periodic(UnitLeaf):
    r"""Periodic kernel :math:`k = \exp(-2 \sum_i \sin^2(\pi (x_i - x'_i) / p_i) / l_i^2)`.

    It is the `RBF` kernel of inputs wound around circles, as
    :math:`4 \sin^2((u - v) / 2) = (\cos u - \cos v)^2 + (\sin u - \sin v)^2`.

    Parameters
    ----------
    length_scale : float or array-like of shape (d,), default=1.0
        Length scale :math:`l`, relative to the period. A number becomes one per input in `bind`.
    period : float or array-like of shape (d,), default=1.0
        Period :math:`p`, in the units of the inputs. A number becomes one per input in `bind`.
    length_scale_bounds, period_bounds : "fixed", pair of floats or d pairs, default=(1e-5, 1e5)
        Bounds, in natural units. A fixed hyperparameter is not in `theta`.
    isotropic : bool, default=False
        Use the Euclidean distance instead, :math:`\exp(-2 \sin^2(\pi |x - x'| / p) / l^2)`, which
        is scikit-learn's `ExpSineSquared`; with several inputs it may fail to be positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import Periodic
    >>> Periodic(period=2.0)(np.array([[0.0], [1.0]]), np.array([[4.0]]))
    array([[1.        ],
           [0.13533528]])
    """

    _names: ClassVar[tuple[str, ...]] = ("length_scale", "period")
    _per_input: ClassVar[tuple[str, ...]] = ("length_scale", "period")

    period: Scales = 1.0
    _: KW_ONLY
    period_bounds: Bounds = DEFAULT_BOUNDS

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        A, B = self._angles(X, Z)
        if self.isotropic:
            return radial(self._sine, (A, B))
        return radial(squared_exponential, (self._circles(A), self._circles(B)))

    def vjp(self, X: Array, Z: Array | None, K: Array, dK: Array) -> Gradients:
        A, B = self._angles(X, Z)
        if self.isotropic:
            dA, dB, dl = radial_vjp(self._sine_vjp, A, B, K, dK)
            dlength_scale = np.asarray(dl)
        else:
            circles = self._circles(A), self._circles(B)
            dcircles = radial_vjp(squared_exponential_vjp, *circles, K, dK)
            (dA, dl_A), (dB, dl_B) = map(self._circles_vjp, circles, dcircles[:2])
            dlength_scale = dl_A + dl_B
        dperiod = -np.sum(A * dA, axis=0) - np.sum(B * dB, axis=0)  # angles are proportional to 1/p
        dtheta = self._dtheta(length_scale=dlength_scale, period=dperiod)
        rate = self._rate(X.shape[1])
        if Z is None:
            return dtheta, rate * (dA + dB), None
        return dtheta, rate * dA, rate * dB

    def gradient(self, X: Array, Z: Array) -> Array:
        rate = self._rate(Z.shape[1])
        angles = rate * (X[..., None, :] - Z)  # (..., m, d)
        if self.isotropic:  # dk/da_i = -k sin(r) / r a_i / l^2
            r = np.linalg.norm(angles, axis=-1, keepdims=True)
            slopes = np.sinc(r / np.pi) * angles
        else:
            slopes = np.sin(angles)
        values = self(np.atleast_2d(X), Z).reshape(*angles.shape[:-1], 1)
        return -rate * self.curvature(Z[:1]) / rate**2 * slopes * values

    def curvature(self, X: Array) -> Array:
        d = X.shape[1]
        return np.broadcast_to((self._rate(d) / self._scale("length_scale", d)) ** 2, X.shape)

    def _rate(self, n_features: int) -> Array:
        """Return 2 pi / p."""
        return 2.0 * np.pi / self._scale("period", n_features)

    def _angles(self, X: Array, Z: Array | None) -> tuple[Array, Array]:
        """Return both inputs centred and as angles."""
        rate = self._rate(self._width(X, Z))
        A, B = centre(X, Z)
        return A * rate, B * rate

    def _circles(self, angles: Array) -> Array:
        """Return the points [cos a_i, sin a_i] / l_i, of shape (n, 2 d)."""
        length_scale = self._scale("length_scale", angles.shape[1])
        return np.hstack((np.cos(angles) / length_scale, np.sin(angles) / length_scale))

    @staticmethod
    def _circles_vjp(circles: Array, dcircles: Array) -> tuple[Array, Array]:
        """Pull the cotangent of the points back to the angles (n, d) and to log l (d,)."""
        d = circles.shape[1] // 2
        (c, s), (dc, ds) = ((points[:, :d], points[:, d:]) for points in (circles, dcircles))
        return c * ds - s * dc, -np.sum(c * dc + s * ds, axis=0)

    def _sine(self, r2: Array) -> Array:
        """Return exp(-2 sin^2(r / 2) / l^2) of the distance r between angles."""
        return np.exp(-2.0 * (np.sin(0.5 * np.sqrt(r2)) / self.length_scale) ** 2)

    def _sine_vjp(self, r2: Array, dlog: Array) -> tuple[Array, float]:
        # dlog k/dr^2 = -sin(r) / (2 r l^2), finite at zero, and dlog k/dlog l = -2 log k
        r = np.sqrt(r2)
        precision = np.asarray(self.length_scale) ** -2.0
        dlength_scale = 4.0 * precision * np.vdot(dlog, np.sin(0.5 * r) ** 2)
        return -0.5 * precision * np.sinc(r / np.pi) * dlog, float(dlength_scale)
