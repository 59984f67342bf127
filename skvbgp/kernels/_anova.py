"""The kernel of functions of single inputs, of pairs of these, and so on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.kernels._base import Gradients
from skvbgp.kernels._distance import cut_rows
from skvbgp.kernels._leaf import DEFAULT_BOUNDS, Bounds, ScaledLeaf, Scales


class Effect(NamedTuple):
    """One input's share in the covariances of some pairs of rows."""

    e: Array  # v / d times the squared exponential, averaged over uncertain entries
    r2: Array  # squared differences, in units of the length scale
    t: Array | float  # 1 + the variances of both entries, in the same units squared


@dataclass(frozen=True, repr=False)
class Anova(ScaledLeaf):
    r"""ANOVA kernel :math:`k = \prod_i (1 + e_i) - 1`.

    Here :math:`e_i = (v_i / d) \exp(-(x_i - x'_i)^2 / 2 l_i^2)` of d inputs. Multiplied out, it is
    the sum of :math:`e_i`, of :math:`e_i e_j`, and so on: the functions are sums of functions of
    one input, of two, up to all of them [Durrande2013]_. If :math:`v_i` is small, what is left
    out are the functions that input i takes part in; if all are, what is left are those of one
    input. The variance is some e - 1 for :math:`v_i = 1`, whatever d is.

    Parameters
    ----------
    length_scale : float or array-like of shape (d,), default=1.0
        Length scale :math:`l`. A number becomes one length scale per input in `bind`.
    variance : float or array-like of shape (d,), default=1.0
        Variance :math:`v`. A number becomes one per input in `bind`.
    length_scale_bounds, variance_bounds : "fixed", pair of floats or d pairs, default=(1e-5, 1e5)
        Bounds, in natural units. A fixed hyperparameter is not in `theta`.
    isotropic : bool, default=False
        Keep one length scale, shared by all the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from skvbgp.kernels import Anova
    >>> kernel = Anova(variance=[1.0, 3.0])
    >>> kernel(np.zeros((1, 2)), np.array([[0.0, 0.0], [0.0, 9.0]])).round(3)
    array([[2.75, 0.5 ]])
    """

    _names: ClassVar[tuple[str, ...]] = ("length_scale", "variance")
    _per_input: ClassVar[tuple[str, ...]] = ("length_scale", "variance")
    _always_per_input: ClassVar[tuple[str, ...]] = ("variance",)

    variance: Scales = 1.0
    _: KW_ONLY
    variance_bounds: Bounds = DEFAULT_BOUNDS

    def __call__(self, X: Array, Z: Array | None = None) -> Array:
        return self.evaluate(X, Z)

    def diag(self, X: Array) -> Array:
        return self.evaluate_own(X)

    def vjp(self, X: Array, Z: Array | None, K: Array, dK: Array) -> Gradients:
        A, B = self._centre_and_scale(X, Z)
        dA, dB = np.empty_like(A), np.zeros_like(B)
        d_log_scale, d_log_variance = np.zeros(X.shape[1]), np.zeros(X.shape[1])
        for rows in cut_rows(*K.shape):
            P = dK[rows] * (K[rows] + 1.0)
            for c, (e, r2, _) in enumerate(self._list_effects(A[rows], B)):
                W = P * e / (1.0 + e)  # the cotangent of log e
                own, other = W.sum(axis=1), W.sum(axis=0)
                d_log_variance[c] += own.sum()
                d_log_scale[c] += np.vdot(W, r2)
                dA[rows, c] = W @ B[:, c] - own * A[rows, c]
                dB[:, c] += A[rows, c] @ W - other * B[:, c]
        dtheta = self._dtheta(length_scale=d_log_scale, variance=d_log_variance)
        return dtheta, *self._pull_inputs(Z, dA, dB)

    def vjp_diag(self, X: Array, ddiag: Array) -> tuple[Array, Array]:
        return self.pull_own_back(X, ddiag), np.zeros_like(X)

    def gradient(self, X: Array, Z: Array) -> Array:
        scales, shares = self._spread(Z.shape[1])
        A = (X[..., None, :] - Z) / scales  # (..., m, d)
        e = shares * np.exp(-0.5 * A**2)
        return -np.prod(1.0 + e, axis=-1, keepdims=True) * e / (1.0 + e) * A / scales

    def curvature(self, X: Array) -> Array:
        scales, e = self._spread(X.shape[1])
        return np.broadcast_to(np.prod(1.0 + e) * e / (1.0 + e) / scales**2, X.shape)

    def draw_frequencies(self, shape: tuple[int, int], rng: np.random.RandomState) -> Array:
        """Frequencies (m, d) from the spectral density.

        That of 1 + e_i is a point at zero and a normal density, and their product has all of its
        points at zero but the one that is subtracted: some input takes part in each draw.
        """
        scales, e = self._spread(shape[1])
        p = e / (1.0 + e)
        is_first = p * np.append(1.0, np.cumprod(1.0 - p)[:-1])  # all those before it do not
        first = rng.choice(shape[1], shape[0], p=is_first / is_first.sum())[:, None]
        index = np.arange(shape[1])
        takes_part = (index == first) | ((index > first) & (rng.uniform(size=shape) < p))
        return takes_part * rng.standard_normal(shape) / scales

    # -- of rows that may be uncertain -----------------------------------------------------------

    def evaluate(
        self, X: Array, Z: Array | None, S: Array | None = None, T: Array | None = None
    ) -> Array:
        """Covariances at rows whose entries have variances S and T, or none has."""
        A, B = self._centre_and_scale(X, Z)
        K = np.ones((len(A), len(B)))
        for rows in cut_rows(*K.shape):
            variances = () if S is None else (S[rows], S if T is None else T)
            for e, *_ in self._list_effects(A[rows], B, *variances):
                e += 1.0
                K[rows] *= e
        K -= 1.0
        return K

    def pull_back(self, X: Array, S: Array, dK: Array) -> Array:
        """Pull a cotangent of the covariances of rows X back to theta."""
        P, A = dK * (self.evaluate(X, None, S) + 1.0), self._centre_and_scale(X, None)[0]
        d_log_scale, d_log_variance = np.empty(X.shape[1]), np.empty(X.shape[1])
        for c, (e, r2, t) in enumerate(self._list_effects(A, A, S, S)):
            W = P * e / (1.0 + e)
            d_log_variance[c] = W.sum()
            # d/dlog l of -log(t) / 2 is 1 - 1 / t, that of -r^2 / 2 t is r^2 / t^2
            d_log_scale[c] = np.sum(W * (1.0 - 1.0 / t + r2 / t**2))
        return self._dtheta(length_scale=d_log_scale, variance=d_log_variance)

    def evaluate_own(self, X: Array, S: Array | None = None) -> Array:
        """Covariances (n,) of two rows with the same entries, of variances S."""
        return np.prod(1.0 + self._measure_own(X, S)[0], axis=1) - 1.0

    def pull_own_back(self, X: Array, ddiag: Array, S: Array | None = None) -> Array:
        """Pull a cotangent of these back to theta."""
        e, t = self._measure_own(X, S)
        W = (ddiag * np.prod(1.0 + e, axis=1))[:, None] * e / (1.0 + e)
        d_log_scale = np.sum(W * (1.0 - 1.0 / t), axis=0)
        return self._dtheta(length_scale=d_log_scale, variance=W.sum(axis=0))

    def _list_effects(
        self, A: Array, B: Array, S: Array | None = None, T: Array | None = None
    ) -> Iterator[Effect]:
        """The effects of all pairs of rows in units of the length scales, input by input.

        Their entries have variances S and T, or none has.
        """
        scales, shares = self._spread(A.shape[1])
        for c in range(A.shape[1]):
            r2 = np.subtract.outer(A[:, c], B[:, c])
            r2 *= r2
            if S is None or T is None:
                e = np.multiply(r2, -0.5)
                np.exp(e, out=e)
                e *= shares[c]
                yield Effect(e, r2, 1.0)
                continue
            t = 1.0 + np.add.outer(S[:, c], T[:, c]) / scales[c] ** 2
            yield Effect(shares[c] * np.exp(-0.5 * r2 / t) / np.sqrt(t), r2, t)

    def _measure_own(self, X: Array, S: Array | None) -> tuple[Array, Array]:
        """The same effects, (n, d), of rows and themselves, and t."""
        scales, shares = self._spread(self._width(X, None))
        t = np.ones_like(X) if S is None else 1.0 + 2.0 * S / scales**2
        return shares / np.sqrt(t), t

    def _spread(self, d: int) -> tuple[Array, Array]:
        """Length scales and v / d of the inputs, each (d,)."""
        scale, variance = (np.broadcast_to(self._scale(name, d), d) for name in self._names)
        return scale, variance / d
