r"""The complete variational lower bound L(q) of [Yu2019]_ and its gradient.

In whitened coordinates s = L u, Sigma_ZZ = L L', the bound is

    L(q) = sum over groups of F  -  KL(q(u) || N(0, I))  -  KL(q(theta) || p(theta))

with F of :mod:`skvbgp.sgpr._likelihood`. It is eq. (6) with every constant and with general
Gaussian priors on the hyperparameters; at the optimal q(u) it is eq. (11), and by the
envelope theorem its gradient there is the gradient at fixed q(u). So the collapsed solver
and the stochastic one share :meth:`Evaluation.gradient`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from operator import add
from typing import NamedTuple

import numpy as np

from skvbgp._core.gaussian import InducingOutputs, WhitenedGaussian
from skvbgp._core.linalg import (
    LOG_2PI,
    Array,
    cholesky_vjp,
    tril_congruence,
    triu_congruence,
    triu_times,
)
from skvbgp._core.parallel import concurrently, thread_map
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._data import Rows
from skvbgp.sgpr._likelihood import ClosedFormGroup, GroupGradients, GroupTerms, SampledGroup
from skvbgp.sgpr._noise import Model, NoiseGradients, Pull
from skvbgp.sgpr._parameters import Parameters

#: ``(q, alpha, second) -> (L' dL, d_alpha, d_second)``
PastTerm = Callable[[WhitenedGaussian, float, float], tuple[Array, float, float]]


class Prior(InducingOutputs):
    """That of s at the rotated inducing inputs Z = nu * U; K is Sigma_ZZ, and rows are rotated."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(unit_se, parameters.nu * parameters.U)

    def __post_init__(self) -> None:
        """Without the factor, which those who add up rows on Dask's workers do not need."""

    def whiten_sums(self, psi: Array, information_y: Array) -> tuple[Array, Array]:
        """Information about u from that about Sigma^-1 s."""
        return tril_congruence(self.L_inv, psi), self.L_inv @ information_y

    def inputs_vjp(self, LtdL: Array) -> Array:
        """Gradient in Z from ``L' dL``."""
        W = 2.0 * cholesky_vjp(LtdL, self.L_inv) * self.K
        return np.asarray(W @ self.Z - W.sum(axis=1)[:, None] * self.Z)


class Shared:
    """What all rows share at some parameters: the prior of u, and the noise.

    Workers make these of the parameters that they get.
    """

    def __init__(self, model: Model, parameters: Parameters, prior: Prior | None = None) -> None:
        self.model, self.parameters = model, parameters
        self.prior, self.noise = prior or Prior(parameters), model.noise(parameters)

    def __reduce__(self) -> tuple[type[Shared], tuple[Model, Parameters]]:
        return Shared, (self.model, self.parameters)

    def make_group(
        self, rows: Rows, draws: Array | None, *, whitened: bool = False
    ) -> tuple[GroupTerms, Pull]:
        """The data terms of one group and what pulls a gradient in its noise back.

        In closed form or (with draws) sampled, maybe whitened, see `SampledGroup`.
        """
        p, Z, noise = self.parameters, self.prior.Z, self.model.noise_of(self.noise, rows)
        terms = rows.X, rows.y, noise.covariance, Z, p.nu, p.xi
        if draws is None:
            return ClosedFormGroup(*terms, noise.copies), noise.vjp
        whitening = self.prior.L_inv if whitened else None
        return SampledGroup(*terms, p.share_draws(draws), noise.copies, whitening), noise.vjp


class DataGradients(NamedTuple):
    """Value of the data terms and their gradients at fixed v and V, summed over groups."""

    value: float
    nu: Array  # (d,)
    xi: Array  # (d,)
    Z: Array  # (m, d)
    signal: Array  # (2,) in alpha and in alpha^2 + beta
    noise: NoiseGradients

    def plus(self, other: DataGradients) -> DataGradients:
        sums = map(add, self[:-1], other[:-1])
        return DataGradients._make([*sums, self.noise.plus(other.noise)])


