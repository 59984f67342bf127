r"""Derivatives of k(Lambda x, z) in x, and the mean squares of what they add up to.

With K' (1, m) the derivative of k(Lambda x, Z) in an input, V symmetric, and middle and apart
those of a pair (z_a, z_b) in :mod:`skvbgp._core.expectations`,

    E[K' V K'^T] = sum_ab V_ab E[k_a k_b] E~[ l^2 ((middle - l x)^2 - apart^2) ],

where l = Lambda_k has, under its density times k_a k_b, the mean a + b middle and the variance s,

    a = nu / E,   b = 2 xi x / E,   s = xi / E,   E = 1 + 2 xi x^2 .

So it is a polynomial of middle and apart^2 whose coefficients belong to the row: one matrix
product. See :doc:`/theory/prediction`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skvbgp._core.expectations import SecondMoment
from skvbgp._core.linalg import Array
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._psi import rotate


def se_slopes(X: Array, Z: Array) -> Iterator[Array]:
    """Derivatives (n, m) of `unit_se` in each coordinate of X."""
    K = unit_se(X, Z)
    for x, z in zip(X.T, Z.T, strict=True):
        yield (z - x[:, None]) * K


def square_slopes(X: Array, nu: Array, xi: Array, Z: Array, V: Array) -> Array:
    """E_q(Lambda)[K' V K'^T] for each row and each input, (n, d)."""
    forms = SecondMoment(*rotate(X, nu, xi), Z, n_kept=0).pair_forms(V, _powers)
    forms = forms.reshape(len(X), 8, -1)
    E = 1.0 + 2.0 * xi * X**2
    a, b, s = nu / E, 2.0 * xi * X / E, xi / E
    mean, rest = np.array([a, b]), np.array([-X * a, 1.0 / E])  # middle - l x has the mean rest
    mean_2, cross, rest_2 = _multiply(mean, mean), _multiply(mean, rest), _multiply(rest, rest)
    by_middle = _multiply(mean_2, rest_2)
    by_middle[:3] += s * (X**2 * mean_2 - 4.0 * X * cross + rest_2)
    by_middle[0] += 3.0 * (X * s) ** 2
    mean_2[0] += s
    coefficients = np.concatenate([by_middle, -mean_2])  # (8, n, d)
    return np.einsum("pnd,npd->nd", coefficients, forms)


def _powers(middle: Array, apart: Array) -> Array:
    """Powers of middle up to 4, and times apart^2 up to 2, (M, 8 d)."""
    powers = [middle**p for p in range(5)]
    return np.hstack([*powers, *(apart**2 * power for power in powers[:3])])


def _multiply(p: Array, q: Array) -> Array:
    """Coefficients of the product of two polynomials, the first axes of arrays."""
    product = np.zeros((len(p) + len(q) - 1, *p.shape[1:]))
    for i, coefficient in enumerate(p):
        product[i : i + len(q)] += coefficient * q
    return product
