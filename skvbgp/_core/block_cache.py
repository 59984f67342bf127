"""What has been made of the blocks of a partition that were used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, Protocol, TypeVar

#: Memory for what recently used blocks have: factors, or functions.
_CACHE_BYTES = 2**29


class Sized(Protocol):
    """What a cache keeps of a block."""

    @property
    def n_bytes(self) -> int: ...


E = TypeVar("E", bound=Sized)


class BlockCache(Generic[E]):
    """What the most recently used blocks have, up to a number of bytes."""

    def __init__(self, max_bytes: int = _CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, E] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, block: Hashable) -> E | None:
        with self._lock:
            if block not in self._entries:
                return None
            self._entries.move_to_end(block)
            return self._entries[block]

    def put(self, block: Hashable, entry: E) -> None:
        with self._lock:
            self._entries[block] = entry
            total = sum(each.n_bytes for each in self._entries.values())
            while total > self._max_bytes and len(self._entries) > 1:
                total -= self._entries.popitem(last=False)[1].n_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockCache, (self._max_bytes,)  # the entries are made again, not pickled
