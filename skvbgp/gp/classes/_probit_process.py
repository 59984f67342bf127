r"""A Gaussian process of two classes, whose votes have a probit likelihood.

The function f is N(m, K) at places, and a vote is for the second class with the probability
Phi(f_i / t_i^1/2), t_i = noise + u_i, where u_i is the variance that the function has besides at a
place with gaps. Given votes, f is normal by Laplace's approximation at the maximum of its density,

    f^ = m + K g,   Sigma = (K^-1 + W)^-1 = K - K R K,   R = (K + W^-1)^-1,

where g and -W are the first two derivatives of the log likelihood there. Hyperparameters maximise

    log Z = log p(votes | f^) - g' K g / 2 - log|I + W^1/2 K W^1/2| / 2.

Predictions, and what is said of votes that are left out, are those of expectation propagation with
these hyperparameters, see `_probit_sites`; if votes are not whole, or from neighbours, Laplace's.
The mean m is where the probabilities are the classes' frequencies.

See :doc:`/theory/gp_class_overlap`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from skvbgp._core.alike import log_alike
from skvbgp._core.linalg import Array, cholesky, tril_gram, tril_inverse
from skvbgp._core.parallel import thread_map
from skvbgp._core.sites import measure_curvature, measure_ratio, measure_third
from skvbgp.gp._process import log_length_prior
from skvbgp.gp.classes._link import learn_power, raise_evidence
from skvbgp.gp.classes._probit_sites import SIGNS, Sites, add_information
from skvbgp.gp.classes._process import ClassModel, predict_places
from skvbgp.gp.classes._votes import Votes

#: Newton's method ends when a step gains less than so many nats for each place.
_TOL = 1e-10
_MAX_STEPS, _MAX_HALVINGS = 50, 30
#: Limits of the noise's logarithm, for a function of unit variance.
_NOISE_LIMITS = (np.log(1e-4), np.log(10.0))


@dataclass(frozen=True)
class ProbitLink:
    """From means and variances of the functions to probabilities.

    What is said of the classes beside their frequencies may count with a power.
    """

    noise: float
    power: float = 1.0

    def log_probabilities(self, mean: Array, variance: Array, log_frequencies: Array) -> Array:
        """Of the classes, (n, K), from means (n, K), variances (n,) and log pi (K,)."""
        log_p = log_ndtr(mean / np.sqrt(self.noise + variance)[:, None])
        return raise_evidence(log_p, log_frequencies, self.power)

    def learn(self, mean: Array, variance: Array, counts: Array, log_frequencies: Array) -> Self:
        """The same link, of the power by which votes (M, K) that are left out ask."""
        log_p = ProbitLink(self.noise).log_probabilities(mean, variance, log_frequencies)
        return replace(self, power=learn_power(log_p, counts, log_frequencies))


class LabelModel(ClassModel):
    """Hyperparameters of one or several functions, whose signs labels are but for noise."""

    @property
    def link(self) -> ProbitLink:
        return ProbitLink(self.process.noise)

    @property
    def bounds(self) -> Array:
        return np.vstack([self.process.bounds[:-1], _NOISE_LIMITS])

    @property
    def n_chosen(self) -> int:
        return 0

    @abstractmethod
    def split(self, counts: Array) -> list[Array]:
        """Votes (n, 2) against and for each function, from those (n, K) of the classes."""

    @abstractmethod
    def measure_scores(self, log_frequencies: Array) -> Array:
        """Scores (F,) of the functions, where only the classes' frequencies are known."""

    @abstractmethod
    def join_moments(
        self, moments: Sequence[tuple[Array, Array]], lost: Array
    ) -> tuple[Array, Array]:
        """Means (n, K) and a variance (n,) of the classes' functions, from (n,) of each.

        `lost` (n,) is what functions vary besides.
        """


