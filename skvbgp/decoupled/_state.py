"""Everything a fitted model of this family knows; immutable and picklable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import Array
from skvbgp._core.order import draw_distinct
from skvbgp._core.scaling import Coordinates, RunningScale, Target
from skvbgp._optim.adam import AdamState
from skvbgp.decoupled._bound import Gaussians, Model
from skvbgp.decoupled._parameters import Parameters
from skvbgp.decoupled._posterior import Posterior

#: Rows that the units of y, and training again, may need before anything is set for good.
SAMPLE_ROWS = 50_000
#: New rows that are looked at together.
_TILE_ROWS = 2**20


@dataclass(frozen=True)
class Replay:
    """A uniform sample of all rows seen, in the user's units; all of them as long as they fit."""

    X: Array  # (k, d)
    y: Array  # (k,) or (k, number of functions)
    n_seen: int
    capacity: int  # largest k

    @classmethod
    def of(cls, X: Array, y: Array, capacity: int, rng: np.random.RandomState) -> Replay:
        if len(y) <= capacity:
            return cls(np.array(X[:]), np.array(y[:]), len(y), capacity)
        kept = draw_distinct(len(y), capacity, rng)
        return cls(np.array(X[kept]), np.array(y[kept]), len(y), capacity)

    def limited(self, capacity: int, rng: np.random.RandomState) -> Replay:
        """The sample with another capacity, of fewer rows if there are too many for it."""
        if len(self.y) <= capacity:
            return replace(self, capacity=capacity)
        kept = draw_distinct(len(self.y), capacity, rng)
        return Replay(self.X[kept], self.y[kept], self.n_seen, capacity)

    def add(self, X: Array, y: Array, rng: np.random.RandomState) -> Replay:
        """The sample after more rows (Vitter's reservoir sampling)."""
        n = self.n_seen + len(y)
        if self.capacity == 0:
            return replace(self, n_seen=n)
        room = max(0, self.capacity - len(self.y))
        X_kept = np.concatenate([self.X, X[:room]])
        y_kept = np.concatenate([self.y, y[:room]])
        for start in range(room, len(y), _TILE_ROWS):
            later = np.arange(start, min(start + _TILE_ROWS, len(y)))
            place = (rng.random_sample(len(later)) * (self.n_seen + later + 1)).astype(np.intp)
            enters = place < self.capacity
            X_kept[place[enters]] = X[later[enters]]
            y_kept[place[enters]] = y[later[enters]]
        return Replay(X_kept, y_kept, n, self.capacity)


@dataclass(frozen=True)
class State:
    """Parameters, q(u) and the frames of reference they are expressed in.

    Attributes
    ----------
    summary : RunningScale
        Number, mean and spread of all y seen.
    replay : Replay
        Rows for later updates. Without room for any, the state itself is all that they know.
    seed : int
        Root of every later random choice.
    lower_bounds : tuple of float
        One per pass of the last fit and one per update, on y's own scale.
    n_iter : int
        Passes of the last fit.
    settled : bool
        Whether the hyperparameters that training starts from are those that it would end with.
    """

    model: Model
    parameters: Parameters
    q: Gaussians | None  # one for each function
    adam: AdamState
    coordinates: Coordinates
    target: Target
    summary: RunningScale
    replay: Replay
    seed: int
    lower_bounds: tuple[float, ...] = ()
    n_iter: int = 0
    settled: bool = False

    @cached_property
    def posterior(self) -> Posterior:
        """What the state says about new rows; kept, but not pickled."""
        return Posterior(self.model, self.parameters, self.q, self.coordinates, self.target)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "posterior"}

    def move_to(self, target: Target) -> State:
        """The state after the mean and the unit of y have been refined.

        Hyperparameters are relative to the unit and move with it; the function found so
        far keeps its size, and its level up to the change of the mean.
        """
        ratio = self.target.unit / target.unit
        parameters = replace(self.parameters, a0=self.parameters.a0 * ratio)
        q = self.q and tuple(WhitenedGaussian(one.precision, one.shift * ratio) for one in self.q)
        return replace(self, target=target, parameters=parameters, q=q)
