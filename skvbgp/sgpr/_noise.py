r"""Noise covariance C of Sec. IV of [Yu2019]_ and its gradients.

C = (diagonal, or diagonal blocks, of) k^eps(X, X) - k^eps(X, U) k^eps(U, U)^-1 k^eps(U, X)
plus sigma_n^2 I. Which part of the residual is kept is the only difference between the
models' likelihoods: nothing (DTC), its diagonal (FITC), its blocks (PITC, PIC).

A `Structure` says what the noise is like, and makes the `Noise` of given parameters. With
the frames of the data and a prior it is a `Model`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, NamedTuple, Protocol

import numpy as np

from skvbgp._core.copies import Copies, own_gradient
from skvbgp._core.gaussian import InducingOutputs, kl_terms
from skvbgp._core.linalg import Array, symmetric_product, tril_times, triu_times
from skvbgp._core.owners import Owners, average_shared, count_inputs, divide_equally
from skvbgp._core.scaling import Coordinates
from skvbgp.kernels import RBF, Constant, Kernel, as_kernel
from skvbgp.kernels._by_input import bind_columns, join_columns, own_hyperparameters
from skvbgp.kernels._pairs import Pairs, evaluate_rows
from skvbgp.sgpr._data import Rows
from skvbgp.sgpr._parameters import LOG_LIMITS, Parameters

#: Length scale by which the noise of one output has nothing to do with that of another.
_OTHER_OUTPUT = 0.2


class NoiseGradients(NamedTuple):
    """Cotangents of the noise's parameters, from one group of rows or several."""

    noise_variance: Variance
    theta: Array  # (p,)
    U: Array | float  # (m, d)
    Kuu: Array | float  # (m, m) what flows through k^eps(U, U); added to theta and U last

    def plus(self, other: NoiseGradients) -> NoiseGradients:
        return NoiseGradients(*map(add, self, other))


#: Gradients of ``sum(dC * C)`` from dC.
Pull = Callable[[Array], NoiseGradients]
#: sigma_n^2 of all rows or, where the last t columns of X say which output a row is of, of each.
Variance = float | Array


def spread_variance(variance: Variance, X: Array) -> Variance:
    """That of each row (n,), where outputs differ."""
    return variance if np.ndim(variance) == 0 else X[:, -np.size(variance) :] @ variance


def gather_slopes(variance: Variance, X: Array, slopes: Array) -> Variance:
    """Gradient in the variance, from those in what rows have of it, (n,)."""
    if np.ndim(variance) == 0:
        return float(slopes.sum())
    return np.asarray(slopes @ X[:, -np.size(variance) :])


class Noise(Protocol):
    """Noise at given parameters; X is in the user's units, variances are of the scaled target.

    It has `covariance` and `vjp` or, where these have something in common, `evaluate`.
    """

    noise_variance: Variance  # sigma_n^2; of correlated noise, what copies of a row do not share

    def covariance(self, X: Array) -> Array:
        """Noise covariance of one group of rows, (n,) if they are independent or (n, n)."""
        return self.evaluate(X)[0]

    def marginal_variance(self, X: Array) -> Array:
        """Variance of the noise at new inputs, (n,)."""

    def vjp(self, X: Array, dC: Array) -> NoiseGradients:
        """Gradients of ``sum(dC * covariance(X))``, short of :meth:`complete`."""
        return self.evaluate(X)[1](dC)

    def complete(self, gradients: NoiseGradients) -> NoiseGradients:
        """The sum over groups, with what the groups share, if anything."""
        return gradients

    def far_variance(self, X: Array) -> Array:
        """Variance of the noise at places that X does not tell, (n,): it is what it is far away."""
        return self.marginal_variance(X)

    def evaluate(
        self, X: Array, gaps: Array | None = None, pairs: Pairs | None = None
    ) -> tuple[Array, Pull]:
        """`covariance` and `vjp` of the same rows.

        With ``gaps``, variances (n, g) of missing entries, X does not tell the places of some,
        whose noise is independent. With their ``pairs``, what is above the diagonal of the
        covariance may be missing.
        """
        return self.covariance(X), partial(self.vjp, X)