@dataclass(frozen=True)
class ProbitProcess(LabelModel):
    """Hyperparameters of one function; those of the two classes are -f and f."""

    def split(self, counts: Array) -> list[Array]:
        return [counts]

    def measure_scores(self, log_frequencies: Array) -> Array:
        return np.asarray(ndtri_exp(log_frequencies[1:]))

    def join_moments(self, moments: Sequence[tuple[Array, Array]], _: Array) -> tuple[Array, Array]:
        ((mean, variance),) = moments
        return _mirror(mean), variance

    def measure_mean(self, X: Array, log_frequencies: Array) -> Array:
        """m (n,) at places."""
        return self.measure_scores(log_frequencies) * np.sqrt(self.measure_total(X))

    def factorise(self, votes: Votes, K: Array | None = None) -> ProbitConditional:
        """What places say, of covariances K, which are not modified."""
        return ProbitConditional(self, votes, self.match(votes, K))

    def extend(self, given: ProbitConditional, votes: Votes) -> ProbitConditional:
        if not votes.are_whole:
            return self.factorise(votes)
        n, covariance = len(given.votes), self.covariance
        K = np.empty((len(votes), len(votes)))
        K[:n, :n], K[n:, n:] = given.sites.K, covariance(votes.X[n:])
        K[:n, n:] = covariance(votes.X[:n], votes.X[n:])
        K[n:, :n] = K[:n, n:].T
        m = self.measure_mean(votes.X, votes.log_frequencies)
        t = self.process.noise + covariance.lost(votes.X)
        sites = given.sites.plus(K, m, t, votes.counts).match()
        return self.factorise(votes) if sites is None else ProbitConditional(self, votes, sites)

    def leave_out(self, votes: Votes) -> tuple[Array, Array]:
        out = votes.left_out
        rest = out.count_rest(votes.log_frequencies)
        mean, variance = self.match(votes).leave_out(out.owner, rest)
        return _mirror(mean), variance + self.covariance.lost(votes.X)[out.owner]

    def log_evidence(self, votes: Votes) -> float:
        return Mode.find(self, votes).log_evidence

    def evidence(self, votes: Votes) -> tuple[float, Array]:
        return self.sum_evidence([votes])

    def sum_evidence(self, labels: Sequence[Votes]) -> tuple[float, Array]:
        """What training maximises, of several labels of the same places, and its gradient."""
        X = labels[0].X
        K, total = self.covariance(X), self.measure_total(X)
        value, dK, dt, dtotal = 0.0, np.zeros_like(K), np.zeros(len(X)), np.zeros(len(X))
        modes = thread_map(lambda votes: Mode.find(self, votes, K).weigh(), zip(labels))
        for votes, (evidence, in_K, in_m, in_t) in zip(labels, modes, strict=True):
            value += evidence
            dK += in_K
            dt += in_t
            score = self.measure_scores(votes.log_frequencies)
            dtotal += 0.5 * score * in_m / np.sqrt(total)  # m is in total
        d_kernel = self.covariance.vjp(X, K, dK, dt) + self.covariance.vjp_whole(X, dtotal)
        d_noise = self.process.noise * float(np.sum(dt + dtotal))
        return value, np.append(self.process.sum_shared(d_kernel), d_noise)

    def predict_from_neighbours(self, votes: Votes, x: Array) -> Array:
        # for every row anew: Laplace's approximation takes a fourth of the time
        mean, variance = ProbitConditional(self, votes, self._expand(votes)).moments(x[None])
        return np.append(mean[0], variance)

    def match(self, votes: Votes, K: Array | None = None) -> Sites:
        """What votes say of f."""
        sites = self._expand(votes, K)
        return (sites.match() or sites) if votes.are_whole else sites

    def _expand(self, votes: Votes, K: Array | None = None) -> Sites:
        """The same, by Laplace's approximation."""
        mode = Mode.find(self, votes, K)
        return Sites.expand(mode.K, mode.m, mode.t, votes.counts, mode.f)


@dataclass(frozen=True)
class AlikeProcess(ProbitProcess):
    """A `ProbitProcess` with length scales by input that are alike, as in `EPDTCClassifier`.

    The prior median of all is the shared one, or in proportion to others. Their mean is nearly
    free.
    """

    shared_scale: float
    log_ratios: Array | float = 0.0  # (n_inputs,) of the medians to the shared one

    def log_prior(self) -> tuple[float, Array]:
        value, gradient = self.process.log_prior()
        log_scales = self.vector[: self.n_inputs]  # they come first
        own, slope = log_length_prior(log_scales)
        apart = log_scales - np.log(self.shared_scale) - self.log_ratios
        alike, push = log_alike(apart, np.ones(self.n_inputs))
        gradient[: self.n_inputs] += push - slope
        return value - own + alike, gradient


