r"""q(u) without a row, and what it says of that row: :ref:`kernel-left-out`.

To the precision and the shift of q(u) a row has added, over the S draws of theta,

    sum_s r_s^2 a_s a_s',   sum_s r_s^2 y a_s,     r_s^2 = w / (S (s2_s + v)),

with its weight w and the known variance v of its noise. They are subtracted. With F the rows
r_s a_s', what is asked for is F u alone, whose covariance G = F P^-1 F' becomes (I - G)^-1 G
(Woodbury).
"""

from __future__ import annotations

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp.base import invert_rest


def leave_out(q: WhitenedGaussian, A: Array, y: Array, root: Array) -> tuple[Array, Array]:
    """Means and variances (n, S) of a_s' u at rows, by q(u) without each of them.

    Parameters
    ----------
    q : WhitenedGaussian
        Of all rows.
    A : ndarray of shape (n, S, m)
        The rows a_s'.
    y : ndarray of shape (n,)
    root : ndarray of shape (n, S)
        r_s.

    Raises
    ------
    ValueError
        If a row says more than q knows.
    """
    scaled = root[:, :, None] * (A @ q.precision_factor_inv.T)  # (n, S, m)
    G = scaled @ scaled.mT  # (n, S, S)
    half = invert_rest(np.eye(G.shape[1]) - G) @ G
    covariance = G + half.mT @ half  # without cancellation
    fitted = A @ q.mean  # (n, S)
    residual = root * (y[:, None] - fitted)
    mean = fitted - (covariance @ residual[:, :, None])[:, :, 0] / root
    return mean, np.diagonal(covariance, axis1=1, axis2=2) / root**2