class Structure:
    """What the noise of a member of the family is like."""

    correlated = False  # whether the rows are divided into blocks whose noise is correlated
    explained = False  # whether it is what inducing inputs leave open of a process
    is_open = False  # whether the user gives no kernel, where there is one
    is_searched = False  # whether the process' kernel is left to a search, once rows are known
    found = False  # whether a search has found the process' kernel
    #: Inputs that have missing entries in training rows, whose slopes are parameters.
    gap_columns: tuple[int, ...] = ()
    #: By entry of `theta`: the hyperparameter that it is; none if all are different ones.
    owners_of_theta: Owners = ()

    @property
    def theta(self) -> Array:
        """Starting parameters besides sigma_n^2, (p,), in a space without a scale."""
        return np.empty(0)

    @property
    def bounds(self) -> Array:
        """Their limits, (p, 2)."""
        return np.empty((0, 2))

    def start(
        self, scale: Array, noise_variance: float, factor: float, owners: Owners, n_outputs: int
    ) -> Structure:
        """The structure to start from, given the spread (d,) of the columns and sigma_n^2.

        The factor is between a variance that the user gives and one of the scaled target. The
        last columns say which of ``n_outputs`` a row is of.
        """
        return self

    def rescale(self, factor: float) -> Structure:
        """The same on another scale of y, whose square is ``factor`` times as large."""
        return self

    def noise(self, noise_variance: Variance, theta: Array, U: Array) -> Noise:
        """The noise of these parameters and inducing inputs, the latter in the user's units."""
        raise NotImplementedError

    def log_prior(self, theta: Array) -> tuple[float, Array]:
        """Log density of the parameters besides sigma_n^2, and its gradient (p,)."""
        return 0.0, np.zeros(len(theta))

    def settled(self) -> Structure:
        """The same without the prior of its parameters: what earlier rows say takes its place."""
        return self

    def attributes(self, theta: Array, unit: float) -> dict[str, Any]:
        """Public fitted attributes; ``unit`` is that of y."""
        return {}


@dataclass(frozen=True)
class White(Structure):
    """Independent noise of one variance (DTC)."""

    def noise(self, noise_variance: Variance, theta: Array, U: Array) -> WhiteNoise:
        return WhiteNoise(noise_variance)


@dataclass(frozen=True)
class Diagonal(Structure):
    """Independent noise of the residual's variances (FITC)."""

    #: k^eps as the user gives it, None for a squared exponential; after `start` a `Kernel`.
    kernel: Any = None
    scale: float = 1.0  # factor between the kernel's value and a covariance of the scaled target
    owners: Owners = ()  # by column of the rows: the input that it encodes

    explained = True

    @property
    def theta(self) -> Array:
        return np.asarray(self.kernel.theta)

    @property
    def bounds(self) -> Array:
        return np.asarray(self.kernel.bounds)

    @property
    def owners_of_theta(self) -> Owners:  # type: ignore[override]
        return own_hyperparameters(self.kernel, self.owners) if self.owners else ()

    @property
    def is_open(self) -> bool:  # type: ignore[override]
        return self.kernel is None or self._is_auto

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "auto"

    def start(
        self, scale: Array, noise_variance: float, factor: float, owners: Owners, n_outputs: int
    ) -> Structure:
        if self.is_open:  # until a search has found another one
            own = len(scale) - n_outputs
            length_scale = scale * np.sqrt(count_inputs(len(scale), owners) - n_outputs)
            bounds = np.outer(scale, [1e-3, 1e4])
            length_scale[own:], bounds[own:] = _OTHER_OUTPUT, _OTHER_OUTPUT
            default = Constant(noise_variance) * RBF(length_scale, length_scale_bounds=bounds)
            return replace(self, kernel=default, owners=owners)
        try:
            kernel = bind_columns(as_kernel(self.kernel), len(scale), owners)
        except (TypeError, ValueError) as error:  # which do not know whose kernel it is
            raise type(error)(f"noise_kernel: {error}") from None
        if np.all(kernel.diag(scale[None, :]) == 1.0):
            kernel = Constant(1.0) * kernel
        return replace(self, kernel=kernel, scale=factor, owners=owners)

    def rescale(self, factor: float) -> Structure:
        return replace(self, scale=self.scale * factor)

    def noise(self, noise_variance: Variance, theta: Array, U: Array) -> ResidualNoise:
        kernel = self.kernel.with_theta(theta)
        if self.scale != 1.0:
            kernel = Constant(self.scale, value_bounds="fixed") * kernel
        return ResidualNoise(
            noise_variance, kernel, U, self.owners_of_theta, correlated=self.correlated
        )

    def attributes(self, theta: Array, unit: float) -> dict[str, Any]:
        scale = Constant(self.scale * unit**2, value_bounds="fixed")
        kernel = join_columns(self.kernel.with_theta(theta), self.owners)
        return {"noise_kernel_": scale * kernel}


