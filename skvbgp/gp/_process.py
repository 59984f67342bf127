r"""A Gaussian process whose scale is uncertain in every neighbourhood.

The rows of one neighbourhood, with K the kernel's matrix, are

    y | s ~ N(0, s C),   C = K + noise I,   s ~ InverseGamma(dof / 2, dof / 2),

so that y is Student's t, St(y | 0, C, dof), and given these rows a new one is again, with the scale

    s_hat = (dof + y' C^-1 y) / (dof + n).

Functions that are rough here and smooth there, or noise that is, ask for few degrees of freedom; an
infinite number gives the Gaussian process. In predictions the rows nearest to a place count most
for the scale there. See :doc:`/theory/gp`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import digamma, gammaln, logsumexp

from skvbgp._core.factor import BlockFactor, InverseFactor
from skvbgp._core.gaussian import log_normal
from skvbgp._core.linalg import (
    LOG_2PI,
    Array,
    NotPositiveDefiniteError,
    choose_jitter,
    extend_inverse,
    jittered_cholesky,
    tril_gram,
    tril_inverse,
)
from skvbgp._core.pickling import PickledByFields
from skvbgp._optim.maximum import Trained, train
from skvbgp.gp._conditional import Conditional, Scale
from skvbgp.gp._coregion import Coregion, Covariance, JointCovariance, PullBack
from skvbgp.gp._row_noise import Group, RowNoise
from skvbgp.kernels import Kernel
from skvbgp.kernels._by_input import name_by_input, own_hyperparameters
from skvbgp.kernels._pairs import Pairs

#: Limits of the noise variance and of the degrees of freedom, for a target of unit variance. Where
#: the scale is known, it cannot become smaller where there is no noise.
_NOISE_LIMITS, _KNOWN_SCALE_NOISE_LIMITS = (1e-7, 10.0), (1e-10, 10.0)
_DOF_LIMITS = (1.0, 1e4)
_SLOPE_LIMITS = (1e-6, 1e3)
#: The r-th nearest row counts exp(-r / _WINDOW) for the scale at a place.
_WINDOW = 16.0
#: Mean and standard deviation of the normal priors of the hyperparameters' logarithms, by name;
#: those with other names have flat ones.
_PRIORS = {
    "length_scale": (np.log(2.0), 2.0),
    "value": (0.0, 2.0),
    "variance": (0.0, 1.0),
    "alpha": (0.0, 1.5),
    "noise": (np.log(0.05), 1.0),
    "slope": (np.log(0.3), 1.0),
}
#: Prior of the noise's logarithm where there is hardly any, and how probable that is of few rows.
_NOISELESS, _PROBABLY_NOISELESS = (float(np.log(1e-3)), 5.0), 0.01
#: Mean squared slope, noise and degrees of freedom before training.
_START_SLOPE, _START_NOISE, _START_DOF = 0.3, 0.1, 20.0

#: What a process keeps that its values do not change.
_STRUCTURE = ("_names", "_first", "_shared", "_prior")


@dataclass(frozen=True)
class Process(PickledByFields):
    """Hyperparameters of one model."""

    kernel: Kernel
    noise: float  # variance of the noise
    dof: float  # degrees of freedom of the scale
    #: Mean squared slopes of the function along the inputs that may be missing, by which rows with
    #: uncertain entries have more noise.
    slopes: tuple[float, ...] = ()
    #: By input of the kernel: inputs of the same owner share their hyperparameters, such as the
    #: columns of a category. Without any, every input is its own.
    owners: tuple[int, ...] = ()
    #: By input of the kernel, in the place of owners: those that share their hyperparameters.
    tied: tuple[int, ...] = ()
    #: How outputs go together, of which every row says by its last columns which one it is of.
    coregion: Coregion | None = None
    #: Mean and standard deviation of the normal prior of the noise's logarithm.
    noise_prior: tuple[float, float] = _PRIORS["noise"]
    #: Whether an uncertain scale is one of all rows, rather than another around every place. These
    #: are few then, and whether there is any noise is not known before.
    one_scale: bool = False

    @cached_property
    def covariance(self) -> Covariance:
        """Of the function at rows, which may hold indicators of outputs."""
        return self.kernel if self.coregion is None else JointCovariance(self.kernel, self.coregion)

    @property
    def noises(self) -> float | Array:
        """Variance of the noise, or those (t,) of the outputs."""
        return self.noise if self.coregion is None else self.noise * self.coregion.factors

    @property
    def is_gaussian(self) -> bool:
        """Whether the scale is known, and no degrees of freedom are learned."""
        return bool(np.isinf(self.dof))

    @property
    def is_uniform(self) -> bool:
        """Whether all rows have one scale."""
        return self.is_gaussian or self.one_scale

    @property
    def vector(self) -> Array:
        """Logarithms of all that is free, and what `Coregion.vector` holds, (p,)."""
        tail = [self.noise] if self.is_gaussian else [self.noise, self.dof]
        vector = np.concatenate([self.kernel.theta[self._first], np.log([*tail, *self.slopes])])
        return vector if self.coregion is None else np.append(vector, self.coregion.vector)

    def with_vector(self, vector: Array) -> Self:
        p, coregion = len(self._first), self.coregion
        if coregion is not None:
            vector, outputs = np.split(vector, [-len(coregion.vector)])
            coregion = coregion.with_vector(outputs)
        noise, *rest = np.exp(vector[p:]).tolist()
        dof, *slopes = [self.dof, *rest] if self.is_gaussian else rest
        kernel = self.kernel.with_theta(vector[:p][self._shared])
        learned = {"noise": noise, "dof": dof, "slopes": tuple(slopes), "coregion": coregion}
        process = replace(self, kernel=kernel, **learned)
        vars(process).update({name: getattr(self, name) for name in _STRUCTURE})
        return process

    @property
    def noise_limits(self) -> tuple[float, float]:
        return _KNOWN_SCALE_NOISE_LIMITS if self.is_gaussian else _NOISE_LIMITS

    @property
    def bounds(self) -> Array:
        """Limits of `vector`, (p, 2)."""
        tail = [self.noise_limits] if self.is_gaussian else [self.noise_limits, _DOF_LIMITS]
        tail += [_SLOPE_LIMITS] * len(self.slopes)
        bounds = np.concatenate([self.kernel.bounds[self._first], np.log(tail)])
        return bounds if self.coregion is None else np.vstack([bounds, self.coregion.bounds])

    def sum_shared(self, d_theta: Array) -> Array:
        """Gradient in the hyperparameters of the kernel, from that in all entries of its theta."""
        return np.asarray(np.bincount(self._shared, d_theta, len(self._first)))

    @cached_property
    def _names(self) -> list[str]:
        """Of the kernel's theta; hyperparameters that are shared have the same."""
        return name_by_input(self.kernel, self.tied or self.owners)

    @cached_property
    def _first(self) -> list[int]:
        """Where in theta each hyperparameter is first."""
        return np.unique(self._shared, return_index=True)[1].tolist()

    @cached_property
    def _shared(self) -> list[int]:
        """By entry of theta: the number of its hyperparameter."""
        return list(own_hyperparameters(self.kernel, self.tied or self.owners))

    @cached_property
    def _prior(self) -> tuple[Array, Array]:
        """Mean and precision of the prior of `vector`, each (p,)."""
        names = [name.split(".")[-1].split("[")[0] for name in dict.fromkeys(self._names)]
        pairs = [*(_PRIORS.get(name, (0.0, np.inf)) for name in names), self.noise_prior]
        if not self.is_gaussian:
            pairs.append((0.0, np.inf))
        pairs += [_PRIORS["slope"]] * len(self.slopes)
        pairs += [] if self.coregion is None else self.coregion.prior
        mean, std = np.array(pairs).T
        return mean, std**-2.0

    def log_prior(self) -> tuple[float, Array]:
        """Logarithm of the prior density, up to a constant of flat priors, and its gradient."""
        mean, precision = self._prior
        shift = self.vector - mean
        proper = precision > 0.0
        constant = 0.5 * float(np.sum(np.log(precision[proper] / (2.0 * np.pi))))
        value, gradient = constant - 0.5 * float(precision @ shift**2), -precision * shift
        if self.one_scale:
            i = len(self._first)
            rise, slope = self._compare_noise_priors(float(self.vector[i]))
            value, gradient[i] = value + rise, gradient[i] + slope
        return value, gradient

    def _compare_noise_priors(self, log_noise: float) -> tuple[float, float]:
        """What the density of both priors of the noise has more than the usual one alone."""
        mean, std = np.array([self.noise_prior, _NOISELESS]).T
        shift = log_noise - mean
        each, slopes = log_normal(shift, std**2), -shift / std**2
        shared = np.log([1.0 - _PROBABLY_NOISELESS, _PROBABLY_NOISELESS]) + each
        total = logsumexp(shared)
        return float(total - each[0]), float(np.exp(shared - total) @ slopes - slopes[0])

    def average_prior(self, X: Array) -> Array:
        """Prior covariance (t, t) of outputs at a place, or (1, 1), averaged over rows X."""
        if self.coregion is None:
            return np.array([[np.mean(self.kernel.diag(X))]])
        return self.coregion.B * np.mean(self.kernel.diag(self.coregion.split(X)[0]))

    # -- rows ------------------------------------------------------------------------------------

    def summarise(
        self,
        innovations: Array,
        log_diagonal: Array,
        known: RowNoise | None,
        share: Array | None = None,
    ) -> Summary:
        """What rows say of the scale, from their errors in standard deviations at scale one.

        And from the logarithms of these, (n,) each, or (m, n) for m places. For a density of all
        rows they are L^-1 y and L's diagonal: each row given those before it. `share` (n,) is how
        much each row counts. None is once.
        """
        share = np.ones(innovations.shape[-1]) if share is None else share
        n, quadratic, half_log_det = share.sum(), innovations**2 @ share, log_diagonal @ share
        if known is not None:
            half_log_dets, squares = known.measure_rest(self.noises, self.slopes)
            n, quadratic = known.weight @ share, quadratic + squares @ share
            half_log_det = half_log_det + half_log_dets @ share
        return Summary(n, quadratic, half_log_det)

    def follow(self, summary: Summary) -> Scale:
        """The scale that rows say."""
        return Scale(self.spread(*summary[:2]), self.log_density(*summary))

    def estimate_scale(self, n: float, quadratic: float) -> float:
        """s_hat of n rows with y' C^-1 y = quadratic."""
        return 1.0 if self.is_gaussian else (self.dof + quadratic) / (self.dof + n)

    def spread(self, n: Any, quadratic: Any) -> Any:
        """Factor of the variances given n rows: that of Student's t with dof + n degrees."""
        if self.is_gaussian:
            return 1.0
        return (self.dof + quadratic) / np.maximum(self.dof + n - 2.0, 1.0)

    def log_density(self, n: Any, quadratic: Any, half_log_det: Any) -> Any:
        """log St(y | 0, C, dof) of n rows, half_log_det = log|C| / 2."""
        q, dof = quadratic, self.dof
        if self.is_gaussian:
            return -half_log_det - 0.5 * (q + n * LOG_2PI)
        constant = gammaln(0.5 * (dof + n)) - gammaln(0.5 * dof) - 0.5 * n * np.log(np.pi * dof)
        return constant - half_log_det - 0.5 * (dof + n) * np.log1p(q / dof)

    def spread_noise(self, known: RowNoise | None) -> Array | float:
        """Variances of the noise of rows of which that is known."""
        return self.noise if known is None else known.spread(self.noises, self.slopes)

    def add_indicators(self, X: Array, known: RowNoise | None) -> RowNoise | None:
        """What is known of the noise of rows X, with the outputs that these are of."""
        if self.coregion is None:
            return known
        return replace(RowNoise.of(known, len(X)), outputs=self.coregion.split(X)[1])

    def count_nearest(self, n: int) -> Array:
        """How much each of n rows counts for the scale at a place, the nearest one last."""
        return np.ones(n) if self.is_gaussian else np.exp(-np.arange(n)[::-1] / _WINDOW)

    def factorise(
        self, X: Array, y: Array, known: RowNoise | None = None, K: Array | None = None
    ) -> Conditional:
        """What rows (n, d) and their targets (n,) or (n, m) say; K is not modified."""
        C = self.covariance(X) if K is None else K.copy()
        known = self.add_indicators(X, known)
        noise = self.spread_noise(known)
        C.flat[:: len(C) + 1] += noise
        jitter = choose_jitter(noise, np.diagonal(C))
        if known is None:
            L = jittered_cholesky(C, "covariance of rows", jitter=jitter)
            return Conditional(self, X, y, InverseFactor(tril_inverse(L)))
        unit = np.sqrt(np.diagonal(C))  # jitter is relative to each row's own variance
        L = jittered_cholesky(C / unit[:, None] / unit, "correlation of rows", jitter=jitter)
        return Conditional(self, X, y, InverseFactor(tril_inverse(L) / unit), known)

    def factorise_in_blocks(
        self, X: Array, y: Array, known: RowNoise | None = None, K: Array | None = None
    ) -> Conditional:
        """The same in less time, for few places or draws, which need no inverse."""
        K = self.covariance(X) if K is None else K
        known = self.add_indicators(X, known)
        noise = np.broadcast_to(self.spread_noise(known), len(X))
        own = np.diagonal(K) + noise
        jitter = choose_jitter(noise, own)
        unit = np.full(len(X), own.mean()) if known is None else own
        return Conditional(self, X, y, BlockFactor.of(K, noise, jitter, unit), known)

    def extend(self, given: Conditional, X: Array, y: Array, known: RowNoise | None) -> Conditional:
        """What all rows (n, d) say; the first ones, of any targets, have been factorised."""
        n = len(given.X)
        if n == len(X):
            return given.given_targets(y)
        known = self.add_indicators(X, known)
        prior = self.covariance.diag(X)
        noise = np.broadcast_to(self.spread_noise(known), len(X))
        load = (choose_jitter(noise, prior + noise) * (prior + noise) + noise)[n:]
        B, D = self.covariance(X[:n], X[n:]), self.covariance(X[n:]) + np.diag(load)
        try:
            inverse = extend_inverse(given.L_inv, B, D)
        except NotPositiveDefiniteError:  # rounding asks for more jitter in all rows
            return self.factorise(X, y, known)
        return Conditional(self, X, y, InverseFactor(inverse), known)

    def prepare(self, groups: Iterable[Group]) -> list[tuple[Array, Array, RowNoise | None, Pairs]]:
        """Groups with what their matrices of any hyperparameters have in common, for `evidence`."""
        t = 0 if self.coregion is None else self.coregion.t
        return [(X, y, known, Pairs(X[:, : X.shape[1] - t])) for X, y, known in groups]

    def log_evidence(
        self, X: Array, y: Array, known: RowNoise | None = None, pairs: Pairs | None = None
    ) -> float:
        """Logarithm of the density of rows with targets (n,), or (n, m) of m outputs.

        The outputs are independent, and the scale of each is another.
        """
        given = self.factorise(X, y, known, self._evaluate(X, pairs)[0])
        return float(sum(one.scale.evidence for one in given.split_outputs()))

    def evidence(
        self, X: Array, y: Array, known: RowNoise | None = None, pairs: Pairs | None = None
    ) -> tuple[float, Array]:
        """The same, and its gradient in `vector`, see `prepare`."""
        return self._differentiate(y, known, X, *self._evaluate(X, pairs))[:2]

    def differentiate(
        self, X: Array, y: Array, known: RowNoise | None
    ) -> tuple[float, Array, Array]:
        """The same, and its gradient in X (n, d), zero in indicators of outputs."""
        return self._differentiate(y, known, X, *self._evaluate(X))

    def _differentiate(
        self, y: Array, known: RowNoise | None, X: Array, K: Array, pull_back: PullBack
    ) -> tuple[float, Array, Array]:
        """The same, from the matrix of rows and its gradients."""
        conditional = self.factorise(X, y, known, K)
        known, each = conditional.known, conditional.split_outputs()
        m = len(each)
        dC = tril_gram(conditional.L_inv)
        dC *= -0.5 * m
        precisions = [1.0 / self.estimate_scale(*one.summary[:2]) for one in each]
        for one, precision in zip(each, precisions, strict=True):
            dC += np.outer(0.5 * precision * one.weights, one.weights)
        d_noises: float | Array = float(np.trace(dC))
        d_slopes = np.zeros(len(self.slopes))
        if known is not None:
            given = np.diagonal(dC) / m, sum(precisions) / m
            d_noises, d_slopes = known.vjp(self.noises, self.slopes, *given)
            d_noises, d_slopes = m * d_noises, m * d_slopes
        d_log_noises = self.noises * d_noises
        d_kernel, dX, d_entries = pull_back(dC)
        d_outputs = [] if d_entries is None else [d_entries, np.asarray(d_log_noises)]
        gradient = np.append(self.sum_shared(d_kernel), np.sum(d_log_noises))
        if not self.is_gaussian:
            slope = sum(self._differentiate_dof(*one.summary[:2]) for one in each)
            gradient = np.append(gradient, self.dof * slope)
        gradient = np.concatenate([gradient, d_slopes * self.slopes, *d_outputs])
        return float(sum(one.scale.evidence for one in each)), gradient, dX

    def _differentiate_dof(self, n: float, q: float) -> float:
        """Derivative in the degrees of freedom of `log_density`."""
        dof = self.dof
        return 0.5 * float(
            digamma(0.5 * (dof + n))
            - digamma(0.5 * dof)
            - n / dof
            - np.log1p(q / dof)
            + (dof + n) * q / (dof * (dof + q))
        )

    def _evaluate(self, X: Array, pairs: Pairs | None = None) -> tuple[Array, PullBack]:
        """The matrix of rows, and what gives the gradients of its cotangent.

        By pairs of rows only the lower triangle, and no gradient in X.
        """
        if isinstance(self.covariance, JointCovariance):
            return self.covariance.evaluate(X, pairs)
        if pairs is not None:
            K, pull_back = pairs.evaluate(self.kernel)
            return K, lambda dK: (pull_back(dK), np.empty(0), None)
        K = self.kernel(X)
        return K, lambda dK: self.kernel.vjp(X, None, K, dK)


