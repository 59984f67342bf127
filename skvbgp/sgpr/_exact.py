r"""Few rows: no sparse approximation, and a structured posterior q(f | theta) q(theta).

With every row an inducing input, the optimal q(s | theta) is the exact posterior of a
Gaussian process, and the bound is

    L = E_q(theta)[ log N(y | 0, C(theta)) ] - KL(q(theta) || p(theta)),
    C(theta) = sigma_f^2 k(Lambda X, Lambda X) + noise covariance.

The noise is that of the sparse models; a noise kernel has inducing inputs of its own there,
fewer than rows, which stay where they are. The bound is never below that of the
factorised q(s) q(theta) of [Yu2019]_, which has one q(s) for all values of theta: few
data leave q(theta) wide, and one q(s) fits none of them well. The expectation is an
average over fixed draws of theta, and so is a prediction: a mixture of Gaussian processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.draws import quasi_normal
from skvbgp._core.gaussian import ZeroMeanNormal
from skvbgp._core.linalg import Array, cholesky, tril_gram
from skvbgp._core.mixture import average_moments
from skvbgp._core.order import Index
from skvbgp._core.parallel import thread_map
from skvbgp._core.pickling import PickledByFields
from skvbgp.kernels._pairs import Pairs
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._data import RowIndex, Rows
from skvbgp.sgpr._noise import GroupNoise, Model, Noise, NoiseGradients
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._paths import Paths, draw_unit_functions, share_points
from skvbgp.sgpr._slopes import se_slopes

#: Up to so many rows the draws take turns: threads would wait for the interpreter most of the time.
_SERIAL_ROWS = 300


class _Conditional(NamedTuple):
    """An exact Gaussian process: theta is known."""

    Lambda: Array  # (d,)
    sigma_f: float
    x: Array  # (n, d) rotated rows
    K: Array  # (n, n) unit variance
    outputs: ZeroMeanNormal  # y, with the covariance C of the rows

    def moments(
        self, X: Array, noise_cross: Array | float, noise_own: Array | float
    ) -> tuple[Array, Array]:
        """Mean and variance of f at scaled rows X, plus noise."""
        mean, root = self._condition(X * self.Lambda, noise_cross)
        variance = self.sigma_f**2 + noise_own - np.sum(root**2, axis=0)
        return mean, np.maximum(variance, 1e-10 * self.sigma_f**2)

    def mean(self, X: Array, noise_cross: Array | float) -> Array:
        """That of `moments`."""
        return np.asarray(self.outputs.weights @ self._cross(X * self.Lambda, noise_cross))

    def joint(self, X: Array, noise_cross: Array | float) -> tuple[Array, Array]:
        """Mean and covariance of f at scaled rows X."""
        x = X * self.Lambda
        mean, root = self._condition(x, noise_cross)
        return mean, self.sigma_f**2 * unit_se(x) - root.T @ root

    def slopes(self, X: Array) -> Array:
        """Derivatives (n, d) of the mean of f at scaled rows X."""
        of_se = [dK @ self.outputs.weights for dK in se_slopes(X * self.Lambda, self.x)]
        return self.sigma_f**2 * self.Lambda * np.column_stack(of_se)

    def slope_variances(self, X: Array) -> Array:
        """Variances (n, d) of the derivatives of f."""
        roots = (self.outputs.L_inv @ dK.T for dK in se_slopes(X * self.Lambda, self.x))
        explained = self.sigma_f**2 * np.column_stack([np.sum(r**2, axis=0) for r in roots])
        return (self.sigma_f * self.Lambda) ** 2 * np.maximum(1.0 - explained, 1e-10)

    def leave_out(
        self, noise_cross: Array | float, noise_own: Array | float
    ) -> tuple[Array, Array]:
        """Mean and variance (n,) of f at each row given the others, plus noise.

        The diagonal of ``noise_cross`` does not matter. With Q = C^-1, what the inverse without row
        i has at the others is Q - Q_i Q_i' / Q_ii.
        """
        L_inv, weights = self.outputs.L_inv, self.outputs.weights
        cross = self.sigma_f**2 * self.K + noise_cross  # (n, n)
        Q = tril_gram(L_inv)
        weigh = Q @ cross  # (n, n)
        own, q = np.diagonal(weigh), np.diagonal(Q)
        mean = weights @ cross - own * weights / q
        explained = np.sum(cross * weigh, axis=0) - own**2 / q
        variance = self.sigma_f**2 + noise_own - explained
        return mean, np.maximum(variance, 1e-10 * self.sigma_f**2)

    def _condition(self, x: Array, noise_cross: Array | float) -> tuple[Array, Array]:
        K = self._cross(x, noise_cross)
        return self.outputs.weights @ K, self.outputs.L_inv @ K

    def _cross(self, x: Array, noise_cross: Array | float) -> Array:
        """Covariance (n, n*) with rotated rows x, plus that of the noise."""
        return self.sigma_f**2 * unit_se(self.x, x) + noise_cross


@dataclass(frozen=True)
class Mixture(PickledByFields):
    """q(theta), and the exact posterior of f for each of its draws."""

    model: Model
    parameters: Parameters
    rows: Rows  # all the data
    draws: Array  # (S, d + 1) standard normal points; the last column belongs to sigma_f
    #: Rows of each group: any, if their noise is independent, or those of a block.
    groups: Sequence[RowIndex] = (slice(None),)
    #: Of each group, if the bound and its gradient alone are asked for, at many parameters.
    pairs: Sequence[Pairs] = ()

    def with_pairs(self) -> Mixture:
        """The same for training, which does not need more than the triangle of a covariance."""
        rows = [self.rows.take(group) for group in self.groups]
        return replace(self, pairs=[Pairs(self.model.coordinates.original(r.X)) for r in rows])

    def faded(self, share: float) -> Mixture:
        """That of the same rows, which count less by a factor."""
        return replace(self, rows=self.rows.faded(share))

    @cached_property
    def _processes(self) -> list[_Conditional]:
        return self._map(self._process, [(e,) for e in self.draws])

    def _map(self, function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> list[Any]:
        if len(self.rows) > _SERIAL_ROWS:
            return thread_map(function, tasks)
        return [function(*task) for task in tasks]

    def _process(self, e: Array) -> _Conditional:
        p = self.parameters
        Lambda, sigma_f = p.draw_Lambda(e[:-1]), float(p.draw_sigma_f(e[-1]))
        x = self.rows.X * Lambda
        K = unit_se(x, x)
        C = sigma_f**2 * K + self._weighted_noise[0]
        outputs = ZeroMeanNormal.of(cholesky(C, "covariance of the rows"), self.rows.y)
        return _Conditional(Lambda, sigma_f, x, K, outputs)

    @cached_property
    def noise(self) -> Noise:
        """The noise at these parameters."""
        return self.model.noise(self.parameters)

    @property
    def X(self) -> Array:
        """The rows in the user's units."""
        return self.model.coordinates.original(self.rows.X)

    @cached_property
    def _noise_by_group(self) -> list[tuple[NDArray[np.intp], GroupNoise]]:
        """Which rows are in each group, and their noise."""
        blocks = [np.arange(len(self.rows))[index] for index in self.groups]
        rows = [self.rows.take(block) for block in blocks]
        if self.pairs:
            rows = [replace(own, pairs=one) for own, one in zip(rows, self.pairs, strict=True)]
        return [
            (block, self.model.noise_of(self.noise, own))
            for block, own in zip(blocks, rows, strict=True)
        ]

    @cached_property
    def _weighted_noise(self) -> tuple[Array, float]:
        """Covariance of the rows' noise, and what the log density of all copies has more."""
        n = len(self.rows)
        total, log_density = np.zeros((n, n)), 0.0
        for block, noise in self._noise_by_group:
            C = noise.covariance
            total[np.ix_(block, block)] = np.diag(C) if C.ndim == 1 else C
            log_density += noise.copies.log_density
        return total, log_density

    def _noise_gradients(self, dC: Array) -> NoiseGradients:
        """Gradients in the noise's parameters, from that in C."""
        parts = []
        for block, noise in self._noise_by_group:
            own = dC[np.ix_(block, block)]
            if not self.model.structure.correlated:
                own = np.diagonal(own)
            parts.append(noise.vjp(own))
        return self.noise.complete(reduce(NoiseGradients.plus, parts))

    @cached_property
    def lower_bound(self) -> float:
        """L, of the scaled target."""
        kl, _, _ = self.model.kl_theta(self.parameters)
        log_density = float(np.mean([process.outputs.log_density for process in self._processes]))
        log_prior, _ = self.model.structure.log_prior(self.parameters.noise_theta)
        return log_density + self._weighted_noise[1] - kl + log_prior

    def gradient(self) -> Parameters:
        """Gradient of L; the inducing inputs of the noise are held."""
        p, n_draws = self.parameters, len(self.draws)
        slopes, dCs = zip(
            *self._map(self._slope, [(process,) for process in self._processes]), strict=True
        )
        d_theta, noise = np.array(slopes), self._noise_gradients(sum(dCs) / n_draws)
        _, kl_mean, kl_variance = self.model.kl_theta(p)
        d_mean = np.mean(d_theta, axis=0) - kl_mean
        spread = np.sqrt(np.append(p.xi, p.beta))
        draws = np.column_stack([p.share_draws(self.draws[:, :-1]), self.draws[:, -1]])
        d_variance = np.mean(d_theta * draws, axis=0) / (2.0 * spread) - kl_variance
        gradient = Parameters(
            nu=d_mean[:-1],
            xi=d_variance[:-1],
            alpha=float(d_mean[-1]),
            beta=float(d_variance[-1]),
            noise_variance=noise.noise_variance,
            noise_theta=noise.theta + self.model.structure.log_prior(p.noise_theta)[1],
            U=np.zeros_like(p.U),
        )
        return p.share_gradient(gradient)

    def _slope(self, process: _Conditional) -> tuple[Array, Array]:
        """Gradient of log N(y | 0, C) in (Lambda, sigma_f), (d + 1,), and in C, (n, n)."""
        _, sigma_f, x, K, outputs = process
        dC = outputs.gradient()
        dK = dC * K
        dx = 2.0 * sigma_f**2 * (dK @ x - dK.sum(axis=1)[:, None] * x)
        d_Lambda = np.sum(dx * self.rows.X, axis=0)
        return np.array([*d_Lambda, 2.0 * sigma_f * float(dK.sum())]), dC

    def moments(
        self, X: Array, noise_cross: Array | float = 0.0, noise_own: Array | float = 0.0
    ) -> tuple[Array, Array]:
        """Mean and variance of f at scaled rows X, each (n,), or of f plus noise.

        ``noise_cross`` is the covariance (n_rows, n) of the data's noise with theirs, and
        ``noise_own`` the variance of theirs.
        """
        return average_moments(*self.components(X, noise_cross, noise_own), axis=1)

    def components(
        self, X: Array, noise_cross: Array | float = 0.0, noise_own: Array | float = 0.0
    ) -> tuple[Array, Array]:
        """The same given each draw, (n, S)."""
        parts = [p.moments(X, noise_cross, noise_own) for p in self._processes]
        means, variances = zip(*parts, strict=True)
        return np.array(means).T, np.array(variances).T

    def mean(self, X: Array, noise_cross: Array | float = 0.0) -> Array:
        """That of `moments`, which takes less time by a factor of the order of n_rows."""
        return np.mean([p.mean(X, noise_cross) for p in self._processes], axis=0)

    def leave_out(self, *, include_noise: bool) -> tuple[Array, Array]:
        """Mean and variance (n,) of f, or of f plus noise, at each row given all the others."""
        noise: tuple[Array | float, Array | float] = 0.0, 0.0
        if include_noise:
            noise = self._weighted_noise[0], self.noise.marginal_variance(self.X)
        tasks = [(process, *noise) for process in self._processes]
        means, variances = zip(*self._map(_Conditional.leave_out, tasks), strict=True)
        return average_moments(np.array(means), np.array(variances))

    def joint(self, X: Array, noise_cross: Array | float = 0.0) -> tuple[Array, Array]:
        """The same as `moments`, with the covariance (n, n)."""
        processes = self._processes
        means, covariances = zip(*(p.joint(X, noise_cross) for p in processes), strict=True)
        spread = np.array(means) - np.mean(means, axis=0)  # (S, n)
        return np.mean(means, axis=0), np.mean(covariances, axis=0) + spread.T @ spread / len(means)

    def means(self, X: Array) -> Array:
        """The mean of f at scaled rows X, and that given each draw, (1 + S, n)."""
        each = np.array([p.mean(X, 0.0) for p in self._processes])
        return np.vstack([each.mean(axis=0), each])

    def slopes(self, X: Array) -> tuple[Array, Array]:
        """Derivatives of the mean of f at scaled rows, (n, d), and given each draw, (S, n, d)."""
        each = np.array([process.slopes(X) for process in self._processes])
        return each.mean(axis=0), each

    def slope_moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance (n, d) of the derivatives of f at scaled rows."""
        mean, each = self.slopes(X)
        variance = np.mean([process.slope_variances(X) for process in self._processes], axis=0)
        return mean, variance + each.var(axis=0)

    def draw(self, n: int, rng: np.random.RandomState) -> Iterator[tuple[Index, Paths]]:
        """Functions n, each of one of the draws of theta."""
        root = cholesky(self._weighted_noise[0], "covariance of the rows' noise")
        for i, members in share_points(n, len(self.draws), rng):
            Lambda, sigma_f, x, _, outputs = self._processes[i]
            prior = draw_unit_functions(len(Lambda), len(members), rng)
            noise = root @ rng.standard_normal((len(root), len(members)))
            drawn = outputs.L_inv.T @ (outputs.L_inv @ (sigma_f * prior(x) + noise))
            corrections = sigma_f * (outputs.weights[:, None] - drawn)
            yield members, Paths(Lambda, sigma_f, prior, x, corrections)

    def with_draws(self, n_draws: int, seed: int) -> Mixture:
        """The same with another number of draws, or itself."""
        if n_draws == len(self.draws):
            return self
        return replace(self, draws=quasi_normal(n_draws, self.draws.shape[1], seed))

    def at(self, parameters: Parameters) -> Mixture:
        """The same data and draws under another q(theta)."""
        return replace(self, parameters=parameters)
