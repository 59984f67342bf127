"""Draws of PIC's function, which has a residual of its own in every block.

A function is drawn block by block as it is asked for. What it has in common everywhere, theta and
u, is drawn first; the rest of a block comes from a generator of its own, so that it is the same
whenever the block is visited, and independent of other blocks, as it is in the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skvbgp._core.block_cache import BlockCache
from skvbgp._core.draws import join_members
from skvbgp._core.linalg import Array, cholesky
from skvbgp._core.order import Index
from skvbgp.base import ScaledDraws
from skvbgp.kernels._features import FREQUENCIES, Features, PriorPaths
from skvbgp.sgpr._block_conditional import BlockConditional
from skvbgp.sgpr._data import Rows
from skvbgp.sgpr._paths import Paths

if TYPE_CHECKING:
    from skvbgp.sgpr._block_posterior import BlockPosterior


class PathSet(NamedTuple):
    """Functions s that have a draw of theta and random frequencies in common."""

    members: Index  # which of all functions they are, (s,)
    point: int  # the draw of theta
    u: Array  # (m, s)
    features: Features


class PathsOfBlock(NamedTuple):
    """What the functions of all sets are in one block."""

    paths: list[Paths]

    @property
    def n_bytes(self) -> int:
        return sum(p.prior.weights.nbytes + p.Z.nbytes + p.corrections.nbytes for p in self.paths)


@dataclass(frozen=True)
class BlockFunctions:
    """Functions S of scaled rows."""

    sets: list[PathSet]
    seed: int  # of what blocks have of their own
    recent: BlockCache[PathsOfBlock] = field(default_factory=BlockCache)

    def recall(self, conditional: BlockConditional, k: int, block: Rows) -> list[Paths]:
        """Those of block k, by set."""
        known = self.recent.get(k)
        if known is None:
            known = PathsOfBlock(self._condition(conditional, k, block))
            self.recent.put(k, known)
        return known.paths

    def _condition(self, conditional: BlockConditional, k: int, block: Rows) -> list[Paths]:
        rng = np.random.default_rng((self.seed, k))
        root = cholesky(conditional.noise_covariance(block), "noise covariance of a block")
        paths = []
        for members, i, u, features in self.sets:
            weights = rng.standard_normal((2 * FREQUENCIES, len(members)))
            noise = root @ rng.standard_normal((len(root), len(members)))
            prior = PriorPaths(features, weights)
            paths.append(conditional.correct(i, prior, u, noise, k, block))
        return paths


@dataclass(frozen=True)
class BlockDraws(ScaledDraws):
    """Functions S from the posterior of one output; derivatives are those in the row's block."""

    posterior: BlockPosterior
    functions: BlockFunctions

    _evaluate, _differentiate = staticmethod(Paths.__call__), staticmethod(Paths.gradient)

    def _map(self, function: Callable[[Paths, Array], Array], X: Array) -> Array:
        (values,) = self.posterior.by_block(_evaluate, X, self.functions, function)
        return values


def _evaluate(
    conditional: BlockConditional,
    functions: BlockFunctions,
    method: Callable[[Paths, Array], Array],
    X: Array,
    k: int,
    block: Rows,
) -> tuple[Array]:
    """What all functions, or their derivatives, are at scaled rows X of block k."""
    parts = [method(paths, X) for paths in functions.recall(conditional, k, block)]
    return (join_members([one.members for one in functions.sets], parts),)