def train_process(
    process: Process, groups: Iterable[Group], *, max_iter: int, tol: float
) -> Trained[Process]:
    """Maximise the groups' log evidence plus the log prior."""
    return train(process, process.prepare(groups), max_iter=max_iter, tol=tol)


def start_process(
    kernel: Kernel,
    *,
    gaussian: bool,
    one_scale: bool = False,
    n_gaps: int = 0,
    owners: tuple[int, ...] = (),
    tied: tuple[int, ...] = (),
    n_outputs: int = 0,
) -> Process:
    """A process of this kernel before training, where some inputs may be missing.

    And rows may be of several outputs.
    """
    slopes = (_START_SLOPE,) * n_gaps
    dof = np.inf if gaussian else _START_DOF
    coregion = Coregion.start(n_outputs) if n_outputs else None
    return Process(kernel, _START_NOISE, dof, slopes, owners, tied, coregion, one_scale=one_scale)


def log_length_prior(log_scales: Array) -> tuple[float, Array]:
    """Log density of the prior of length scales' logarithms, and its gradient."""
    mean, std = _PRIORS["length_scale"]
    shift = (log_scales - mean) / std
    constant = -len(shift) * float(np.log(std * np.sqrt(2.0 * np.pi)))
    return constant - 0.5 * float(shift @ shift), -shift / std


class Summary(NamedTuple):
    """What rows say of the scale: numbers, or (m,) of those that are near to m places."""

    n: Any  # their number, of which some may be equal
    quadratic: Any  # y' C^-1 y
    half_log_det: Any  # log|C| / 2
