"""Everything a fitted regressor of this family knows; immutable and picklable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.owners import find_first_columns
from skvbgp._core.pickling import PickledByFields
from skvbgp._core.scaling import RunningScale, Target
from skvbgp._core.shards import ShardedColumns
from skvbgp._optim.adam import AdamState
from skvbgp.base import Gaps, Targets, find_gaps
from skvbgp.sgpr._blocks import BlockRows, Division, KeptBlocks
from skvbgp.sgpr._bound import Prior
from skvbgp.sgpr._data import Data
from skvbgp.sgpr._exact import Mixture
from skvbgp.sgpr._left_out import Remembered
from skvbgp.sgpr._memory import Memory
from skvbgp.sgpr._noise import Model, Noise
from skvbgp.sgpr._parameters import Parameters
from skvbgp.sgpr._places import Places
from skvbgp.sgpr._quadrature import FixedRule
from skvbgp.sgpr._sharded import gather_data

#: Growth of a stream after which its rows are divided into blocks again.
_DIVIDED_AGAIN = 1.1


@dataclass(frozen=True, eq=False)
class State(PickledByFields):
    """Parameters and memory, with the frames of reference they are expressed in."""

    model: Model
    parameters: Parameters
    #: What is known of the rows: sums over them, or all of them, while they are few. None before
    #: training.
    memory: Memory | Mixture | None
    reference: Target  # frame of the memory's targets; that of the first fit
    target: Target
    #: Number (the sum of their weights), mean and spread of all y seen, in the user's units.
    summary: RunningScale
    draw_rule: FixedRule  # expectations of the memory's rows and of new ones
    seed: int  # root of every later random choice
    n_seen: int  # rows seen, whatever their weights
    places: Places  # some of all rows, at which the relevance of the inputs is measured
    knows_noise: bool = False  # whether variances of the noise of some rows are known
    is_warm: bool = False  # whether training has started from the parameters of another fit
    #: The blocks that predictions condition on, or where those of all rows are.
    blocks: KeptBlocks | Division | None = None
    adam: AdamState | None = None
    lower_bounds: tuple[float, ...] = ()  # one per pass, on y's own scale
    n_iter: int = 1
    #: All rows as the user gave them, if a stream may begin again with them and no block has them.
    kept_rows: tuple[Array, Targets] | None = None
    #: Number of rows in memory, or seen where they fade, with which a stream begins again.
    restarts_at: float = np.inf
    #: Variance of the noise that training with a kernel that was found has left, before more was
    #: chosen.
    learned_noise: float | None = None
    gaps: Gaps | None = None  # what missing entries may be; None where there can be none

    @property
    def attributes(self) -> dict[str, Any]:
        """What an estimator publishes, by the names of its attributes."""
        p, coordinates, unit = self.parameters, self.model.coordinates, self.target.unit
        first = find_first_columns(len(p.nu), p.owners)
        return {
            "inverse_length_scale_mean_": (p.nu / coordinates.scale)[first],
            "inverse_length_scale_var_": (p.xi / coordinates.scale**2)[first],
            "signal_std_mean_": p.alpha * unit,
            "signal_std_var_": p.beta * unit**2,
            "noise_variance_": p.noise_variance * unit**2,
            "inducing_inputs_": coordinates.original(p.U),
            "lower_bound_": self.lower_bound,
            "lower_bounds_": list(self.lower_bounds) or [self.lower_bound],
            "n_iter_": self.n_iter,
            "n_samples_seen_": self.n_seen,
            **self.model.structure.attributes(p.noise_theta, unit),
        }

    @property
    def restarts(self) -> bool:
        """Whether a stream begins again when it is long enough."""
        return bool(np.isfinite(self.restarts_at))

    @property
    def is_scattered(self) -> bool:
        """Whether blocks of near rows are to be made again, because too many came later."""
        if not (self.restarts and isinstance(self.blocks, BlockRows)):
            return False
        return self.blocks.n_rows >= _DIVIDED_AGAIN * self.blocks.n_divided

    @property
    def all_rows(self) -> tuple[Array, Targets] | None:
        """All rows as the user gave them, if they are in memory."""
        if self.kept_rows is None and isinstance(self.blocks, BlockRows):
            X, y = self.blocks.rows
            return X, replace(y, n_copies=self.n_seen - len(y))
        return self.kept_rows

    def fill(self, X: Any) -> tuple[Any, Array | None]:
        """Rows (n, d) with the means of missing entries, and variances (n, d) of these, if any."""
        if self.gaps is None or isinstance(X, ShardedColumns) or not find_gaps(X).any():
            return X, None
        return self.gaps.fill(X)

    def gather(self, X: Any, y: Targets) -> Data:
        """Rows in the present frames, wherever they are."""
        X, variance = self.fill(X)
        data = gather_data(X, y, self.model.coordinates, self.target)
        columns = self.model.structure.gap_columns
        if variance is None or not columns:
            return data
        return replace(data, gaps=variance[:, columns])

    @property
    def log_unit(self) -> float:
        """How far log densities of the scaled target are above those of y."""
        return self.summary.n * float(np.log(self.target.unit))

    @cached_property
    def prior(self) -> Prior:
        return Prior(self.parameters)

    @cached_property
    def noise(self) -> Noise:
        return self.model.noise(self.parameters)

    def having_seen(self, y: Targets) -> State:
        """The state that counts more rows, of which it knows nothing else."""
        return replace(
            self,
            summary=self.summary.merged(y.scale),
            n_seen=self.n_seen + y.n_rows,
            knows_noise=self.knows_noise or y.variance is not None,
        )

    def faded(self, share: float) -> State:
        """The state in which all rows count less by a factor."""
        if share == 1.0:
            return self
        assert self.memory is not None
        return replace(
            self,
            memory=self.memory.faded(share),
            summary=self.summary.faded(share),
            kept_rows=self.kept_rows and (self.kept_rows[0], self.kept_rows[1].faded(share)),
            places=self.places.faded(share),
        )

    @property
    def target_vector(self) -> Array:
        """The scaled target as a combination of the memory's two targets, (2,)."""
        unit = self.target.unit
        return np.array([self.reference.unit, self.reference.mean - self.target.mean]) / unit

    @property
    def sums(self) -> Memory:
        """The memory of rows that are not known exactly."""
        assert isinstance(self.memory, Memory)
        return self.memory

    @cached_property
    def q(self) -> WhitenedGaussian:
        """The optimal q(u)."""
        p = self.parameters
        return self.sums.q(p.alpha, p.second_moment, self.target_vector)

    @property
    def remembered(self) -> Remembered:
        """What the sums over rows in memory say, and how they have been made."""
        return Remembered(
            self.model, self.parameters, self.prior, self.noise, self.q, self.draw_rule
        )

    def with_passes_of(self, learned: State) -> State:
        """The same, which was found beside what the passes of another state have learned."""
        return replace(self, lower_bounds=learned.lower_bounds, n_iter=learned.n_iter)

    @cached_property
    def lower_bound(self) -> float:
        """The complete bound on log p(y), y on its own scale."""
        if isinstance(self.memory, Mixture):
            return self.memory.lower_bound - self.log_unit
        p = self.parameters
        fit = self.sums.expected_log_likelihood(
            self.q, p.alpha, p.second_moment, self.target_vector
        )
        kl_theta, _, _ = self.model.kl_theta(p)
        log_prior, _ = self.model.structure.log_prior(p.noise_theta)
        return fit - self.q.kl_to_prior - kl_theta + log_prior - self.log_unit
