"""Labels as the targets of one function for two classes, and else of one for each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from skvbgp._core.labels import LabelledRows
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import RunningScale
from skvbgp._core.shards import ShardedColumns
from skvbgp.base import Labels, Targets, as_weights


def make_signs(y: Labels | LabelledRows, class_weights: Array | None = None) -> Targets:
    """Signs (n, k), of rows that count as often as their weights and those of their classes say."""
    if isinstance(y, LabelledRows):
        return SpreadSigns.of(y, class_weights)
    weight = y.weight if class_weights is None else y.weigh(class_weights)
    return Targets(np.column_stack(y.problems()), weight, y.n_copies)


@dataclass(frozen=True)
class SpreadSigns(Targets):
    """The same of rows on Dask's workers: those of some rows are made when they are asked for."""

    summary: RunningScale | None = None

    @classmethod
    def of(cls, labels: LabelledRows, class_weights: Array | None) -> Targets:
        """Targets of all rows, none of which has a weight of its own."""
        own = np.ones(len(labels.classes)) if class_weights is None else class_weights
        present = labels.totals > 0.0
        as_weights(own[present], int(present.sum()), "class_weight")  # refuses extreme ones
        weight: Any = None if np.all(own == 1.0) else _ClassWeights(labels, own)
        counts = own * labels.totals
        n = counts.sum()
        share = (counts[1:2] if len(counts) == 2 else counts) / n  # of the sign 1, (k,)
        spread = 2.0 * np.sqrt(share * (1.0 - share))
        summary = RunningScale(n, 2.0 * share - 1.0, spread)
        return cls(_SignColumns(labels), weight, summary=summary)

    @property
    def scale(self) -> RunningScale:
        """How often all rows count, mean and spread."""
        assert self.summary is not None
        return self.summary


class _SignColumns(ShardedColumns):
    """Signs (n, k) of labels."""

    rows: LabelledRows

    def __init__(self, rows: LabelledRows) -> None:
        super().__init__(rows, "y")

    @property
    def shape(self) -> tuple[int, ...]:
        K = len(self.rows.classes)
        return self.rows.n, 1 if K == 2 else K

    def __getitem__(self, index: Index | slice) -> Array:
        codes = super().__getitem__(index).astype(np.intp)
        return np.column_stack(Labels(self.rows.classes, codes).problems())


class _ClassWeights(ShardedColumns):
    """Weights (n,) of rows, which are those of their classes."""

    def __init__(self, rows: LabelledRows, class_weights: Array) -> None:
        super().__init__(rows, "y")
        self._class_weights = class_weights

    def __getitem__(self, index: Any) -> Array:
        return self._class_weights[super().__getitem__(index).astype(np.intp)]
