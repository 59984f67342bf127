r"""q(u) without a row, and what it says of that row: :ref:`sgpr-left-out`.

To the precision and the shift of q(u) a row with independent noise of variance c has added

    (second / c) E[a a'],   (alpha y / c) E[a],     a = L^-1 k(Z, Lambda x),

which are subtracted. A row of a block whose noise has the precision Q = C^-1 has added as much as
one with independent noise of variance c = 1 / Q_ii, and H_i y and H_i A for y and a, with
H_i = c Q_i: what the others of the block do not tell of it. Expectations over S draws have rank S,
so that the covariance grows by a term of that rank (Woodbury); those in closed form have full rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from skvbgp._core.expectations import SecondMoment, first_moment
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array, cholesky, inverse_from_cholesky
from skvbgp._core.order import Index, cut
from skvbgp._core.parallel import thread_map
from skvbgp.base import invert_rest
from skvbgp.kernels._squared_exponential import unit_se
from skvbgp.sgpr._bound import Prior
from skvbgp.sgpr._data import Data, RowIndex, Rows
from skvbgp.sgpr._noise import Model, Noise
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._psi import DensePsi, rotate
from skvbgp.sgpr._quadrature import CommonDraws, FixedRule

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


def expect(
    rule: FixedRule, X: Array, p: Parameters, prior: Prior, H: Array | None = None
) -> Expected:
    """What a rule makes of scaled rows X, or of combinations of them, by the rows of H (n, n)."""
    L_inv = prior.L_inv
    if isinstance(rule, CommonDraws):
        K = [unit_se(X * p.draw_Lambda(e), prior.Z) for e in rule.draws]
        roots = np.stack(K, axis=1) @ L_inv.T / np.sqrt(len(K))
        return Drawn(roots if H is None else np.tensordot(H, roots, 1))
    arguments = (*rotate(X, p.nu, p.xi), prior.Z)
    first = first_moment(*arguments) @ L_inv.T
    if H is None:
        matrices = SecondMoment(*arguments, n_kept=0).matrices()
    else:
        first = H @ first
        matrices = DensePsi(X, prior.Z, p.nu, p.xi, np.eye(len(X))).matrices(H)
    return Integrated(first, L_inv @ matrices @ L_inv.T)


class LeaveOneOut(NamedTuple):
    """q(u) without each row: means, and roots whose products root' root add to its covariance."""

    mean: Array  # (n, m)
    roots: tuple[Array, ...]  # (r, m), or (n, r, m)

    @classmethod
    def of(cls, q: WhitenedGaussian, row: Expected, precision: Array, shift: Array) -> LeaveOneOut:
        """Without ``precision`` (n,) times E[a a'], and ``shift`` (n,) times E[a].

        RowSaysMoreError if q does not know as much of a row.
        """
        rest = q.shift - shift[:, None] * row.first  # (n, m)
        if isinstance(row, Integrated):
            own = precision[:, None, None] * row.matrices
            roots: tuple[Array, ...] = (invert_rest(q.precision - own),)
        else:
            R = q.precision_factor_inv
            scaled = np.sqrt(precision)[:, None, None] * (row.roots @ R.T)  # (n, S, m)
            gap = np.eye(scaled.shape[1]) - scaled @ np.swapaxes(scaled, 1, 2)
            roots = R, invert_rest(gap) @ scaled @ R
        mean = sum((root.mT @ (root @ rest[:, :, None]))[:, :, 0] for root in roots)
        return cls(np.asarray(mean), roots)

    def moments(self, row: Expected, p: Parameters) -> tuple[Array, Array]:
        """Mean and variance (n,) of f at the rows."""
        mean = p.alpha * np.sum(row.first * self.mean, axis=1)
        second = sum(row.forms(root) for root in (*self.roots, self.mean[:, None]))
        variance = p.second_moment * (1.0 - row.trace + second) - mean**2
        return mean, np.maximum(variance, 1e-10 * p.second_moment)

    def project(self, b: Array) -> tuple[Array, Array]:
        """Mean and variance (n, S) of b' u, for coefficients (n, S, m)."""
        variance = sum(np.sum((b @ np.swapaxes(root, -1, -2)) ** 2, axis=2) for root in self.roots)
        return (b @ self.mean[:, :, None])[:, :, 0], np.asarray(variance)


class Remembered(NamedTuple):
    """What is known of all rows, and how it has been made of them."""

    model: Model
    parameters: Parameters
    prior: Prior
    noise: Noise
    q: WhitenedGaussian
    rule: FixedRule

    def without(self, rows: Rows) -> LeaveOneOut:
        """q(u) without each of some rows: those of a block, or any if noise is independent."""
        p = self.parameters
        c = self.model.noise_of(self.noise, rows).covariance
        y, H = rows.y, None
        if c.ndim == 2:
            Q = inverse_from_cholesky(cholesky(c, "noise covariance of a block"))
            c = 1.0 / np.diagonal(Q)
            H = c[:, None] * Q
            y = H @ y
        known = expect(self.rule, rows.X, p, self.prior, H)
        return LeaveOneOut.of(self.q, known, p.second_moment / c, p.alpha * y / c)

    def predict(
        self, rule: FixedRule, data: Data, blocks: list[Index] | None = None
    ) -> tuple[Array, Array]:
        """Mean and variance (n,) of f at rows, each given all the others.

        The rule is that of predictions. If noise is correlated in blocks, these are the rows of
        each.
        """
        groups: Sequence[RowIndex] = self._tiles(rule, len(data)) if blocks is None else blocks
        parts = self.predict_groups(rule, (data.rows(group) for group in groups))
        found = np.empty((2, len(data)))
        for group, part in zip(groups, parts, strict=True):
            found[:, group] = part
        return found[0], found[1]

    def predict_groups(self, rule: FixedRule, groups: Iterable[Rows]) -> list[tuple[Array, Array]]:
        """The same of groups of rows, which are blocks if their noise is correlated there."""
        p, prior = self.parameters, self.prior
        _ = self.q.precision_factor_inv, prior.L_inv  # once, not in each thread

        def predict(rows: Rows) -> tuple[Array, Array]:
            return self.without(rows).moments(expect(rule, rows.X, p, prior), p)

        return thread_map(predict, ((rows,) for rows in groups))

    def _tiles(self, rule: FixedRule, n: int) -> list[slice]:
        """Rows whose matrices are in memory at a time."""
        m = len(self.q.shift)
        width = max(len(r.draws) if isinstance(r, CommonDraws) else m for r in (rule, self.rule))
        return cut(n, max(1, _TILE // (m * width)))
