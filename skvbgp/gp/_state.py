"""Everything a fitted model of this family knows; immutable and picklable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skvbgp._core.linalg import Array
from skvbgp._core.scaling import Coordinates, RunningScale, Target
from skvbgp.base import Gaps
from skvbgp.gp._cells import CellPosterior, Cells
from skvbgp.gp._inducing import GlobalPart, SumPosterior
from skvbgp.gp._mixture import Mixture
from skvbgp.gp._near import RowsState
from skvbgp.gp._posterior import NeighbourPosterior, TwinPosterior
from skvbgp.gp._row_noise import have_same_noise
from skvbgp.gp._rows import Rows
from skvbgp.gp._spread import SpreadPosterior, SpreadRows
from skvbgp.gp._stream import Doubts
from skvbgp.kernels import Kernel

#: Most rows that the prior covariance is averaged over.
_AVERAGED_ROWS = 1_000


@dataclass(frozen=True)
class Frames:
    """The units that processes are expressed in, and the rows' moments that they come from.

    And what missing entries of the rows may be. Kernels that were searched for are `standardised`,
    in units of the inputs' spread; given ones are in the units of X.
    """

    inputs: RunningScale
    targets: RunningScale
    coordinates: Coordinates
    target: Target
    gaps: Gaps
    standardised: bool


def keep_warp(frames: Frames, known: Frames) -> Frames:
    """Frames with inputs that are warped as those of others are."""
    offset, scale = frames.coordinates.offset, frames.coordinates.scale
    coordinates = replace(known.coordinates, offset=offset, scale=scale)
    return replace(frames, coordinates=coordinates)


@dataclass(frozen=True)
class State(RowsState):
    """Rows, kernels and the belief about them."""

    frames: Frames
    rows: Rows
    names: tuple[str, ...]  # names of the kernels
    #: These as they were trained; processes of the mixture may be draws around them.
    kernels: tuple[Kernel, ...]
    mixture: Mixture
    kernel_of: tuple[int, ...]  # by process of the mixture: the index of its kernel in `names`
    belief: Array  # (n_kernels,) shares of the kernels in predictions
    weights: Array  # (d,) of the scaled inputs in the distance between rows
    k: int
    #: Number of rows, each as often as it counts, that the hyperparameters were learned from.
    count_trained: float
    n_seen_trained: int  # rows that had been seen then
    n_iter: int
    score: float  # log predictive density of rows that were left out, per row, of the scaled target
    rank: float  # what fits of the same rows are compared by, see `rank_mixture`
    n_jobs: int | None
    #: What all rows have in common. The targets of `rows`, and their frame, are then those of what
    #: its mean leaves.
    shared: GlobalPart | None = None
    #: Places that are predicted from the same rows. Others are from the k nearest.
    cells: Cells | None = None
    #: That of an output which was observed in the same rows, with the same mixture.
    twin: State | None = None
    doubts: Doubts = Doubts()  # of a stream that forgets, since training
    gathers: bool = False  # whether the rows of a place are one in predictions
    is_learned: bool = True  # whether hyperparameters were, or are where they start

    @property
    def n_kernels(self) -> int:
        """Kernels that a warm start goes on from."""
        return len(self.names)

    @property
    def known(self) -> Rows:
        """The rows that predict."""
        return self.rows.at_places if self.gathers else self.rows

    @property
    def n_neighbors(self) -> int:
        """Most rows that predict a place."""
        return self.k if self.cells is None else self.cells.size

    @property
    def shares(self) -> Array:
        """Of the processes in predictions, (C,)."""
        kernel_of = np.array(self.kernel_of)
        return np.asarray(self.belief[kernel_of] / np.bincount(kernel_of)[kernel_of])

    @cached_property
    def posterior(self) -> NeighbourPosterior:
        """Predictions, with the search structures that they keep."""
        rows = self.known
        cells = self.cells if len(rows) > self.n_neighbors else None
        known: dict[str, Any] = {
            "mixture": self.mixture,
            "rows": rows,
            "coordinates": self.frames.coordinates,
            "target": self.frames.target,
            "weights": self.weights,
            "k": self.n_neighbors if cells is None else self.k,
            "n_jobs": self.n_jobs,
            "gaps": self.frames.gaps,
        }
        if self.shared is not None:
            return SumPosterior(**known, shared=self.shared)
        if self.twin is not None:
            return TwinPosterior(**known, first=self.twin.posterior)
        if cells is not None:
            return CellPosterior(**known, cells=cells)
        kind = SpreadPosterior if isinstance(self.rows, SpreadRows) else NeighbourPosterior
        return kind(**known)

    def is_twin(self, other: State) -> bool:
        """Whether all rows are neighbours, and another output was observed in the same ones."""
        mine, theirs = self.posterior, other.posterior
        if not (mine.is_exact and theirs.is_exact):
            return False
        are_equal = np.array_equal(mine.rows.X, theirs.rows.X)
        return are_equal and have_same_noise(mine.noise, theirs.noise)

    @property
    def noise(self) -> float:
        """Variance of the noise, averaged over the processes; scaled."""
        noises = [process.noise for process in self.mixture.processes]
        return float(self.shares @ noises) + self.mixture.extra_noise

    @property
    def observed(self) -> Rows:
        """The rows with the targets that were observed."""
        return self.rows if self.shared is None else self.shared.restore(self.rows)

    @property
    def covariance(self) -> Array:
        """Prior covariance (t, t) of the outputs' functions at a place; of one output (1, 1)."""
        X = self.rows.head(_AVERAGED_ROWS)
        scaled = self.frames.coordinates.scaled(X)
        parts = [process.average_prior(scaled) for process in self.mixture.processes]
        covariance = np.tensordot(self.shares, parts, 1) * self.frames.target.unit**2
        return covariance if self.shared is None else covariance + self.shared.average_prior(X)

    def leave_out_all(self) -> tuple[Array, Array]:
        """Mean and variance of the observations in the order given, NaN for those left out."""
        gathered = self.rows.gathered if self.gathers else None
        if gathered is None:
            mean, variance = self.posterior.leave_out_all()
        else:
            weight = np.ones(len(self.rows)) if self.rows.weight is None else self.rows.weight
            mean, variance = self.posterior.leave_out_of(gathered.owner, self.rows.y, weight)
        return self.rows.give_to_seen(mean), self.rows.give_to_seen(variance)
