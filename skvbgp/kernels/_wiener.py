"""Kernels of processes with stationary increments: levels and slopes that wander."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels._base import Gradients
from skvbgp.kernels._leaf import ScaledLeaf


@dataclass(frozen=True, repr=False)
class _Wandering(ScaledLeaf):
    """A process in each input, which is zero at zero; over the inputs they add up.

    A subclass has the covariances of one input a = x / l, and their derivatives.
    """

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        A, B = self._scaled(X, Z)
        K = np.zeros((len(A), len(B)))
        for a, b in zip(A.T, B.T, strict=True):
            K += self._values(a, b)
        return K

    def diag(self, X: Array) -> Array:
        return self._variances(self._scaled(X, None)[0]).sum(axis=1)

    def vjp(self, X: Array, Z: Array | None, K: Array, dK: Array) -> Gradients:
        A, B = self._scaled(X, Z)
        dA, dB = np.zeros_like(A), np.zeros_like(B)
        for i, (a, b) in enumerate(zip(A.T, B.T, strict=True)):
            dA[:, i] = np.einsum("ij,ij->i", dK, self._slopes(a, b))
            dB[:, i] = np.einsum("ij,ji->j", dK, self._slopes(b, a))
        # a = x / l, hence d/dlog l = -(a d/da + b d/db)
        dtheta = self._dtheta(length_scale=-np.sum(A * dA, axis=0) - np.sum(B * dB, axis=0))
        return dtheta, *self._pull_inputs(Z, dA, dB)

    def vjp_diag(self, X: Array, ddiag: Array) -> tuple[Array, Array]:
        A, _ = self._scaled(X, None)
        dA = ddiag[:, None] * self._variance_slopes(A)  # (n, d)
        return self._dtheta(length_scale=-np.sum(A * dA, axis=0)), dA / self.length_scale

    def gradient(self, X: Array, Z: Array) -> Array:
        length_scale = self._scale("length_scale", Z.shape[1])
        A, B = self._scaled(np.atleast_2d(X), Z)
        slopes = [self._slopes(a, b) for a, b in zip(A.T, B.T, strict=True)]
        return np.stack(slopes, axis=-1).reshape(*X.shape[:-1], *Z.shape) / length_scale

    def curvature(self, X: Array) -> Array:
        A, _ = self._scaled(X, None)
        return self._slope_variances(A) / self._scale("length_scale", X.shape[1]) ** 2

    @abstractmethod
    def _variances(self, a: Array) -> Array:
        """Return the variances at one input, or several."""

    @abstractmethod
    def _variance_slopes(self, a: Array) -> Array:
        """Return the derivatives of the variances."""

    @abstractmethod
    def _slope_variances(self, a: Array) -> Array:
        """Return the variances of the functions' derivatives."""

    @abstractmethod
    def _values(self, a: Array, b: Array) -> Array:
        """Return the covariances (n, m) of one input."""

    @abstractmethod
    def _slopes(self, a: Array, b: Array) -> Array:
        """Return the derivatives (n, m) of the covariances in a."""


