r"""Few rows: no sparse approximation, and a structured posterior q(f | theta) q(theta).

With every row an inducing input, the optimal q(s | theta) is the exact posterior of a
Gaussian process, and the bound is

    L = E_q(theta)[ log N(y | 0, C(theta)) ] - KL(q(theta) || p(theta)),
    C(theta) = sigma_f^2 k(Lambda X, Lambda X) + sigma_n^2 I.

It is never below that of the factorised q(s) q(theta) of [Yu2019]_, which has one q(s)
for all values of theta: few data leave q(theta) wide, and one q(s) fits none of them
well. The expectation is an average over fixed draws of theta, and so is a prediction: a
mixture of Gaussian processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skvbgp._core.gaussian import ZeroMeanNormal
from skvbgp._core.linalg import Array, cholesky
from skvbgp._core.parallel import thread_map
from skvbgp.sgpr._bound import Model
from skvbgp.sgpr._data import Rows
from skvbgp.sgpr._likelihood import unit_se
from skvbgp.sgpr._parameters import Parameters

#: Up to so many rows the draws take turns: threads would wait for the interpreter most of the time.
_SERIAL_ROWS = 300


class _Process(NamedTuple):
    """An exact Gaussian process: theta is known."""

    Lambda: Array  # (d,)
    sigma_f: float
    x: Array  # (n, d) rotated rows
    K: Array  # (n, n) unit variance
    outputs: ZeroMeanNormal  # y, with the covariance C of the rows

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of f at scaled rows X."""
        mean, root = self._conditioned(X * self.Lambda)
        variance = self.sigma_f**2 - np.sum(root**2, axis=0)
        return mean, np.maximum(variance, 1e-10 * self.sigma_f**2)

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Mean and covariance of f at scaled rows X."""
        x = X * self.Lambda
        mean, root = self._conditioned(x)
        return mean, self.sigma_f**2 * unit_se(x, x) - root.T @ root

    def _conditioned(self, x: Array) -> tuple[Array, Array]:
        K = self.sigma_f**2 * unit_se(self.x, x)  # (n, n*)
        return self.outputs.weights @ K, self.outputs.L_inv @ K


@dataclass(frozen=True)
class Mixture:
    """q(theta), and the exact posterior of f for each of its draws.

    Parameters
    ----------
    model : Model
    parameters : Parameters
    rows : Rows
        All the data.
    draws : ndarray of shape (S, d + 1)
        Standard normal points; the last column belongs to sigma_f.
    """

    model: Model
    parameters: Parameters
    rows: Rows
    draws: Array

    @cached_property
    def _processes(self) -> list[_Process]:
        return self._map(self._process, [(e,) for e in self.draws])

    def _map(self, function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> list[Any]:
        if len(self.rows.y) > _SERIAL_ROWS:
            return thread_map(function, tasks)
        return [function(*task) for task in tasks]

    def _process(self, e: Array) -> _Process:
        p = self.parameters
        Lambda = p.nu + np.sqrt(p.xi) * e[:-1]
        sigma_f = float(p.alpha + np.sqrt(p.beta) * e[-1])
        x = self.rows.X * Lambda
        K = unit_se(x, x)
        C = sigma_f**2 * K
        C.flat[:: len(C) + 1] += p.noise_variance
        outputs = ZeroMeanNormal.of(cholesky(C, "covariance of the rows"), self.rows.y)
        return _Process(Lambda, sigma_f, x, K, outputs)

    @cached_property
    def lower_bound(self) -> float:
        """L, of the scaled target."""
        kl, _, _ = self.model.kl_theta(self.parameters)
        return float(np.mean([process.outputs.log_density for process in self._processes])) - kl

    def gradient(self) -> Parameters:
        """Gradient of L; nothing depends on the noise kernel and the inducing inputs."""
        p = self.parameters
        slopes = np.array(self._map(self._slope, [(process,) for process in self._processes]))
        d_theta, d_noise = slopes[:, :-1], float(np.mean(slopes[:, -1]))
        _, kl_mean, kl_variance = self.model.kl_theta(p)
        d_mean = np.mean(d_theta, axis=0) - kl_mean
        spread = np.sqrt(np.append(p.xi, p.beta))
        d_variance = np.mean(d_theta * self.draws, axis=0) / (2.0 * spread) - kl_variance
        return Parameters(
            nu=d_mean[:-1],
            xi=d_variance[:-1],
            alpha=float(d_mean[-1]),
            beta=float(d_variance[-1]),
            noise_variance=d_noise,
            noise_theta=np.zeros_like(p.noise_theta),
            U=np.zeros_like(p.U),
        )

    def _slope(self, process: _Process) -> Array:
        """Gradient of log N(y | 0, C) in (Lambda, sigma_f, sigma_n^2), (d + 2,)."""
        _, sigma_f, x, K, outputs = process
        dC = outputs.gradient()
        dK = dC * K
        dx = 2.0 * sigma_f**2 * (dK @ x - dK.sum(axis=1)[:, None] * x)
        d_Lambda = np.sum(dx * self.rows.X, axis=0)
        return np.array([*d_Lambda, 2.0 * sigma_f * float(dK.sum()), float(np.trace(dC))])

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of the latent function at scaled rows X, each (n,)."""
        means, variances = zip(*(p.moments(X) for p in self._processes), strict=True)
        return np.mean(means, axis=0), np.mean(variances, axis=0) + np.var(means, axis=0)

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) and covariance (n, n)."""
        means, covariances = zip(*(p.joint(X) for p in self._processes), strict=True)
        spread = np.array(means) - np.mean(means, axis=0)  # (S, n)
        return np.mean(means, axis=0), np.mean(covariances, axis=0) + spread.T @ spread / len(means)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # factors are rebuilt

    def at(self, parameters: Parameters) -> Mixture:
        """The same data and draws under another q(theta)."""
        return replace(self, parameters=parameters)
