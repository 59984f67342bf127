"""Regressors whose learners know nothing of gaps: a row with missing entries has more noise.

It is the row at the means of what is missing, and what the function may differ by from its value
there is known noise to the learner, and variance of the function in predictions. See
:ref:`gap-noise`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.order import draw_distinct, thin
from skvbgp._core.owners import Owners, find_shared
from skvbgp._core.pickling import PickledByFields
from skvbgp._core.scaling import RunningScale, Target
from skvbgp._core.shards import ShardedColumns
from skvbgp.base._distributions import predict_mean
from skvbgp.base._estimator import VariationalRegressor
from skvbgp.base._exact_process import SLOPE, ExactRows, learn_slopes
from skvbgp.base._gaps import Gaps, find_gaps
from skvbgp.base._start import START_ROWS
from skvbgp.base._validation import as_weights
from skvbgp.base._weights import count_rows

#: Most rows that slopes are learned from, and rows that are kept for new ones with other gaps.
_EVIDENCE_ROWS, _PLACES = 512, 1_000
#: A stream begins again with the gaps of all its rows while these are no more than so many.
_KEPT_ROWS = 1_000


class GivenRows(NamedTuple):
    """Rows as they were given, but for those of weight zero."""

    X: Array  # (n, d), NaN where an entry is missing
    y: Array  # (n,) or (n, t), NaN where one of several outputs was not observed
    weight: Array  # (n,) positive
    variance: Array  # of the shape of y: known variances of the noise

    @classmethod
    def of(cls, X: Array, y: Array, sample_weight: Any, variance: Array | None) -> Self:
        """All of them, in the order in which they are."""
        weight = as_weights(sample_weight, len(y))
        variance = np.zeros(y.shape) if variance is None else variance
        rows = cls(X, y, weight, variance)
        return rows if np.all(weight > 0.0) else rows.take(np.flatnonzero(weight))

    @property
    def total(self) -> float:
        """Their number, each as often as it counts."""
        return float(self.weight.sum())

    def take(self, index: Any) -> Self:
        """Some of them."""
        return type(self)(*(values[index] for values in self))

    def joined(self, new: GivenRows) -> GivenRows:
        """These and others."""
        return GivenRows(*map(np.concatenate, zip(self, new, strict=True)))

    def merged(self) -> GivenRows:
        """The rows of which equal ones are one with the sum of their weights."""
        counted = count_rows(self.X, np.column_stack([self.y, self.variance]), self.weight)
        rows = self.take(counted.rows)
        return rows if counted.weight is None else rows._replace(weight=counted.weight)


@dataclass(frozen=True)
class GapNoise(PickledByFields):
    """What missing entries may be, and how much that matters to each output."""

    learned: Gaps | None  # None of rows without gaps, of which few are enough for new ones
    slopes: Array  # (d, t) mean squared slopes of y, 0 of columns that had no gaps
    places: Array  # (k, d) some of the known rows, without gaps
    total: float  # rows that this has been learned from, each as often as it counts

    @classmethod
    def learn(cls, rows: GivenRows, *, learns: bool, owners: Owners) -> Self:
        """Of rows in memory.

        Where nothing ``learns`` hyperparameters, or rows are too few, slopes are those that are
        expected.
        """
        outputs = rows.y.reshape(len(rows.y), -1).T
        slopes = np.zeros((rows.X.shape[1], len(outputs)))
        if not find_gaps(rows.X).any():
            return cls(None, slopes, _thin(rows.X), rows.total)
        distinct = rows.merged()
        gaps, shape = Gaps.of_many(distinct.X), (len(distinct.X), -1)
        pairs = zip(distinct.y.reshape(shape).T, distinct.variance.reshape(shape).T, strict=True)
        for j, (y, variance) in enumerate(pairs):
            one = distinct._replace(y=y, variance=variance).take(np.flatnonzero(~np.isnan(y)))
            slopes[gaps.columns, j] = _learn_of_output(gaps, one, learns, owners)
        places, _ = gaps.fill(_thin(distinct.X))
        return cls(gaps, slopes, places, rows.total)

    @classmethod
    def of_whole(cls, X: ShardedColumns) -> Self:
        """Of rows on Dask's workers, none of which has a gap, and of one output."""
        return cls(None, np.zeros((X.shape[1], 1)), _thin(X), len(X))

    @cached_property
    def gaps(self) -> Gaps:
        """The joint Gaussian of the columns; kept, but not pickled."""
        return Gaps.of(self.places) if self.learned is None else self.learned

    def admit(self, X: Array, predict: Callable[[Array], Array]) -> Self:
        """What is known with the slopes of columns that have their first gaps in rows X.

        What is said of the noise of rows that are learned from is what it will have been.
        """
        new = find_gaps(X) & ~self.gaps.columns
        if not new.any():
            return self
        slopes = self.slopes.copy()
        for j in np.flatnonzero(new).tolist():
            slopes[j] = self.gaps.measure_slope(j, self.places, predict)
        learned = replace(self.gaps, columns=self.gaps.columns | new)
        return replace(self, learned=learned, slopes=slopes)

    def fill(self, X: Array, predict: Callable[[Array], Array]) -> tuple[Array, Array | None]:
        """Rows without gaps, and variances (n, t) of the functions there, None if all are zero.

        Where a column had no gaps, its slope is measured on what is predicted for the places.
        """
        if not find_gaps(X).any():
            return X, None
        slopes = self.admit(X, predict).slopes
        X, inputs = self.gaps.fill(X)
        assert inputs is not None
        # sums by row: those of a product of matrices would depend on the other rows
        return X, np.column_stack([np.sum(inputs * column, axis=1) for column in slopes.T])