class DataTerms:
    """The data terms of some groups of rows.

    Each group has draws, or None for closed-form expectations, and may be whitened, see
    `SampledGroup`.
    """

    def __init__(
        self,
        shared: Shared,
        batch: Sequence[Rows],
        draws: Sequence[Array | None],
        *,
        whitened: bool = False,
    ) -> None:
        self._parameters = shared.parameters
        make = partial(shared.make_group, whitened=whitened)
        self._pairs = thread_map(make, zip(batch, draws, strict=True))
        self._groups = [group for group, _ in self._pairs]

    @property
    def psi(self) -> Array:
        """E[K' C^-1 K], (m, m)."""
        return np.asarray(sum(g.psi for g in self._groups))

    @property
    def information(self) -> Array:
        """E[K]' C^-1 y, (m,)."""
        return np.asarray(sum(g.information(g.y) for g in self._groups))

    @property
    def ceiling(self) -> float:
        """A bound on the value: the data terms if f fitted y without any error."""
        n = sum(g.precision.count for g in self._groups)
        log_det = sum(g.precision.log_det for g in self._groups)
        return -0.5 * (n * LOG_2PI + log_det)

    def value_without_u(self, second: float) -> float:
        """What the data terms are where u says nothing, at a second moment of the signal."""
        total = self.ceiling
        for group in self._groups:
            total -= 0.5 * float(group.y @ group.precision.solve(group.y))
            total -= 0.5 * second * group.prior_trace
        return total

    def backward(self, v: Array, V: Array) -> DataGradients:
        """Value and gradients at fixed v and V."""
        return reduce(DataGradients.plus, concurrently(*self.tasks(v, V)))

    def tasks(self, v: Array, V: Array) -> list[Callable[[], DataGradients]]:
        """The same by group, as functions without arguments."""

        def backward(group: GroupTerms, pull: Pull) -> DataGradients:
            g = self._backward(group, v, V)
            return DataGradients._make([*g[:-1], pull(g.covariance())])

        return [partial(backward, *pair) for pair in self._pairs]

    def signal_slopes(self, v: Array, V: Array) -> Array:
        """Gradient in (xi, alpha^2 + beta), (d + 1,), at fixed v and V."""
        parts = thread_map(self._backward, [(group, v, V) for group in self._groups])
        return np.sum([np.append(g.xi, g.signal[1]) for g in parts], axis=0)

    def _backward(self, group: GroupTerms, v: Array, V: Array) -> GroupGradients:
        return group.backward(v, V, self._parameters.alpha, self._parameters.second_moment)


