r"""Gaussian processes of all classes, which share their kernel and their noise.

With K the kernel's matrix of n places, N_i the votes of a place and Y (n, classes) the centred
shares of these, every column of Y is N(0, C), C = K + noise diag(1 / N). One factorisation serves
all classes. What is learned maximises the log probability of every vote given the other
places and the other votes there, which are in closed form: with Q = C^-1, A = Q Y, q = diag(Q),

    m_i = y_i - a_i / q_i,   v_i = 1 / q_i - noise / N_i

are given the other places, and `LeftOut` gives the other votes back.

Where entries of places are missing, K is the matrix of functions averaged over what these may be,
and each vote has the variance u_i that the functions have besides: the noise of place i is
(noise + u_i) / N_i, and what is predicted of one more vote there has the variance v_i + u_i.

See :doc:`/theory/gp_classes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from skvbgp._core.linalg import (
    JITTER,
    Array,
    NotPositiveDefiniteError,
    cholesky,
    extend_inverse,
    factorise_bordered,
    tril_gram,
    tril_inverse,
)
from skvbgp._core.owners import count_inputs
from skvbgp._core.pickling import PickledByFields
from skvbgp.gp._process import Process, log_length_prior
from skvbgp.gp._warp import Warp
from skvbgp.gp.classes._link import Link
from skvbgp.gp.classes._votes import Votes
from skvbgp.gp.classes._warp import RangeUnits, WarpedCovariance
from skvbgp.kernels._uncertain import UncertainCovariance

#: Scale of the Cauchy prior of the logarithms by which length scales differ.
_APART = 0.3
#: Mean and standard deviation of the normal prior of the noise's logarithm. Of labels it may be as
#: large as a function of unit variance, or larger, where classes overlap.
LABEL_NOISE = (float(np.log(0.5)), 2.0)


class KnownPlaces(Protocol):
    """What places say of others."""

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Means (n*, K) of the classes' functions and their variance (n*,) at rows X."""


class ClassLink(Protocol):
    """From moments of the classes' functions to probabilities."""

    def log_probabilities(self, mean: Array, variance: Array, log_frequencies: Array) -> Array:
        """Of the classes, (n, K), from means (n, K), variances (n,) and log pi (K,)."""


@dataclass(frozen=True)
class ClassModel(PickledByFields, ABC):
    """Hyperparameters of one model: a Gaussian process, whose scale is known, and what is more."""

    process: Process
    d: int  # number of columns. Rows have as many entries, or also their variances.
    #: The length scale that those of the inputs have a prior around. None is no such prior.
    shared_scale: float | None = None
    #: A function of each input that is in front of the kernel.
    warp: Warp | RangeUnits | None = None

    @property
    def n_inputs(self) -> int:
        """Number of inputs, some of which may be encoded by several columns."""
        return count_inputs(self.d, self.process.owners)

    @property
    def kernel(self) -> Any:
        """The process' kernel."""
        return self.process.kernel

    @property
    def covariance(self) -> UncertainCovariance:
        """That of the functions, averaged over what entries of places may be."""
        if self.warp is None:
            return UncertainCovariance(self.process.kernel, self.d)
        return WarpedCovariance(self.process.kernel, self.d, self.warp)

    def measure_noise(self, X: Array) -> Array:
        """Variances (n,) of the noise of a vote at places, noise + u."""
        return np.asarray(self.process.noise + self.covariance.lost(X))

    def measure_total(self, X: Array) -> Array:
        """Variances (n,) of a vote's noise and of the function at places, gaps or not."""
        return np.asarray(self.process.noise + self.covariance.whole(X))

    @property
    def vector(self) -> Array:
        """Logarithms of all that is free, (p,)."""
        return self.process.vector

    def with_vector(self, vector: Array) -> Self:
        """Return the same model with other hyperparameters."""
        return replace(self, process=self.process.with_vector(vector))

    @property
    @abstractmethod
    def bounds(self) -> Array:
        """Limits of `vector`, (p, 2)."""

    def log_prior(self) -> tuple[float, Array]:
        """Logarithm of the prior density, up to a constant of flat priors, and its gradient."""
        value, gradient = self.process.log_prior()
        if self.shared_scale is not None:
            # the length scales come first; the prior of a shared one counts once
            apart = self.vector[: self.n_inputs] - np.log(self.shared_scale)
            value -= (len(apart) - 1) * log_length_prior(np.log([self.shared_scale]))[0]
            value -= float(np.sum(np.log1p((apart / _APART) ** 2) + np.log(np.pi * _APART)))
            gradient[: len(apart)] -= 2.0 * apart / (_APART**2 + apart**2)
        return value, gradient

    @property
    @abstractmethod
    def link(self) -> ClassLink:
        """From moments to probabilities."""

    @property
    @abstractmethod
    def n_chosen(self) -> int:
        """Hyperparameters that are chosen by what is left out."""

    @abstractmethod
    def factorise(self, votes: Votes) -> KnownPlaces:
        """What places say."""

    @abstractmethod
    def extend(self, given: Any, votes: Votes) -> KnownPlaces:
        """The same, of places of which the first ones, with their votes, have been factorised."""

    @abstractmethod
    def leave_out(self, votes: Votes) -> tuple[Array, Array]:
        """Means (M, K) and variances (M,) for each vote, left out in turn.

        The variances include u of the place.
        """

    @abstractmethod
    def log_evidence(self, votes: Votes) -> float:
        """What training maximises, without the prior."""

    @abstractmethod
    def evidence(self, votes: Votes) -> tuple[float, Array]:
        """The same, and its gradient in `vector`."""

    @abstractmethod
    def predict_from_neighbours(self, votes: Votes, x: Array) -> Array:
        """Means of the classes' functions at one row x, followed by their variance, (K + 1,)."""


