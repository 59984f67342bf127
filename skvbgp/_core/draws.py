"""Draws of normal distributions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from skvbgp._core.linalg import Array, eigh
from skvbgp._core.order import Index

#: Dimensions in which points fill space evenly: SciPy takes time and memory that are quadratic.
_EVEN_DIMENSIONS = 512


def draw_antithetic(n: int, k: int, rng: np.random.RandomState) -> Array:
    """About n draws of N(0, I_k) in antithetic pairs, whose mean is exact, (n, k)."""
    half = rng.standard_normal((max(1, n // 2), k))
    return np.concatenate([half, -half])


def quasi_normal(n_draws: int, d: int, seed: int) -> Array:
    """Standard normal points (n_draws, d) that fill space evenly, in antithetic pairs.

    Of very many dimensions, the first ones do; points in the others are random.
    """
    return _quasi_normal(n_draws, d, seed).copy()


@lru_cache(maxsize=64)  # a prediction asks for those of the one before; SciPy takes a millisecond
def _quasi_normal(n_draws: int, d: int, seed: int) -> Array:
    half = -(-n_draws // 2)
    generator = np.random.default_rng(seed)
    m = min(d, _EVEN_DIMENSIONS)
    points = qmc.Halton(m, scramble=True, seed=generator).random(half)  # `rng=` is SciPy 1.15's
    normal = ndtri(np.clip(points, 1e-12, 1.0 - 1e-12))  # (half, m)
    normal = np.hstack([normal, generator.standard_normal((half, d - m))])
    return np.concatenate([normal, -normal])[:n_draws]


def draw_levels(n: int, rng: np.random.RandomState) -> Array:
    """Numbers (n,) between 0 and 1, one in each n-th of the way."""
    return (rng.permutation(n) + rng.uniform(size=n)) / n


def choose_by_level(level: Array, shares: Array) -> Index:
    """Which of C things each of S levels stands for, (S,), by their shares (C,), which sum to one.

    Shares (n, C) of n places give (n, S).
    """
    ends = np.cumsum(shares, axis=-1)[..., :-1, None]
    return np.sum(ends < level, axis=-2, dtype=np.intp)


def meet_by_level(shares: Array) -> Iterator[tuple[int, int, Array]]:
    """How many levels stand for one of C things at a place, and for one at another, as shares.

    Places have shares (n, C). Of pairs c <= d of things, the shares (n, n) of levels that stand for
    c at the first place and for d at the second; pairs whose levels are nowhere near are left out.
    """
    ends = np.cumsum(shares, axis=1)
    starts = np.column_stack([np.zeros(len(shares)), ends[:, :-1]])
    first, last = starts.min(axis=0), ends.max(axis=0)
    meet = np.minimum.outer(last, last) > np.maximum.outer(first, first)
    for c, d in np.argwhere(np.triu(meet)).tolist():
        share = np.minimum.outer(ends[:, c], ends[:, d])
        share -= np.maximum.outer(starts[:, c], starts[:, d])
        yield c, d, np.maximum(share, 0.0, out=share)


def share_members(n: int, shares: Array, rng: np.random.RandomState) -> Iterator[tuple[int, Index]]:
    """Which of n members each of C things has that has any: as many as its share, but for one."""
    owner = choose_by_level(draw_levels(n, rng), shares)
    for c in np.unique(owner):
        yield int(c), np.flatnonzero(owner == c)


def join_members(members: Sequence[Index], parts: Sequence[Array]) -> Array:
    """What parts say of their members, along the last axis, in the order of all members."""
    return np.concatenate(parts, axis=-1)[..., np.argsort(np.concatenate(members))]


def draw_normal(mean: Array, cov: Array, n: int, rng: np.random.RandomState) -> Array:
    """Vectors n of a normal distribution, as columns; standard deviations may be very different."""
    std = np.sqrt(np.maximum(np.diagonal(cov), 0.0))
    unit = np.where(std > 0.0, std, 1.0)
    # rounding may leave correlations slightly indefinite
    values, vectors = eigh(cov / unit[:, None] / unit)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return mean[:, None] + unit[:, None] * (root @ rng.standard_normal((len(mean), n)))
