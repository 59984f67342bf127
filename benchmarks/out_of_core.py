"""Fit from memory-mapped files and from a stream of chunks: time and peak memory as n grows."""

import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
from common import Report, parser, smooth_data
from numpy.lib.format import open_memmap
from sklearn.base import clone

from skvbgp import SVBSSGPRegressor, VBDTCRegressor, VBPICRegressor

D = 8
CHUNK = 50_000


def chunks(n):
    rng = np.random.default_rng(0)
    for start in range(0, n, CHUNK):
        yield start, *smooth_data(min(CHUNK, n - start), D, rng)


def write(n, folder):
    """Files of n rows."""
    X = open_memmap(folder / "X.npy", "w+", np.float64, (n, D))
    y = open_memmap(folder / "y.npy", "w+", np.float64, (n,))
    for start, X_chunk, y_chunk in chunks(n):
        X[start : start + CHUNK], y[start : start + CHUNK] = X_chunk, y_chunk


def fit_memory_map(model, n, folder):
    model.fit(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in "Xy"))


def fit_stream(model, n, folder):
    for _, X, y in chunks(n):
        model.partial_fit(X, y)


def cases(m):
    options = {"max_iter": 1, "random_state": 0}
    yield "VBDTC, fit on a memory map", fit_memory_map, VBDTCRegressor(m, **options)
    yield "VBDTC, partial_fit of chunks", fit_stream, VBDTCRegressor(m, **options)
    yield "VBPIC, fit on a memory map", fit_memory_map, VBPICRegressor(m, **options)
    yield "SVBSSGP, fit on a memory map", fit_memory_map, SVBSSGPRegressor(m, **options)


def measured(train, model, n, folder):
    """Seconds of training, and its peak memory from a second run, which is traced and slower."""
    start = time.perf_counter()
    train(clone(model), n, folder)
    seconds = time.perf_counter() - start
    tracemalloc.start()
    train(model, n, folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"peak MB": peak / 1e6, "seconds": seconds}


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, nargs="+", default=[200_000, 800_000])
    arguments.add_argument("--n-inducing", type=int, default=50)
    options = arguments.parse_args()
    report = Report(options.json)
    for n in options.rows:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(n, folder)
            for case, train, model in cases(options.n_inducing):
                row = measured(train, model, n, folder)
                report.add(case=case, n=n, **{"data MB": n * 8 * (D + 1) / 1e6}, **row)


if __name__ == "__main__":
    main()
