r"""Gaussian processes of all classes, which share their kernel and their noise.

With K the kernel's matrix of n places, N_i the votes of a place and Y (n, classes) the centred
shares of these, every column of Y is N(0, C), C = K + noise diag(1 / N). One factorisation serves
all classes. What is learned maximises the log probability of every vote given the other
places and the other votes there, which are in closed form: with Q = C^-1, A = Q Y, q = diag(Q),

    m_i = y_i - a_i / q_i,   v_i = 1 / q_i - noise / N_i

are given the other places, and `LeftOut` gives the other votes back.

See :doc:`/theory/gp_classes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from skvbgp._core.linalg import JITTER, Array, cholesky, tril_inverse
from skvbgp.gp._bordered import factorise_bordered
from skvbgp.gp._link import Link
from skvbgp.gp._process import Process, log_length_prior
from skvbgp.gp._votes import Votes

#: Scale of the Cauchy prior of the logarithms by which length scales differ.
_APART = 0.3
#: Mean and standard deviation of the normal prior of the noise's logarithm. Of labels it may be as
#: large as a function of unit variance, or larger, where classes overlap.
LABEL_NOISE = (float(np.log(0.5)), 2.0)
#: Variance where all of a row is missing: before training, limits, normal prior of its logarithm.
_START_GAP, _GAP_LIMITS = 0.1, (1e-6, 1e3)
_LOG_GAP_MEAN, _LOG_GAP_STD = np.log(0.1), 1.5


@dataclass(frozen=True)
class ClassProcess:
    """Hyperparameters of one model: a Gaussian process, whose scale is known, and a link.

    Attributes
    ----------
    shared_scale : float or None
        The length scale that those of the inputs have a prior around. None is no such prior.
    gap : float or None
        Variance of the functions where all of a row is missing. None if nothing ever is.
    """

    process: Process
    link: Link
    shared_scale: float | None = None
    gap: float | None = None

    @property
    def kernel(self) -> Any:
        """The process' kernel."""
        return self.process.kernel

    def with_gaps(self, has_gaps: bool) -> Self:
        """The same model before it has learned how much missing entries matter."""
        return replace(self, gap=_START_GAP if has_gaps else None)

    def measure_gaps(self, missing: Array) -> Array:
        """How uncertain the functions are where these shares of rows are missing, (n,)."""
        return missing * (self.gap or 0.0)

    @property
    def vector(self) -> Array:
        """Logarithms of all that is free, (p,)."""
        gap = [] if self.gap is None else [np.log(self.gap)]
        return np.concatenate([self.process.vector, gap, self.link.vector])

    def with_vector(self, vector: Array) -> Self:
        """Return the same model with other hyperparameters."""
        gap, vector, link = self.gap, vector[:-3], Link.of(vector[-3:])
        if gap is not None:
            gap, vector = float(np.exp(vector[-1])), vector[:-1]
        return replace(self, process=self.process.with_vector(vector), link=link, gap=gap)

    @property
    def bounds(self) -> Array:
        """Limits of `vector`, (p, 2)."""
        gap = [] if self.gap is None else [np.log([_GAP_LIMITS])]
        return np.concatenate([self.process.bounds, *gap, self.link.bounds])

    def log_prior(self) -> tuple[float, Array]:
        """Logarithm of the prior density, up to a constant of flat priors, and its gradient."""
        value, gradient = self.process.log_prior()
        link_value, link_gradient = self.link.log_prior()
        if self.shared_scale is not None:
            # the length scales come first; the prior of a shared one counts once
            apart = np.log(self.kernel.length_scale) - np.log(self.shared_scale)
            value -= (len(apart) - 1) * log_length_prior(self.shared_scale)
            value -= float(np.sum(np.log1p((apart / _APART) ** 2) + np.log(np.pi * _APART)))
            gradient[: len(apart)] -= 2.0 * apart / (_APART**2 + apart**2)
        d_gap = []
        if self.gap is not None:
            shift = (np.log(self.gap) - _LOG_GAP_MEAN) / _LOG_GAP_STD
            value -= 0.5 * shift**2 + np.log(_LOG_GAP_STD * np.sqrt(2.0 * np.pi))
            d_gap = [-shift / _LOG_GAP_STD]
        return value + link_value, np.concatenate([gradient, d_gap, link_gradient])

    def factorise(self, votes: Votes, K: Array | None = None) -> ClassConditional:
        """What places say; K is not modified."""
        C = self.process.kernel(votes.X) if K is None else K.copy()
        gaps = self.measure_gaps(votes.missing)
        noise = _measure_noise(self.process, gaps, votes.sizes, C)
        C.flat[:: len(C) + 1] += noise
        L_inv = tril_inverse(cholesky(C, "covariance of rows"))
        return ClassConditional(self.process, votes.X, votes.targets, noise, gaps, L_inv)

    def give_back(self, votes: Votes, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Means (M, K) and variances (M,) of votes left out, from those given the other places.

        The variances include what is missing of the place.
        """
        gaps, out = self.measure_gaps(votes.missing), votes.left_out
        mean, variance = out.give_back(mean, variance, self.process.noise + gaps)
        return mean, variance + gaps[out.owner]

    def log_evidence(self, votes: Votes) -> float:
        """Log probability of every vote given the others."""
        moments = self.give_back(votes, *self.factorise(votes).leave_out())
        log_p = self.link.log_probabilities(*moments, votes.log_frequencies)
        return float(np.vdot(votes.left_out.counts, log_p))

    def evidence(self, votes: Votes) -> tuple[float, Array]:
        """The same, and its gradient in `vector`."""
        K = self.process.kernel(votes.X)
        given = self.factorise(votes, K)
        Q, A, q = given.L_inv.T @ given.L_inv, given.weights, given.precision
        mean, variance = given.leave_out()
        out, noise = votes.left_out, self.process.noise + given.gaps
        value, d_mean, d_total, d_link = self.link.score(
            *self.give_back(votes, mean, variance), out.counts, votes.log_frequencies
        )
        d_mean, d_variance, d_vote = out.give_back_vjp(mean, variance, noise, d_mean, d_total)
        # dm_i = (Q dC A)_i / q_i - a_i (Q dC Q)_ii / q_i^2
        # dv_i = (Q dC Q)_ii / q_i^2 - (dnoise + dgaps_i) / N_i
        dC = (Q @ (d_mean / q[:, None])) @ A.T
        dC += dC.T
        dC *= 0.5
        dC += (Q * ((d_variance - np.sum(d_mean * A, axis=1)) / q**2)) @ Q
        dt = (np.diagonal(dC) - d_variance) / votes.sizes + d_vote  # (n,)
        d_noise = self.process.noise * float(dt.sum())
        d_gaps = dt + out.sum_places(d_total)
        d_gap = [] if self.gap is None else [self.gap * float(d_gaps @ votes.missing)]
        d_kernel = self.process.kernel.vjp(votes.X, None, K, dC)[0]
        return value, np.concatenate([d_kernel, [d_noise], d_gap, d_link])


@dataclass(frozen=True)
class ClassConditional:
    """The process given places.

    Attributes
    ----------
    noise : ndarray of shape (n,)
        Variances of the targets' noise.
    gaps : ndarray of shape (n,)
        How uncertain the functions are at each place because of its missing entries.
    L_inv : ndarray of shape (n, n)
        Inverse of the lower Cholesky factor of C.
    """

    process: Process
    X: Array  # (n, d)
    targets: Array  # (n, K)
    noise: Array
    gaps: Array
    L_inv: Array

    @cached_property
    def weights(self) -> Array:
        """C^-1 Y."""
        return np.asarray(self.L_inv.T @ (self.L_inv @ self.targets))

    @cached_property
    def precision(self) -> Array:
        """Diagonal of C^-1."""
        return np.sum(self.L_inv**2, axis=0)

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Means (n*, K) of the classes' functions and their variance (n*,) at rows X."""
        k = self.process.kernel(self.X, X)
        variance = self.process.kernel.diag(X) - np.sum((self.L_inv @ k) ** 2, axis=0)
        return k.T @ self.weights, np.maximum(variance, 0.0)

    def leave_out(self) -> tuple[Array, Array]:
        """The same of the functions at every place, given all the others."""
        q = self.precision
        mean = self.targets - self.weights / q[:, None]
        return mean, np.maximum(1.0 / q - self.noise, 0.0)


def predict_classes_from_neighbours(process: ClassProcess, votes: Votes, x: Array) -> Array:
    """Means of the classes' functions at one row x (d,), followed by their variance, (K + 1,)."""
    K = process.kernel(np.concatenate([votes.X, x[None]]))
    noise = (process.process.noise + process.measure_gaps(votes.missing)) / votes.sizes
    a, B, _ = factorise_bordered(K, votes.targets.T, noise)
    return np.append(B @ a, max(float(K[-1, -1]) - float(a @ a), 0.0))


def _measure_noise(process: Process, gaps: Array, sizes: Array, K: Array) -> Array:
    """Variances (n,) of the targets' noise, with what rounding needs."""
    return (process.noise + gaps) / sizes + JITTER * float(np.mean(np.diagonal(K)))