def _thin(X: Array | ShardedColumns) -> Array:
    """Some of many rows."""
    return np.array(X[thin(len(X), _PLACES)])


def _learn_of_output(gaps: Gaps, rows: GivenRows, learns: bool, owners: Owners) -> Array:
    """Slopes (g,) of the columns with gaps, in squared units of y."""
    if not len(rows.y):  # of an output that was never observed, which is refused later
        return np.zeros(int(gaps.columns.sum()))
    scale = RunningScale.of(rows.y[:, None], rows.weight)
    target, squared = Target.of_scale(scale), float(scale.std[0]) ** 2
    if len(rows.y) > _EVIDENCE_ROWS:
        rows = rows.take(draw_distinct(len(rows.y), _EVIDENCE_ROWS, np.random.RandomState(0)))
    X, inputs = gaps.fill(rows.X)
    if inputs is None or not learns or len(rows.y) < START_ROWS or squared == 0.0:
        return np.full(int(gaps.columns.sum()), SLOPE * squared)
    coordinates = gaps.coordinates.keeping(find_shared(X.shape[1], owners))
    scaled = ExactRows(
        coordinates.scaled(X),
        target.scaled(rows.y),
        rows.weight,
        target.scaled_noise(rows.variance),
        inputs[:, gaps.columns],
        owners,
    )
    return squared * learn_slopes(scaled)


class FillsGaps(VariationalRegressor):
    """A regressor that takes rows with missing entries, whose learner takes known noise."""

    _takes_gaps: Any = True
    forgetting: float
    _gap_noise: GapNoise | None  # None of a fit that takes no gaps
    #: All rows of a stream, while they are few; None if there were others.
    _gap_rows: GivenRows | None
    _begins_again = False  # whether the last rows that were read are all rows, of a stream

    def _count(
        self, X: Any, y: Any, sample_weight: Any, variance: Array | None, *, begins: bool
    ) -> tuple[Any, Any]:
        """The rows without gaps; in a stream all of them, where gaps are to be learned again."""
        count, self._begins_again = super()._count, False
        learns, known = begins and self._takes_gaps, None if begins else self._gap_rows
        self._gap_rows = None
        if begins:
            self._gap_noise = None
        if isinstance(X, ShardedColumns):
            if learns:
                self._gap_noise = GapNoise.of_whole(X)
            return count(X, y, sample_weight, variance, begins=begins)
        if learns or known is not None:
            rows = GivenRows.of(X, y, sample_weight, variance)
            if known is not None:
                rows = known.joined(rows)
                self._begins_again = learns = self._is_due(rows)
            if self.forgetting == 1.0 and len(rows.X) <= _KEPT_ROWS:
                self._gap_rows = GivenRows(*map(np.array, rows))
            if learns:
                is_free = getattr(self, "learn_hyperparameters", True)
                self._gap_noise = GapNoise.learn(rows, learns=is_free, owners=self._owners)
                # nothing to fill, and rows may be many, and on disk: they are not read once more
                if self._gap_noise.learned is None:
                    return count(X, y, sample_weight, variance, begins=begins)
                # those of weight zero may lack entries of which these rows know nothing
                X, y, sample_weight, variance = rows
        if self._gap_noise is not None and not learns:
            self._gap_noise = self._gap_noise.admit(X, self._predict_mean)
        X, variance = self._fill(X, variance)
        return count(X, y, sample_weight, variance, begins=begins)

    def _is_due(self, rows: GivenRows) -> bool:
        """Whether all rows of a stream say more of gaps: twice as many, or other columns."""
        if not np.isnan(rows.X).any():
            return False
        noise = self._gap_noise
        assert noise is not None  # as there are rows
        return rows.total >= 2.0 * noise.total or noise.gaps.precede(rows.X)

    def _learns_anew(self, inputs: Any, targets: Any) -> bool:
        return self._begins_again or super()._learns_anew(inputs, targets)

    def _fill(self, X: Array, variance: Array | None) -> tuple[Array, Array | None]:
        if self._gap_noise is None and find_gaps(X).any():
            raise ValueError("Input X contains NaN, which the parameters of the fit did not take.")
        if self._gap_noise is None:
            return X, variance
        X, own = self._gap_noise.fill(X, self._predict_mean)
        if own is None:
            return X, variance
        own = own if self.n_outputs_ > 1 else own[:, 0]
        return X, own if variance is None else variance + own

    def _predict_mean(self, X: Array) -> Array:
        """The mean of y at rows without gaps."""
        return predict_mean(self._posterior(), X, True)