@dataclass(frozen=True)
class ProbitConditional:
    """The process given places."""

    process: ProbitProcess
    votes: Votes
    sites: Sites

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Means (n*, 2) of the classes' functions and their variance (n*,) at rows X."""
        known = self.process.covariance, self.votes.X, self.sites.g[:, None], self.sites.L_inv
        rise, variance = predict_places(*known, X)
        prior = self.process.measure_mean(X, self.votes.log_frequencies)
        return _mirror(prior + rise[:, 0]), variance


class LogLikelihood(NamedTuple):
    """Log likelihood of the votes of places, and its derivatives in f, each (n,)."""

    value: Array
    g: Array
    W: Array  # minus the second
    third: Array

    @classmethod
    def of(cls, f: Array, t: Array, counts: Array) -> Self:
        """That of votes (n, 2), given f and t."""
        parts = np.zeros((4, len(f)))
        for count, sign in zip(counts.T, SIGNS, strict=True):
            a = sign / np.sqrt(t)
            z = a * f
            ratio = measure_ratio(z)
            W, third = a**2 * measure_curvature(z, ratio), a**3 * measure_third(z, ratio)
            parts += count * np.array([log_ndtr(z), a * ratio, W, third])
        return cls(*parts)


@dataclass(frozen=True)
class Mode:
    """The maximum of the density of f, of shape (n,)."""

    K: Array
    m: Array
    t: Array
    f: Array
    at: LogLikelihood

    @classmethod
    def find(cls, process: ProbitProcess, votes: Votes, K: Array | None = None) -> Self:
        """By Newton's method, whose steps are halved until they gain."""
        K = process.covariance(votes.X) if K is None else K
        m = process.measure_mean(votes.X, votes.log_frequencies)
        t = process.process.noise + process.covariance.lost(votes.X)
        mode, gain = cls(K, m, t, m, LogLikelihood.of(m, t, votes.counts)), np.inf
        a, value = np.zeros(len(m)), float(mode.at.value.sum())
        for _ in range(_MAX_STEPS):
            # (I + W K)^-1 (g - a): what is left of the slope, so that rounding is made good later
            rest, root = mode.at.g - a, np.sqrt(mode.at.W)
            da = rest - root * np.linalg.solve(mode.B, root * (K @ rest))
            df = K @ da
            for step in 0.5 ** np.arange(_MAX_HALVINGS):
                f = mode.f + step * df
                at = LogLikelihood.of(f, t, votes.counts)
                gain = float(at.value.sum() - 0.5 * (a + step * da) @ (f - m)) - value
                if gain >= 0.0:
                    mode, a, value = cls(K, m, t, f, at), a + step * da, value + gain
                    break
            if gain < _TOL * len(m):
                break
        return mode

    @property
    def B(self) -> Array:
        """I + W^1/2 K W^1/2, (n, n)."""
        return add_information(self.K, self.at.W)

    @cached_property
    def L_inv(self) -> Array:
        """L^-1 W^1/2 (n, n), L L' = B, which has the product R with itself."""
        return self._factors[0]

    @cached_property
    def _factors(self) -> tuple[Array, float]:
        """L^-1 W^1/2 and log|L|."""
        L = cholesky(self.B, "posterior precision of rows")
        return tril_inverse(L) * np.sqrt(self.at.W), float(np.sum(np.log(np.diagonal(L))))

    @cached_property
    def variance(self) -> Array:
        """Diagonal of Sigma, (n,)."""
        own = np.diagonal(self.K)
        return np.asarray(np.maximum(own - np.sum((self.L_inv @ self.K) ** 2, axis=0), 0.0))

    @property
    def log_evidence(self) -> float:
        """log Z."""
        energy = 0.5 * float(self.at.g @ (self.f - self.m))
        return float(self.at.value.sum()) - energy - self._factors[1]

    def weigh(self) -> tuple[float, Array, Array, Array]:
        """log Z, and its gradients (n, n), (n,) and (n,) in K, m and t."""
        g, W, third, f = self.at.g, self.at.W, self.at.third, self.f
        R = tril_gram(self.L_inv)
        s = 0.5 * self.variance * third  # in f^
        q = s - R @ (self.K @ s)
        dK = 0.5 * (np.outer(g, g) - R + np.outer(q, g) + np.outer(g, q))
        # the likelihood depends on f / t^1/2
        dt = -f * g + 0.5 * self.variance * (2.0 * W - f * third) - (self.K @ q) * (g - f * W)
        return self.log_evidence, dK, g + q, 0.5 * dt / self.t


def _mirror(f: Array) -> Array:
    """Functions (n, 2) of both classes."""
    return np.column_stack([-f, f])
