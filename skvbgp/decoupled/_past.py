r"""What a stream without rows knows: the posterior of the rows so far, as the prior of the next.

Theorem 1 of [Cheng2017]_ has the KL divergence to a prior N(a-bar, B-bar) with bases of its own.
Here they are those of q, which has all points of the past, and more where the past has none:

    KL = (a - a-bar)' G (a - a-bar) / 2 + KL of the covariances,  G = K_a + K_ab B-bar K_ba,

for the direct parametrisation. For the others, u and what it leaves of f are independent under
both processes, and

    KL = KL(q(u) || q-bar(u)) + (a - a-bar)' K~ (a - a-bar) / 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array


@dataclass(frozen=True)
class PastProcess:
    """The process that the KL divergence is to, at the hyperparameters and in the bases of q."""

    a: Array  # (m_a, k) coefficients a-bar of its mean
    #: Its u of each function, in the orthogonal frame; none for a direct covariance.
    q: tuple[WhitenedGaussian, ...] = ()
    L: Array | None = None  # (k, m_b, m_b) b-bar = L L' of a direct covariance


@dataclass(frozen=True)
class Past:
    """What is known before new rows: about f, and about the noise."""

    process: PastProcess
    noise: Array  # (q,) log parameters of the likelihood
    noise_precision: Array  # (q,) information about each of them

    def log_density_of_noise(self, noise: Array) -> tuple[float, Array]:
        """That of log parameters of the likelihood up to a constant, and its gradient."""
        gradient = self.noise_precision * (self.noise - noise)
        return 0.5 * float(gradient @ (noise - self.noise)), gradient
