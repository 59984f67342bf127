r"""Test conditional of PIC: new rows are correlated with the data of their own block.

For one draw of theta and one block B with noise covariance C_BB, in whitened coordinates
A = k(Lambda X, Z) L^-T and R = k~ - A A' (unit variance), given u

    cov(y_B) = sigma_f^2 R_BB + C_BB,    cov(y*, y_B) = sigma_f^2 R_*B + C_*B,

so that with H = cov(y*, y_B) cov(y_B)^-1 (Appendix F.2 of [Yu2019]_, with the noise of the
new observation correlated with that of its block)

    y* | u, y_B ~ N( H y_B + sigma_f (A_* - H A_B) u,  sigma_f^2 R_** + C_** - H cov(y_B, y*) ).

The latent function f alone leaves out C_*B and C_**. Linear functions of it, such as derivatives,
have theirs in the place of k(Lambda x*, .). A draw of it is corrected twice,

    f(x) = sigma_f [ g0 + A v ] + sigma_f^2 R_xB cov(y_B)^-1 ( y_B - sigma_f [ g0 + A v ]_B - e ),

with g0 from the prior, v = u - L^-1 g0(Z) and noise e ~ N(0, C_BB) of the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.block_cache import BlockCache
from skvbgp._core.linalg import Array, cholesky, inverse_from_cholesky, tril_times
from skvbgp._core.mixture import average_moments
from skvbgp.kernels._features import PriorPaths
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._data import Rows
from skvbgp.sgpr._left_out import Remembered
from skvbgp.sgpr._noise import ResidualNoise
from skvbgp.sgpr._paths import Paths
from skvbgp.sgpr._slopes import se_slopes


class BlockFactors(NamedTuple):
    """What the conditional of one block needs, for every draw of theta."""

    rotated: list[Array]  # S of (n, d)
    A: list[Array]  # S of (n, m)
    inverse: list[Array]  # S of (n, n): cov(y_B)^-1

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for arrays in self for array in arrays)


class BlockConditional:
    """Predictive moments of rows of one block, and functions, given each draw of theta.

    The draws (S, d + 1) are standard normal points, whose last column belongs to sigma_f.
    """

    def __init__(self, known: Remembered, draws: Array) -> None:
        self._model, p, self._prior, noise, self.q, _ = known
        assert isinstance(noise, ResidualNoise)
        self._noise = noise
        self._cache: BlockCache[BlockFactors] = BlockCache()
        self.Lambda = [p.draw_Lambda(e[:-1]) for e in draws]  # S of (d,)
        self._sigma_f = [p.draw_sigma_f(e[-1]) for e in draws]

    def factors(self, k: int, block: Rows) -> BlockFactors:
        """Those of block k, made only if they are not known from a call before."""
        known = self._cache.get(k)
        if known is None:
            known = self._factorise(block)
            self._cache.put(k, known)
        return known

    def _factorise(self, block: Rows) -> BlockFactors:
        C = self.noise_covariance(block)
        rotated = [block.X * lam for lam in self.Lambda]
        A = [self._prior.whiten(x) for x in rotated]
        inverse = []
        for x, a, sigma_f in zip(rotated, A, self._sigma_f, strict=True):
            residual = unit_se(x, x) - a @ a.T
            L = cholesky(sigma_f**2 * residual + C, "covariance of a block")
            inverse.append(inverse_from_cholesky(L))
        return BlockFactors(rotated, A, inverse)

    def noise_covariance(self, block: Rows) -> Array:
        """C_BB of scaled data, as far as they count, (n, n)."""
        return self._model.noise_of(self._noise, block).covariance

    def marginal_moments(
        self, include_noise: bool, X: Array, k: int, block: Rows
    ) -> tuple[Array, Array]:
        """Mean and variance of scaled rows X of block k, each (n,)."""
        return average_moments(*self.components(include_noise, X, k, block), axis=1)

    def components(self, include_noise: bool, X: Array, k: int, block: Rows) -> tuple[Array, Array]:
        """The same given each draw of theta, (n, S)."""
        means, variances, _ = self.moments(X, k, block, include_noise=include_noise, full=False)
        return means.T, np.maximum(variances, 0.0).T

    def moments(
        self, X: Array, k: int, block: Rows, *, include_noise: bool, full: bool
    ) -> tuple[Array, Array, list[Array]]:
        """Moments of scaled rows X of block k, given each draw of theta.

        Means and variances (S, n). With ``full``, the covariance (n, n), averaged over draws, takes
        the place of the variances, and there is b (n, m) of each draw: what correlates the rows
        with those of other blocks.
        """
        original = self._model.coordinates.original
        X_original = original(X)
        noise_cross: Array | float = 0.0
        noise_own: Array | float = 0.0
        if include_noise:
            noise_cross = self._noise.cross_covariance(X_original, original(block.X))
            own_of = self._noise.covariance if full else self._noise.marginal_variance
            noise_own = own_of(X_original)
        means, variances, coefficients = [], [], []
        total = 0.0
        for lam, sigma_f, x_block, A_block, inverse in zip(
            self.Lambda, self._sigma_f, *self.factors(k, block), strict=True
        ):
            x, second = X * lam, sigma_f**2
            K_Z, K_block = unit_se(x, self._prior.Z), unit_se(x, x_block)
            A, cross, H, b = self._weigh(K_Z, K_block, sigma_f, A_block, inverse, noise_cross)
            means.append(H @ block.y + b @ self.q.mean)
            root = b @ self.q.precision_factor_inv.T  # b' S b = |root|^2
            if full:
                coefficients.append(b)
                own = second * (unit_se(x) - A @ A.T)
                total = total + (own + noise_own - H @ cross.T + root @ root.T)
            else:
                own = second * (1.0 - np.sum(A**2, axis=1))
                given = own + noise_own - np.sum(H * cross, axis=1)
                variances.append(given + np.sum(root**2, axis=1))
        spread = np.asarray(total) / len(means) if full else np.array(variances)
        return np.array(means), spread, coefficients

    def slope_moments(self, X: Array, k: int, block: Rows) -> tuple[Array, Array]:
        """Moments of the derivatives of f at scaled rows X of block k, each (n, S, d)."""
        parts = []
        for lam, sigma_f, x_block, A_block, inverse in zip(
            self.Lambda, self._sigma_f, *self.factors(k, block), strict=True
        ):
            K_Z, K_block = (
                np.concatenate(list(se_slopes(X * lam, places)))  # (d n, ...)
                for places in (self._prior.Z, x_block)
            )
            A, cross, H, b = self._weigh(K_Z, K_block, sigma_f, A_block, inverse)
            root = b @ self.q.precision_factor_inv.T
            given = sigma_f**2 * (1.0 - np.sum(A**2, axis=1)) - np.sum(H * cross, axis=1)
            variance = np.maximum(given + np.sum(root**2, axis=1), 0.0)
            mean = H @ block.y + b @ self.q.mean
            d = len(lam)
            parts.append((mean.reshape(d, -1).T * lam, variance.reshape(d, -1).T * lam**2))
        means, variances = zip(*parts, strict=True)
        return np.stack(means, axis=1), np.stack(variances, axis=1)

    def _weigh(
        self,
        K_Z: Array,
        K_block: Array,
        sigma_f: float,
        A_block: Array,
        inverse: Array,
        noise_cross: Array | float = 0.0,
    ) -> tuple[Array, Array, Array, Array]:
        """A, cov(y*, y_B), H and b of what has these covariances with g at Z and the block."""
        A = tril_times(self._prior.L_inv, K_Z.T).T  # (n, m)
        cross = sigma_f**2 * (K_block - A @ A_block.T) + noise_cross  # (n, n_B)
        H = cross @ inverse
        return A, cross, H, sigma_f * (A - H @ A_block)

    def correct(
        self, i: int, prior: PriorPaths, u: Array, noise: Array, k: int, block: Rows
    ) -> Paths:
        """Functions s from the posterior, at rows of block k, by draw i of theta.

        ``prior`` has s functions g0, and u (m, s) and the rows' noise (n, s) are draws as well.
        """
        sigma_f, factors = self._sigma_f[i], self.factors(k, block)
        v = u - self._prior.L_inv @ prior(self._prior.Z)
        rest = block.y[:, None] - sigma_f * prior(factors.rotated[i]) - noise
        corrections = self._find_corrections(i, v, rest, factors)
        return Paths(self.Lambda[i], sigma_f, prior, *corrections)

    def mean_slopes(self, X: Array, k: int, block: Rows) -> tuple[Array]:
        """Derivatives of the mean of f at scaled rows X of block k, (n, S, d)."""
        factors, parts = self.factors(k, block), []
        for i, (lam, sigma_f) in enumerate(zip(self.Lambda, self._sigma_f, strict=True)):
            places, corrections = self._find_corrections(i, self.q.mean, block.y, factors)
            slopes = [dK @ corrections for dK in se_slopes(X * lam, places)]
            parts.append(sigma_f * lam * np.column_stack(slopes))
        return (np.stack(parts, axis=1),)

    def _find_corrections(
        self, i: int, v: Array, rest: Array, factors: BlockFactors
    ) -> tuple[Array, Array]:
        """Rotated places, and what k(., places) / sigma_f has to be multiplied by.

        That is by what u differs by, (m,) or (m, s), and what rows do, (n,) or (n, s), by which it
        does not.
        """
        sigma_f, L_inv = self._sigma_f[i], self._prior.L_inv
        x, A, inverse = (part[i] for part in factors)
        w = inverse @ (rest - sigma_f * (A @ v))
        at_Z = L_inv.T @ (v - sigma_f * (A.T @ w))
        return np.concatenate([self._prior.Z, x]), np.concatenate([at_Z, sigma_f * w])

    def leave_out(self, k: int, block: Rows) -> tuple[Array, Array, Array]:
        """Observations at the rows of block k, each given the others of it and each draw of theta.

        Their means are offset + b' u: offsets (n, S), variances given u (n, S), and b (n, S, m).
        """
        own = self._noise.marginal_variance(self._model.coordinates.original(block.X))
        more = own - np.diagonal(self.noise_covariance(block))  # than the copies of a row have
        offsets, variances, coefficients = [], [], []
        _, whitened, inverses = self.factors(k, block)
        for sigma_f, A, inverse in zip(self._sigma_f, whitened, inverses, strict=True):
            variance = 1.0 / np.diagonal(inverse)
            H = variance[:, None] * inverse
            offsets.append(block.y - H @ block.y)
            variances.append(variance + more)
            coefficients.append(sigma_f * (H @ A))
        return (
            np.stack(offsets, axis=1),
            np.stack(variances, axis=1),
            np.stack(coefficients, axis=1),
        )
