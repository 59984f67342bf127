"""Kernels of the scaled distance r^2 = sum_i (x_i - x'_i)^2 / l_i^2."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import reduce
from operator import iadd
from typing import ClassVar, NamedTuple, TypeGuard

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels._base import Gradients
from skvbgp.kernels._distance import radial, radial_vjp
from skvbgp.kernels._leaf import DEFAULT_BOUNDS, Bounds, ScaledLeaf

# Points of a Matern-1/2 kernel closer than this many length scales count as equal: at its kink
# the gradient, which is not defined there, is set to zero.
_COINCIDENT = 1e-8
# Up to here a rational quadratic is right to alpha times 1e-16 without log1p.
_LARGE_ALPHA = 100.0


def squared_exponential(r2: Array) -> Array:
    """Return exp(-r^2 / 2) in the place of `r2`."""
    r2 *= -0.5
    return np.exp(r2, out=r2)


def squared_exponential_vjp(r2: Array, dlog: Array) -> tuple[Array, float]:
    """Pull the cotangent of its logarithm back to r^2."""
    dlog *= -0.5
    return dlog, 0.0


@dataclass(frozen=True, repr=False)
class UnitLeaf(ScaledLeaf):
    """A positive kernel of unit variance everywhere."""

    @property
    def positive(self) -> bool:
        return True

    def diag(self, X: Array) -> Array:
        return np.ones(len(X))

    def vjp_diag(self, X: Array, ddiag: Array) -> tuple[Array, Array]:
        return np.zeros(self.n_free), np.zeros_like(X)


@dataclass(frozen=True, repr=False)
class Stationary(UnitLeaf):
    """A kernel k(r^2) of unit variance; a subclass supplies k and its slope."""

    @abstractmethod
    def _radial(self, r2: Array) -> Array:
        """Return k(r^2) in the place of `r2`."""

    @abstractmethod
    def _radial_vjp(self, r2: Array, dlog: Array) -> tuple[Array, float]:
        """Pull the cotangent of log k back to r^2 and to log alpha, 0 if there is no alpha."""

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        return radial(self._radial, self._centre_and_scale(X, Z))

    def vjp(self, X: Array, Z: Array | None, K: Array, dK: Array) -> Gradients:
        A, B = self._centre_and_scale(X, Z)
        dA, dB, dshape = radial_vjp(self._radial_vjp, A, B, K, dK)
        # r^2 is quadratic in the scaled inputs a = x / l, hence d/dlog l = -(a d/da + b d/db)
        dlength_scale = -np.sum(A * dA, axis=0) - np.sum(B * dB, axis=0)  # (d,)
        dtheta = self._dtheta(length_scale=dlength_scale, alpha=dshape)
        return dtheta, *self._pull_inputs(Z, dA, dB)

    def gradient(self, X: Array, Z: Array) -> Array:
        length_scale = self._scale("length_scale", Z.shape[1])
        A = (X[..., None, :] - Z) / length_scale  # (..., m, d)
        r2 = np.einsum("...j,...j->...", A, A)
        slope, _ = self._radial_vjp(r2.copy(), self._radial(r2))  # dk/dr^2
        return 2.0 * slope[..., None] * A / length_scale

    def curvature(self, X: Array) -> Array:
        length_scale = self._scale("length_scale", X.shape[1])
        return np.broadcast_to(-2.0 * self._slope_at_zero / length_scale**2, X.shape)

    @property
    def _slope_at_zero(self) -> float:
        """dk/dr^2 of a point and itself."""
        return float(self._radial_vjp(np.zeros(1), np.ones(1))[0][0])


class Split(NamedTuple):
    """Values p e^q of a kernel."""

    exponent: Array  # q
    factor: Array | None = None  # p, None if it is one


def multiply(parts: Iterable[Split]) -> Array:
    """The product of values, in the place of the first exponent.

    With one exponential, which may take as long as all else together.
    """
    exponents, factors = zip(*parts, strict=True)
    K: Array = reduce(iadd, exponents)
    np.exp(K, out=K)
    for factor in factors:
        if factor is not None:
            K *= factor
    return K


@dataclass(frozen=True, repr=False)
class Exponential(Stationary):
    """A stationary kernel p e^q; a subclass says which, so that products take one exponential."""

    @abstractmethod
    def _split(self, r2: Array) -> Split:
        """Return k(r^2), the exponent in the place of `r2`."""

    def _trace(self, r2: Array) -> tuple[Split, Callable[[Array], tuple[Array, float]]]:
        """Return k(r^2), and `_radial_vjp` at `r2`, which leaves what it is called with.

        They may keep and overwrite `r2`.
        """
        return self._split(r2.copy()), lambda dlog: self._radial_vjp(r2, dlog.copy())

    def _radial(self, r2: Array) -> Array:
        return multiply([self._split(r2)])


def multiply_at(
    kernels: Sequence[Exponential], constant: float, distances: Iterable[Array]
) -> Array:
    """A constant times the product of kernels, each at its r^2, which is overwritten."""
    K = multiply(k._split(r2) for k, r2 in zip(kernels, distances, strict=True))
    K *= constant
    return K


@dataclass(frozen=True, repr=False)
class RBF(Exponential):
    r"""Squared-exponential kernel :math:`k = \exp(-r^2 / 2)`.

    Here :math:`r^2 = \sum_i (x_i - x'_i)^2 / l_i^2`. The variance is one: write
    ``variance * RBF(...)`` for another.

    Parameters
    ----------
    length_scale : float or array-like of shape (d,), default=1.0
        Length scale :math:`l`. A number becomes one length scale per input in `bind`.
    length_scale_bounds : "fixed", pair of floats or d pairs, default=(1e-5, 1e5)
        Bounds, in natural units. A fixed hyperparameter is not in `theta`.
    isotropic : bool, default=False
        Keep one length scale, shared by all the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import RBF
    >>> kernel = 2.0 * RBF().bind(n_features=2)
    >>> kernel
    Constant(value=2.0) * RBF(length_scale=(1.0, 1.0))
    >>> kernel(np.eye(2))
    array([[2.        , 0.73575888],
           [0.73575888, 2.        ]])
    """

    _radial_vjp = staticmethod(squared_exponential_vjp)

    def _split(self, r2: Array) -> Split:
        r2 *= -0.5
        return Split(r2)

    def _trace(self, r2: Array) -> tuple[Split, Callable[[Array], tuple[Array, float]]]:
        return self._split(r2), lambda dlog: (-0.5 * dlog, 0.0)


@dataclass(frozen=True, repr=False)
class Matern(Exponential):
    r"""Matern kernel, once or twice differentiable or (:math:`\nu` = 1/2) only continuous.

    With :math:`s = \sqrt{2 \nu}\, r` and :math:`r^2 = \sum_i (x_i - x'_i)^2 / l_i^2`, it is
    :math:`e^{-s}`, :math:`(1 + s) e^{-s}` or :math:`(1 + s + s^2 / 3) e^{-s}` for
    :math:`\nu` = 1/2, 3/2 or 5/2.

    Parameters
    ----------
    length_scale : float or array-like of shape (d,), default=1.0
        Length scale :math:`l`. A number becomes one length scale per input in `bind`.
    nu : {0.5, 1.5, 2.5}, default=1.5
        Smoothness.
    length_scale_bounds : "fixed", pair of floats or d pairs, default=(1e-5, 1e5)
        Bounds, in natural units. A fixed hyperparameter is not in `theta`.
    isotropic : bool, default=False
        Keep one length scale, shared by all the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import Matern
    >>> Matern(nu=0.5)(np.array([[0.0], [1.0]]))
    array([[1.        , 0.36787944],
           [0.36787944, 1.        ]])
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"Matern: nu must be 0.5, 1.5 or 2.5, got {self.nu!r}; nu=inf is RBF.")
        object.__setattr__(self, "nu", float(self.nu))

    def _split(self, r2: Array) -> Split:
        s = self._root(r2)
        polynomial = self._polynomial(s)
        return Split(np.negative(s, out=s), polynomial)

    def _radial_vjp(self, r2: Array, dlog: Array) -> tuple[Array, float]:
        # dlog k/dr^2 = -1/2 / s, -3/2 / (1 + s) or -5/6 (1 + s) / (1 + s + s^2 / 3)
        s = self._root(r2)
        polynomial = self._polynomial(s)
        if polynomial is None:
            s[s < _COINCIDENT] = np.inf
            dlog /= s
            dlog *= -0.5
            return dlog, 0.0
        dlog /= polynomial
        if self.nu == 1.5:
            dlog *= -1.5
        else:
            s += 1.0
            dlog *= s
            dlog *= -5.0 / 6.0
        return dlog, 0.0

    @property
    def _slope_at_zero(self) -> float:
        return -np.inf if self.nu == 0.5 else super()._slope_at_zero

    def _root(self, r2: Array) -> Array:
        """Return s = sqrt(2 nu) r in the place of `r2`."""
        r2 *= 2.0 * self.nu
        return np.sqrt(r2, out=r2)

    def _polynomial(self, s: Array) -> Array | None:
        """Return k e^s: None for 1, 1 + s or 1 + s + s^2 / 3."""
        if self.nu == 0.5:
            return None
        polynomial: Array = s + 1.0 if self.nu == 1.5 else s / 3.0 + 1.0
        if self.nu == 2.5:
            polynomial *= s
            polynomial += 1.0
        return polynomial


