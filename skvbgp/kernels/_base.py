"""The contract every kernel honours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.pickling import PickledByFields
from skvbgp.kernels._params import change_params, list_params

#: In theta (p,) and in the inputs, X (n, d) and Z (m, d); None if the latter are X.
Gradients = tuple[Array, Array, Array | None]


class Kernel(ABC):
    r"""A covariance function: an immutable value with reverse-mode derivatives.

    Inputs are validated float64 arrays, `X` of shape (n, d) and `Z` of shape (m, d). ``Z=None``
    stands for `Z` = `X`: the two arguments are then the *same* points, which matters to `White`.

    Derivatives are vector-Jacobian products: given the cotangent :math:`\bar K = dL/dK` of a scalar
    :math:`L`, `vjp` returns :math:`dL/d\theta`, :math:`dL/dX` and :math:`dL/dZ`, at about the cost
    of the kernel itself and without any array larger than `K`. No method changes its arguments.

    Hyperparameters are positive and `theta` holds the logarithms of those that are not fixed.
    Kernels are combined by ``+`` and ``*``, with one another or with positive numbers.

    A constructor keeps its arguments in attributes of the same names: they are the parameters that
    searches of scikit-learn set, as ``kernel__length_scale`` of an estimator. It gets a changed
    kernel then; others that had the same one keep it.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import RBF
    >>> kernel, X, Z = 2.0 * RBF(), np.array([[0.0], [1.0]]), np.array([[0.5]])
    >>> K = kernel(X, Z)
    >>> dtheta, dX, dZ = kernel.vjp(X, Z, K, np.ones_like(K))
    >>> dtheta  # of sum(K), in the order of kernel.hyperparameters
    array([3.52998761, 0.8824969 ])
    """

    __array_ufunc__ = None  # numpy scalars leave `scalar * kernel` to `__rmul__`

    @abstractmethod
    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        """Return the covariances k(X, Z), of shape (n, m)."""

    @abstractmethod
    def diag(self, X: Array) -> Array:
        """Return the diagonal of ``kernel(X)``, of shape (n,)."""

    @abstractmethod
    def vjp(self, X: Array, Z: Array | None, K: Array, dK: Array) -> Gradients:
        """Pull a cotangent of the covariances back to the kernel's arguments.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            First inputs.
        Z : ndarray of shape (m, d) or None
            Second inputs, None for `X` itself.
        K : ndarray of shape (n, m)
            The value ``kernel(X, Z)``, which the caller has already.
        dK : ndarray of shape (n, m)
            Cotangent of `K`, symmetric or not.

        Returns
        -------
        dtheta : ndarray of shape (p,)
            Gradient of sum(dK * K) with respect to `theta`.
        dX : ndarray of shape (n, d)
            Gradient with respect to `X`; when `Z` is None, through both arguments.
        dZ : ndarray of shape (m, d) or None
            Gradient with respect to `Z`; None when `Z` is None.
        """

    @abstractmethod
    def vjp_diag(self, X: Array, ddiag: Array) -> tuple[Array, Array]:
        """Pull a cotangent (n,) of ``diag(X)`` back to (dtheta (p,), dX (n, d))."""

    def gradient(self, X: Array, Z: Array) -> Array:
        """Return the derivatives of k(x, z) in x, at each row of Z.

        They are (n, m, d) of rows X (n, d), and (m, d) of a single one (d,).

        Raises
        ------
        NotImplementedError
            If the kernel does not have them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no derivatives in its inputs.")

    def curvature(self, X: Array) -> Array:
        """Return the prior variances of the function's derivatives at rows of X: (n, d).

        They are the derivatives of k(x, x') in x_i and x'_i at x' = x, infinite for a function
        that is only continuous. Noise has none.

        Raises
        ------
        NotImplementedError
            If the kernel does not have them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no derivatives in its inputs.")

    @property
    def positive(self) -> bool:
        """Whether k > 0 everywhere and `vjp` reads K and dK as dK * K, the cotangent of log k."""
        return False

    @property
    @abstractmethod
    def theta(self) -> Array:
        """Logarithms of the free hyperparameters, of shape (p,)."""

    @abstractmethod
    def with_theta(self, theta: Array) -> Self:
        """Return this kernel with other values of its free hyperparameters."""

    def _take_theta(self, theta: Array, values: list[float], start: int) -> tuple[Self, int]:
        """Return `with_theta` of those entries of a vector from `start` on, and where they end.

        The `values` of a longer vector are its exponentials, made in one call.
        """
        stop = start + self.n_free
        return self.with_theta(theta[start:stop]), stop

    @property
    @abstractmethod
    def bounds(self) -> Array:
        """Lower and upper bounds on `theta`, of shape (p, 2)."""

    @property
    @abstractmethod
    def hyperparameters(self) -> list[str]:
        """One name per entry of `theta`, such as ``"0.length_scale[2]"``."""

    @property
    def n_free(self) -> int:
        """Length p of `theta`."""
        return len(self.hyperparameters)

    @abstractmethod
    def bind(self, n_features: int) -> Self:
        """Return this kernel with one length scale per input, checked against `n_features`."""

    # -- what scikit-learn asks of parameters ----------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor by their names.

        Those of a sum or product are ``k1``, ``k2``, ...

        Parameters
        ----------
        deep : bool, default=True
            Also those of its parts, such as ``k1__length_scale``.

        Returns
        -------
        params : dict

        Examples
        --------
        >>> from skvbgp.kernels import RBF
        >>> (0.5 * RBF(2.0)).get_params()["k2__length_scale"]
        2.0
        """
        return list_params(self._parts) if deep else dict(self._parts)

    def with_params(self, **params: Any) -> Self:
        """Return this kernel with other values of some parameters.

        Parameters
        ----------
        **params
            Values by name, as `get_params` has them.

        Returns
        -------
        kernel : Kernel

        Raises
        ------
        ValueError
            If a name is not among them.

        Examples
        --------
        >>> from skvbgp.kernels import RBF
        >>> (0.5 * RBF(2.0)).with_params(k2__length_scale=3.0)
        Constant(value=0.5) * RBF(length_scale=3.0)
        """
        return self._with_parts(change_params(self, self._parts, params))

    def set_params(self, **params: Any) -> NoReturn:
        """Refuse to change what others may have, too: a kernel is a value, as a number is.

        Raises
        ------
        TypeError
            Always. It names `with_params`, and ``set_params`` of an estimator sets parameters of
            its kernel.
        """
        raise TypeError(
            f"{type(self).__name__} cannot be changed: kernel.with_params(...) is another kernel. "
            "An estimator's set_params(kernel__...=...) gives it one."
        )

    def __sklearn_clone__(self) -> Self:
        return self  # nothing can change it

    @property
    def _parts(self) -> dict[str, Any]:
        """What the kernel was made of, by name."""
        return {name: getattr(self, name) for name in _name_arguments(type(self))}

    def _with_parts(self, parts: dict[str, Any]) -> Self:
        """Make a kernel of its class of them."""
        return type(self)(**parts)

    #: What the operators make of (operation, left, right): `_compose`, which knows sums and
    #: products, sets it, because they are kernels and have the operators themselves.
    _combine_operands: ClassVar[Callable[[str, Kernel | float, Kernel | float], Kernel]]

    def __add__(self, other: Kernel | float) -> Kernel:
        return Kernel._combine_operands("+", self, other)

    def __radd__(self, other: float) -> Kernel:
        return Kernel._combine_operands("+", other, self)

    def __mul__(self, other: Kernel | float) -> Kernel:
        return Kernel._combine_operands("*", self, other)

    def __rmul__(self, other: float) -> Kernel:
        return Kernel._combine_operands("*", other, self)


class CheckedKernel(PickledByFields, Kernel):
    """A kernel of this package: at other hyperparameters, only these are checked."""

    def with_theta(self, theta: Array) -> Self:
        theta = np.asarray(theta, dtype=np.float64)
        if theta.shape != (self.n_free,):
            raise ValueError(
                f"theta has shape {theta.shape}, expected one entry per free hyperparameter: "
                f"{self.hyperparameters}."
            )
        return self._take_theta(theta, np.exp(theta).tolist(), 0)[0]


@cache
def _name_arguments(cls: type[Kernel]) -> tuple[str, ...]:
    """Names of the constructor's arguments."""
    return tuple(signature(cls).parameters)
