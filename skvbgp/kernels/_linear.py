"""The linear kernel."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels._base import Gradients
from skvbgp.kernels._leaf import DEFAULT_BOUNDS, Bounds, ScaledLeaf


@dataclass(frozen=True, repr=False)
class Linear(ScaledLeaf):
    r"""Linear kernel :math:`k = \sigma_0^2 + \sum_i x_i x'_i / l_i^2`.

    The functions are :math:`w_0 + \sum_i w_i x_i` with weights of standard deviation
    :math:`\sigma_0` and :math:`1 / l_i`. With ``length_scale`` fixed at 1 it is scikit-learn's
    `DotProduct`; but `VBGPRegressor`, `VBGPClassifier` and `VBKSRegressor` subtract the mean of
    their rows from the inputs, and lines without an offset meet there instead of at zero.

    Parameters
    ----------
    length_scale : float or array-like of shape (d,), default=1.0
        Length scale :math:`l`. A number becomes one length scale per input in `bind`.
    offset : float, default=1.0
        Standard deviation :math:`\sigma_0` of the constant; may be 0 if it is fixed.
    length_scale_bounds, offset_bounds : "fixed" or pair of floats, default=(1e-5, 1e5)
        Bounds, in natural units; for the length scale also d pairs. A fixed hyperparameter is
        not in `theta`.
    isotropic : bool, default=False
        Keep one length scale, shared by all the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import Linear
    >>> Linear(offset=2.0)(np.array([[0.0], [3.0]]), np.array([[1.0]]))
    array([[4.],
           [7.]])
    """

    _names: ClassVar[tuple[str, ...]] = ("length_scale", "offset")
    _zero_if_fixed = ("offset",)

    offset: float = 1.0
    _: KW_ONLY
    offset_bounds: Bounds = DEFAULT_BOUNDS

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        A, B = self._scaled(X, Z)
        K: Array = A @ B.T
        K += self.offset**2
        return K

    def diag(self, X: Array) -> Array:
        A, _ = self._scaled(X, None)
        squares: Array = np.einsum("ij,ij->i", A, A)
        return squares + self.offset**2

    def vjp(self, X: Array, Z: Array | None, K: Array, dK: Array) -> Gradients:
        A, B = self._scaled(X, Z)
        dA = dK @ B  # (n, d)
        dB = dK.T @ A  # (m, d)
        dtheta = self._dtheta(
            length_scale=-2.0 * np.sum(A * dA, axis=0), offset=2.0 * self.offset**2 * dK.sum()
        )
        return dtheta, *self._pull_inputs(Z, dA, dB)

    def vjp_diag(self, X: Array, ddiag: Array) -> tuple[Array, Array]:
        A, _ = self._scaled(X, None)
        dA = 2.0 * ddiag[:, None] * A  # (n, d)
        dtheta = self._dtheta(
            length_scale=-np.sum(A * dA, axis=0), offset=2.0 * self.offset**2 * ddiag.sum()
        )
        return dtheta, dA / self.length_scale

    def gradient(self, X: Array, Z: Array) -> Array:
        slopes = Z / self._scale("length_scale", Z.shape[1]) ** 2
        return np.broadcast_to(slopes, (*X.shape[:-1], *Z.shape))

    def curvature(self, X: Array) -> Array:
        return np.broadcast_to(self._scale("length_scale", X.shape[1]) ** -2.0, X.shape)
