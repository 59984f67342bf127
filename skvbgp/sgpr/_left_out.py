r"""q(u) without a row, and what it says of that row: :ref:`sgpr-left-out`.

To the precision and the shift of q(u) a row with independent noise of variance c has added

    (second / c) E[a a'],   (alpha y / c) E[a],     a = L^-1 k(Z, Lambda x),

which are subtracted. Expectations over S draws have rank S, so that the covariance grows by a term
of that rank (Woodbury); those in closed form have full rank.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.expectations import SecondMoment, first_moment
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.parallel import thread_map
from skvbgp.sgpr._bound import Prior
from skvbgp.sgpr._data import Data, Rows
from skvbgp.sgpr._likelihood import unit_se
from skvbgp.sgpr._noise import weighted_covariance
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._psi import rotate
from skvbgp.sgpr._quadrature import CommonDraws, DrawRule
from skvbgp.sgpr._state import State

#: Numbers of a tile of rows' matrices.
_TILE = 2**20


class Drawn(NamedTuple):
    """Expectations about rows over draws of Lambda."""

    roots: Array  # (n, S, m): E[a a'] is the product of roots' and roots

    @property
    def first(self) -> Array:
        """E[a], (n, m)."""
        return self.roots.sum(axis=1) / np.sqrt(self.roots.shape[1])

    @property
    def trace(self) -> Array:
        """E[a' a], (n,)."""
        return np.sum(self.roots**2, axis=(1, 2))

    def forms(self, root: Array) -> Array:
        """E[|root a|^2] (n,), for a root (r, m), or one for each row (n, r, m)."""
        return np.sum((self.roots @ np.swapaxes(root, -1, -2)) ** 2, axis=(1, 2))


class Integrated(NamedTuple):
    """The same in closed form."""

    first: Array  # (n, m)
    matrices: Array  # (n, m, m) E[a a']

    @property
    def trace(self) -> Array:
        return np.trace(self.matrices, axis1=1, axis2=2)

    def forms(self, root: Array) -> Array:
        return np.sum((root @ self.matrices) * root, axis=(1, 2))


Expected = Drawn | Integrated


def expect(rule: DrawRule, X: Array, p: Parameters, prior: Prior) -> Expected:
    """What a rule makes of scaled rows X."""
    L_inv = prior.L_inv
    if isinstance(rule, CommonDraws):
        K = [unit_se(X * (p.nu + np.sqrt(p.xi) * e), prior.Z) for e in rule.draws]
        return Drawn(np.stack(K, axis=1) @ L_inv.T / np.sqrt(len(K)))
    arguments = (*rotate(X, p.nu, p.xi), prior.Z)
    matrices = SecondMoment(*arguments, n_kept=0).matrices()
    return Integrated(first_moment(*arguments) @ L_inv.T, L_inv @ matrices @ L_inv.T)


class LeftOut(NamedTuple):
    """q(u) without each row: means, and roots whose products root' root add to its covariance."""

    mean: Array  # (n, m)
    roots: tuple[Array, ...]  # (r, m), or (n, r, m)

    @classmethod
    def of(cls, q: WhitenedGaussian, row: Expected, precision: Array, shift: Array) -> LeftOut:
        """Without ``precision`` (n,) times E[a a'], and ``shift`` (n,) times E[a].

        Raises
        ------
        ValueError
            If q does not know as much of a row.
        """
        rest = q.shift - shift[:, None] * row.first  # (n, m)
        try:
            if isinstance(row, Integrated):
                own = precision[:, None, None] * row.matrices
                roots: tuple[Array, ...] = (np.linalg.inv(np.linalg.cholesky(q.precision - own)),)
            else:
                R = q.precision_factor_inv
                scaled = np.sqrt(precision)[:, None, None] * (row.roots @ R.T)  # (n, S, m)
                gap = np.eye(scaled.shape[1]) - scaled @ np.swapaxes(scaled, 1, 2)
                roots = R, np.linalg.inv(np.linalg.cholesky(gap)) @ scaled @ R
        except np.linalg.LinAlgError:
            raise ValueError(
                "A row says more than all that the model knows: the model has not been trained on "
                "all of these rows, or has learned other hyperparameters since."
            ) from None
        mean = sum((root.mT @ (root @ rest[:, :, None]))[:, :, 0] for root in roots)
        return cls(np.asarray(mean), roots)

    def moments(self, row: Expected, p: Parameters) -> tuple[Array, Array]:
        """Mean and variance (n,) of f at the rows."""
        mean = p.alpha * np.sum(row.first * self.mean, axis=1)
        second = sum(row.forms(root) for root in (*self.roots, self.mean[:, None]))
        variance = p.second_moment * (1.0 - row.trace + second) - mean**2
        return mean, np.maximum(variance, 1e-10 * p.second_moment)


def leave_out(state: State, rows: Rows) -> LeftOut:
    """q(u) without each of some rows whose noise is independent."""
    p, noise = state.parameters, state.noise
    c, _ = weighted_covariance(noise, state.model.coordinates.original(rows.X), rows)
    known = expect(state.draw_rule, rows.X, p, state.prior)
    return LeftOut.of(state.q, known, p.second_moment / c, p.alpha * rows.y / c)


def predict_left_out(state: State, rule: DrawRule, data: Data) -> tuple[Array, Array]:
    """Mean and variance (n,) of f at rows, each given all the others.

    ``rule`` is that of predictions; the state has that of what is remembered of rows.
    """
    p, prior = state.parameters, state.prior
    _ = state.q.precision_factor_inv, prior.L_inv  # once, not in each thread

    def predict(rows: Rows) -> tuple[Array, Array]:
        return leave_out(state, rows).moments(expect(rule, rows.X, p, prior), p)

    m, rules = len(p.U), (rule, state.draw_rule)
    width = max(len(one.draws) if isinstance(one, CommonDraws) else m for one in rules)
    height = max(1, _TILE // (m * width))
    tiles = [slice(start, start + height) for start in range(0, len(data), height)]
    parts = thread_map(predict, ((data.rows(tile),) for tile in tiles))
    mean, variance = zip(*parts, strict=True)
    return np.concatenate(mean), np.concatenate(variance)
