import pickle
from typing import NamedTuple

import numpy as np

from skvbgp._core.block_cache import BlockCache


class Entry(NamedTuple):
    values: np.ndarray

    @property
    def n_bytes(self):
        return self.values.nbytes


def entry(n):
    """What holds n doubles."""
    return Entry(np.zeros(n))


def test_cache_forgets_the_least_recently_used():
    cache = BlockCache(max_bytes=30 * 8)
    for block in range(3):
        cache.put(block, entry(10))
    assert cache.get(0) is not None  # now 1 is the oldest
    cache.put(3, entry(10))
    assert cache.get(1) is None
    assert all(cache.get(block) is not None for block in (0, 2, 3))


def test_cache_keeps_the_last_entry_however_large():
    cache = BlockCache(max_bytes=8)
    for block in range(2):
        cache.put(block, entry(10))
    assert cache.get(0) is None
    assert cache.get(1) is not None


def test_cache_is_pickled_without_factors():
    cache = BlockCache(max_bytes=20 * 8)
    cache.put(0, entry(10_000))
    data = pickle.dumps(cache)
    assert len(data) < 1_000
    cache = pickle.loads(data)
    assert cache.get(0) is None
    for block in range(3):
        cache.put(block, entry(10))
    assert [cache.get(block) is not None for block in range(3)] == [False, True, True]
