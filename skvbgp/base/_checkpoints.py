"""Fits that `Checkpoint` callbacks write down: which fit a file is of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import joblib
import numpy as np

from skvbgp._callbacks import find_callbacks
from skvbgp._core.journal import Journal
from skvbgp._core.shards import ShardedColumns
from skvbgp.callbacks import Checkpoint

#: A fit may go on with the same versions of these.
_PACKAGES = ("skvbgp", "numpy", "scipy", "scikit-learn")


@contextmanager
def keep_journal(
    estimator: Any, inputs: Any, targets: Any, before: Any
) -> Iterator[Journal | None]:
    """The journal of the fit inside of the block, if there is a `Checkpoint`.

    Its file goes if the fit succeeds.
    """
    found = find_callbacks(estimator, Checkpoint)
    if not found:
        yield None
        return
    if len(found) > 1:
        raise ValueError("There may be one Checkpoint; got several.")
    checkpoint: Checkpoint = found[0]
    yield checkpoint._open(_describe(estimator, inputs, targets, before))
    checkpoint._close()


def refuse_checkpoint(estimator: Any) -> None:
    """Raise ValueError if partial_fit is called with a `Checkpoint`."""
    if find_callbacks(estimator, Checkpoint):
        raise ValueError(
            "Checkpoint is for fit: before partial_fit call set_callbacks without it, and save "
            "the model between two calls."
        )


def _describe(estimator: Any, inputs: Any, targets: Any, before: Any) -> dict[str, str]:
    """What the result of a fit depends on, all but the state of a generator."""
    parameters = estimator.get_params(deep=False)
    if isinstance(parameters.get("random_state"), np.random.RandomState):
        parameters["random_state"] = np.random.RandomState
    return {
        "estimator": f"{type(estimator).__module__}.{type(estimator).__qualname__}",
        "versions": ", ".join(map(version, _PACKAGES)),
        "parameters": joblib.hash(parameters),
        "data": joblib.hash(_list_data(inputs, targets)),
        "warm_start": joblib.hash(before),
    }


def _list_data(inputs: Any, targets: Any) -> Any:
    """The validated data; of those on Dask's workers, number, means and spreads."""
    columns = getattr(inputs, "X", inputs)
    if isinstance(columns, ShardedColumns):
        rows = columns.rows
        return rows.n, rows.inputs, rows.scale
    return inputs, targets
