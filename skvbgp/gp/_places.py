"""Many rows at few places, as one row for each place, which says the same.

Rows at one place whose noise has the same variance t tell f there, and t, no more than the sum w of
their weights, their mean m and the sum S of their squared deviations from it:

    prod_i N(y_i | f, t)^w_i = (2 pi t)^-((w - 1) / 2) w^-(1 / 2) exp(-S / (2 t)) N(m | f, t / w).

So neighbours reach beyond a place that has more rows than there are neighbours. See
:doc:`/theory/gp`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from skvbgp._core.copies import find_equal, number_rows
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp.gp._row_noise import RowNoise, discount_copies

#: Fewer rows are left as they are: all of them predict. So are rows at more places than this share.
_LEAST_ROWS, _LARGEST_SHARE = 401, 0.5
#: Places keep their rows where a variance of noise for each is more probable than one for all by
#: this, in nats a row but the first of each: neighbours say it better, as long as places have no
#: more rows than that on average. And the degrees of freedom of a place's variance a priori.
_LARGEST_GAIN, _ROWS_OF_PLACE, _DOF = 0.05, 20, 5.0
#: About as many rows are judged, of each place so many, and of this share of them nothing is known
#: at their place.
_JUDGED, _SHARE_OF_NEW = 2_000, 0.5


@dataclass(frozen=True)
class Members:
    """Rows that others stand for, in random order, to be left out and judged."""

    row: Index  # (h,): which stands for each
    apart: Array  # (h,): its target less that of this row
    n_others: Array  # (h,): how often others count that stay at its place
    others_apart: Array  # (h,): their mean target less that of the row
    share: Array  # (h,): how much it counts, one on average

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: Any) -> Members:
        own = self.row[index], self.apart[index], self.n_others[index]
        return Members(*own, self.others_apart[index], self.share[index])

    def scaled(self, unit: float | Array) -> Members:
        """The members of targets in other units."""
        return replace(self, apart=self.apart / unit, others_apart=self.others_apart / unit)


class Gathered(NamedTuple):
    """A row for each place."""

    first: Index  # (m,): one of those at it
    y: Array  # (m,), their mean
    noise: RowNoise  # (m,)
    owner: Index  # (n,): at which place each row is
    members: Members


def gather_rows(X: Array, y: Array, noise: RowNoise | None) -> Gathered | None:
    """One row for each place of some rows (n, d), None if there are too many of these.

    Or if rows at one place are copies, or the noise of places differs.
    """
    n = len(y)
    if n < _LEAST_ROWS or len(np.unique(number_rows(X))) > _LARGEST_SHARE * n:
        return None
    noise = RowNoise.of(noise, n)
    told = [noise.variance] if noise.inputs is None else [noise.variance, noise.inputs]
    places, owner = find_equal(X, *told)
    m = len(places)
    if m > _LARGEST_SHARE * n or _have_copies(X, y, noise):
        return None
    order = np.lexsort((y, owner))  # so that sums do not depend on the order of the rows
    starts = np.searchsorted(owner[order], np.arange(m))
    weight, least = noise.weight, y[order[starts]]

    def add_up(values: Array) -> Array:
        return np.asarray(np.add.reduceat(values[order], starts))

    total = add_up(weight)
    beyond = y - least[owner]  # whose sums are rounded less
    mean = add_up(weight * beyond) / total
    scatter = add_up(weight * (beyond - mean[owner]) ** 2)
    if n <= _ROWS_OF_PLACE * m and measure_gain_by_place(scatter, total) > _LARGEST_GAIN:
        return None
    mean += least
    first = order[starts]
    members = _choose_members(mean, y[order], weight[order], starts)
    gathered = replace(noise[first], weight=total, scatter=scatter)
    return Gathered(first, mean, gathered, owner, members)


def measure_gain_by_place(scatter: Array, weight: Array) -> float:
    """How much more probable places (m,) are whose noise has a variance each.

    In nats a row but the first of every place. By its prior, inverse gamma, it is that of all.
    """
    dof = np.maximum(weight - 1.0, 0.0)
    if not scatter.any() or not dof.any():
        return 0.0
    q = scatter * (dof.sum() / scatter.sum())
    each = gammaln(0.5 * (_DOF + dof)) - gammaln(0.5 * _DOF) + 0.5 * _DOF * np.log(0.5 * _DOF)
    each -= 0.5 * (_DOF + dof) * np.log(0.5 * (_DOF + q))
    return float(np.sum(each + 0.5 * q) / dof.sum())


def _have_copies(X: Array, y: Array, noise: RowNoise) -> bool:
    """Whether rows that are equal, if there are any, are one measurement."""
    known = discount_copies(X, y, noise)
    return bool(noise.weight.max() > 1.0) and (known is None or not known.can_part)


def _choose_members(mean: Array, y: Array, weight: Array, starts: Index) -> Members:
    """As many of each place, at quantiles of its targets.

    ``mean`` (m,) is of places, which begin at ``starts`` (m,) of the rows (n,), in the order of
    their targets.
    """
    rng, m = np.random.default_rng(0), len(mean)
    ends = np.append(starts, len(y))
    each = np.minimum(np.diff(ends), -(-_JUDGED // m))
    row = np.repeat(np.arange(m), each)
    first = np.repeat(np.cumsum(each) - each, each)
    level = (np.arange(len(row)) - first + rng.random(len(row))) / each[row]
    before = np.append(0.0, np.cumsum(weight))
    low, total = before[starts][row], np.diff(before[ends])
    found = np.searchsorted(before, low + level * total[row], side="right") - 1
    found = np.clip(found, starts[row], ends[row + 1] - 1)
    apart, own = y[found] - mean[row], np.minimum(weight[found], 1.0)
    n_others = np.maximum(total[row] - own, 0.0)
    n_others[rng.random(len(row)) < _SHARE_OF_NEW] = 0.0
    others = np.divide(-own * apart, n_others, out=np.zeros_like(apart), where=n_others > 0.0)
    share = (total / each)[row]
    members = Members(row, apart, n_others, others, share / share.mean())
    return members[rng.permutation(len(row))]