@dataclass(frozen=True, repr=False)
class Wiener(_Wandering):
    r"""Kernel of a level that wanders, or of a trend whose slope does.

    A Wiener process in each input, in both directions from zero, or its integral; over the inputs
    they add up. With :math:`a = x / l`, :math:`s = \min(|a|, |a'|)` and
    :math:`m = \max(|a|, |a'|)` it is :math:`s` or, integrated, :math:`s^2 (3 m - s) / 6` where
    :math:`a` and :math:`a'` have one sign, and 0 elsewhere. Functions are zero at zero, and so are
    the slopes of integrals: add `Constant` or `Linear` for a first level and slope. Then nothing
    depends on where zero is: steps of the level, or of the slope, have the variance
    :math:`|x - x'| / l`.

    Parameters
    ----------
    length_scale : float or array-like of shape (d,), default=1.0
        Distance :math:`l` over which the process gains a variance of one. A number becomes one
        per input in `bind`.
    integrated : bool, default=False
        Whether functions are integrals of Wiener processes (of :math:`x / l`).
    length_scale_bounds : "fixed", pair of floats or d pairs, default=(1e-5, 1e5)
        Bounds, in natural units. A fixed hyperparameter is not in `theta`.
    isotropic : bool, default=False
        Keep one length scale, shared by all the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import Wiener
    >>> t = np.array([[-1.0], [1.0], [2.0]])
    >>> Wiener()(t)
    array([[1., 0., 0.],
           [0., 1., 1.],
           [0., 1., 2.]])
    >>> Wiener(integrated=True)(t[1:]) * 6.0
    array([[ 2.,  5.],
           [ 5., 16.]])
    """

    integrated: bool = False

    def _variances(self, a: Array) -> Array:
        u: Array = np.abs(a)
        return u**3 / 3.0 if self.integrated else u

    def _variance_slopes(self, a: Array) -> Array:
        return np.sign(a) * (a**2 if self.integrated else 1.0)

    def _slope_variances(self, a: Array) -> Array:
        return np.abs(a) if self.integrated else np.full(a.shape, np.inf)

    def _values(self, a: Array, b: Array) -> Array:
        u, v = np.abs(a)[:, None], np.abs(b)
        s = np.minimum(u, v)
        s *= np.multiply.outer(np.sign(a), np.sign(b)) > 0.0
        if self.integrated:
            m = np.maximum(u, v)
            m *= 3.0
            m -= s
            m *= s
            m *= s
            m /= 6.0
            return m
        return s

    def _slopes(self, a: Array, b: Array) -> Array:
        u, v = np.abs(a)[:, None], np.abs(b)
        if self.integrated:  # m^2 / 2 - (m - u)^2 / 2 below v, v^2 / 2 above
            slopes: Array = 0.5 * v * v - 0.5 * np.maximum(v - u, 0.0) ** 2
        else:  # at the kink, half of the one before
            slopes = 0.5 * (np.sign(v - u) + 1.0)
        slopes *= np.sign(a)[:, None]
        slopes *= np.multiply.outer(np.sign(a), np.sign(b)) > 0.0
        return slopes


@dataclass(frozen=True, repr=False)
class IntegratedOU(_Wandering):
    r"""Kernel of a level whose slope wanders, but forgets.

    The integral of an Ornstein-Uhlenbeck process in each input, in both directions from zero; over
    the inputs they add up. With :math:`a = x / l` and :math:`V(h) = 2 (|h| + e^{-|h|} - 1)` it is
    :math:`(V(a) + V(a') - V(a - a')) / 2`. Functions are zero at zero, and :math:`V(h)` is the
    variance of their increments: over much less than the length scale they go straight on, with
    slopes (in :math:`a`) of variance one; over much more they wander like a `Wiener` process. Add
    `Constant` or `Linear` for a first level: then nothing depends on where zero is.

    Parameters
    ----------
    length_scale : float or array-like of shape (d,), default=1.0
        Distance :math:`l` over which slopes are correlated. A number becomes one per input in
        `bind`.
    length_scale_bounds : "fixed", pair of floats or d pairs, default=(1e-5, 1e5)
        Bounds, in natural units. A fixed hyperparameter is not in `theta`.
    isotropic : bool, default=False
        Keep one length scale, shared by all the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import IntegratedOU
    >>> t = np.array([[-1.0], [1.0], [2.0]])
    >>> IntegratedOU()(t).round(2)
    array([[ 0.74, -0.4 , -0.55],
           [-0.4 ,  0.74,  1.14],
           [-0.55,  1.14,  2.27]])
    """

    def _variances(self, a: Array) -> Array:
        u = np.abs(a)
        return 2.0 * (u + np.expm1(-u))

    def _variance_slopes(self, a: Array) -> Array:
        return -2.0 * np.sign(a) * np.expm1(-np.abs(a))

    def _slope_variances(self, a: Array) -> Array:
        return np.ones(a.shape)

    def _values(self, a: Array, b: Array) -> Array:
        sums = np.add.outer(self._variances(a), self._variances(b))
        return 0.5 * (sums - self._variances(np.subtract.outer(a, b)))

    def _slopes(self, a: Array, b: Array) -> Array:
        differences = np.subtract.outer(a, b)
        return 0.5 * (self._variance_slopes(a)[:, None] - self._variance_slopes(differences))