@dataclass(frozen=True)
class ClassProcess(ClassModel):
    """Hyperparameters of labels that are regressed on places, and of the link."""

    link: Link = Link()

    @property
    def n_chosen(self) -> int:
        return len(self.vector)

    @property
    def vector(self) -> Array:
        return np.concatenate([self.process.vector, self.link.vector])

    def with_vector(self, vector: Array) -> Self:
        own, link = np.split(vector, [-len(self.link.vector)])
        return replace(super().with_vector(own), link=Link.of(link))

    @property
    def bounds(self) -> Array:
        return np.concatenate([self.process.bounds, self.link.bounds])

    def log_prior(self) -> tuple[float, Array]:
        value, gradient = super().log_prior()
        link_value, link_gradient = self.link.log_prior()
        return value + link_value, np.concatenate([gradient, link_gradient])

    def factorise(self, votes: Votes, K: Array | None = None) -> ClassConditional:
        """What places say, of covariances K, which are not modified."""
        C = self.covariance(votes.X) if K is None else K.copy()
        lost = self.covariance.lost(votes.X)
        noise = _measure_target_noise(self.process, lost, votes.sizes, np.diagonal(C))
        C.flat[:: len(C) + 1] += noise
        L_inv = tril_inverse(cholesky(C, "covariance of rows"))
        return ClassConditional(self.covariance, votes.X, votes.targets, noise, lost, L_inv)

    def extend(self, given: ClassConditional, votes: Votes) -> ClassConditional:
        n, covariance, lost = len(given.X), self.covariance, self.covariance.lost(votes.X)
        noise = _measure_target_noise(self.process, lost, votes.sizes, covariance.diag(votes.X))
        first, others = votes.X[:n], votes.X[n:]
        B, D = covariance(first, others), covariance(others) + np.diag(noise[n:])
        try:
            L_inv = extend_inverse(given.L_inv, B, D)
        except NotPositiveDefiniteError:  # rounding asks for jitter in all places
            return self.factorise(votes)
        return ClassConditional(covariance, votes.X, votes.targets, noise, lost, L_inv)

    def give_back(
        self, votes: Votes, mean: Array, variance: Array, constant: Array | None = None
    ) -> tuple[Array, Array]:
        """Means (M, K) and variances (M,) of votes left out, from those given the other places.

        The variances include u of the place. See `LeftOut.give_back`.
        """
        lost, out = self.covariance.lost(votes.X), votes.left_out
        mean, variance = out.give_back(mean, variance, self.process.noise + lost, constant)
        return mean, variance + lost[out.owner]

    def leave_out(self, votes: Votes) -> tuple[Array, Array]:
        given = self.factorise(votes)
        return self.give_back(votes, *given.leave_out(), given.leave_out_ones())

    def log_evidence(self, votes: Votes) -> float:
        """Log probability of every vote given the others."""
        moments = self.give_back(votes, *self.factorise(votes).leave_out())
        log_p = self.link.log_probabilities(*moments, votes.log_frequencies)
        return float(np.vdot(votes.left_out.counts, log_p))

    def evidence(self, votes: Votes) -> tuple[float, Array]:
        K = self.covariance(votes.X)
        given = self.factorise(votes, K)
        Q, A, q = tril_gram(given.L_inv), given.weights, given.precision
        mean, variance = given.leave_out()
        out, noise = votes.left_out, self.process.noise + given.lost
        value, d_mean, d_total, d_link = self.link.score(
            *self.give_back(votes, mean, variance), out.counts, votes.log_frequencies
        )
        d_mean, d_variance, d_vote = out.give_back_vjp(mean, variance, noise, d_mean, d_total)
        # dm_i = (Q dC A)_i / q_i - a_i (Q dC Q)_ii / q_i^2
        # dv_i = (Q dC Q)_ii / q_i^2 - (dnoise + du_i) / N_i
        dC = (Q @ (d_mean / q[:, None])) @ A.T
        dC += dC.T
        dC *= 0.5
        dC += (Q * ((d_variance - np.sum(d_mean * A, axis=1)) / q**2)) @ Q
        dt = (np.diagonal(dC) - d_variance) / votes.sizes + d_vote  # (n,)
        d_noise = self.process.noise * float(dt.sum())
        d_lost = dt + out.sum_places(d_total)
        d_kernel = self.process.sum_shared(self.covariance.vjp(votes.X, K, dC, d_lost))
        return value, np.concatenate([d_kernel, [d_noise], d_link])

    def predict_from_neighbours(self, votes: Votes, x: Array) -> Array:
        covariance = self.covariance
        K = covariance(covariance.stack(votes.X, x[None]))
        noise = self.measure_noise(votes.X) / votes.sizes
        a, B, _ = factorise_bordered(K, votes.targets.T, noise)
        return np.append(B @ a, max(float(K[-1, -1]) - float(a @ a), 0.0))


