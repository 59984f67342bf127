"""Class labels: which there are, and those of rows on Dask's workers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets

from skvbgp._core.collections import split_rows
from skvbgp._core.linalg import Array
from skvbgp._core.shard import Block
from skvbgp._core.shards import ShardedRows


def choose_classes(found: NDArray[Any], classes: NDArray[Any] | None) -> NDArray[Any]:
    """All classes (k,), sorted: those that were found, or given ones that have to have these."""
    if classes is None:
        classes = found
    if len(classes) < 2:
        raise ValueError(f"At least two classes are needed, not one class: {classes.tolist()}.")
    unknown = sorted(set(found.tolist()) - set(classes.tolist()))
    if unknown:
        raise ValueError(
            f"y has labels {unknown}, which are not among the classes. Name all that will occur in "
            "`classes` of the first call of partial_fit, or fit again to all rows."
        )
    return classes


class LabelledRows(ShardedRows):
    """Rows whose targets are labels: y has the number of each one's class.

    ``classes`` (k,) are all labels that will ever occur, sorted, or those that are there if none
    are given; ``totals`` (k,) the numbers of their rows.
    """

    classes: NDArray[Any]
    totals: Array

    def __init__(self, X: Any, y: Any, classes: NDArray[Any] | None) -> None:
        self._declared = classes
        super().__init__(X, y)

    def __len__(self) -> int:
        return self.n

    def count_classes(self) -> Array:
        """How often every class is there, (k,)."""
        return self.totals

    def _load(self, X: Any, y: Any) -> list[Any]:
        blocks = self._client.compute(split_rows(X, y, _load_labels))
        totals: Counter[Any] = Counter()
        found = []
        for labels, counts in self._gather(self._client.map(_count_labels, blocks)):
            found += [labels] if len(labels) else []
            totals.update(dict(zip(labels.tolist(), counts.tolist(), strict=True)))
        if not found:
            return list(blocks)  # which the caller refuses
        self.classes = choose_classes(np.unique(np.concatenate(found)), self._declared)
        self.totals = np.array([totals[label] for label in self.classes.tolist()], dtype=float)
        return list(self._client.map(_number_labels, blocks, classes=self.classes))


# -- what runs on the workers --------------------------------------------------------------------


def _load_labels(X: Any, y: Any) -> Block:
    """A block of the collections with its labels."""
    X, y = check_X_y(X, y, dtype=np.float64, order="C", ensure_min_samples=0)
    if len(y):
        check_classification_targets(y)
    return Block(X, y)


def _count_labels(block: Block) -> tuple[NDArray[Any], NDArray[np.intp]]:
    return np.unique(block.y, return_counts=True)


def _number_labels(block: Block, classes: NDArray[Any]) -> Block:
    """The block with the numbers of its labels."""
    return Block(block.X, np.searchsorted(classes, block.y).astype(np.float64))
