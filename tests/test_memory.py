"""Peak memory while the data are on disk, or come in chunks."""

import tracemalloc

import numpy as np
import pytest
from numpy.lib.format import open_memmap
from numpy.testing import assert_array_equal

import skvbgp._core.partition
import skvbgp._core.scaling
import skvbgp.base._start
import skvbgp.sgpr._memory
import skvbgp.sgpr._start
from skvbgp import (
    SVBSSGPRegressor,
    VBDTCRegressor,
    VBFITCRegressor,
    VBPICRegressor,
    VBPITCRegressor,
)
from skvbgp._core.scaling import Coordinates
from skvbgp._core.shard import Block, Shard
from skvbgp.base._spread_neighbours import _find_in_shard

D = 8
ROW_BYTES = 8 * (D + 1)
CHUNK = 1_000


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch, quick_block_start):
    """Tiles and samples of a thousand rows, so that tens of thousands are many."""
    monkeypatch.setattr(skvbgp._core.scaling, "_TILE_ROWS", 1_000)
    monkeypatch.setattr(skvbgp._core.partition, "_SAMPLE_ROWS", 1_000)
    monkeypatch.setattr(skvbgp._core.partition, "_SAMPLE_ROWS_PER_BLOCK", 10)
    monkeypatch.setattr(skvbgp._core.partition, "_LOOKUP_CELLS", 1_000)
    monkeypatch.setattr(skvbgp.base._start, "SUBSAMPLE", 1_000)
    monkeypatch.setattr(skvbgp.base._start, "_TILE_ROWS", 1_000)
    monkeypatch.setattr(skvbgp.sgpr._start, "_SAMPLE_ROWS", 50)
    monkeypatch.setattr(skvbgp.sgpr._memory, "_SEGMENT_ROWS", 1_000)
    monkeypatch.setattr(skvbgp.sgpr._memory, "_N_SEGMENTS", 1)


def chunks(n):
    rng = np.random.default_rng(0)
    for _ in range(0, n, CHUNK):
        X = rng.standard_normal((CHUNK, D))
        yield X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(CHUNK)


def on_disk(n, folder):
    X = open_memmap(folder / f"X{n}.npy", "w+", np.float64, (n, D))
    y = open_memmap(folder / f"y{n}.npy", "w+", np.float64, (n,))
    for i, chunk in enumerate(chunks(n)):
        X[i * CHUNK : (i + 1) * CHUNK], y[i * CHUNK : (i + 1) * CHUNK] = chunk
    return [np.load(folder / f"{name}{n}.npy", mmap_mode="r") for name in "Xy"]


def peak(function, *args):
    """Most memory at a time: the least of three runs, as threads do not always meet."""
    return min(peak_once(function, *args) for _ in range(3))


def peak_once(function, *args):
    tracemalloc.start()
    try:
        function(*args)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


OPTIONS = {"random_state": 0, "max_iter": 1}


def test_a_worker_searches_its_rows_in_one_frame_at_a_time():
    """Beside the rows there are their coordinates in the frame of the last search, and a tree.

    For a few places there is neither.
    """
    blocks = [Block(*chunk) for chunk in chunks(30 * CHUNK)]
    shard, none = Shard(*blocks), np.zeros(D)
    X = np.concatenate([block.X for block in blocks])

    def search(n_places):
        for weight in (1.0, 2.0, 3.0):
            weights = np.full(D, weight)
            frame = Coordinates(none, np.ones(D))
            index = _find_in_shard(frame, weights, X[7 : 7 + n_places] * weights, 3, shard)[1]
        return index

    distance = np.linalg.norm(X - X[7], axis=1)
    for n_places, most in ((1, 0.3), (100, 1.6)):
        assert_array_equal(search(n_places)[0], np.argsort(distance)[:3])
        assert peak_once(search, n_places) < most * X.nbytes


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("regressor", "bytes_per_row"),
    [
        (VBDTCRegressor(10, **OPTIONS), 8),  # an order of the rows
        pytest.param(VBFITCRegressor(10, **OPTIONS), 8, marks=pytest.mark.slow),
        pytest.param(VBPITCRegressor(10, **OPTIONS), ROW_BYTES, marks=pytest.mark.slow),
        pytest.param(
            VBPICRegressor(10, noise_kernel=None, **OPTIONS), 2 * ROW_BYTES, marks=pytest.mark.slow
        ),
        pytest.param(
            SVBSSGPRegressor(5, **OPTIONS), 2 * ROW_BYTES, marks=pytest.mark.slow
        ),  # keeps the rows
    ],
)
def test_fit_on_a_memory_map(tmp_path, regressor, bytes_per_row):
    """X is not copied, but for those who keep the rows, and they copy it once.

    A mini-batch of blocks needs the squares of their sizes, which vary. Its peak is that of the
    largest one, and with more rows there are more of them: the fewer are not few.
    """
    has_blocks = "n_blocks" in regressor.get_params()
    n_few, n_many = (30_000, 60_000) if has_blocks else (5_000, 30_000)

    def fit(X, y):
        if has_blocks:
            regressor.set_params(n_blocks=len(y) // 100)
        regressor.fit(X, y)

    few, many = on_disk(n_few, tmp_path), on_disk(n_many, tmp_path)
    fit(*few)  # what is imported or cached once
    assert (peak(fit, *many) - peak(fit, *few)) / (n_many - n_few) < bytes_per_row


@pytest.mark.thorough
@pytest.mark.parametrize("cls", [VBDTCRegressor, VBFITCRegressor, VBPITCRegressor])
@pytest.mark.in_turn("cls")
def test_a_stream_of_chunks(cls):
    regressor = cls(10, learn_hyperparameters=False, random_state=0)

    def stream(n):
        for chunk in chunks(n):
            regressor.partial_fit(*chunk)

    stream(CHUNK)
    few, many = peak(stream, 3 * CHUNK), peak(stream, 12 * CHUNK)
    assert many < 1.1 * few
