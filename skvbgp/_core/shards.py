"""Rows of Dask collections that stay on the workers, where functions are called on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import reduce
from itertools import compress, cycle, islice
from operator import getitem
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from skvbgp._core.clients import (
    LOST_ELSEWHERE,
    IdleError,
    find_client,
    find_elsewhere,
    is_there,
    wait_for,
)
from skvbgp._core.collections import split_rows
from skvbgp._core.linalg import Array
from skvbgp._core.order import Index
from skvbgp._core.scaling import RunningScale
from skvbgp._core.shard import Block, NumberedBlock, Shard, join_blocks, load_block, summarise

#: How often a step is started again whose workers have died.
_MAX_LOSSES = 3
#: Seconds after which a copy of `ShardedRows` in another process asks whether a shard is there.
_PATIENCE = 2.0
#: A row that is none, and its number.
_NOTHING: tuple[Index, Block] = (np.array([-1]), Block(np.empty(0), np.empty(0)))


class _Gone(NamedTuple):
    """A call that cannot be made."""

    reason: Exception

    def result(self, timeout: float | None = None) -> None:
        raise OSError("The worker is gone.") from self.reason


class Begun(NamedTuple):
    """What a function has made of several shards, or of rows of theirs."""

    first: list[Any]  # results
    resume: Callable[[], list[Any]]  # waits for the second ones
    places: Sequence[NDArray[np.intp]] = ()  # of the rows of each shard in the index


class ShardedRows:
    """Rows on the workers of a Dask cluster, ``n`` of them with ``d`` columns.

    Rows are numbered as in the collections until they move. What a worker loses when it dies is
    made again from the collections. A pickle of this object knows where the rows are, as long as
    the object itself keeps them there, and cannot make them again.

    ``inputs`` and ``scale`` are location and scale of X and of y, ``boxes`` (n_shards, 2, d) the
    least and largest entries of X, and ``at_one_place`` says whether all rows of X are equal.
    """

    def __init__(self, X: Any, y: Any) -> None:
        self._client = find_client()
        self._settle(self._load(X, y))

    def _load(self, X: Any, y: Any) -> list[Any]:
        """Futures of the blocks of the collections."""
        return list(self._client.compute(split_rows(X, y, load_block)))

    def _settle(self, blocks: list[Any], owners: Sequence[str] = ()) -> NDArray[np.bool_]:
        """Have these blocks, each where it is or on a given worker; whether they have rows."""
        self._fetched = _NOTHING
        self._firsts: dict[int, int] = {}  # by shard that has moved: its collection's first row
        summaries = self._gather([self._client.submit(summarise, block) for block in blocks])
        blocks = [block for block, summary in zip(blocks, summaries, strict=True) if summary]
        has_rows = np.array([summary is not None for summary in summaries])
        summaries = [summary for summary in summaries if summary]
        if not summaries:
            raise ValueError("Found array with 0 sample(s) in a Dask collection.")
        sizes = np.array([summary.scale.n for summary in summaries], dtype=np.int64)
        self._ends = np.cumsum(sizes)  # of the blocks
        self.n, self.d = int(self._ends[-1]), len(summaries[0].first)
        self.inputs = reduce(RunningScale.merged, (summary.inputs for summary in summaries))
        self.scale = reduce(RunningScale.merged, (summary.scale for summary in summaries))
        first = summaries[0].first
        self.at_one_place = all(
            summary.at_one_place and np.array_equal(summary.first, first) for summary in summaries
        )
        self._place(blocks, sizes, list(compress(owners, has_rows)))
        low, high = np.stack([summary.box for summary in summaries], axis=1)
        self.boxes = np.array(
            [
                [low[own].min(axis=0), high[own].max(axis=0)]
                for own in (self._shard_of == k for k in range(len(self._shards)))
            ]
        )
        return has_rows

    def _place(self, blocks: list[Any], sizes: NDArray[np.int64], owners: list[str]) -> None:
        """Make a shard of the blocks that each worker has, or is to have."""
        if not owners:
            holders = self._client.who_has(blocks)
            owners = [min(holders.get(block.key) or ("",)) for block in blocks]
        workers = sorted(set(owners))
        self._shard_of = np.searchsorted(workers, owners)  # by block
        self._offsets = np.empty(len(blocks), dtype=np.int64)  # of a block's rows in its shard
        self._blocks, self._shards = [], []
        for k, worker in enumerate(workers):
            own = np.flatnonzero(self._shard_of == k)
            self._offsets[own] = np.cumsum(sizes[own]) - sizes[own]
            self._blocks.append([blocks[i] for i in own])
            self._shards.append(self._make_shard(k, [worker] if worker else None))

    def _make_shard(self, k: int, workers: list[str] | None = None) -> Any:
        """The actor of a shard, where its blocks are; those that are lost are made again."""
        if self._client is None:
            raise RuntimeError(LOST_ELSEWHERE)
        return self._gather(
            self._client.submit(
                Shard,
                *self._blocks[k],
                actor=True,
                pure=False,
                workers=workers,
                allow_other_workers=workers is not None,
            )
        )

    def call(self, function: Callable[..., Any], shared: tuple[Any, ...]) -> list[Any]:
        """Results of ``function(*shared, shard)`` of all shards, on their workers."""
        return self.call_some(function, dict.fromkeys(range(len(self._shards)), shared))

    def call_some(
        self, function: Callable[..., Any], shared: dict[int, tuple[Any, ...]]
    ) -> list[Any]:
        """The same of some shards, each of which has its own arguments."""
        return self._collect(list(shared), lambda k: self._ask(k, "run", function, shared[k]))

    def begin(
        self,
        function: Callable[..., Iterator[Any]],
        shared: tuple[Any, ...],
        index: Index,
        own: Callable[[NDArray[np.intp]], tuple[Any, ...]] = lambda places: (),
    ) -> Begun:
        """Start a function of rows where they are, in those shards that have some of an index.

        The index is sorted, and the function one of a module: ``function(*shared, rows,
        *own(places))`` gets a `Block` of a shard's rows, and what belongs to these, given where
        they are in the index. It yields one result or two; a worker goes on with the second while
        the first one is on its way.
        """
        parts = self._find(index)
        tasks = {k: (function, shared, at, own(rows)) for k, (rows, at) in parts.items()}
        begun = self.begin_some(_begin_rows, tasks)
        return begun._replace(places=[rows for rows, _ in parts.values()])

    def begin_some(
        self, function: Callable[..., Iterator[Any]], shared: dict[int, tuple[Any, ...]]
    ) -> Begun:
        """Start ``function(*shared[k], shard)`` of some shards, which yields results as above."""
        number, chosen = uuid4().hex, list(shared)

        def begin(k: int) -> Any:
            return self._ask(k, "begin", number, function, shared[k])

        first = self._collect(chosen, begin)
        second = {k: self._ask(k, "resume", number) for k in chosen}

        def begin_again(k: int) -> Any:
            self._wait(k, begin(k))
            return self._ask(k, "resume", number)

        return Begun(first, lambda: self._collect(chosen, begin_again, second))

    def fetch(self, index: Index) -> Block:
        """Rows in the client's memory; those of the last call are still there."""
        known, rows = self._fetched
        if not np.array_equal(index, known):
            order = np.argsort(index, kind="stable")
            parts = self._find(index[order])
            found = self.call_some(_copy, {k: (at,) for k, (_, at) in parts.items()})
            rows = Block(np.empty((len(index), self.d)), np.empty(len(index)))
            for (places, _), block in zip(parts.values(), found, strict=True):
                rows.X[order[places]], rows.y[order[places]] = block
            self._fetched = index.copy(), rows
        return rows

    def _find(self, index: Index) -> dict[int, tuple[NDArray[np.intp], Index]]:
        """Where rows of a sorted index are: by shard, their places in it and in the shard."""
        shard_of, local = self.locate(index)
        return {k: (rows, local[rows]) for k, rows in group_by_shard(shard_of).items()}

    def locate(self, index: Index) -> tuple[NDArray[np.intp], Index]:
        """The shards that have rows, and their places there."""
        block = np.searchsorted(self._ends, index, side="right")
        return self._shard_of[block], index - self._starts[block] + self._offsets[block]

    @property
    def n_shards(self) -> int:
        """Number of workers that have rows."""
        return len(self._shards)

    @property
    def n_workers(self) -> int:
        """Number of workers of the cluster."""
        return len(self._client.nthreads())

    def exchange(
        self, cut: Callable[..., list[Block]], shared: tuple[Any, ...], n_parts: int
    ) -> NDArray[np.intp]:
        """Give each worker one part of all blocks; the shard (n_parts,) of each part's rows.

        It is -1 where there are none. ``cut(*shared, block)``, a function of a module, are the
        parts of a `Block`, up to `n_workers`. Rows have other numbers afterwards.
        """
        by_shard = [iter(blocks) for blocks in self._blocks]
        blocks = [next(by_shard[k]) for k in self._shard_of]
        cuts = [self._client.submit(cut, *shared, block) for block in blocks]
        has_rows = self._settle(self._send(join_blocks, cuts, self._choose_workers(n_parts)))
        shards = np.full(n_parts, -1, dtype=np.intp)
        shards[has_rows] = self._shard_of
        return shards

    def _choose_workers(self, n_parts: int) -> list[str]:
        """One for each part; some get two if others have died meanwhile."""
        return list(islice(cycle(sorted(self._client.nthreads()) or [""]), n_parts))

    def _send(self, join: Callable[..., Any], cuts: list[Any], workers: Sequence[str]) -> list[Any]:
        """Have each worker join its part of all that was cut."""
        submit = self._client.submit
        return [
            submit(
                join,
                [submit(getitem, parts, k) for parts in cuts],
                workers=[worker],
                allow_other_workers=True,
            )
            for k, worker in enumerate(workers)
        ]

    def move(self, cut: Callable[..., Any], shared: tuple[Any, ...], n_parts: int) -> None:
        """`exchange` a few blocks at a time, of rows that `renumbered` finds again.

        It takes little memory beside that of the rows. The function gets a `NumberedBlock`.
        """
        workers = self._choose_workers(n_parts)
        pieces = self._cut_pieces(cut, shared, workers)
        self._settle(pieces, workers * (len(pieces) // n_parts))  # Dask may have moved some
        self._firsts = dict.fromkeys(range(self.n_shards), 0)

    def _cut_pieces(
        self, cut: Callable[..., Any], shared: tuple[Any, ...], workers: list[str]
    ) -> list[Any]:
        """Futures of the parts of as many blocks of a worker at a time; no one keeps the blocks."""
        by_shard, self._blocks, self._shards = self._blocks, [], []
        pieces = []
        for k, blocks in enumerate(by_shard):
            firsts = self._starts[self._shard_of == k]
            for i in range(0, len(blocks), len(workers)):
                some = slice(i, i + len(workers))
                parts = self._client.submit(_cut_blocks, cut, shared, blocks[some], firsts[some])
                pieces += self._send(_receive, [parts], workers)
        return pieces

    @property
    def has_moved(self) -> bool:
        """Whether some rows have other numbers than in the collections."""
        return bool(self._firsts)

    def renumbered(self, index: Index) -> Index:
        """The numbers that rows of the collections have since they moved."""
        if not self.has_moved:
            return index
        order = np.argsort(index, kind="stable")
        moved = np.array(index, dtype=np.intp)
        tasks = {k: (index[order] - first,) for k, first in self._firsts.items()}
        for k, (places, local) in zip(tasks, self.call_some(_find_moved, tasks), strict=True):
            moved[order[places]] = self.number(k, local)
        return moved

    @property
    def shard_sizes(self) -> NDArray[np.int64]:
        """Number of rows of each shard."""
        sizes = np.diff(self._ends, prepend=0)
        return np.array([sizes[self._shard_of == k].sum() for k in range(len(self._shards))])

    def number(self, k: int, local: Index) -> Index:
        """Numbers of rows that are given by their places in a shard."""
        own = np.flatnonzero(self._shard_of == k)
        block = own[np.searchsorted(self._offsets[own], local, side="right") - 1]
        return local - self._offsets[block] + self._starts[block]

    @property
    def _starts(self) -> NDArray[np.int64]:
        """Number of the first row of each block."""
        return np.append(0, self._ends[:-1])

    def joined(self, others: ShardedRows) -> ShardedRows:
        """These rows followed by others."""
        rows = ShardedRows.__new__(ShardedRows)
        vars(rows).update(vars(self))
        rows._ends = np.append(self._ends, self.n + others._ends)
        rows._shard_of = np.append(self._shard_of, len(self._shards) + others._shard_of)
        rows._offsets = np.append(self._offsets, others._offsets)
        firsts = {len(self._shards) + k: self.n + n for k, n in others._firsts.items()}
        rows._firsts = self._firsts | firsts
        rows._blocks = self._blocks + others._blocks
        rows._shards = self._shards + others._shards
        rows.n = self.n + others.n
        rows.inputs = self.inputs.merged(others.inputs)
        rows.scale = self.scale.merged(others.scale)
        rows.boxes = np.concatenate([self.boxes, others.boxes])
        rows.at_one_place = False
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_client": None, "_blocks": [], "_fetched": _NOTHING}

    def _ask(self, k: int, method: str, *arguments: Any) -> Any:
        """The call of a shard's method; it has failed if Dask knows that the worker is gone."""
        if self._client is None:
            find_elsewhere()
        try:
            return getattr(self._shards[k], method)(*arguments)
        except (RuntimeError, ValueError) as error:  # which of them depends on Dask's version
            return _Gone(error)

    def _wait(self, k: int, call: Any) -> Any:
        """The result of a call.

        In other processes Dask waits for ever for an actor that was gone before it was asked.
        """
        if self._client is not None:
            return call.result()
        while True:
            try:
                return call.result(timeout=_PATIENCE)
            except TimeoutError:
                if not is_there(self._shards[k].key):
                    raise OSError("The worker is gone.") from None

    def _collect(
        self,
        chosen: Sequence[int],
        start: Callable[[int], Any],
        started: dict[int, Any] | None = None,
    ) -> list[Any]:
        """Results of calls of some shards, which are made again if their workers die."""
        calls: dict[int, Any] = started or {k: start(k) for k in chosen}
        results = {}
        for _ in range(_MAX_LOSSES + 1):
            lost = {}
            for k, call in calls.items():
                try:
                    results[k] = self._wait(k, start(k) if call is None else call)
                except OSError as error:  # the worker cannot be reached
                    lost[k] = error
            if not lost:
                return [results[k] for k in chosen]
            for k in lost:
                self._shards[k] = self._make_shard(k)
            calls = dict.fromkeys(lost)
        raise RuntimeError(
            f"Workers were lost {_MAX_LOSSES + 1} times in one step. Their logs may tell why, "
            "often it is memory."
        ) from next(iter(lost.values()))

    def _gather(self, futures: Any) -> Any:
        try:  # before there are any shards, workers may be still to come
            wait_for(self._client, futures, may_be_idle=not hasattr(self, "_shards"))
            return self._client.gather(futures)
        except CancelledError as error:
            raise RuntimeError(
                "Dask has cancelled a task: the scheduler is gone, or rows that cannot be made "
                "again, such as scattered ones, were lost with a worker."
            ) from error
        except IdleError as error:
            raise RuntimeError(
                f"{error}, and rows of a collection are missing: no worker is left, or too many "
                "have died of what the rows are made from. Start the cluster again."
            ) from None


class ShardedColumns:
    """X or y of the collections, of which parts may be asked for as of an array."""

    def __init__(self, rows: ShardedRows, name: str) -> None:
        self.rows, self._name = rows, name

    def __len__(self) -> int:
        return self.rows.n

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows.n, self.rows.d) if self._name == "X" else (self.rows.n,)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __getitem__(self, index: Index | slice) -> Array:
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        return getattr(self.rows.fetch(self.rows.renumbered(index)), self._name)

    def __array__(self, *arguments: Any, **options: Any) -> Array:
        raise TypeError("Rows on Dask workers are not gathered.")


def group_by_shard(shard_of: NDArray[np.intp]) -> dict[int, NDArray[np.intp]]:
    """Places of each shard that occurs, of rows or blocks (n,)."""
    return {int(k): np.flatnonzero(shard_of == k) for k in np.unique(shard_of)}


# -- what runs on the workers --------------------------------------------------------------------


def _copy(index: Index, shard: Shard) -> Block:
    return shard.rows(index)


def _find_moved(numbers: Index, shard: Shard) -> tuple[Index, Index]:
    return shard.find(numbers)


def _receive(parts: list[NumberedBlock]) -> NumberedBlock:
    """Take the only part as it is: Dask gives such quick tasks to no other worker."""
    (part,) = parts
    return part


def _cut_blocks(
    cut: Callable[..., list[NumberedBlock]],
    shared: tuple[Any, ...],
    blocks: list[Block],
    firsts: NDArray[np.int64],
) -> list[NumberedBlock]:
    """The parts of several blocks, joined; their rows are numbered from the first of each."""
    cuts = [
        cut(*shared, NumberedBlock(*block, first + np.arange(len(block.y))))
        for block, first in zip(blocks, firsts, strict=True)
    ]
    return [join_blocks(parts) for parts in zip(*cuts, strict=True)]


def _begin_rows(
    function: Callable[..., Iterator[Any]],
    shared: tuple[Any, ...],
    index: Index,
    own: tuple[Any, ...],
    shard: Shard,
) -> Iterator[Any]:
    return function(*shared, shard.rows(index), *own)