@dataclass(frozen=True)
class Blocks(Diagonal):
    """Noise that is correlated within blocks of rows by the residual (PITC, PIC)."""

    found: bool = False

    correlated = True

    @property
    def is_searched(self) -> bool:  # type: ignore[override]
        return self._is_auto


class GroupNoise(NamedTuple):
    """The noise of one group of rows as far as they count.

    Known variances are added, and what missing entries make, where the noise is a `GappedNoise`.
    What copies have of their own, all noise that is independent, is divided by the weights.
    """

    covariance: Array  # (n,) or (n, n)
    copies: Copies
    vjp: Pull  # with the gradients of -1/2 times the log determinant of the copies


def _pull_with_weights(pull: Pull, own: Array | float, weight: Array) -> Pull:
    def pull_back(dC: Array) -> NoiseGradients:
        if dC.ndim == 1:
            return pull(own_gradient(own, weight, dC))
        gradients, diagonal = pull(dC), np.diagonal(dC)
        more = np.sum(own_gradient(own, weight, diagonal) - diagonal)
        return gradients._replace(noise_variance=gradients.noise_variance + float(more))

    return pull_back


class WhiteNoise(Noise):
    """Independent noise, of one variance or of one for each output (DTC)."""

    def __init__(self, noise_variance: Variance) -> None:
        self.noise_variance = noise_variance

    def covariance(self, X: Array) -> Array:
        return np.full(len(X), spread_variance(self.noise_variance, X))

    marginal_variance = covariance

    def vjp(self, X: Array, dC: Array) -> NoiseGradients:
        d_variance = gather_slopes(self.noise_variance, X, dC)
        return NoiseGradients(d_variance, np.empty(0), 0.0, 0.0)


class ResidualNoise(Noise):
    """Diagonal (FITC) or blocks (PITC, PIC) of the residual of a kernel k^eps, and sigma_n^2.

    Inducing inputs U (m, d) are in the space in which the kernel is defined. ``owners_of_theta``
    are those of a `Structure`; the rows of one group may form a block, in which they are
    ``correlated``.
    """

    def __init__(
        self,
        noise_variance: Variance,
        kernel: Kernel,
        U: Array,
        owners_of_theta: Owners = (),
        *,
        correlated: bool,
    ) -> None:
        self.noise_variance, self._owners_of_theta = noise_variance, owners_of_theta
        self._kernel, self._correlated = kernel, correlated
        self._prior = InducingOutputs(kernel, U)

    def far_variance(self, X: Array) -> Array:
        return np.asarray(self._kernel.diag(X) + spread_variance(self.noise_variance, X))

    def evaluate(
        self, X: Array, gaps: Array | None = None, pairs: Pairs | None = None
    ) -> tuple[Array, Pull]:
        Kxu = self._kernel(X, self._prior.Z)
        A = tril_times(self._prior.L_inv, Kxu.T).T  # whitened
        if gaps is not None:
            A[gaps.any(axis=1)] = 0.0  # inducing inputs explain nothing of them
        if not self._correlated:
            C = self._add_noise(X, A)
            return C, partial(self._pull, X, Kxu, A, lambda dC: self._kernel.vjp_diag(X, dC)[0])
        K, pull_own = evaluate_rows(self._kernel, X, pairs)
        C = K - A @ A.T
        C.flat[:: len(C) + 1] += self.noise_variance
        return C, partial(self._pull, X, Kxu, A, pull_own)

    def marginal_variance(self, X: Array) -> Array:
        return self._add_noise(X, self._prior.whiten(X))

    def cross_covariance(self, X: Array, X_block: Array) -> Array:
        """Covariance of the noise at new inputs with that of a block, (n, n_block)."""
        cross = self._prior.whiten(X) @ self._prior.whiten(X_block).T
        return np.asarray(self._kernel(X, X_block) - cross)

    def complete(self, gradients: NoiseGradients) -> NoiseGradients:
        dKuu = np.asarray(gradients.Kuu)
        d_theta, dU, _ = self._kernel.vjp(self._prior.Z, None, self._prior.K, dKuu)
        theta = average_shared(gradients.theta + d_theta, self._owners_of_theta)
        return gradients._replace(theta=theta, U=gradients.U + dU)

    def _add_noise(self, X: Array, A: Array) -> Array:
        """Variances of the noise of rows, given them whitened."""
        residual = self._kernel.diag(X) - np.sum(A**2, axis=1)
        own = spread_variance(self.noise_variance, X)
        return np.asarray(np.maximum(residual, 0.0) + own)

    def _pull(
        self, X: Array, Kxu: Array, A: Array, pull_own: Callable[[Array], Array], dC: Array
    ) -> NoiseGradients:
        """All gradients; ``pull_own`` makes those in theta through k^eps(X, X)."""
        B = triu_times(self._prior.L_inv, A.T).T  # k(X, U) k(U, U)^-1, (n, m)
        if self._correlated:
            own, weighted = np.diagonal(dC), dC @ B
            dKuu = symmetric_product(B.T, weighted.T)
        else:
            own, weighted = dC, dC[:, None] * B
            dKuu = B.T @ weighted
        d_variance = gather_slopes(self.noise_variance, X, own)
        weighted *= -2.0
        d_theta, _, dU = self._kernel.vjp(X, self._prior.Z, Kxu, weighted)
        assert dU is not None
        return NoiseGradients(d_variance, pull_own(dC) + d_theta, dU, dKuu)


