"""Everything a fitted model of this family knows; immutable and picklable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.order import draw_distinct
from skvbgp._core.owners import Owners
from skvbgp._core.pickling import PickledByFields
from skvbgp._core.scaling import Coordinates, RunningScale, Target
from skvbgp._optim.adam import AdamState
from skvbgp.base import Targets
from skvbgp.decoupled._bound import Model
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._posterior import Posterior
from skvbgp.decoupled._variational_process import Gaussians

#: Rows that the units of y, and training again, may need before anything is set for good.
SAMPLE_ROWS = 50_000
#: New rows that are looked at together.
_TILE_ROWS = 2**20


@dataclass(frozen=True)
class Replay:
    """A uniform sample of all rows seen, in the user's units; all of them as long as they fit."""

    X: Array  # (r, d)
    targets: Targets  # (r,)
    n_seen: int
    capacity: int  # largest r

    def __len__(self) -> int:
        return len(self.X)

    @property
    def has_all(self) -> bool:
        """Whether no row that was seen is gone."""
        return len(self) == self.n_seen

    @classmethod
    def of(cls, X: Array, targets: Targets, capacity: int, rng: np.random.RandomState) -> Replay:
        n = len(targets)
        kept = slice(None) if n <= capacity else draw_distinct(n, capacity, rng)
        sample = targets[kept]
        return cls(np.array(X[kept]), replace(sample, y=np.array(sample.y)), n, capacity)

    def limited(self, capacity: int, rng: np.random.RandomState) -> Replay:
        """The sample with another capacity, of fewer rows if there are too many for it."""
        if len(self) <= capacity:
            return replace(self, capacity=capacity)
        kept = draw_distinct(len(self), capacity, rng)
        return Replay(self.X[kept], self.targets[kept], self.n_seen, capacity)

    def add(self, X: Array, targets: Targets, rng: np.random.RandomState) -> Replay:
        """The sample after more rows (Vitter's reservoir sampling)."""
        r, n_new = len(self), len(targets)
        n = self.n_seen + n_new
        if self.capacity == 0:
            return replace(self, n_seen=n)
        room = max(0, self.capacity - r)
        row = np.arange(min(r + n_new, self.capacity))  # of the known and then the new ones
        for start in range(room, n_new, _TILE_ROWS):
            later = np.arange(start, min(start + _TILE_ROWS, n_new))
            place = (rng.random_sample(len(later)) * (self.n_seen + later + 1)).astype(np.intp)
            enters = place < self.capacity
            row[place[enters]] = r + later[enters]
        known, new = row[row < r], row[row >= r] - r
        order = np.argsort(row >= r, kind="stable").argsort()
        X_kept = np.concatenate([self.X[known], X[new]])[order]
        return Replay(X_kept, self.targets[known].joined(targets[new])[order], n, self.capacity)


@dataclass(frozen=True)
class State(PickledByFields):
    """Parameters, q(u) and the frames of reference they are expressed in."""

    model: Model
    parameters: Parameters
    q: Gaussians | None  # one for each function
    adam: AdamState
    coordinates: Coordinates
    target: Target
    summary: RunningScale  # mean and spread of all y seen, and how often they count
    n_rows: int  # rows of the user's that have been seen, but for those of weight 0
    #: Rows for later updates. Without room for any, the state itself is all that they know.
    replay: Replay
    seed: int  # root of every later random choice
    #: One per pass of the last fit and one per update, on y's own scale.
    lower_bounds: tuple[float, ...] = ()
    n_iter: int = 0  # passes of the last fit
    #: What all rows seen count for the learned noise: less than once each, if part of their noise
    #: is known.
    n_telling: float = 0.0
    #: Whether the hyperparameters that training starts from are those that it would end with.
    settled: bool = False
    owners: Owners = ()  # by column of X: the input that it encodes

    @cached_property
    def posterior(self) -> Posterior:
        """What the state says about new rows; kept, but not pickled."""
        frames = self.coordinates, self.target
        rows = self.replay.X, self.replay.targets.counts
        return Posterior(self.model, self.parameters, self.q, *frames, rows, self.owners)

    def move_to(self, target: Target, *, knows_noise: bool) -> State:
        """The state after the mean and the unit of y have been refined.

        Hyperparameters are relative to the unit and move with it, but for noise that has been
        learned; the function found so far keeps its size, and its level up to the change of the
        mean.
        """
        ratio = self.target.unit / target.unit
        p = self.parameters
        noise = p.noise + 2.0 * np.log(ratio) if knows_noise else p.noise
        parameters = replace(p, a0=p.a0 * ratio, noise=noise)
        q = self.q and tuple(WhitenedGaussian(one.precision, one.shift * ratio) for one in self.q)
        return replace(self, target=target, parameters=parameters, q=q)
