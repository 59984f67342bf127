"""What the search for starting values sees of the rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp.base import Targets, choose_inducing_inputs
from skvbgp.kernel_selection._state import State

#: Rows that starting values are searched with, and inducing inputs of the two steps of it.
SCREENING_ROWS = 1_000
_COARSE_INDUCING = 48
_SCREENING_INDUCING = 128
#: Up to so many rows the screening takes them all as inducing inputs.
_SCREENING_DENSE_ROWS = 256


class Sample(NamedTuple):
    """Rows that starting values are searched with, and inducing inputs; None is Z = X."""

    X: Array  # (n, d)
    y: Targets
    Z_coarse: Array | None  # of the first look at many values, centred as the others
    Z_climb: Array | None
    Z_bound: Array | None  # all that there are: kernels are ranked by this bound


def draw_sample(state: State, X: Array, y: Targets, *, every_row: bool) -> Sample:
    """All rows, or some of many."""
    rng = np.random.RandomState(state.seed)
    if not every_row and len(X) > SCREENING_ROWS:
        index = np.sort(rng.choice(len(X), SCREENING_ROWS, replace=False))
        X, y = X[index], y[index]
    centred = state.frame.centre(X)
    m = len(X) if state.Z is None else len(state.Z)
    coarse, climb = (
        choose_inducing_inputs(centred / state.scales.spread, min(limit, m), rng, y.weight)
        * state.scales.spread
        for limit in (_COARSE_INDUCING, _SCREENING_INDUCING)
    )
    every = m >= len(X)  # row is an inducing input
    Z_coarse = None if every and len(X) <= _COARSE_INDUCING else coarse
    Z_climb = None if every and len(X) <= _SCREENING_DENSE_ROWS else climb
    return Sample(X, y, Z_coarse, Z_climb, state.Z)
