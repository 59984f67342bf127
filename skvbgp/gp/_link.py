r"""From what a process says of the classes to their probabilities.

At a place where the function of class c has mean m_c, and all of them variance v,

    log p_c = log pi_c + z_c - log sum_b pi_b exp(z_b),   z_c = slope m_c / sqrt(1 + damping v),

with the frequencies pi of the classes, which is what remains where nothing is known, m = 0. It is
the softmax averaged over the functions, as MacKay approximates it. See :doc:`/theory/gp_classes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import logsumexp

from skvbgp._core.linalg import Array
from skvbgp._optim.lbfgs import lbfgs_ascent

#: Mean and standard deviation of the normal priors of the logarithms of slope and damping.
_PRIOR_MEAN = np.array([np.log(6.0), 0.0])
_PRIOR_STD = np.array([1.0, 1.5])
#: Limits of both.
_LIMITS = ((0.1, 200.0), (1e-3, 1e3))
_MAX_ITER = 50


@dataclass(frozen=True)
class Link:
    """How steep probabilities are in the means, and what variances take from that."""

    slope: float = 6.0
    damping: float = 1.0

    @property
    def vector(self) -> Array:
        """Logarithms of both, (2,)."""
        return np.log([self.slope, self.damping])

    @classmethod
    def of(cls, vector: Array) -> Self:
        slope, damping = np.exp(vector)
        return cls(float(slope), float(damping))

    @property
    def bounds(self) -> Array:
        """Limits of `vector`, (2, 2)."""
        return np.log(_LIMITS)

    def log_prior(self) -> tuple[float, Array]:
        """Logarithm of the prior density of `vector`, and its gradient."""
        shift = (self.vector - _PRIOR_MEAN) / _PRIOR_STD
        constant = -float(np.sum(np.log(_PRIOR_STD * np.sqrt(2.0 * np.pi))))
        return constant - 0.5 * float(shift @ shift), -shift / _PRIOR_STD

    def log_probabilities(self, mean: Array, variance: Array, log_frequencies: Array) -> Array:
        """Of the classes, (n, K), from means (n, K), variances (n,) and log pi (K,)."""
        steep = self.slope / np.sqrt(1.0 + self.damping * variance)
        joint = log_frequencies + steep[:, None] * mean
        return np.asarray(joint - logsumexp(joint, axis=1, keepdims=True))

    def score(
        self, mean: Array, variance: Array, counts: Array, log_frequencies: Array
    ) -> tuple[float, Array, Array, Array]:
        """Log probability of labels, and its gradients.

        Parameters
        ----------
        mean : ndarray of shape (n, K)
        variance : ndarray of shape (n,)
        counts : ndarray of shape (n, K)
            How often each place has each label.
        log_frequencies : ndarray of shape (K,)

        Returns
        -------
        value : float
        d_mean, d_variance, d_vector : ndarrays of shape (n, K), (n,) and (2,)
        """
        log_p = self.log_probabilities(mean, variance, log_frequencies)
        shrink = 1.0 / (1.0 + self.damping * variance)
        steep = self.slope * np.sqrt(shrink)
        dz = counts - counts.sum(axis=1, keepdims=True) * np.exp(log_p)
        dsteep = steep * np.sum(dz * mean, axis=1)  # in log steep
        d_variance = -0.5 * self.damping * shrink * dsteep
        d_vector = np.array([np.sum(dsteep), d_variance @ variance])
        return float(np.vdot(counts, log_p)), steep[:, None] * dz, d_variance, d_vector

    def learn(self, mean: Array, variance: Array, counts: Array, log_frequencies: Array) -> Link:
        """The link that these labels of places ask for, starting here."""

        def objective(vector: Array) -> tuple[float, Array]:
            link = Link.of(vector)
            value, _, _, slope = link.score(mean, variance, counts, log_frequencies)
            prior, prior_slope = link.log_prior()
            return value + prior, slope + prior_slope

        start = np.clip(self.vector, *self.bounds.T)
        found = lbfgs_ascent(objective, start, max_iter=_MAX_ITER, tol=1e-9, bounds=self.bounds)
        return Link.of(found.x)