@dataclass(frozen=True, repr=False)
class RationalQuadratic(Exponential):
    r"""Rational quadratic kernel :math:`k = (1 + r^2 / (2 \alpha))^{-\alpha}`.

    A mixture of squared-exponential kernels of many length scales, where
    :math:`r^2 = \sum_i (x_i - x'_i)^2 / l_i^2`; it tends to `RBF` as :math:`\alpha` grows.

    Parameters
    ----------
    length_scale : float or array-like of shape (d,), default=1.0
        Length scale :math:`l`. A number becomes one length scale per input in `bind`.
    alpha : float, default=1.0
        Shape :math:`\alpha`; the smaller, the more spread the mixed length scales.
    length_scale_bounds, alpha_bounds : "fixed" or pair of floats, default=(1e-5, 1e5)
        Bounds, in natural units; for the length scale also d pairs. A fixed hyperparameter is
        not in `theta`.
    isotropic : bool, default=False
        Keep one length scale, shared by all the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import RationalQuadratic
    >>> RationalQuadratic(alpha=0.5)(np.array([[0.0], [1.0]]))
    array([[1.        , 0.70710678],
           [0.70710678, 1.        ]])
    """

    _names: ClassVar[tuple[str, ...]] = ("length_scale", "alpha")

    alpha: float = 1.0
    _: KW_ONLY
    alpha_bounds: Bounds = DEFAULT_BOUNDS

    def _split(self, r2: Array) -> Split:
        r2 *= 0.5 / self.alpha
        t = self._measure_log(r2)
        t *= -self.alpha
        return Split(t)

    def _radial_vjp(self, r2: Array, dlog: Array) -> tuple[Array, float]:
        return self._pull(*self._logarithm(r2), dlog)

    def _trace(self, r2: Array) -> tuple[Split, Callable[[Array], tuple[Array, float]]]:
        u, t = self._logarithm(r2)
        return Split(-self.alpha * t), lambda dlog: self._pull(u, t, dlog)

    def _logarithm(self, r2: Array) -> tuple[Array, Array]:
        """Return u = 1 + r^2 / (2 alpha), in the place of `r2`, and log u."""
        r2 *= 0.5 / self.alpha
        t = self._measure_log(r2.copy())
        r2 += 1.0
        return r2, t

    def _measure_log(self, v: Array) -> Array:
        """Return log(1 + v) in the place of v.

        By log1p, which takes twice as long, where alpha makes much of what 1 + v is rounded by.
        """
        if self.alpha > _LARGE_ALPHA:
            return np.log1p(v, out=v)
        v += 1.0
        return np.log(v, out=v)

    def _pull(self, u: Array, t: Array, dlog: Array) -> tuple[Array, float]:
        # k = exp(-alpha t), dlog k/dr^2 = -1/2 / u and dlog k/dlog alpha = alpha (1 - 1 / u - t)
        slope = dlog / u
        dalpha = self.alpha * float(dlog.sum() - np.vdot(dlog, t) - slope.sum())
        slope *= -0.5
        return slope, dalpha


def shares_exponential(kernel: object) -> TypeGuard[RBF | Matern | RationalQuadratic]:
    """Whether a product may take a factor apart."""
    # by the very class: one that inherits may have another covariance
    return type(kernel) in (RBF, Matern, RationalQuadratic)
