"""Natural-gradient step of a conjugate Gaussian q(u)."""

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array


def natural_gradient_step(
    q: WhitenedGaussian, information: Array, information_shift: Array, rate: float
) -> WhitenedGaussian:
    """Move q's natural parameters towards the optimum that a mini-batch suggests.

    For a conjugate bound the natural gradient in the natural parameters is the difference between
    the optimum and the present value [1]_, so a step of size ``rate`` is a convex combination and
    keeps the precision positive definite; 1 forgets the past.

    The batch estimates the whole data's information matrix (m, m), without the prior's I, and its
    information vector (m,).

    References
    ----------
    .. [1] J. Hensman, N. Fusi and N. D. Lawrence, "Gaussian processes for big data",
       UAI 2013, Section 3.2.
    """
    precision = (1.0 - rate) * q.precision + rate * information
    precision.flat[:: len(precision) + 1] += rate
    return WhitenedGaussian(precision, (1.0 - rate) * q.shift + rate * information_shift)
