"""What a search sees of the rows: groups to learn from, and rows that are left out.

Of several outputs with the same hyperparameters, those that were observed in the same rows have
their matrices in common. The evidence of all is a sum over groups as that of one is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from skvbgp._core.journal import do_once
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates, Target
from skvbgp.base import find_output, pick
from skvbgp.gp._mixture import LocalMoments, Mixture, Predicted
from skvbgp.gp._places import Members
from skvbgp.gp._posterior import NeighbourPosterior, TwinPosterior
from skvbgp.gp._row_noise import Group, RowNoise, have_same_noise
from skvbgp.gp._rows import Rows, draw_groups

#: Values that are left out, one at a time, if nobody says how many, and rows among which neighbours
#: are looked for.
HELD_OUT, _JUDGED_ROWS = 1_000, 100_000


class Judges(NamedTuple):
    """Rows that are left out, and what a global part leaves uncertain there."""

    rows: Index
    variance: Array  # scaled, (h,)


@dataclass
class Sample:
    """The rows of one output, or of m outputs that were observed in the same rows."""

    X: Any  # (n, d) all rows, scaled
    y: Any  # (n,) or (n, m)
    rng: np.random.RandomState
    noise: RowNoise | None = None  # what is known of the noise of all rows, scaled
    n_outputs: int = 0  # number of the last columns of X, which say which output a row is of
    #: The rows that are left out, of one output; by default random ones.
    judges: Judges | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def total(self) -> int:
        """Rows that groups may be of."""
        return len(self)

    @property
    def d(self) -> int:
        return int(self.X.shape[1])

    @property
    def may_all_predict(self) -> bool:
        """Whether every place may be predicted from all rows, here and without a global part."""
        return self.judges is None

    @property
    def noise_may_vary(self) -> bool:
        """Whether it may depend on predictions, with no known part and the outputs told apart."""
        is_one = np.ndim(self.y) == 1
        return is_one and (self.noise is None or not np.any(self.noise.variance))

    @property
    def output(self) -> Index | None:
        """Which output each value that is left out is of, (n,); None if there is one."""
        if not self.n_outputs:
            return None
        return find_output(self._judged[0].X[: self._count(None)[0]], self.n_outputs)

    @property
    def judged_inputs(self) -> Array | None:
        """Inputs (h, d) of the values that are left out, of one output."""
        if np.ndim(self.y) == 2 or self.n_outputs:
            return None
        return self._judged[0].X[: self._count(None)[0]]

    def is_twin(self, other: Sample) -> bool:
        """Whether another output was observed in the same rows."""
        return np.array_equal(self.X, other.X) and have_same_noise(self.noise, other.noise)

    # -- groups ------------------------------------------------------------------------------------

    def take_all(self) -> list[Group]:
        return [(self.X, self.y, self.noise)]

    def draw_groups(self, n_rows: float, size: int, weights: Array | None = None) -> list[Group]:
        """Groups of near rows with at least so many rows in all.

        Inputs have weights (d,) in the distance, by default all the same ones.
        """
        found = self._find_groups(math.ceil(n_rows / size), size, weights)
        return [self._take(index) for index in found]

    def _find_groups(self, n_groups: int, size: int, weights: Array | None) -> list[Index]:
        """The rows of groups around random ones."""
        X = self.X if weights is None else self.X * weights
        inputs = X[:, : self.d - self.n_outputs]  # all outputs meet in a group
        return draw_groups(inputs, n_groups, size, self.rng)

    def _take(self, index: Index) -> Group:
        return self.X[index], self.y[index], pick(self.noise, index)

    def draw_rows(self, n: int) -> list[Group]:
        """At most so many random rows, as one group."""
        return [self._take(self._draw_order(n))]

    # -- rows that are left out --------------------------------------------------------------------

    def _draw_order(self, size: int) -> Index:
        """Distinct random rows, those that judge before all others."""
        order = self.rng.permutation(len(self.y))[:size]  # there may be many others
        if self.judges is None:
            return order
        first = self.judges.rows
        return np.concatenate([first, order[~np.isin(order, first)]])[:size]

    @cached_property
    def _judged(self) -> list[Rows]:
        """By output: rows in random order, of which the first ones are left out in turn."""
        X, y, noise = self._take(self._draw_order(_JUDGED_ROWS))
        return [Rows().plus(X, one, noise) for one in (y.T if y.ndim == 2 else [y])]

    def _count(self, n: int | None) -> tuple[int, int]:
        """How many values are left out, n if there are as many, and of how many rows.

        A row's values of all outputs are left out before those of the next row.
        """
        m, rows = len(self._judged), self._judged[0]
        usual = HELD_OUT if self.judges is None else len(self.judges.rows)
        most = len(rows) * m if self.judges is None else usual
        n = min(n or usual, most)
        return n, -(-n // m)

    def leave_out(
        self, mixture: Mixture, weights: Array, k: int, n: int | None = None
    ) -> Predicted:
        """The first n values that are left out, one at a time."""
        n, n_rows = self._count(n)
        noise, each = self._judged[0].noise, self._condition(mixture, weights, k)
        unknown = None if self.judges is None else self.judges.variance[:n]
        equal = None if noise is None else noise.others[:n_rows]
        given = np.arange(n_rows), equal, unknown
        parts = do_once(lambda: _interleave([one.leave_out(*given) for one in each]).take(slice(n)))
        return Predicted(parts, *self.take_targets(n))

    def _condition(self, mixture: Mixture, weights: Array, k: int) -> list[NeighbourPosterior]:
        """The posteriors of the outputs, given the rows that are left out in turn."""
        frame = Coordinates(np.zeros(self.d), np.ones(self.d)), Target(0.0, 1.0)
        first, *others = self._judged
        one = NeighbourPosterior(mixture, first, *frame, weights, k)
        return [one, *(TwinPosterior(mixture, y, *frame, weights, k, first=one) for y in others)]

    @property
    def n_values(self) -> float:
        """Targets of all rows, as often as they count."""
        n = len(self) if self.noise is None else float(self.noise.weight.sum())
        return n * len(self._judged)

    def take_targets(self, n: int | None = None) -> tuple[Array, Array | None]:
        """Targets of the first n values that are left out, and how often each counts.

        None is once.
        """
        n, n_rows = self._count(n)
        y = np.column_stack([rows.y[:n_rows] for rows in self._judged]).ravel()[:n]
        weight = self._judged[0].weight
        return y, None if weight is None else np.repeat(weight[:n_rows], len(self._judged))[:n]


@dataclass(kw_only=True)
class PlacesSample(Sample):
    """Rows of one output that stand for others each, some of which are judged in their place."""

    members: Members

    @property
    def judged_inputs(self) -> Array:
        return np.asarray(self.X[self.members.row[:HELD_OUT]])

    def is_twin(self, other: Sample) -> bool:
        """Rows of two outputs stand for different values."""
        return False

    @cached_property
    def _judged(self) -> list[Rows]:
        return [Rows().plus(self.X, self.y, self.noise)]

    def leave_out(
        self, mixture: Mixture, weights: Array, k: int, n: int | None = None
    ) -> Predicted:
        (posterior,) = self._condition(mixture, weights, k)
        judged = self.members[: n or HELD_OUT]
        rest = self.y[judged.row] + judged.others_apart
        parts = do_once(lambda: posterior.leave_out(judged.row, judged.n_others, y=rest))
        return Predicted(parts, *self.take_targets(n))

    def take_targets(self, n: int | None = None) -> tuple[Array, Array]:
        judged = self.members[: n or HELD_OUT]
        return self.y[judged.row] + judged.apart, judged.share


@dataclass
class Samples:
    """Those of outputs that were observed in different rows.

    All together have about as many groups, and at most as many values that are left out, as one of
    them usually has alone, in proportion to their numbers of values.
    """

    parts: Sequence[Sample]
    may_all_predict: ClassVar[bool] = True  # rows are here, and a global part is of one output
    noise_may_vary: ClassVar[bool] = False
    output: ClassVar[Index | None] = None
    judged_inputs: ClassVar[Array | None] = None

    def __len__(self) -> int:
        """Rows of the output that has most of them."""
        return max(map(len, self.parts))

    @property
    def total(self) -> int:
        return sum(map(len, self.parts))

    @property
    def n_values(self) -> float:
        return sum(part.n_values for part in self.parts)

    @property
    def d(self) -> int:
        return self.parts[0].d

    def take_all(self) -> list[Group]:
        return [group for part in self.parts for group in part.take_all()]

    def draw_groups(self, n_rows: float, size: int, weights: Array | None = None) -> list[Group]:
        shares = (n_rows * len(part) / self.total for part in self.parts)
        pairs = zip(self.parts, shares, strict=True)
        each = (part.draw_groups(share, size, weights) for part, share in pairs)
        return [group for groups in each for group in groups]

    def draw_rows(self, n: int) -> list[Group]:
        """About so many random rows at most, a group of each part."""
        shares = (math.ceil(n * len(part) / self.total) for part in self.parts)
        pairs = zip(self.parts, shares, strict=True)
        return [group for part, share in pairs for group in part.draw_rows(share)]

    @cached_property
    def _turns(self) -> Index:
        """Which part is next, for each value that is left out: all in turn."""
        sizes = np.array([part.y.size for part in self.parts])
        counts = np.minimum(np.ceil(HELD_OUT / sizes.sum() * sizes), sizes).astype(int)
        when = [(np.arange(count) + 0.5) / count for count in counts]
        return np.repeat(np.arange(len(counts)), counts)[np.argsort(np.concatenate(when))]

    def _sort(self, n: int | None) -> tuple[list[int], Index]:
        """How many of the first n values are of each part, and where each value is in all parts."""
        turns = self._turns[:n]
        counts = np.bincount(turns, minlength=len(self.parts))
        return counts.tolist(), np.argsort(np.argsort(turns, kind="stable"))

    def leave_out(
        self, mixture: Mixture, weights: Array, k: int, n: int | None = None
    ) -> Predicted:
        counts, order = self._sort(n)
        pairs = zip(self.parts, counts, strict=True)
        each = [part.leave_out(mixture, weights, k, count).parts for part, count in pairs if count]
        parts = (np.concatenate(values)[order] for values in zip(*each, strict=True))
        return Predicted(LocalMoments(*parts), *self.take_targets(n))

    def take_targets(self, n: int | None = None) -> tuple[Array, Array | None]:
        counts, order = self._sort(n)
        pairs = zip(self.parts, counts, strict=True)
        each = [part.take_targets(count) for part, count in pairs if count]
        y = np.concatenate([y for y, _ in each])[order]
        if all(weight is None for _, weight in each):
            return y, None
        weights = [np.ones(len(y)) if weight is None else weight for y, weight in each]
        return y, np.concatenate(weights)[order]


def join_samples(samples: Sequence[Sample]) -> Sample | Samples:
    """All outputs together; those that were observed in the same rows are one sample."""
    kinds: list[list[Sample]] = []
    for sample in samples:
        known = next((kind for kind in kinds if kind[0].is_twin(sample)), None)
        if known is None:
            kinds.append([sample])
        else:
            known.append(sample)
    parts = [
        replace(kind[0], y=np.column_stack([one.y for one in kind])) if len(kind) > 1 else kind[0]
        for kind in kinds
    ]
    return parts[0] if len(parts) == 1 else Samples(parts)


def _interleave(each: Sequence[LocalMoments]) -> LocalMoments:
    """What is said of rows of each output, as values of all outputs row by row."""
    C = each[0].mean.shape[1]
    stacks = (np.stack(values, axis=1) for values in zip(*each, strict=True))
    return LocalMoments(*(stack.reshape(-1, C) for stack in stacks))
