"""Predictions from blocks on Dask's workers, by the worker that has the block of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joblib
import numpy as np

from skvbgp._core.blockwise import join_in_order, moments_by_block
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import Coordinates, Target
from skvbgp._core.shard import Shard
from skvbgp._core.sharded_blocks import copy_blocks
from skvbgp.base import Targets
from skvbgp.sgpr._block_conditional import BlockConditional
from skvbgp.sgpr._block_posterior import BlockPosterior
from skvbgp.sgpr._blocks import KeptBlocks
from skvbgp.sgpr._data import Rows
from skvbgp.sgpr._sharded import scale_block
from skvbgp.sgpr._spread import SpreadRows
from skvbgp.sgpr._state import State


class SpreadBlockPosterior(BlockPosterior):
    """A posterior of `SpreadRows`: new rows go to the blocks, and their moments come back."""

    def __init__(self, state: State, blocks: KeptBlocks, n_samples: int) -> None:
        super().__init__(state, blocks, n_samples)
        assert isinstance(blocks, SpreadRows)
        self._spread = blocks.blocks
        # of what the conditional is made of: workers keep its factors as long as it is the same
        made_of = (state.model, state.parameters, state.memory, state.reference, state.target)
        self._key = joblib.hash((*made_of, state.seed, n_samples))

    def by_block(
        self, function: Callable[..., tuple[Array, ...]], X: Array, *shared: Any
    ) -> tuple[Array, ...]:
        shards = self._spread.find(self._blocks.lookup(X))
        frames = (self._coordinates, self._target, self._key, self._conditional)
        starts = self._spread.starts

        def own(s: int) -> tuple[Any, ...]:
            return *frames, function, shared, X[shards[s].places], shards[s].local, starts[s]

        tasks = self._spread.tasks(shards, own)
        parts = self._spread.rows.call_some(_predict, tasks)
        return join_in_order(parts, [own.places for own in shards.values()])

    def leave_out(self, X: Array, targets: Targets) -> tuple[Array, Array]:
        raise TypeError("loo_predict needs a model of rows in memory, not of a Dask collection.")

    def _rows(self, k: int) -> Rows:
        (block,) = self._spread.pick(np.array([k]))
        return scale_block(self._coordinates, self._target, block)


# -- what runs on the workers --------------------------------------------------------------------


def _predict(
    frame: Coordinates,
    n_blocks: int,
    coordinates: Coordinates,
    target: Target,
    key: str,
    conditional: BlockConditional,
    function: Callable[..., tuple[Array, ...]],
    shared: tuple[Any, ...],
    X: Array,
    local: Index,
    start: int,
    shard: Shard,
) -> tuple[Array, ...]:
    """What a function makes of rows X, and of the blocks of this shard that they belong to."""
    kept = shard.keep("conditional", key, lambda: conditional)  # it has factors of blocks

    def data_of(k: int) -> tuple[int, Rows]:
        (block,) = copy_blocks(frame, n_blocks, [k], shard)
        return start + k, scale_block(coordinates, target, block)

    return moments_by_block(function, X, local, data_of, shared=(kept, *shared))
