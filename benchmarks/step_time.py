"""Time of a training step and peak memory beyond the data, for more and more rows.

Each size is fitted twice in processes of its own, from memory-mapped files: once for the time,
once under tracemalloc, which counts the arrays of NumPy but not the pages of the files.
"""

import json
import subprocess
import sys
import tempfile
import tracemalloc
from itertools import islice
from pathlib import Path
from time import perf_counter
from unittest import mock

import numpy as np
from common import Report, parser, smooth_data

#: Rows generated at once.
CHUNK = 100_000


def main():
    cli = parser(__doc__)
    cli.add_argument("--rows", type=float, nargs="+", default=[2e4, 2e5, 2e6])
    cli.add_argument("--features", type=int, default=8)
    cli.add_argument("--n-inducing", type=int, default=500)
    cli.add_argument("--batch-size", type=int, default=2000, help="a divisor of all --rows")
    cli.add_argument("--steps", type=int, default=500, help="a fit ends after so many steps")
    cli.add_argument("--only", choices=["time", "memory"], help="fit once, in this process")
    cli.add_argument("--folder", type=Path, help="where X.npy and y.npy are, for --only")
    args = cli.parse_args()
    if args.only is not None:
        print(json.dumps(MEASURES[args.only](args)))
        return
    report = Report(args.json)
    reference = None
    for n in map(int, args.rows):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), n, args.features)
            time, memory = (measured_apart(only, folder, args) for only in MEASURES)
        reference = reference or time["median"]
        report.add(
            rows=n,
            steps=time["steps"],
            **{
                "step ms (median)": 1e3 * time["median"],
                "relative": time["median"] / reference,
                "step ms (mean)": 1e3 * time["mean"],
                "peak of steps MiB": memory["steps"] / 2**20,
                "peak of fit MiB": memory["fit"] / 2**20,
                "data MiB": memory["data"] / 2**20,
            },
        )


def write(folder, n, d):
    """Synthetic data as two files, without holding it in memory."""
    new = np.lib.format.open_memmap
    X, y = new(folder / "X.npy", "w+", float, (n, d)), new(folder / "y.npy", "w+", float, (n,))
    rng = np.random.default_rng(0)
    for start in range(0, n, CHUNK):
        rows = slice(start, min(start + CHUNK, n))
        X[rows], y[rows] = smooth_data(rows.stop - start, d, rng)


def measured_apart(only, folder, args):
    options = {"folder": folder, "n-inducing": args.n_inducing, "batch-size": args.batch_size}
    command = [sys.executable, __file__, "--only", only, "--steps", str(args.steps)]
    command += [f"--{name}={value}" for name, value in options.items()]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def measure_time(args):
    stamps = []
    fit(args, on_step=lambda: stamps.append(perf_counter()))
    durations = np.diff(stamps)
    return {
        "steps": len(stamps),
        "median": float(np.median(durations)),
        "mean": float(np.mean(durations)),
    }


def measure_memory(args):
    peaks = []  # so far: all before the first step, then of each step

    def on_step():
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()

    X, y = fit(args, on_step=on_step, traced=True)
    after = tracemalloc.get_traced_memory()[1]
    return {
        "steps": max(peaks[1:], default=after),
        "fit": max([*peaks, after]),
        "data": X.nbytes + y.nbytes,
    }


def fit(args, on_step, traced=False):
    """Fit a regressor, and call ``on_step`` when a step gets its rows; returns the data."""
    from skvbgp import VBDTCRegressor
    from skvbgp.sgpr._data import Data

    X, y = (np.load(args.folder / f"{name}.npy", mmap_mode="r") for name in "Xy")
    passes = -(-args.steps * args.batch_size // len(X))
    model = VBDTCRegressor(
        args.n_inducing,
        solver="stochastic",
        batch_size=args.batch_size,
        max_iter=passes,
        tol=0.0,
        random_state=0,
    )
    minibatches = Data.minibatches

    def observed(self, batch_size, rng):
        for batch in islice(minibatches(self, batch_size, rng), args.steps):
            on_step()
            yield batch

    # the first fit imports what is needed, in the second that is no part of the memory
    VBDTCRegressor(10, solver="stochastic", max_iter=1).fit(X[:200], y[:200])
    if traced:
        tracemalloc.start()
    with mock.patch.object(Data, "minibatches", observed):
        model.fit(X, y)
    return X, y


MEASURES = {"time": measure_time, "memory": measure_memory}


if __name__ == "__main__":
    main()