@dataclass(frozen=True)
class HyperPrior:
    """Factorised Gaussian prior of (lambda_1, ..., lambda_d, sigma_f), scaled."""

    mean: Array  # (d + 1,)
    variance: Array  # (d + 1,)


@dataclass(frozen=True)
class Model:
    """A member of the family: coordinates, hyperprior and structure of the noise."""

    coordinates: Coordinates
    hyperprior: HyperPrior
    structure: Structure

    def bounds(self, parameters: Parameters) -> Array:
        """Limits (p, 2) of the flat vector: the noise's own, and those of numerics."""
        limits = np.tile([-np.inf, np.inf], (len(parameters.pack()), 1))
        for side in (0, 1):
            parts = parameters.split(limits[:, side])  # views
            for name, pair in LOG_LIMITS.items():
                parts[name][...] = pair[side]
            parts["noise_theta"][...] = self.structure.bounds[:, side]
        return limits

    def noise(self, parameters: Parameters) -> Noise:
        """The noise at these parameters."""
        U = self.coordinates.original(parameters.U)
        return self.structure.noise(parameters.noise_variance, parameters.noise_theta, U)

    def noise_of(self, noise: Noise, rows: Rows) -> GroupNoise:
        """The noise of one group."""
        w = rows.weight
        C, pull = noise.evaluate(self.coordinates.original(rows.X), rows.gaps, rows.pairs)
        if w is None and rows.variance is None:
            return GroupNoise(C, Copies(), pull)
        own = rows.add_known(C if C.ndim == 1 else noise.noise_variance)
        spread = own if w is None else own / w
        if C.ndim == 2:
            spread = C + np.diag(spread - noise.noise_variance)
        if w is not None:
            pull = _pull_with_weights(pull, own, w)
        return GroupNoise(np.asarray(spread), Copies.of(own, w), pull)

    def kl_theta(self, parameters: Parameters) -> tuple[float, Array, Array]:
        """KL(q(theta) || p(theta)) and its gradients in the means and the variances."""
        terms, d_mean, d_variance = kl_terms(
            np.append(parameters.nu, parameters.alpha),
            np.append(parameters.xi, parameters.beta),
            self.hyperprior.mean,
            self.hyperprior.variance,
        )
        share = np.append(divide_equally(len(parameters.nu), parameters.owners), 1.0)
        return float(np.sum(share * terms)), share * d_mean, share * d_variance