class Evaluation:
    """The bound's data terms at given parameters, for one batch of groups, see `DataTerms`.

    ``information`` (m, m) and ``shift`` (m,) are what the batch says of u.

    Where all groups have draws, rows may be ``whitened`` before they are summed. Where inducing
    inputs are near one another, a sum that is whitened later has lost half of its digits, and a
    line search follows rounding errors. Each draw costs a product more, and three of the order of
    the inducing inputs are saved in all.
    """

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        batch: Sequence[Rows],
        draws: Sequence[Array | None],
        *,
        whitened: bool = False,
    ) -> None:
        self._begin(model, parameters, whitened)
        self._terms = DataTerms(self._shared, batch, draws, whitened=whitened)
        self._keep(self._terms.psi, self._terms.information)

    def _begin(self, model: Model, parameters: Parameters, whitened: bool = False) -> None:
        self._model, self._parameters, self._whitened = model, parameters, whitened
        self.prior = Prior(parameters)
        _ = self.prior.L_inv  # once, not in each thread
        self._shared = Shared(model, parameters, self.prior)

    def _keep(self, psi: Array, information: Array) -> None:
        """Keep the sums over the groups, as information about u at unit signal."""
        if not self._whitened:
            psi, information = self.prior.whiten_sums(psi, information)
        self._P, self._b = psi, information
        self.information = self._parameters.second_moment * self._P
        self.shift = self._parameters.alpha * self._b

    @property
    def ceiling(self) -> float:
        """A bound on the bound, see `DataTerms`."""
        return self._terms.ceiling

    @cached_property
    def optimal_q(self) -> WhitenedGaussian:
        """Eq. (7): the maximiser of the bound, if the batch is all the data."""
        return WhitenedGaussian.of_information(self.information, self.shift)

    def value(self, q: WhitenedGaussian, weight: float = 1.0) -> float:
        """The bound at fixed q(u), see `gradient`, from what the groups have summed."""
        data = self._terms.value_without_u(self._parameters.second_moment)
        data += float(self.shift @ q.mean)
        data -= 0.5 * float(np.vdot(self.information, q.excess_moment))
        return self._add_priors(weight * data, q)

    def variance_slopes(self, q: WhitenedGaussian) -> Array:
        """Gradient of the data terms in (xi, beta), (d + 1,), cheaper than that in all."""
        return self._terms.signal_slopes(*self._weights(q))

    def _add_priors(self, data: float, q: WhitenedGaussian) -> float:
        """The bound, from the value of the data terms."""
        p, model = self._parameters, self._model
        log_prior, _ = model.structure.log_prior(p.noise_theta)
        return data - q.kl_to_prior - model.kl_theta(p)[0] + log_prior

    def gradient(
        self, q: WhitenedGaussian, weight: float = 1.0, past: PastTerm | None = None
    ) -> tuple[float, Parameters]:
        """The bound and its gradient at fixed q(u).

        The data terms count ``weight`` times: the number of groups in all over that in the batch.
        The past is a pseudo-likelihood of rows seen before: ``(q, alpha, second)`` to its ``L' dL``
        and its gradients in alpha and in alpha^2 + beta.
        """
        p = self._parameters
        alpha = p.alpha
        # s = L u enters through v and V, and through the factor L itself
        (dZ_prior, past_alpha, past_second), *parts = concurrently(
            lambda: self._factor_backward(q, weight, past), *self._tasks(q)
        )
        data = reduce(DataGradients.plus, parts)
        noise = self._shared.noise.complete(data.noise)
        d_nu, d_xi, dZ = weight * data.nu, weight * data.xi, weight * data.Z + dZ_prior
        d_alpha = weight * data.signal[0] + past_alpha
        d_second = weight * data.signal[1] + past_second
        _, kl_mean, kl_variance = self._model.kl_theta(p)
        _, d_prior = self._model.structure.log_prior(p.noise_theta)
        gradient = Parameters(
            nu=d_nu + np.sum(dZ * p.U, axis=0) - kl_mean[:-1],
            xi=d_xi - kl_variance[:-1],
            alpha=d_alpha + 2.0 * alpha * d_second - kl_mean[-1],
            beta=d_second - kl_variance[-1],
            noise_variance=weight * noise.noise_variance,
            noise_theta=weight * noise.theta + d_prior,
            U=p.nu * dZ + weight * noise.U * self._model.coordinates.scale,
        )
        return self._add_priors(weight * data.value, q), p.share_gradient(gradient)

    def _tasks(self, q: WhitenedGaussian) -> list[Callable[[], DataGradients]]:
        """Functions whose results are the data terms and their gradients, in parts."""
        return self._terms.tasks(*self._weights(q))

    def _weights(self, q: WhitenedGaussian) -> tuple[Array, Array]:
        """v = L^-T m and V = L^-T W L^-1, or W L^-1, by which q enters the data terms."""
        L_inv, W = self.prior.L_inv, q.excess_moment
        V = triu_times(L_inv, W).T if self._whitened else triu_congruence(L_inv, W)
        return L_inv.T @ q.mean, V

    def _factor_backward(
        self, q: WhitenedGaussian, weight: float, past: PastTerm | None
    ) -> tuple[Array, float, float]:
        """Gradient in Z through L, in which v and V are written, and the past's own terms."""
        alpha, second = self._parameters.alpha, self._parameters.second_moment
        if weight == 1.0 and past is None and q is self.optimal_q:
            # (I + second P) m = alpha b and (I + second P) S = I: the two terms below are
            return self.prior.inputs_vjp(-q.excess_moment - self.information), 0.0, 0.0
        # v = L^-T m and V = L^-T W L^-1 give L'dL = -m (alpha b)' + second W P
        LtdL = second * q.excess_moment @ self._P - np.outer(q.mean, alpha * self._b)
        LtdL *= weight
        d_alpha = d_second = 0.0
        if past is not None:
            past_LtdL, d_alpha, d_second = past(q, alpha, second)
            LtdL += past_LtdL
        return self.prior.inputs_vjp(LtdL), d_alpha, d_second
