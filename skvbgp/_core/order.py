"""Many rows: some at a time, some of them, and random orders."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Orders of more rows are computed where they are asked for.
_STORED_ROWS = 2**22
#: Rounds of the cipher that computes them.
_ROUNDS = 6

Index = NDArray[np.signedinteger[Any]]


def cut(n: int, size: int) -> list[slice]:
    """All of n rows, so many at a time; the last ones may be fewer."""
    return [slice(start, start + size) for start in range(0, n, size)]


def cut_evenly(n: int, n_parts: int) -> list[slice]:
    """All of n rows in parts of about equal sizes."""
    ends = np.linspace(0, n, n_parts + 1).astype(int).tolist()
    return list(map(slice, ends[:-1], ends[1:]))


def thin(n: int, most: int) -> slice:
    """At most so many of n rows, all over them; all if they are few."""
    return slice(None, None, max(1, -(-n // most)))


def shuffle_parts(n: int, n_parts: int, rng: np.random.RandomState) -> Iterator[Index]:
    """All of ``range(n)`` in random order, in parts of equal size or nearly.

    The memory is 4 bytes a row up to some millions of them, and does not grow from there.
    """
    size, n_larger = divmod(n, n_parts)
    ends = (k * size + min(k, n_larger) for k in range(n_parts + 1))
    order = draw_order(n, rng)
    for start, stop in pairwise(ends):
        yield order[start:stop]


def draw_distinct(n: int, size: int, rng: np.random.RandomState) -> Index:
    """Distinct random members of ``range(n)``, sorted."""
    return np.sort(draw_first(n, size, rng))


def draw_first(n: int, size: int, rng: np.random.RandomState) -> Index:
    """The same in random order: the first ones of ``rng.permutation(n)``, or of one like it."""
    if n <= _STORED_ROWS:
        return rng.choice(n, size, replace=False)
    return _Cipher(n, rng)[:size]


def draw_order(n: int, rng: np.random.RandomState) -> Index | _Cipher:
    """All of ``range(n)`` in random order, of which slices can be taken."""
    if n > _STORED_ROWS:
        return _Cipher(n, rng)
    order = np.arange(n, dtype=np.int32)
    rng.shuffle(order)
    return order


class _Cipher:
    """A random order of ``range(n)`` that is computed, not stored.

    A Feistel cipher permutes the numbers of an even number of bits, whatever mixes its halves; one
    that comes out too large is permuted again until it is not, which leaves a permutation.
    """

    def __init__(self, n: int, rng: np.random.RandomState) -> None:
        self._n = n
        self._half = np.uint64(-(-(n - 1).bit_length() // 2))
        self._mask = (np.uint64(1) << self._half) - np.uint64(1)
        self._keys = rng.randint(2**32, size=_ROUNDS, dtype=np.uint64)

    def __getitem__(self, part: slice) -> Index:
        values = np.arange(part.start or 0, min(part.stop, self._n), dtype=np.uint64)
        outside = np.arange(len(values))
        while len(outside):
            values[outside] = self._permute(values[outside])
            outside = outside[values[outside] >= self._n]
        return values.astype(np.int64)

    def _permute(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right + key) & self._mask)
        return (left << self._half) | right


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Bits that each depend on all of x: the finisher of SplitMix64, modulo 2^64."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
