"""Dask: steps and predictions with one worker and with two, and memory of the client as n grows.

The speed of two workers against one, in some three minutes of an idle machine of two cores:
``--memory-rows --neighbour-rows --block-rows``. Rows come in chunks of 50,000: an even number of
chunks is as much for each of two workers.
"""

import os
import resource
import subprocess
import sys
import time

import dask
import dask.array as da
import numpy as np
from common import Report, parser
from distributed import Client, LocalCluster, wait
from sklearn.base import clone

from skvbgp import VBDTCRegressor, VBGPRegressor, VBPICRegressor

D = 8
CHUNK = 50_000


def make_collections(n, seed=0):
    """Rows that are made on the workers."""
    rng = da.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, D), chunks=(CHUNK, D))
    noise = 0.1 * rng.standard_normal(n, chunks=CHUNK)
    return X, da.sin(3.0 * X[:, 0]) + X[:, 1] * X[:, 2] + noise


def start_cluster(n_workers):
    # rows that a model keeps are not Dask's to move to disk, so that a worker that waits for memory
    # would wait for ever
    dask.config.set({f"distributed.worker.memory.{what}": False for what in ("spill", "pause")})
    return LocalCluster(
        n_workers=n_workers, threads_per_worker=1, memory_limit="2GB", dashboard_address=None
    )


class StepTimes:
    """A callback that notes when passes end."""

    def __init__(self):
        self.ends = []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.ends.append(time.perf_counter())

    def teardown(self, estimator, context):
        pass


def measure_speed(n_workers, n, m, batch_size):
    """Seconds of a step, the average of the second pass and those after it, and of predictions.

    These are of mean and standard deviation, of all rows; those of a million follow by proportion.
    """
    X, y = make_collections(n)
    times = StepTimes()
    model = VBDTCRegressor(m, max_iter=3, batch_size=batch_size, tol=0.0, random_state=0)
    with start_cluster(n_workers) as cluster, Client(cluster):
        X, y = X.persist(), y.persist()
        wait([X, y])
        model.set_callbacks(times).fit(X, y)
        model.set_callbacks()
        model.predict(X[:: CHUNK // 10]).sum().compute()  # workers have imported what they need
        start = time.perf_counter()
        mean, std = model.predict(X, return_std=True)
        da.compute(mean.sum(), std.sum())
        predicting = time.perf_counter() - start
    step = (times.ends[2] - times.ends[0]) / (2 * round(n / batch_size))
    return {
        "step ms": 1e3 * step,
        "predictions s": predicting,
        "rows/s predicted": n / predicting,
        "s for 1e6": 1e6 * predicting / n,
    }


def measure_memory(n, m, batch_size):
    """Peak memory of the client's process, with the scheduler in another one, and seconds."""
    before = peak_memory()
    X, y = make_collections(n)
    model = VBDTCRegressor(m, max_iter=1, batch_size=batch_size, random_state=0)
    start = time.perf_counter()
    model.fit(X, y)
    return {
        "before MB": before,
        "peak MB": peak_memory(),
        "seconds": time.perf_counter() - start,
    }


#: Models that keep their rows on the workers, and tasks of a lazy prediction: of blocks few, as
#: each task needs the factors of all.
KEEPERS = {
    "neighbours": (VBGPRegressor(random_state=0), 20),
    "blocks": (VBPICRegressor(100, batch_size=4000, max_iter=1, random_state=0), 2),
}


def measure_keeper(name, n, n_places):
    """Seconds of a fit and of predictions, in CPU time of the client, too."""
    before = peak_memory()
    model, n_tasks = KEEPERS[name]
    X, y = make_collections(n)
    places, truth = (values.persist() for values in make_collections(n_places, seed=1))
    wait([places, truth])
    seconds, cpu = time.perf_counter(), time.process_time()
    model = clone(model).fit(X, y)
    row = {
        "before MB": before,
        "fit s": time.perf_counter() - seconds,
        "client's s": time.process_time() - cpu,
        "fit peak MB": peak_memory(),
    }
    lazy = model.predict(places.rechunk((n_places // n_tasks, D)))  # tasks for both workers
    seconds = time.perf_counter()
    mean = lazy.compute()
    row["lazy predictions s"] = time.perf_counter() - seconds
    rows = places.compute()
    seconds = time.perf_counter()
    difference = np.abs(model.predict(rows) - mean).max()
    row["predictions s"] = time.perf_counter() - seconds
    error = np.sqrt(np.mean((mean - truth.compute()) ** 2))
    k = getattr(model, "n_neighbors_", None)
    return {**row, "peak MB": peak_memory(), "k": k, "RMSE": error, "difference": difference}


def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def in_another_process(function, *arguments):
    """What a function of this module returns, of a client that has done nothing else."""
    code = f"import dask_scaling as d; print(d.{function}{arguments})"
    folder = os.path.dirname(os.path.abspath(__file__))
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    return eval(run.stdout.splitlines()[-1], {"np": np})  # a dictionary of numbers


def measure_memory_of_client(address, n, m, batch_size):
    with Client(address):
        return measure_memory(n, m, batch_size)


def measure_keeper_of_client(address, name, n, n_places):
    with Client(address):
        return measure_keeper(name, n, n_places)


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    arguments.add_argument("--rows", type=int, default=400_000)
    arguments.add_argument("--n-inducing", type=int, default=500)
    arguments.add_argument("--batch-size", type=int, nargs="+", default=[8192])
    arguments.add_argument("--memory-rows", type=int, nargs="*", default=[2_000_000, 20_000_000])
    arguments.add_argument("--neighbour-rows", type=int, nargs="*", default=[1_000_000, 5_000_000])
    arguments.add_argument("--block-rows", type=int, nargs="*", default=[100_000])
    arguments.add_argument("--places", type=int, default=10_000)
    options = arguments.parse_args()
    report = Report(options.json)
    m = options.n_inducing
    for batch_size in options.batch_size:
        first = None
        for n_workers in options.workers:
            row = measure_speed(n_workers, options.rows, m, batch_size)
            first = first or row
            gains = {
                "steps faster": first["step ms"] / row["step ms"],
                "predictions faster": row["rows/s predicted"] / first["rows/s predicted"],
            }
            report.add(case="speed", workers=n_workers, m=m, batch=batch_size, **row, **gains)
    for n in options.memory_rows:
        with start_cluster(2) as cluster:
            row = in_another_process(
                "measure_memory_of_client", cluster.scheduler_address, n, 50, 8192
            )
        report.add(case="memory", n=n, **{"data MB": n * 8 * (D + 1) / 1e6}, **row)
    kept = {"neighbours": options.neighbour_rows, "blocks": options.block_rows}
    for name, n in ((name, n) for name, sizes in kept.items() for n in sizes):
        with start_cluster(2) as cluster:
            row = in_another_process(
                "measure_keeper_of_client", cluster.scheduler_address, name, n, options.places
            )
        report.add(case=name, n=n, **{"data MB": n * 8 * (D + 1) / 1e6}, **row)
    print("load", os.getloadavg())


if __name__ == "__main__":
    main()