@dataclass(frozen=True)
class ClassConditional:
    """The process given places."""

    covariance: UncertainCovariance
    X: Array  # (n, d) or (n, 2 d)
    targets: Array  # (n, K)
    noise: Array  # (n,) variances of the targets' noise
    #: (n,): variances u that the functions have at each place because of its missing entries.
    lost: Array
    L_inv: Array  # (n, n) inverse of the lower Cholesky factor of C

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
        return predict_places(self.covariance, self.X, self.weights, self.L_inv, X)

    def leave_out(self) -> tuple[Array, Array]:
        """Moments of the functions at every place, given all the others."""
        q = self.precision
        mean = self.targets - self.weights / q[:, None]
        return mean, np.maximum(1.0 / q - self.noise, 0.0)

    def leave_out_ones(self) -> Array:
        """What all other places say at each of a function that is one everywhere, (n,)."""
        return np.asarray(1.0 - self.L_inv.T @ self.L_inv.sum(axis=1) / self.precision)


def predict_places(
    covariance: UncertainCovariance, known: Array, weights: Array, L_inv: Array, X: Array
) -> tuple[Array, Array]:
    """k' weights (n*, K) and k(x, x) - |L_inv k|^2 (n*,) at rows X, with k for the known ones."""
    k = covariance(known, X)
    variance = covariance.diag(X) - np.sum((L_inv @ k) ** 2, axis=0)
    return k.T @ weights, np.maximum(variance, 0.0)


def _measure_target_noise(process: Process, lost: Array, sizes: Array, prior: Array) -> Array:
    """Variances (n,) of the targets' noise, with what rounding needs beside the functions'."""
    return (process.noise + lost) / sizes + JITTER * prior
